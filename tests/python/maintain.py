#!/usr/bin/env python3
"""After `prorata maintain`, tables read as before in Spark and DuckDB, at every version of the last
seven days, and can still be written.

Works on a copy of the lake, which it restates under other rules and makes older with the program that
PRORATA_BINARY names.
"""

import environment

environment.enter("spark")

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import engines
import spark
from program import prorata, restate

MONTH_SECONDS = 30 * 86_400


def age(lake: Path) -> None:
    """Makes every file of the lake a month older."""
    then = time.time() - MONTH_SECONDS
    for path in lake.rglob("*"):
        if path.is_file():
            os.utime(path, (then, then))


def table_files(lake: Path) -> set[Path]:
    return set(lake.glob("*/date=*/*.parquet"))


def read(session, duckdb, lake: Path) -> dict[tuple[str, str], list]:
    """All rows of all tables, by engine, sorted."""
    found = {}
    for table in engines.tables_of(lake):
        rows = session.read.format("delta").load(str(lake / table)).collect()
        found["Spark", table] = sorted(map(str, rows))
        rows = duckdb.execute(f"SELECT * FROM delta_scan('{lake / table}')").fetchall()
        found["DuckDB", table] = sorted(map(str, rows))
    return found


def main() -> None:
    lake = environment.lake_argument()
    problems = []
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "lake"
        shutil.copytree(lake, copy)
        restate(copy, "maintain-1", "8")
        age(copy)
        restate(copy, "maintain-2", "7")
        session, duckdb = spark.connect(folder), engines.connect_duckdb()
        before, files = read(session, duckdb, copy), table_files(copy)
        done = json.loads(prorata("maintain", "--json", "--lake", str(copy)))
        deleted = sum(table["files_deleted"] for table in done["tables"].values())
        print(f"{deleted} files that were replaced a month ago are deleted")
        if deleted < 10 or len(files) - len(table_files(copy)) != deleted:
            problems.append(f"{deleted} files deleted, {len(files)} before, {len(table_files(copy))} after")
        session.catalog.clearCache()
        after = read(session, duckdb, copy)
        changed = [key for key in before if before[key] != after[key]]
        problems += [f"{engine} reads {table} differently" for engine, table in changed]
        # What the second restatement replaced is a version of this week.
        log = session.sql(f"DESCRIBE HISTORY delta.`{copy}/hours`").collect()
        version = max(row.version for row in log) - 1
        session.read.format("delta").option("versionAsOf", version).load(str(copy / "hours")).collect()
        again = json.loads(prorata("maintain", "--json", "--lake", str(copy)))
        if any(table["files_deleted"] + table["log_files_deleted"] for table in again["tables"].values()):
            problems.append(f"the second run had something left to do: {again}")
        prorata("check", "--lake", str(copy))
        # delta-rs and ClickHouse, too, read what the others read.
        readers = environment.HERE / "readers.py"
        if subprocess.run([readers, copy], stdout=subprocess.DEVNULL, check=False).returncode != 0:
            problems.append("readers.py fails on what is left")
        restate(copy, "maintain-3", "6")
        if read(session, duckdb, copy) == before:
            problems.append("nothing was restated: this proves nothing")
    for problem in problems:
        print(problem, file=sys.stderr)
    sys.exit(1 if problems else 0)


if __name__ == "__main__":
    main()
