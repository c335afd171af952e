#!/usr/bin/env python3
"""Runs the queries of tests/sql on a lake in DuckDB, and those of the documents for DuckDB and Polars.

A query of tests/sql looks for rows that must not exist: it passes if it finds none. A query of a document
must run and return rows.
"""

import environment

environment.enter("readers")

import sys
from pathlib import Path

import duckdb

import engines
import pages

QUERIES = Path(__file__).resolve().parent.parent / "sql"
SHOWN = 5

# Columns of tables that need not exist, as far as the queries name them.
KEY = "organization_id VARCHAR, hour TIMESTAMPTZ"
MISSING = {
    "reservation_usage": f"{KEY}, reservation_id VARCHAR, units DECIMAL(38,12), "
    "used_unit_seconds DECIMAL(38,12), unused_unit_seconds DECIMAL(38,12), used_by VARCHAR, "
    "unused_cost DECIMAL(38,12)",
    "commitment_utilization": f"{KEY}, commitment_id VARCHAR, used_cost DECIMAL(38,12), "
    "unused_cost DECIMAL(38,12), list_cost_avoided DECIMAL(38,12), clusters VARCHAR, "
    "utilization DECIMAL(38,12), state VARCHAR",
    "quota_usage": f"{KEY}, cluster_id VARCHAR, quota_id VARCHAR, resource VARCHAR, "
    "in_quota_cost DECIMAL(38,12), over_quota_cost DECIMAL(38,12)",
    "pool_usage": f"{KEY}, pool_id VARCHAR, charges DECIMAL(38,12), node_cost DECIMAL(38,12), "
    "margin DECIMAL(38,12)",
}


def views(connection: duckdb.DuckDBPyConnection, lake: Path) -> None:
    """Names the lake's tables; one that the lake does not have is empty."""
    there = engines.tables_of(lake)
    for table in there:
        connection.execute(f"CREATE VIEW {table} AS SELECT * FROM delta_scan('{lake}/{table}')")
    for table in set(engines.TABLES) - set(there):
        connection.execute(f"CREATE TABLE {table} ({MISSING[table]})")


def check(connection: duckdb.DuckDBPyConnection, query: Path) -> str | None:
    """Runs a check; what it found, in words."""
    connection.execute(query.read_text())
    names = [column[0] for column in connection.description]
    rows = connection.fetchmany(SHOWN)
    if not rows:
        return None
    lines = [", ".join(f"{name} {value}" for name, value in zip(names, row, strict=True)) for row in rows]
    return "\n    ".join(["finds", *lines])


def examples(lake: Path) -> list[tuple[str, str]]:
    """The queries of the documents for DuckDB, with this lake in place of theirs."""
    blocks = [pages.block(pages.README, "DuckDB"), pages.block(pages.TABLES, "DuckDB")]
    found = [query for block in blocks for query in pages.statements(block)]
    return [(title, query.replace("'lake/", f"'{lake}/")) for title, query in found]


def example(connection: duckdb.DuckDBPyConnection, query: str) -> str | None:
    """Runs a query of a document; what is wrong with it."""
    return None if connection.execute(query).fetchall() else "gives no rows"


def polars_example(lake: Path) -> str | None:
    """Runs the documents' program for Polars; what is wrong with it."""
    names = {}
    exec(pages.block(pages.TABLES, "Polars").replace('"lake/', f'"{lake}/'), names)
    return None if names["costs"].height else "gives no rows"


def main() -> None:
    lake = environment.lake_argument()
    connection = engines.connect_duckdb()
    views(connection, lake)
    queries = sorted(QUERIES.glob("*.sql"))
    runs = [(query.stem, check, query) for query in queries]
    runs += [(title, example, query) for title, query in examples(lake)]
    failed = 0
    for name, run, query in runs:
        try:
            fault = run(connection, query)
        except duckdb.Error as error:
            fault = f"does not run: {error}"
        print(f"{name}: {fault or 'ok'}")
        failed += fault is not None
    fault = polars_example(lake)
    print(f"Polars: {fault or 'ok'}")
    failed += fault is not None
    print(f"{len(runs) + 1} queries, {failed} failed")
    sys.exit(1 if failed or not queries else 0)


if __name__ == "__main__":
    main()
