#!/usr/bin/env python3
"""Reads a lake's archive of events with fastavro, which takes all metadata of a file's header as UTF-8.

Every file must be read to its end, dead letters included.
"""

import environment

environment.enter("archive")

import json
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import fastavro

# Key of the checksum of the schema, in hexadecimal.
DIGEST = "prorata.schema.sha256.hex"


def records(path: Path) -> Iterator[tuple[str, dict]]:
    """The records of a file with the names of their types."""
    with path.open("rb") as file:
        reader = fastavro.reader(file, return_record_name=True)
        if len(reader.metadata.get(DIGEST, "")) != 64:
            raise ValueError(f"its header has no {DIGEST}: {sorted(reader.metadata)}")
        for record in reader:
            yield record if isinstance(record, tuple) else ("dead letter", record)


def main() -> None:
    lake = environment.lake_argument()
    files = sorted(path for path in lake.rglob("*.avro"))
    found: Counter = Counter()
    problems = []
    for path in files:
        try:
            for name, record in records(path):
                found[name] += 1
                if name != "dead letter" and not (record["organization_id"] and record["event_time"]):
                    problems.append(f"{path}: an event without organization or time")
        except Exception as error:  # whatever a foreign reader says of our file is what we want to know
            problems.append(f"{path}: {error}")
    print(f"fastavro: {len(files)} files, {json.dumps(dict(sorted(found.items())))}")
    if not any(name.endswith("PodStarted") for name in found):
        problems.append("no pod starts in the archive")
    for problem in problems[:20]:
        print(problem, file=sys.stderr)
    sys.exit(1 if problems else 0)


if __name__ == "__main__":
    main()
