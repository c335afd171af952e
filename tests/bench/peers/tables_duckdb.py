#!/usr/bin/env python3
"""DuckDB writing the tables that prorata writes for a clean load: all columns of cost_allocation and the sums
of hours, in as many files.

usage: tables_duckdb.py LOAD TARGET THREADS

LOAD has nodes, pods, samples and shards as Parquet. The SQL is tables.sql.
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "python"))

import environment

environment.enter("readers")

import duckdb

HOUR = 3_600_000_000
# The columns of organization and hour of each table, and the order of its rows.
TABLES = {
    "cost_allocation": (
        *("BillingAccountId", "ChargePeriodStart"),
        "BillingAccountId, x_RowKind = 'node_idle', x_ClusterId, ResourceId, x_PodUid",
    ),
    "hours": ("organization_id", "hour", "organization_id"),
}
# The times of all events: samples, starts and stops. Null is a stop that did not come.
TIMES = """
    CREATE VIEW times AS SELECT organization, since AS time FROM samples
        UNION ALL SELECT organization, unnest([since, until]) FROM nodes
        UNION ALL SELECT organization, unnest([since, until]) FROM pods
"""
SETTINGS = "FORMAT parquet, COMPRESSION zstd, COMPRESSION_LEVEL 1, ROW_GROUP_SIZE 1000000"


def main() -> None:
    load, target, threads = sys.argv[1:]
    database = duckdb.connect()
    database.execute(f"SET threads = {int(threads)}")
    database.execute("SET TimeZone = 'UTC'")
    for name in ("nodes", "pods", "samples", "shards"):
        database.execute(f"CREATE VIEW {name} AS SELECT * FROM read_parquet('{load}/{name}.parquet')")
    database.execute(TIMES)
    (last,) = database.execute("SELECT max(time) FROM times").fetchone()
    end = (last // HOUR + 1) * HOUR
    sql = (Path(__file__).parent / "tables.sql").read_text()
    database.execute(sql.replace("$end", str(end)))
    for table, (organization, hour, order) in TABLES.items():
        files = database.execute(
            f"SELECT DISTINCT shard, epoch_us({hour}) // {HOUR} FROM {table} JOIN shards "
            f"ON {organization} = shards.organization"
        ).fetchall()
        (Path(target) / table).mkdir(parents=True)
        for shard, number in files:
            of_hour = f"{hour} = make_timestamptz({number * HOUR})"
            of_shard = f"{organization} IN (SELECT organization FROM shards WHERE shard = {shard})"
            rows = f"SELECT * FROM {table} WHERE {of_hour} AND {of_shard} ORDER BY {order}"
            database.execute(f"COPY ({rows}) TO '{target}/{table}/{number}-{shard}.parquet' ({SETTINGS})")


if __name__ == "__main__":
    main()
