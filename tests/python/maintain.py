#!/usr/bin/env python3
"""After `prorata maintain`, tables read as before in Spark and DuckDB, at every version of the last
seven days, and can still be written.

Works on a copy of the lake, which it restates under other rules and makes older with the program that
PRORATA_BINARY names; and on a lake of its own that reaches back beyond a horizon of two days, whose table
files are joined to files of days.
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
from datetime import datetime, timedelta
from pathlib import Path

import engines
import spark
from program import prorata, restate

MONTH_SECONDS = 30 * 86_400

# An hour as the program names it.
HOUR = "%Y-%m-%dT%H"


def age(lake: Path) -> None:
    """Makes every file of the lake a month older."""
    then = time.time() - MONTH_SECONDS
    for path in lake.rglob("*"):
        if path.is_file():
            os.utime(path, (then, then))


def table_files(lake: Path) -> set[Path]:
    return set(lake.glob("*/date=*/*.parquet"))


def read(session, duckdb, lake: Path, through: str = "9999-12-31") -> dict[tuple[str, str], list]:
    """All rows through a date of all tables, by engine, sorted."""
    found, wanted = {}, f"date <= DATE '{through}'"
    for table in engines.tables_of(lake):
        rows = session.read.format("delta").load(str(lake / table)).where(wanted).collect()
        found["Spark", table] = sorted(map(str, rows))
        rows = duckdb.execute(f"SELECT * FROM delta_scan('{lake / table}') WHERE {wanted}").fetchall()
        found["DuckDB", table] = sorted(map(str, rows))
    return found


def old_lake(folder: Path) -> tuple[Path, str]:
    """A lake whose first two days lie beyond the horizon, and a date two days after them: engines read the
    files up to it alone, and the program compares the many hours after it, which compaction leaves.
    """
    events, lake = folder / "old-events", folder / "old"
    load = ["--organizations", "1", "--pods", "3", "--seed", "7", "--hours", "48"]
    prorata("generate", *load, "--output", str(events))
    prorata("backfill", "--events", str(events), "--lake", str(lake))
    last = datetime.strptime(json.loads(prorata("check", "--json", "--lake", str(lake)))["to"][:13], HOUR)
    to = (last + timedelta(days=4)).strftime(HOUR)
    prorata("backfill", "--events", str(events), "--lake", str(lake), "--to", to)
    # Hours leave the checkpoint with the first one that knows them published.
    restate(lake, "old-1", "8", "--from", to)
    return lake, (last + timedelta(days=2)).strftime("%Y-%m-%d")


def dates_of(session, lake: Path, table: str) -> list[str]:
    """The partition of each live file."""
    paths = session.read.format("delta").load(str(lake / table)).inputFiles()
    return [path.split("/")[-2] for path in paths]


def newest_commit(lake: Path, table: str) -> Path:
    return max((lake / table / "_delta_log").glob("*.json"))


def actions_of(commit: Path) -> list[dict]:
    return [action for line in commit.read_text().splitlines() for action in json.loads(line).values()]


def compaction(folder: Path, session, duckdb) -> list[str]:
    """Compacts a lake of its own, and folds a day of it again."""
    problems = []
    lake, through = old_lake(folder)
    plain = folder / "plain"
    shutil.copytree(lake, plain)
    before = read(session, duckdb, lake, through)
    dates = {table: dates_of(session, lake, table) for table in engines.tables_of(lake)}
    versions = {table: int(newest_commit(lake, table).stem) for table in dates}
    done = json.loads(prorata("maintain", "--json", "--lake", str(lake)))
    if sum(table["files_compacted"] for table in done["tables"].values()) < 2 * 24:
        problems.append(f"too little is compacted: {done}")
    session.catalog.clearCache()
    after = read(session, duckdb, lake, through)
    problems += [f"{key} reads differently after compaction" for key in before if before[key] != after[key]]
    for table, old in dates.items():
        first = min(old, default="")
        if first and dates_of(session, lake, table).count(first) != 1:
            problems.append(f"{table}: {first} is not one file yet")
        actions = actions_of(newest_commit(lake, table))
        if first and not all(action.get("dataChange", False) is False for action in actions):
            problems.append(f"the compaction of {table} says that it changes data: {actions}")
        # A reader of the version before reads on.
        back = session.read.format("delta").option("versionAsOf", versions[table])
        rows = back.load(str(lake / table)).where(f"date <= DATE '{through}'").collect()
        if sorted(map(str, rows)) != before["Spark", table]:
            problems.append(f"the version of {table} before reads differently")
    prorata("check", "--lake", str(lake))
    prorata("diff", "--lake", str(lake), "--with", str(plain))
    readers = environment.HERE / "readers.py"
    if subprocess.run([readers, lake], stdout=subprocess.DEVNULL, check=False).returncode != 0:
        problems.append("readers.py fails on what was compacted")
    # Days that were compacted are folded again, as those that were not.
    first = json.loads(prorata("check", "--json", "--lake", str(lake)))["from"]
    for each in (lake, plain):
        restate(each, "old-2", "5", "--from", first)
    prorata("check", "--lake", str(lake))
    prorata("diff", "--lake", str(lake), "--with", str(plain))
    session.catalog.clearCache()
    again, fresh = (read(session, duckdb, each, through) for each in (lake, plain))
    for key in again:
        if key[1] != "hours" and again[key] != fresh[key]:
            problems.append(f"{key} differs from the lake that was not compacted")
    if again == after:
        problems.append("nothing was folded again: this proves nothing")
    return problems


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
        os.environ["PRORATA_ROOT__HORIZON"] = "2d"
        problems += compaction(Path(folder), session, duckdb)
    for problem in problems:
        print(problem, file=sys.stderr)
    sys.exit(1 if problems else 0)


if __name__ == "__main__":
    main()
