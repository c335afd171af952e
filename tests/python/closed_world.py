#!/usr/bin/env python3
"""Writes the events of a small world, whose months closed.py closes: a node with pods, a commitment and a
reservation, for a few hours at the end of each month.

usage: tests/python/closed_world.py FOLDER

FOLDER/world has August and September, FOLDER/late a pod of August, and FOLDER/october October.
"""

import environment

environment.enter("archive")

import json
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path

import fastavro

SCHEMAS = environment.HERE.parent.parent / "schemas" / "events"
# The name of a folder or an object cannot have all of these characters.
ORGANIZATION = "Acme & Co."
CLUSTER, NODE, REGION = "prod", "aws:///us-east-1a/i-0a1b2c3d", "us-east-1"
HOUR = timedelta(hours=1)

# A kind of event, and its fields besides the organization.
Event = tuple[str, dict]


def at(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def pod(name: str, begin: datetime, end: datetime, cpu: str) -> Iterator[Event]:
    ids = {"cluster_id": CLUSTER, "namespace": "web", "pod_uid": f"{name}-{begin:%Y%m%d}"}
    sizes = {"requests": {"cpu": cpu, "memory": "4Gi"}, "limits": {}, "labels": {"app": name}}
    times = {"event_time": begin, "created_at": begin}
    yield "pod_started", {**ids, **sizes, **times, "pod_name": name, "node_id": NODE}
    yield "pod_stopped", {**ids, "event_time": end}


def burst(begin: datetime, hours: int) -> Iterator[Event]:
    """A node that runs for some hours with two pods."""
    end = begin + hours * HOUR
    ids = {"cluster_id": CLUSTER, "node_id": NODE}
    yield "node_started", {
        **ids,
        "event_time": begin,
        "node_name": "node-1",
        "provider": "aws",
        "region": REGION,
        "zone": "us-east-1a",
        "instance_type": "m5.xlarge",
        "instance_family": "m5",
        "capacity_type": "ON_DEMAND",
        "capacity": {"cpu": "4", "memory": "16Gi"},
        "hourly_cost": Decimal(1),
        "currency": "USD",
        "resource_key": "i-0a1b2c3d",
        "account_id": "111122223333",
    }
    yield from pod("front", begin, end, "1")
    yield from pod("back", begin + HOUR, end, "500m")
    yield "node_stopped", {**ids, "event_time": end}


def agreements(begin: datetime, hours: int) -> Iterator[Event]:
    """A commitment and a reservation without an end, which are deleted after some hours."""
    end = begin + hours * HOUR
    common = {"event_time": begin, "provider": "aws", "region": REGION, "currency": "USD", "starts_at": begin}
    yield "commitment_set", {
        **common,
        "commitment_id": "ri-1",
        "name": "Machines",
        "kind": "RESERVED_INSTANCE",
        "instance_family": "c5",
        "vcpu": Decimal(4),
        "memory_gib": Decimal(8),
        "hourly_cost": Decimal("0.1"),
        "enabled": True,
        "assignments": [{"cluster_id": CLUSTER}],
    }
    yield "commitment_deleted", {"event_time": end, "commitment_id": "ri-1"}
    yield "reservation_set", {
        **common,
        "reservation_id": "cr-1",
        "name": "Training",
        "gpu_model": "A100",
        "capacity": {"cpu": "8", "memory": "64Gi", "nvidia.com/gpu": "1"},
        "quantity": 1,
        "unit_hourly_price": Decimal("0.5"),
        "created_at": begin,
    }
    yield "reservation_released", {"event_time": end, "reservation_id": "cr-1"}


def write(folder: Path, *parts: Iterator[Event]) -> None:
    """Writes a file of each kind of events."""
    by_kind: dict[str, list[dict]] = {}
    for part in parts:
        for kind, event in part:
            by_kind.setdefault(kind, []).append({"organization_id": ORGANIZATION, **event})
    folder.mkdir(parents=True)
    for kind, events in by_kind.items():
        schema = fastavro.parse_schema(json.loads((SCHEMAS / f"{kind}.avsc").read_text()))
        with (folder / f"{kind}.avro").open("wb") as file:
            fastavro.writer(file, schema, events)


def main() -> None:
    if len(sys.argv) != 2 or sys.argv[1].startswith("-"):
        sys.exit("usage: tests/python/closed_world.py FOLDER")
    folder = Path(sys.argv[1])
    august, september = at("2026-08-31T20:00"), at("2026-09-30T22:00")
    write(folder / "world", burst(august, 4), agreements(august, 4), burst(september, 4))
    write(folder / "late", pod("batch", august + HOUR, august + 2 * HOUR, "2"))
    write(folder / "october", burst(at("2026-10-31T22:00"), 4))


if __name__ == "__main__":
    main()
