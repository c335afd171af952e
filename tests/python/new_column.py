#!/usr/bin/env python3
"""A column that a release adds: the table's log gets it, and files from before read null in it, in delta-rs
and in DuckDB. All other columns read as they would have in a lake that always had it.

Works on copies of the lake. One is made as a release without the column would have left it; then both are
restated from one hour on, with the program that PRORATA_BINARY names.
"""

import environment

environment.enter("readers")

import json
import shutil
import sys
import tempfile
from pathlib import Path

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable

import engines
from program import restate

TABLE, COLUMN = "cost_allocation", "x_PodUid"


def plain(rows: pa.Table) -> pa.Table:
    """Without Arrow's extension types, such as that of JSON, which Parquet files of pyarrow would carry."""
    for index, field in enumerate(rows.schema):
        if isinstance(field.type, pa.BaseExtensionType):
            chunks = [chunk.storage for chunk in rows.column(index).chunks]
            column = pa.chunked_array(chunks, field.type.storage_type)
            rows = rows.set_column(index, field.name, column)
    return rows


def without_column(lake: Path) -> int:
    """Takes the column out of the table's files and its log, and returns how many files there are."""
    table = lake / TABLE
    files = sorted(table.glob("date=*/*.parquet"))
    for path in files:
        rows = plain(pq.ParquetFile(path).read())
        pq.write_table(rows.drop_columns([COLUMN]), path, store_schema=False)
    for log in (table / "_delta_log").glob("*.json"):
        actions = [json.loads(line) for line in log.read_text().splitlines()]
        for action in actions:
            if metadata := action.get("metaData"):
                schema = json.loads(metadata["schemaString"])
                schema["fields"] = [field for field in schema["fields"] if field["name"] != COLUMN]
                metadata["schemaString"] = json.dumps(schema)
            if added := action.get("add"):
                path = table / added["path"]
                added["size"] = path.stat().st_size if path.exists() else added["size"]
                stats = json.loads(added["stats"])
                for kind in ("minValues", "maxValues", "nullCount"):
                    stats[kind].pop(COLUMN, None)
                added["stats"] = json.dumps(stats)
        log.write_text("".join(json.dumps(action) + "\n" for action in actions))
    return len(files)


def read_delta_rs(lake: Path) -> pl.DataFrame:
    return pl.scan_delta(DeltaTable(str(lake / TABLE))).collect()


def read_duckdb(lake: Path) -> pl.DataFrame:
    query = f"SELECT * FROM delta_scan('{lake / TABLE}')"
    return pl.from_arrow(engines.connect_duckdb().execute(query).fetch_arrow_table())


def compare(name: str, old: pl.DataFrame, always: pl.DataFrame, first: str) -> list[str]:
    """What is wrong with the table that got the column, next to the one that always had it."""
    if COLUMN not in old.columns:
        return [f"{name} does not show {COLUMN}"]
    problems = []
    later = pl.col("ChargePeriodStart").dt.strftime("%Y-%m-%dT%H") >= first
    expected = always.with_columns(pl.when(later).then(pl.col(COLUMN)).otherwise(None).alias(COLUMN))
    columns = sorted(always.columns)
    if not old.select(columns).sort(columns).equals(expected.select(columns).sort(columns)):
        problems.append(f"{name} reads other rows than null before {first} and the same elsewhere")
    for part, rows in (("before", old.filter(~later)), ("from", old.filter(later))):
        if (rows[COLUMN].null_count() == rows.height) != (part == "before") or rows.height == 0:
            problems.append(f"{name}: {COLUMN} {part} {first} proves nothing")
    return problems


def main() -> None:
    lake = environment.lake_argument()
    with tempfile.TemporaryDirectory() as folder:
        old, always = Path(folder) / "old", Path(folder) / "always"
        shutil.copytree(lake, old)
        shutil.copytree(lake, always)
        files = without_column(old)
        hours = read_delta_rs(always)["ChargePeriodStart"].dt.strftime("%Y-%m-%dT%H").unique().sort()
        first = hours[len(hours) // 2]
        restate(old, "new-column", "8", "--from", first)
        restate(always, "new-column", "8", "--from", first)
        print(f"{files} files without {COLUMN}, restated with it from {first} on")
        problems = compare("delta-rs", read_delta_rs(old), read_delta_rs(always), first)
        problems += compare("DuckDB", read_duckdb(old), read_duckdb(always), first)
    for problem in problems:
        print(problem, file=sys.stderr)
    sys.exit(1 if problems else 0)


if __name__ == "__main__":
    main()
