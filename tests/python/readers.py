#!/usr/bin/env python3
"""Reads a lake back through its Delta log with delta-rs and Polars, DuckDB and ClickHouse, and adds the money up again.

For every organization and hour sum(EffectiveCost) = sum(BilledCost) = hours.supply_cost = hours.allocated_cost,
hours.difference = 0 and hours.rows is the number of rows, exactly; and all three engines say the same.
"""

import environment

environment.enter("readers")

import os
import sys
from decimal import Decimal
from pathlib import Path

import chdb
import polars as pl
from deltalake import DeltaTable

import engines

# By organization and hour: rows, billed, effective, rows and costs that `hours` tells, and its difference.
Sums = dict[tuple[str, str], tuple]

COSTS = """
    SELECT BillingAccountId, strftime(ChargePeriodStart, '%Y-%m-%dT%H'), count(*), sum(BilledCost),
        sum(EffectiveCost)
    FROM delta_scan('{lake}/cost_allocation') GROUP BY 1, 2
"""
HOURS = """
    SELECT organization_id, strftime(hour, '%Y-%m-%dT%H'), rows, supply_cost, allocated_cost, difference
    FROM delta_scan('{lake}/hours')
"""


def joined(costs: list[tuple], hours: list[tuple]) -> Sums:
    """One entry for each hour; costs of an hour that `hours` does not have stand alone."""
    zero = (0, Decimal(0), Decimal(0))
    sums = {(row[0], row[1]): zero for row in hours}
    sums |= {(row[0], row[1]): tuple(row[2:]) for row in costs}
    told: Sums = {}
    for row in hours:
        if (row[0], row[1]) in told:
            raise SystemExit(f"hours has two rows of {row[0]} {row[1]}")
        told[(row[0], row[1])] = tuple(row[2:])
    return {key: sums[key] + told.get(key, ()) for key in sums}


def read_polars(lake: Path) -> Sums:
    """delta-rs finds the files, Polars reads them."""
    hour = "%Y-%m-%dT%H"
    costs = pl.scan_delta(DeltaTable(str(lake / "cost_allocation")))
    # Added up by Python's decimals, so that an engine's own sums are not checked by themselves.
    sums: dict[tuple[str, str], list] = {}
    columns = ("BillingAccountId", "ChargePeriodStart", "BilledCost", "EffectiveCost")
    for organization, start, billed, effective in costs.select(columns).collect().iter_rows():
        entry = sums.setdefault((organization, start.strftime(hour)), [0, Decimal(0), Decimal(0)])
        entry[0] += 1
        entry[1] += billed
        entry[2] += effective
    hours = pl.scan_delta(DeltaTable(str(lake / "hours")))
    columns = ("organization_id", "hour", "rows", "supply_cost", "allocated_cost", "difference")
    told = [(row[0], row[1].strftime(hour), *row[2:]) for row in hours.select(columns).collect().iter_rows()]
    return joined([(*key, *entry) for key, entry in sums.items()], told)


def read_duckdb(lake: Path) -> Sums:
    """DuckDB's delta extension, built on delta-kernel."""
    connection = engines.connect_duckdb()
    return joined(*(connection.execute(query.format(lake=lake)).fetchall() for query in (COSTS, HOURS)))


def read_clickhouse(lake: Path) -> Sums:
    """ClickHouse inside Python."""
    # It reads files below the current folder only.
    os.chdir(lake)
    connection = chdb.connect(":memory:")

    def rows(query: str, kinds: list) -> list[tuple]:
        query = query.format(lake=lake).replace("delta_scan(", "deltaLakeLocal(")
        query = query.replace("strftime(", "formatDateTime(")
        text = str(connection.query(query, "TabSeparated"))
        lines = [line.split("\t") for line in text.splitlines()]
        return [tuple(kind(value) for kind, value in zip(kinds, line, strict=True)) for line in lines]

    costs = rows(COSTS, [str, str, int, Decimal, Decimal])
    hours = rows(HOURS, [str, str, int, Decimal, Decimal, Decimal])
    return joined(costs, hours)


def faults(sums: Sums) -> list[str]:
    """Hours that do not add up."""
    found = []
    for (organization, hour), values in sorted(sums.items()):
        if len(values) != 7:
            found.append(f"{organization} {hour}: rows without an entry in hours")
            continue
        rows, billed, effective, told_rows, supply, allocated, difference = values
        if not billed == effective == supply == allocated or difference != 0 or rows != told_rows:
            found.append(
                f"{organization} {hour}: billed {billed}, effective {effective}, supply {supply}, "
                f"allocated {allocated}, difference {difference}; rows {rows}, told {told_rows}"
            )
    return found


def main() -> None:
    lake = environment.lake_argument()
    results = {}
    problems = []
    for name, read in (("polars", read_polars), ("duckdb", read_duckdb), ("clickhouse", read_clickhouse)):
        sums = read(lake)
        if not sums:
            sys.exit(f"{name} read no hours from {lake}")
        results[name] = sums
        found = faults(sums)
        problems += [f"{name}: {fault}" for fault in found]
        rows = sum(values[0] for values in sums.values())
        cost = sum((values[2] for values in sums.values()), Decimal(0))
        print(f"{name}: {rows} rows of {len(sums)} hours cost {cost.normalize():f}, {len(found)} faults")
    first, *others = results
    for other in others:
        if results[other] != results[first]:
            different = {key for key in results[first] | results[other] if results[first].get(key) != results[other].get(key)}
            problems.append(f"{first} and {other} differ at {sorted(different)[:5]}")
    for problem in problems[:20]:
        print(problem, file=sys.stderr)
    sys.exit(1 if problems else 0)


if __name__ == "__main__":
    main()
