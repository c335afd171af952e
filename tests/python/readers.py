#!/usr/bin/env python3
"""Reads a lake back through its Delta log with delta-rs and Polars, DuckDB and ClickHouse, and adds up again.

For every organization and hour, sum(EffectiveCost) equals hours.supply_cost and hours.allocated_cost, and
sum(BilledCost) equals hours.supply_cost - hours.bill_cost + hours.bill_billed_cost, to the last digit.
hours.difference is 0, and hours.rows is the number of rows. All three engines agree. The most expensive row
is found by its hour and its cost as well: the statistics in the log let a reader skip files, but never the
right one.
"""

import environment

environment.enter("readers")

import os
import sys
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import NamedTuple

import chdb
import polars as pl
from deltalake import DeltaTable

import engines

# By organization and hour: rows, billed, effective, and what `hours` reports, as in `REPORTED`.
Sums = dict[tuple[str, str], tuple]

REPORTED = ("rows", "supply_cost", "allocated_cost", "difference", "bill_cost", "bill_billed_cost")

COSTS = """
    SELECT BillingAccountId, strftime(ChargePeriodStart, '%Y-%m-%dT%H'), count(*), sum(BilledCost),
        sum(EffectiveCost)
    FROM delta_scan('{lake}/cost_allocation') GROUP BY 1, 2
"""
HOURS = f"""
    SELECT organization_id, strftime(hour, '%Y-%m-%dT%H'), {", ".join(REPORTED)}
    FROM delta_scan('{{lake}}/hours')
"""

FOUND = """
    SELECT count(*) FROM delta_scan('{lake}/cost_allocation')
    WHERE EffectiveCost >= {cost} AND BilledCost <= {cost} AND x_RowKind <> 'no such kind'
        AND BillingAccountId = '{organization}' AND ChargePeriodStart = '{hour}:00:00'
"""


class Place(NamedTuple):
    """Where the dearest row is."""

    organization: str
    hour: str
    cost: Decimal


def joined(costs: list[tuple], hours: list[tuple]) -> Sums:
    """One entry for each hour; costs of an hour that `hours` does not have stand alone."""
    zero = (0, Decimal(0), Decimal(0))
    sums = {(row[0], row[1]): zero for row in hours}
    sums |= {(row[0], row[1]): tuple(row[2:]) for row in costs}
    reported: Sums = {}
    for row in hours:
        if (row[0], row[1]) in reported:
            raise SystemExit(f"hours has two rows of {row[0]} {row[1]}")
        reported[(row[0], row[1])] = tuple(row[2:])
    return {key: sums[key] + reported.get(key, ()) for key in sums}


def dearest(lake: Path) -> Place | None:
    """The row with the largest cost that is billed as it is; none when nothing cost anything."""
    rows = scan(lake, "cost_allocation").filter(pl.col("BilledCost") == pl.col("EffectiveCost"))
    columns = ("BillingAccountId", "ChargePeriodStart", "EffectiveCost")
    row = max(rows.select(columns).collect().iter_rows(), key=lambda row: row[2], default=None)
    return row and Place(row[0], row[1].strftime("%Y-%m-%dT%H"), row[2])


def scan(lake: Path, table: str) -> pl.LazyFrame:
    return pl.scan_delta(DeltaTable(str(lake / table)))


def read_polars(lake: Path) -> Sums:
    """delta-rs finds the files, Polars reads them."""
    hour = "%Y-%m-%dT%H"
    costs = scan(lake, "cost_allocation")
    # Added up by Python's decimals, so that an engine's own sums are not checked by themselves.
    sums: dict[tuple[str, str], list] = {}
    columns = ("BillingAccountId", "ChargePeriodStart", "BilledCost", "EffectiveCost")
    for organization, start, billed, effective in costs.select(columns).collect().iter_rows():
        entry = sums.setdefault((organization, start.strftime(hour)), [0, Decimal(0), Decimal(0)])
        entry[0] += 1
        entry[1] += billed
        entry[2] += effective
    hours = scan(lake, "hours")
    selected = hours.select("organization_id", "hour", *REPORTED).collect().iter_rows()
    reported = [(row[0], row[1].strftime(hour), *row[2:]) for row in selected]
    return joined([(*key, *entry) for key, entry in sums.items()], reported)


def find_polars(lake: Path, place: Place) -> int:
    hour = datetime.fromisoformat(f"{place.hour}:00:00+00:00")
    found = scan(lake, "cost_allocation").filter(
        pl.col("EffectiveCost") >= place.cost,
        pl.col("BilledCost") <= place.cost,
        pl.col("x_RowKind") != "no such kind",
        pl.col("BillingAccountId") == place.organization,
        pl.col("ChargePeriodStart") == hour,
    )
    return found.select(pl.len()).collect().item()


def read_duckdb(lake: Path) -> Sums:
    """DuckDB's delta extension, built on delta-kernel."""
    connection = engines.connect_duckdb()
    return joined(*(connection.execute(query.format(lake=lake)).fetchall() for query in (COSTS, HOURS)))


def find_duckdb(lake: Path, place: Place) -> int:
    return engines.connect_duckdb().execute(FOUND.format(lake=lake, **place._asdict())).fetchone()[0]


def query_clickhouse(lake: Path, query: str, kinds: list) -> list[tuple]:
    # It reads files below the current folder only.
    os.chdir(lake)
    query = query.replace("delta_scan(", "deltaLakeLocal(").replace("strftime(", "formatDateTime(")
    text = str(chdb.connect(":memory:").query(query, "TabSeparated"))
    lines = [line.split("\t") for line in text.splitlines()]
    return [tuple(kind(value) for kind, value in zip(kinds, line, strict=True)) for line in lines]


def read_clickhouse(lake: Path) -> Sums:
    """ClickHouse inside Python."""
    costs = query_clickhouse(lake, COSTS.format(lake=lake), [str, str, int, Decimal, Decimal])
    kinds = [str, str, int] + [Decimal] * (len(REPORTED) - 1)
    hours = query_clickhouse(lake, HOURS.format(lake=lake), kinds)
    return joined(costs, hours)


def find_clickhouse(lake: Path, place: Place) -> int:
    values = place._asdict() | {"hour": place.hour.replace("T", " ")}
    query = FOUND.replace("{cost}", "toDecimal128('{cost}', 12)").format(lake=lake, **values)
    return query_clickhouse(lake, query, [int])[0][0]


ENGINES = {
    "polars": (read_polars, find_polars),
    "duckdb": (read_duckdb, find_duckdb),
    "clickhouse": (read_clickhouse, find_clickhouse),
}


def faults(sums: Sums) -> list[str]:
    """Hours that do not add up."""
    found = []
    for (organization, hour), values in sorted(sums.items()):
        if len(values) != 3 + len(REPORTED):
            found.append(f"{organization} {hour}: rows without an entry in hours")
            continue
        rows, billed, effective, reported_rows, supply, allocated, difference, bill, bill_billed = values
        is_billed = billed == supply - bill + bill_billed
        is_allocated = effective == supply == allocated and difference == 0
        if not is_billed or not is_allocated or rows != reported_rows:
            found.append(
                f"{organization} {hour}: billed {billed}, effective {effective}, supply {supply}, "
                f"allocated {allocated}, difference {difference}; of bills {bill}, billed {bill_billed}; "
                f"rows {rows}, reported {reported_rows}"
            )
    return found


def main() -> None:
    lake = environment.lake_argument()
    results = {}
    problems = []
    place = dearest(lake)
    for name, (read, find) in ENGINES.items():
        sums = read(lake)
        if not sums:
            sys.exit(f"{name} read no hours from {lake}")
        results[name] = sums
        found = faults(sums)
        problems += [f"{name}: {fault}" for fault in found]
        if place is not None and find(lake, place) < 1:
            problems.append(f"{name} does not find the dearest row, {place}")
        rows = sum(values[0] for values in sums.values())
        cost = sum((values[2] for values in sums.values()), Decimal(0))
        print(f"{name}: {rows} rows of {len(sums)} hours cost {cost.normalize():f}, {len(found)} faults")
    first, *others = results
    for other in others:
        if results[other] != results[first]:
            different = {
                key
                for key in results[first] | results[other]
                if results[first].get(key) != results[other].get(key)
            }
            problems.append(f"{first} and {other} differ at {sorted(different)[:5]}")
    for problem in problems[:20]:
        print(problem, file=sys.stderr)
    sys.exit(1 if problems else 0)


if __name__ == "__main__":
    main()
