#!/usr/bin/env python3
"""DuckDB doing only the node split: reads events from Parquet, writes the cost of each pod and hour.

usage: node_split_duckdb.py EVENTS.parquet COSTS.parquet THREADS
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "python"))

import environment

environment.enter("readers")

import duckdb

HOUR = 3_600_000_000


def main() -> None:
    events, target, threads = sys.argv[1:]
    database = duckdb.connect()
    database.execute(f"SET threads = {int(threads)}")
    database.execute("SET preserve_insertion_order = false")
    database.execute("CREATE VIEW events AS SELECT * FROM read_parquet(?)".replace("?", f"'{events}'"))
    (last,) = database.execute("SELECT max(time) FROM events").fetchone()
    end = (last // HOUR + 1) * HOUR
    sql = (Path(__file__).parent / "node_split.sql").read_text().replace("$end", str(end))
    database.execute(sql)
    database.execute(f"COPY pod_costs TO '{target}' (FORMAT parquet)")


if __name__ == "__main__":
    main()
