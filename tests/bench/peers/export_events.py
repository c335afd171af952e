#!/usr/bin/env python3
"""Writes the events of a lake's archive that a node split needs as CSV, with quantities as plain numbers.

usage: export_events.py LAKE CSV

This is preparation and is not measured: peers read their events ready made.
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "python"))

import environment

environment.enter("archive")

import csv
import io
import re
from collections.abc import Iterable
from datetime import datetime, timezone
from fractions import Fraction
from itertools import groupby
from math import ceil

import fastavro

SUFFIXES = {"n": Fraction(1, 10**9), "u": Fraction(1, 10**6), "m": Fraction(1, 1000), "": Fraction(1)}
SUFFIXES |= {letter: Fraction(1000 ** (power + 1)) for power, letter in enumerate("kMGTPE")}
SUFFIXES |= {f"{letter}i": Fraction(1024 ** (power + 1)) for power, letter in enumerate("KMGTPE")}
GPUS = ("nvidia.com/gpu", "amd.com/gpu", "aws.amazon.com/neuron", "google.com/tpu")
KINDS = {"NodeStarted": 2, "NodeStopped": 0, "PodStarted": 3, "PodStopped": 1, "PodUsage": 4}
EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
COLUMNS = (
    *("kind", "organization", "time", "cluster", "node", "pod", "cpu", "memory", "gpu"),
    *("hourly_cost", "interval_end"),
)


def amount(text: str, parts: int) -> int:
    """A Kubernetes quantity in whole parts of one, rounded up."""
    number, exponent, suffix = re.fullmatch(r"([+-]?[\d.]+)(?:[eE]([+-]?\d+)|([A-Za-z]*))", text).groups()
    scale = Fraction(10) ** int(exponent) if exponent else SUFFIXES[suffix]
    return ceil(Fraction(number) * scale * parts)


def size(quantities: dict[str, str]) -> tuple[int, int, int]:
    """Thousandths of a vCPU, bytes, thousandths of a GPU."""
    gpus = sum(amount(quantities.get(name, "0"), 1000) for name in GPUS)
    slices = 0
    for name, text in quantities.items():
        if profile := re.fullmatch(r"nvidia\.com/mig-(\d+)g\.\d+gb(\..+)?", name):
            slices += int(profile[1]) * amount(text, 1000)
    return amount(quantities.get("cpu", "0"), 1000), amount(quantities.get("memory", "0"), 1), gpus + round(
        Fraction(slices, 7)
    )


def micros(instant: datetime) -> int:
    """Microseconds since the epoch, without a float."""
    passed = instant - EPOCH
    return (passed.days * 86_400 + passed.seconds) * 1_000_000 + passed.microseconds


def line(name: str, event: dict) -> tuple:
    """An event as a line of the CSV."""
    head = (KINDS[name], event["organization_id"], micros(event["event_time"]))
    cluster, node, pod = event.get("cluster_id"), event.get("node_id"), event.get("pod_uid")
    if name == "PodUsage":
        use = (event["cpu_millis"], event["memory_bytes"], event["gpu_millis"])
        return (*head, None, None, pod, *use, None, micros(event["interval_end"]))
    quantities = event.get("capacity") or event.get("requests") or {}
    return (*head, cluster, node, pod, *size(quantities), event.get("hourly_cost"), None)


def body(schema: dict, event: dict) -> bytes:
    """An event's body, by which versions of it are ordered."""
    out = io.BytesIO()
    fastavro.schemaless_writer(out, schema, event)
    return out.getvalue()


def lines(files: list[Path]) -> Iterable[tuple]:
    """The lines of one shard's hour. Of events about one thing at one instant the last body stands, whatever
    file it is in."""
    found, events = {}, {}
    for path in files:
        with path.open("rb") as file:
            reader = fastavro.reader(file, return_record_name=True)
            schemas = {schema["name"]: schema for schema in reader.writer_schema}
            for name, event in reader:
                if (short := name.rsplit(".", 1)[-1]) not in KINDS:
                    continue
                made = line(short, event)
                kind, organization, time, cluster, node, pod = made[:6]
                key = kind, organization, time, (cluster, node) if pod is None else pod
                before = events.get(key)
                if before and body(schemas[name], before) > body(schemas[name], event):
                    continue
                found[key] = made
                # No pod has two samples of one instant that differ.
                if short != "PodUsage":
                    events[key] = event
    return found.values()


def main() -> None:
    lake, target = Path(sys.argv[1]), Path(sys.argv[2])
    files = sorted((lake / "events").rglob("*.avro"))
    with target.open("w", newline="") as out:
        writer = csv.writer(out)
        writer.writerow(COLUMNS)
        # The archive has a folder for each shard and hour of event time.
        for _, of_hour in groupby(files, key=lambda path: path.parent):
            writer.writerows(lines(list(of_hour)))


if __name__ == "__main__":
    main()
