#!/usr/bin/env python3
"""After VACUUM, tables read as before in delta-rs, and can still be written: prorata restates them exactly as
in a lake that was never vacuumed.

Works on copies of the lake, which it restates under other rules with the program that PRORATA_BINARY names.
"""

import environment

environment.enter("readers")

import shutil
import sys
import tempfile
from pathlib import Path

import polars as pl
from deltalake import DeltaTable

import engines
from program import restate


def tables(lake: Path) -> dict[str, pl.DataFrame]:
    """All rows of all tables, sorted, except for when they were written."""
    found = {}
    for table in engines.tables_of(lake):
        rows = pl.scan_delta(DeltaTable(str(lake / table))).collect()
        found[table] = rows.drop("last_updated", strict=False).sort(pl.all())
    return found


def vacuum(lake: Path, full: bool) -> int:
    """Deletes every file that is not live, however young, and returns how many there were. `full` includes
    files that no log names."""
    before = len(list(lake.glob("*/date=*/*.parquet")))
    for table in engines.tables_of(lake):
        options = {"retention_hours": 0, "enforce_retention_duration": False, "dry_run": False, "full": full}
        DeltaTable(str(lake / table)).vacuum(**options)
    return before - len(list(lake.glob("*/date=*/*.parquet")))


def different(one: dict[str, pl.DataFrame], other: dict[str, pl.DataFrame]) -> list[str]:
    return sorted(table for table in one.keys() | other.keys() if not one[table].equals(other[table]))


def main() -> None:
    lake = environment.lake_argument()
    problems = []
    with tempfile.TemporaryDirectory() as folder:
        swept, kept = Path(folder) / "swept", Path(folder) / "kept"
        shutil.copytree(lake, swept)
        restate(swept, "vacuum-1", "8")
        shutil.copytree(swept, kept)
        before = tables(swept)
        # Of the first, files of restated hours go; of the second, files that nothing names.
        deleted = vacuum(swept, full=False)
        day = next((swept / "hours").glob("date=*"))
        (day / "left-over.parquet").write_bytes(b"of a run that was cut off")
        left_over = vacuum(swept, full=True)
        print(f"{deleted} files that were replaced and {left_over} left over are deleted")
        if deleted < 10 or left_over != 1:
            problems.append("there was nothing to delete: this proves nothing")
        problems += [f"after VACUUM {table} reads differently" for table in different(before, tables(swept))]
        restate(swept, "vacuum-2", "7")
        restate(kept, "vacuum-2", "7")
        after = tables(swept)
        problems += [
            f"{table} is restated differently after VACUUM" for table in different(after, tables(kept))
        ]
        if "cost_allocation" not in different(before, after):
            problems.append("nothing was restated: this proves nothing")
    for problem in problems:
        print(problem, file=sys.stderr)
    sys.exit(1 if problems else 0)


if __name__ == "__main__":
    main()
