"""Readers of a lake's Delta log that share no code: delta-rs, DuckDB's delta-kernel, ClickHouse."""

import importlib.util
from pathlib import Path

import duckdb

TABLES = (
    "cost_allocation",
    "reservation_usage",
    "commitment_utilization",
    "quota_usage",
    "pool_usage",
    "hours",
)


def connect_duckdb() -> duckdb.DuckDBPyConnection:
    """DuckDB with its Delta extension, which comes as a Python package: nothing is downloaded."""
    package = importlib.util.find_spec("duckdb_ext")
    if package is None or not package.submodule_search_locations:
        raise RuntimeError("duckdb-ext-delta is not installed")
    folder = Path(next(iter(package.submodule_search_locations))) / "extensions"
    connection = duckdb.connect()
    connection.execute("SET autoinstall_known_extensions = false")
    connection.execute(f"SET extension_directory = '{folder}'")
    connection.execute("LOAD delta")
    connection.execute("SET TimeZone = 'UTC'")
    return connection


def tables_of(lake: Path) -> list[str]:
    """Tables that the lake has: one without rows is never created."""
    return [table for table in TABLES if (lake / table / "_delta_log").is_dir()]
