#!/usr/bin/env python3
"""Makes a month of three bills with koku-nise, and the nodes and pods of the same worlds as events.

usage: tests/python/bills_world.py FOLDER

The worlds are described in testdata/bills. For each provider, FOLDER/PROVIDER gets:

- bill.csv: the bill as the provider exports it
- pods.csv, nodes.csv: nise's reports of pods and of labels of nodes, by hour
- keys.json: the resource key of each node
- events/*.avro: starts and stops of nodes and pods

Two runs make the same bills and events.
"""

import os

# Some columns depend on the order of sets.
os.environ["PYTHONHASHSEED"] = "0"

import environment

environment.enter("nise")

import csv
import json
import logging
import random
import sys
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from pathlib import Path

import fastavro
from faker import Faker
from nise.__main__ import main as nise
from nise.util import LOG

ROOT = environment.HERE.parent.parent
WORLDS = ROOT / "testdata" / "bills"
SCHEMAS = ROOT / "schemas" / "events"

# Further arguments of nise, region and zone.
PROVIDERS = {
    "aws": ([], "us-east-1", "us-east-1a"),
    "azure": ([], "eastus", None),
    "gcp": (["--resource-level"], "us-central1", "us-central1-a"),
}
ORGANIZATION = "nise"
HOUR = timedelta(hours=1)
# No bill has this price: where it is in a table, a line was missed.
ESTIMATE = Decimal(1)
INSTANCE_TYPE = "label_node_kubernetes_io_instance_type:"


def rows_of(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def generate(folder: Path, report: str, *arguments: str) -> list[Path]:
    """Runs nise in an empty folder, and returns the files that it wrote, the largest first."""
    folder.mkdir(parents=True)
    os.chdir(folder)
    random.seed(1)
    Faker.seed(1)
    sys.argv = ["nise", "report", report, "--write-monthly", *arguments]
    nise()
    return sorted(folder.glob("*.csv"), key=lambda path: -path.stat().st_size)


def reports(folder: Path, provider: str, more: list[str]) -> None:
    """Writes the bill and the reports of the cluster."""
    bill, *_ = generate(
        folder / "bill", provider, "--static-report-file", str(WORLDS / f"{provider}.yaml"), *more
    )
    bill.rename(folder / "bill.csv")
    pods = str(WORLDS / f"{provider}-pods.yaml")
    cluster = f"{ORGANIZATION}-{provider}"
    files = generate(folder / "pods", "ocp", "--static-report-file", pods, "--ocp-cluster-id", cluster)
    for name, kind in [("pods.csv", "ocp_pod_usage.csv"), ("nodes.csv", "ocp_node_label.csv")]:
        # nise also writes the next month, which is empty.
        report = next(path for path in files if path.name.endswith(kind))
        report.rename(folder / name)


def hour_of(row: dict[str, str]) -> datetime:
    return datetime.strptime(row["interval_start"], "%Y-%m-%d %H:%M:%S +0000 UTC").replace(tzinfo=UTC)


def keys(provider: str, bill: Iterable[dict[str, str]], pods: Iterable[dict[str, str]]) -> dict[str, str]:
    """The resource key of each node. At Azure and Google, a node has the name of its machine."""
    nodes = {row["node"]: row["resource_id"] for row in pods}
    if provider == "aws":
        return nodes
    found = {}
    for row in bill:
        if provider == "azure":
            key = "/" + row["ResourceId"].lower().lstrip("/")
            is_machine = "/virtualmachines/" in key
        else:
            is_machine = "/instances/" in row["resource.name"]
            key = f"{row['location.zone']}/{row['resource.name'].split('/')[-1]}"
        if is_machine:
            found[key.split("/")[-1]] = key
    return {node: found[node] for node in nodes}


def stretches(hours: dict[datetime, tuple]) -> Iterator[tuple[datetime, datetime, tuple]]:
    """Hours that follow each other and have the same value: their begin, their end and the value."""
    begin = None
    for hour in sorted(hours):
        if begin is None:
            begin = hour
        if hours.get(hour + HOUR) != hours[hour]:
            yield begin, hour + HOUR, hours[hour]
            begin = None


def whole(number: Fraction) -> int:
    if number.denominator != 1:
        sys.exit(f"{number} is not a whole number: choose other requests in {WORLDS}")
    return number.numerator


def node_events(provider: str, folder: Path) -> Iterator[tuple[str, dict]]:
    """Starts and stops of nodes. The report of labels has each node in each of its hours."""
    _, region, zone = PROVIDERS[provider]
    keys_of = json.loads((folder / "keys.json").read_text())
    capacities = {}
    for row in rows_of(folder / "pods.csv"):
        capacities[row["node"]] = {
            "cpu": row["node_capacity_cpu_cores"],
            "memory": row["node_capacity_memory_bytes"],
        }
    hours: dict[str, dict[datetime, tuple]] = {}
    for row in rows_of(folder / "nodes.csv"):
        hours.setdefault(row["node"], {})[hour_of(row)] = (row["node_labels"].removeprefix(INSTANCE_TYPE),)
    for node, of_node in hours.items():
        ids = {
            "organization_id": ORGANIZATION,
            "cluster_id": f"{ORGANIZATION}-{provider}",
            "node_id": f"{provider}:///{keys_of[node]}",
        }
        for begin, end, (instance_type,) in stretches(of_node):
            yield "node_started", {
                **ids,
                "event_time": begin,
                "node_name": node,
                "provider": provider,
                "region": region,
                "zone": zone,
                "instance_type": instance_type,
                "instance_family": instance_type.split(".")[0],
                "capacity_type": "ON_DEMAND",
                "capacity": capacities[node],
                "hourly_cost": ESTIMATE,
                "currency": "USD",
                "resource_key": keys_of[node],
            }
            yield "node_stopped", {**ids, "event_time": end}


def pod_events(provider: str, folder: Path) -> Iterator[tuple[str, dict]]:
    """Starts and stops of pods.

    The report has requests x seconds of each hour, but not the seconds. So a pod runs for the whole hour with
    the mean of its requests: what it is allocated is the same.
    """
    keys_of = json.loads((folder / "keys.json").read_text())
    hours: dict[tuple, dict[datetime, tuple]] = {}
    for row in rows_of(folder / "pods.csv"):
        cpu = whole(Fraction(row["pod_request_cpu_core_seconds"]) * 1000 / 3600)
        memory = whole(Fraction(row["pod_request_memory_byte_seconds"]) / 3600)
        pod = (row["node"], row["namespace"], row["pod"])
        hours.setdefault(pod, {})[hour_of(row)] = (f"{cpu}m", str(memory))
    for (node, namespace, name), of_pod in hours.items():
        for number, (begin, end, (cpu, memory)) in enumerate(stretches(of_pod), 1):
            ids = {
                "organization_id": ORGANIZATION,
                "cluster_id": f"{ORGANIZATION}-{provider}",
                "namespace": namespace,
                "pod_uid": f"{node}-{name}-{number}",
            }
            yield "pod_started", {
                **ids,
                "event_time": begin,
                "pod_name": name,
                "created_at": begin,
                "node_id": f"{provider}:///{keys_of[node]}",
                "requests": {"cpu": cpu, "memory": memory},
                "limits": {},
                "labels": {},
            }
            yield "pod_stopped", {**ids, "event_time": end}


def write_events(folder: Path, events: Iterable[tuple[str, dict]]) -> int:
    """Writes one file of each kind of events, and returns how many events there are."""
    by_kind: dict[str, list[dict]] = {}
    for kind, event in events:
        by_kind.setdefault(kind, []).append(event)
    folder.mkdir()
    for kind, records in by_kind.items():
        schema = fastavro.parse_schema(json.loads((SCHEMAS / f"{kind}.avsc").read_text()))
        with (folder / f"{kind}.avro").open("wb") as file:
            fastavro.writer(file, schema, records, sync_marker=bytes(16))
    return sum(map(len, by_kind.values()))


def main() -> None:
    if len(sys.argv) != 2 or sys.argv[1].startswith("-"):
        sys.exit("usage: tests/python/bills_world.py FOLDER")
    target = Path(sys.argv[1]).resolve()
    LOG.setLevel(logging.WARNING)
    for provider, (more, *_) in PROVIDERS.items():
        folder = target / provider
        reports(folder, provider, more)
        bill, pods = rows_of(folder / "bill.csv"), rows_of(folder / "pods.csv")
        (folder / "keys.json").write_text(json.dumps(keys(provider, bill, pods), indent=1))
        events = write_events(
            folder / "events", [*node_events(provider, folder), *pod_events(provider, folder)]
        )
        print(f"{provider}: {len(bill)} lines, {len(pods)} hours of pods, {events} events")


if __name__ == "__main__":
    main()
