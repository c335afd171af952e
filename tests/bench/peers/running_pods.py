#!/usr/bin/env python3
"""Counts the pods that run at an instant, and the mean size of the messages that started them, as JSON.

usage: running_pods.py LAKE INSTANT

Reads the archive of a lake. A message has ten bytes more than the event in it.
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "python"))

import environment

environment.enter("archive")

import io
import json
from datetime import datetime, timezone

import fastavro

HEADER_BYTES = 10
SCHEMAS = Path(__file__).resolve().parents[3] / "schemas" / "events"


def main() -> None:
    lake, instant = Path(sys.argv[1]), datetime.fromisoformat(sys.argv[2]).replace(tzinfo=timezone.utc)
    schema = fastavro.parse_schema(json.loads((SCHEMAS / "pod_started.avsc").read_text()))
    started, stopped = {}, set()
    for path in sorted((lake / "events").rglob("*.avro")):
        with path.open("rb") as file:
            for name, event in fastavro.reader(file, return_record_name=True):
                if event["event_time"] > instant:
                    continue
                if name.endswith("PodStarted"):
                    body = io.BytesIO()
                    fastavro.schemaless_writer(body, schema, event)
                    started[event["pod_uid"]] = HEADER_BYTES + body.tell()
                elif name.endswith("PodStopped"):
                    stopped.add(event["pod_uid"])
    running = [size for pod, size in started.items() if pod not in stopped]
    print(json.dumps({"pods": len(running), "message_bytes": sum(running) / len(running)}))


if __name__ == "__main__":
    main()
