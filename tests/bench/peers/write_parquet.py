#!/usr/bin/env python3
"""PyArrow writing the rows of a lake again: the same rows, as many files, the same settings.

usage: write_parquet.py LAKE TARGET

Reads all tables first, and prints as JSON what only the writing took: processor time in seconds.
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "python"))

import environment

environment.enter("readers")

import json
import resource

import pyarrow as pa
import pyarrow.parquet as pq

TABLES = (
    *("cost_allocation", "reservation_usage", "commitment_utilization", "quota_usage", "pool_usage"),
    "hours",
)


def processor_seconds() -> float:
    """What this process has used so far."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def with_dictionary(file: pq.ParquetFile) -> list[str]:
    """The columns that have a dictionary in the file."""
    group = file.metadata.row_group(0)
    columns = [group.column(index) for index in range(group.num_columns)]
    return [column.path_in_schema for column in columns if column.has_dictionary_page]


def main() -> None:
    lake, target = Path(sys.argv[1]), Path(sys.argv[2])
    pa.set_cpu_count(1)
    tables, dictionaries = {}, {}
    for name in TABLES:
        for path in sorted((lake / name).rglob("*.parquet")):
            file = pq.ParquetFile(path)
            tables[path.relative_to(lake)] = file.read(use_threads=False)
            dictionaries[path.relative_to(lake)] = with_dictionary(file)
    for path in tables:
        (target / path).parent.mkdir(parents=True, exist_ok=True)
    before = processor_seconds()
    for path, table in tables.items():
        pq.write_table(
            table,
            target / path,
            compression="zstd",
            compression_level=1,
            use_dictionary=dictionaries[path],
            write_page_index=True,
            row_group_size=1_000_000,
        )
    rows = sum(table.num_rows for table in tables.values())
    print(json.dumps({"seconds": processor_seconds() - before, "files": len(tables), "rows": rows}))


if __name__ == "__main__":
    main()
