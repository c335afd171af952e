#!/usr/bin/env python3
"""Writes valid events of an organization that no hour can be folded with: a pool's pod with a charge beyond
measure, under rules with a factor of 10^16.

usage: greedy.py FOLDER HOUR (in the environment `archive`)
"""

import datetime
import decimal
import json
import sys
from pathlib import Path

import fastavro

SCHEMAS = Path(__file__).resolve().parents[2] / "schemas" / "events"


def write(folder: Path, kind: str, event: dict) -> None:
    schema = fastavro.parse_schema(json.loads((SCHEMAS / f"{kind}.avsc").read_text()))
    with (folder / f"{kind}.avro").open("wb") as file:
        fastavro.writer(file, schema, [event])


def main() -> None:
    folder, hour = Path(sys.argv[1]), datetime.datetime.fromisoformat(f"{sys.argv[2]}:00:00+00:00")
    own = {"organization_id": "greedy", "event_time": hour, "cluster_id": "c", "pool_id": "p"}
    price = {
        "qos": "default",
        "per_fp16_tflop_hour": decimal.Decimal(1_000),
        "per_vram_gib_hour": decimal.Decimal(0),
        "limits_over_requests": decimal.Decimal(1),
    }
    pool = {"provider": "aws", "default_qos": "default", "qos_pricing": [price], "currency": "USD"}
    write(folder, "pool_set", own | pool)
    pod = {
        "namespace": "ns",
        "pod_name": "greedy",
        "pod_uid": "greedy",
        "created_at": hour,
        # The most that an event may say.
        "requests": {"tensor-fusion.ai/tflops": "100M"},
        "limits": {},
        "labels": {},
        "eviction_protected_until": hour + datetime.timedelta(days=1),
    }
    write(folder, "pod_started", own | pod)


if __name__ == "__main__":
    main()
