#!/usr/bin/env python3
"""Writes the clean part of a lake's archive: nodes, pods on nodes and samples of their use.

usage: clean_events.py LAKE TARGET

TARGET/events has it as Avro files for prorata; TARGET/*.csv have it typed and joined for peers: one line for
each run of a node or pod with its end, quantities as whole numbers. Each object has one description and one
run, and there are no duplicates, pools or late stops. This is preparation and is not measured.
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "python"))

import environment

environment.enter("archive")

import csv
import json
import re
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime, timezone
from fractions import Fraction
from itertools import groupby
from math import ceil

import fastavro

LIVES = ("NodeStarted", "NodeStopped", "PodStarted", "PodStopped")
USAGE = ("PodUsage",)
FILE_EVENTS = 100_000
SUFFIXES = {"n": Fraction(1, 10**9), "u": Fraction(1, 10**6), "m": Fraction(1, 1000), "": Fraction(1)}
SUFFIXES |= {letter: Fraction(1000 ** (power + 1)) for power, letter in enumerate("kMGTPE")}
SUFFIXES |= {f"{letter}i": Fraction(1024 ** (power + 1)) for power, letter in enumerate("KMGTPE")}
GPUS = ("nvidia.com/gpu", "amd.com/gpu", "aws.amazon.com/neuron", "google.com/tpu")
EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


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


def archived(files: Iterable[Path], kinds: tuple[str, ...], schemas: dict[str, dict]) -> Iterator[tuple]:
    """The events of some kinds in files of the archive, each with its kind. Adds to the schemas by kind."""
    for path in files:
        with path.open("rb") as file:
            reader = fastavro.reader(file, return_record_name=True)
            schemas |= {schema["name"].rsplit(".", 1)[-1]: schema for schema in reader.writer_schema}
            for name, event in reader:
                if (kind := name.rsplit(".", 1)[-1]) in kinds:
                    yield kind, event


def time(event: dict) -> datetime:
    """The time of an event, by which events are sorted."""
    return event["event_time"]


def node_key(event: dict) -> tuple:
    """Organization, cluster and node."""
    return event["organization_id"], event["cluster_id"], event["node_id"]


def pod_key(event: dict) -> tuple:
    """Organization and pod."""
    return event["organization_id"], event["pod_uid"]


def first_stops(started: dict, stopped: list[dict], key: Callable[[dict], tuple]) -> dict:
    """The first stop of each object after its start."""
    stops = {}
    for event in stopped:
        start = started.get(key(event))
        if start and start["event_time"] < event["event_time"]:
            stops.setdefault(key(event), event)
    return stops


def clean(events: dict[str, list[dict]]) -> dict[str, dict]:
    """The events that are kept, by kind and key."""
    nodes = {}
    for event in events["NodeStarted"]:
        nodes.setdefault(node_key(event), event | {"pool_id": None, "gpus": None, "gpu_sharing": None})
    node_stops = first_stops(nodes, events["NodeStopped"], node_key)
    pods = {}
    for event in events["PodStarted"]:
        node, stop = nodes.get(node_key(event)), node_stops.get(node_key(event))
        at = event["event_time"]
        runs = node and node["event_time"] <= at and (not stop or at < stop["event_time"])
        if runs and not event["pool_id"]:
            pods.setdefault(pod_key(event), event | {"gpus": None, "gpu_sharing": None})
    pod_stops = first_stops(pods, events["PodStopped"], pod_key)
    return dict(zip(LIVES, (nodes, node_stops, pods, pod_stops), strict=True))


def samples(files: list[Path], pods: dict, target: Path) -> Iterator[tuple]:
    """Writes the samples of these pods as Avro, an hour at a time because there may be very many of them, and
    yields their lines for peers."""
    schemas = {}
    files = sorted(files, key=hour)
    for (date, number), of_hour in groupby(files, key=hour):
        found = {
            (*pod_key(event), event["event_time"]): event
            for _, event in archived(of_hour, USAGE, schemas)
            if pod_key(event) in pods and event["event_time"] < event["interval_end"]
        }
        ordered = sorted(found.values(), key=time)
        write_avro(target / f"PodUsage-{date}-{number}", schemas["PodUsage"], ordered)
        for event in ordered:
            yield (
                *pod_key(event), micros(event["event_time"]), micros(event["interval_end"]),
                event["cpu_millis"], event["memory_bytes"], event["gpu_millis"],
            )


def hour(path: Path) -> tuple[str, ...]:
    """Date and hour of a file of the archive, which has a folder for each shard and hour of event time."""
    return path.parts[-3:-1]


def write_avro(name: Path, schema: dict, events: list[dict]) -> None:
    """Writes events of one kind."""
    for first in range(0, len(events), FILE_EVENTS):
        with name.with_name(f"{name.name}-{first:09}.avro").open("wb") as file:
            fastavro.writer(file, schema, events[first : first + FILE_EVENTS], codec="zstandard")


def end(stops: dict, key: tuple) -> int | None:
    """The time of a stop."""
    return micros(stops[key]["event_time"]) if key in stops else None


def labels(event: dict) -> str | None:
    """The labels of a pod as JSON."""
    found = dict(sorted(event["labels"].items()))
    return json.dumps(found, separators=(",", ":"), ensure_ascii=False) if found else None


NODE_TEXTS = (
    *("node_name", "provider", "region", "zone", "instance_type", "instance_family", "capacity_type"),
    *("gpu_model", "currency", "resource_key", "account_id"),
)
POD_TEXTS = "namespace", "pod_name", "qos", "workload_kind", "workload_name"
SIZE = "cpu", "memory", "gpu"


def write_csv(path: Path, columns: tuple, lines: Iterable[tuple]) -> None:
    """Writes a table with a header."""
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(columns)
        writer.writerows(lines)


def main() -> None:
    lake, target = Path(sys.argv[1]), Path(sys.argv[2])
    files = sorted((lake / "events").rglob("*.avro"))
    events, schemas = {kind: [] for kind in LIVES}, {}
    for kind, event in archived(files, LIVES, schemas):
        events[kind].append(event)
    for found in events.values():
        found.sort(key=time)
    kept = clean(events)
    (target / "events").mkdir(parents=True)
    for kind, found in kept.items():
        write_avro(target / "events" / kind, schemas[kind], sorted(found.values(), key=time))
    nodes, node_stops, pods, pod_stops = kept.values()
    write_csv(
        target / "nodes.csv",
        ("organization", "cluster", "node", "since", "until", *SIZE, "hourly_cost", *NODE_TEXTS),
        [
            (*key, micros(event["event_time"]), end(node_stops, key), *size(event["capacity"]),
             event["hourly_cost"], *(event[name] for name in NODE_TEXTS))
            for key, event in nodes.items()
        ],
    )
    write_csv(
        target / "pods.csv",
        ("organization", "cluster", "node", "pod", "since", "until", *SIZE, *POD_TEXTS, "labels"),
        [
            (*node_key(event), event["pod_uid"], micros(event["event_time"]), end(pod_stops, key),
             *size(event["requests"]), *(event[name] for name in POD_TEXTS), labels(event))
            for key, event in pods.items()
        ],
    )
    columns = "organization", "pod", "since", "until", *SIZE
    write_csv(target / "samples.csv", columns, samples(files, pods, target / "events"))


if __name__ == "__main__":
    main()
