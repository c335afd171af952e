#!/usr/bin/env python3
"""A month of bills of three clouds, and the pods of the same worlds: the tables have each bill to the last
digit.

usage: tests/python/bills.py

PRORATA_BINARY names the program. bills_world.py makes the bills, nodes and pods. The bills are imported and
folded. Then, for each of them:

- Each invoice, and each hour, has the billed and the effective cost of its lines. `bills check` agrees.
- Each row of a node has its part of the lines, as bills_expected.py computes it. Some rows are as
  testdata/bills/rows.csv has them, by hand. Every node has a cost in every hour.
- The tables keep the rules of tests/sql.

The bill of AWS is sent again, and one line in a hundred has another amount. The hours of these lines change,
and no others. The program writes at most three times the bytes that this takes.
"""

import environment

environment.enter("readers")

import csv
import subprocess
import sys
import tempfile
from collections import Counter
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

import bills_expected as expected
import bills_lake as lakes
from bills_lake import Bill

EXPORTED, EXPORTED_AGAIN = "2026-11-05T00:00:00Z", "2026-11-09T00:00:00Z"
# One of this many usage lines changes, beginning with this one, by this amount.
CHANGED_EACH, CHANGED_FIRST = 100, 50
CHANGE = Decimal("0.000123")
# How many times the bytes of the least may be written.
LEAST_TIMES = 3


def change(folder: Path) -> tuple[Bill, set[int]]:
    """Writes the bill with other amounts, and returns it with the hours that the changed lines cover.

    Only lines on demand change: the tables take other costs of usage from other columns.
    """
    rows = expected.rows_of(folder / "bill.csv")
    usage = [row for row in rows if row["lineItem/LineItemType"] == "Usage"]
    hours: set[int] = set()
    for row in usage[CHANGED_FIRST::CHANGED_EACH]:
        row["lineItem/UnblendedCost"] = str(Decimal(row["lineItem/UnblendedCost"]) + CHANGE)
        for line in expected.read_aws(row):
            hours |= set(range(line.begin, line.end))
    with (folder / "again.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, fieldnames=list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    return lakes.read("aws", folder, "again.csv"), hours


def table_files(lake: Path) -> dict[Path, int]:
    """The size of each table file, by its path in the lake."""
    return {path.relative_to(lake): path.stat().st_size for path in lake.rglob("*.parquet")}


def hour_of(path: Path) -> int:
    """The hour of a table file: TABLE/date=DATE/HH-SHARD-..parquet."""
    begin = datetime.fromisoformat(f"{path.parts[1].removeprefix('date=')}T{path.name[:2]}:00:00")
    return int(begin.replace(tzinfo=UTC).timestamp()) // 3600


def send_again(folder: Path) -> list[str]:
    """Imports and folds the changed bill, and compares what the program wrote with the least."""
    lake, events = folder / "lake", folder / "events-again"
    bill, hours = change(folder)
    events.mkdir()
    problems = lakes.import_bill(bill, EXPORTED_AGAIN, events, "--previous", folder / "bill.csv")
    before = table_files(lake)
    report = lakes.backfill(events, lake)
    after = table_files(lake)
    new = {path: size for path, size in after.items() if path not in before}
    restated = {hour_of(path) for path in new if path.parts[0] == "cost_allocation"}
    if restated != hours or report["hours_restated"] != len(hours):
        problems.append(
            f"lines of {len(hours)} hours changed; {len(restated)} hours have new files of cost_allocation, "
            f"{len(restated - hours)} of them without need, and {len(hours - restated)} lack one; "
            f"the report has {report['hours_restated']}"
        )
    # Table files are never changed, and a file has one hour. So the least is two files for each hour of a
    # changed line: its rows of cost_allocation, and its row of hours.
    needed = [
        size
        for path, size in new.items()
        if hour_of(path) in hours and path.parts[0] in ("cost_allocation", "hours")
    ]
    written, least = sum(new.values()), sum(needed)
    if written > LEAST_TIMES * least:
        by_table: Counter = Counter()
        for path, size in new.items():
            by_table[path.parts[0]] += size
        problems.append(f"{written} bytes written, at most {LEAST_TIMES} x {least}: {dict(by_table)}")
    problems = [f"aws, sent again: {problem}" for problem in problems]
    problems += lakes.check_lake(bill, lake, by_hand=False)
    print(
        f"aws, sent again: lines of {len(hours)} hours changed, {len(restated)} hours were restated, "
        f"{written} bytes of {len(new)} table files were written, {least} are the least"
    )
    return problems


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="prorata-bills-") as temporary:
        folder = Path(temporary)
        subprocess.run([environment.HERE / "bills_world.py", folder], check=True)
        problems = []
        for provider in lakes.FORMATS:
            bill = lakes.read(provider, folder / provider)
            lake, events = folder / provider / "lake", folder / provider / "events"
            problems += lakes.import_bill(bill, EXPORTED, events)
            lakes.backfill(events, lake)
            problems += lakes.check_lake(bill, lake, by_hand=True)
        problems += send_again(folder / "aws")
    for problem in problems:
        print(problem, file=sys.stderr)
    sys.exit(1 if problems else 0)


if __name__ == "__main__":
    main()
