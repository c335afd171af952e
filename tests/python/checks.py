#!/usr/bin/env python3
"""Runs the queries of tests/sql on a lake in DuckDB.

`readme_*.sql` are the queries of the README: each must run and return rows. Every other query looks for rows
that must not exist: it passes when it finds none.
"""

import environment

environment.enter("readers")

import sys
from pathlib import Path

import duckdb

import engines
import readme_polars

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


def sample(connection: duckdb.DuckDBPyConnection, query: Path, lake: Path) -> str | None:
    """Runs a query of the README as it stands there, except for the place of the lake."""
    rows = connection.execute(query.read_text().replace("lake/", f"{lake}/")).fetchall()
    return None if rows else "gives no rows"


def main() -> None:
    lake = environment.lake_argument()
    connection = engines.connect_duckdb()
    views(connection, lake)
    queries = sorted(QUERIES.glob("*.sql"))
    failed = 0
    for query in queries:
        try:
            fault = (
                sample(connection, query, lake)
                if query.stem.startswith("readme_")
                else check(connection, query)
            )
        except duckdb.Error as error:
            fault = f"does not run: {error}"
        print(f"{query.stem}: {fault or 'ok'}")
        failed += fault is not None
    rows = readme_polars.cost_by_namespace(str(lake)).height
    print(f"readme_polars: {'ok' if rows else 'gives no rows'}")
    failed += rows == 0
    print(f"{len(queries) + 1} queries, {failed} failed")
    sys.exit(1 if failed or not queries else 0)


if __name__ == "__main__":
    main()
