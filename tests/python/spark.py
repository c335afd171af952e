#!/usr/bin/env python3
"""Reads a lake in Apache Spark with Delta Lake: the query of the tables' page, and the views of deploy/sql,
which must give the same rows as in DuckDB.
"""

import environment

environment.enter("spark")

import os
import sys
import tempfile
from datetime import datetime
from decimal import Decimal
from pathlib import Path

from pyspark.sql import SparkSession

import engines
import pages
import views

DELTA = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
}


def connect(folder: str) -> SparkSession:
    """A session on this machine alone, all of whose files are in `folder`."""
    jars = sorted((environment.installed("spark") / "target" / "jars").glob("*.jar"))
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    builder = SparkSession.builder.master("local[2]").appName("prorata")
    settings = DELTA | {
        "spark.jars": ",".join(map(str, jars)),
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.local.dir": folder,
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.warehouse.dir": f"{folder}/warehouse",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        # Small tables: by default Delta spreads the state of each over 50 tasks.
        "spark.databricks.delta.snapshotPartitions": "2",
        "spark.driver.extraJavaOptions": f"-Dderby.system.home={folder}",
    }
    for key, value in settings.items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    return session


def example(lake: Path) -> str:
    """The query for Spark of the tables' page, with this lake in place of the bucket."""
    [(_, query)] = pages.statements(pages.block(pages.TABLES, "Spark"))
    return query.replace("s3://bucket/lake", str(lake))


def plain(row: tuple) -> tuple:
    """A row as text, floating-point numbers to nine digits: engines add them in different orders. Spark
    returns times without their zone, which is UTC here.
    """

    def text(value) -> str:
        if isinstance(value, float):
            return f"{value:.9g}"
        if isinstance(value, datetime):
            return str(value.replace(tzinfo=None))
        return str(value.normalize()) if isinstance(value, Decimal) else str(value)

    return tuple(map(text, row))


def main() -> None:
    lake = environment.lake_argument()
    with tempfile.TemporaryDirectory() as folder:
        spark = connect(folder)
        duckdb = engines.connect_duckdb()
        for table in engines.tables_of(lake):
            spark.sql(f"CREATE TABLE {table} USING delta LOCATION '{lake}/{table}'")
            duckdb.execute(f"CREATE VIEW {table} AS SELECT * FROM delta_scan('{lake}/{table}')")
        rows = spark.sql(example(lake)).count()
        found = [] if rows else ["the query of the tables' page gives no rows"]
        for statement in views.statements("spark"):
            spark.sql(statement)
        for statement in views.statements("duckdb"):
            duckdb.execute(statement)
        found += views.faults(lambda query: spark.sql(query).first()[0])
        for name in views.NAMES:
            query = f"SELECT * FROM {name}"
            ours = sorted(map(plain, spark.sql(query).collect()))
            theirs = sorted(map(plain, duckdb.execute(query).fetchall()))
            same = ours == theirs and (ours or name in views.MAY_BE_EMPTY)
            print(f"{name}: {len(ours)} rows, {'as in DuckDB' if same else 'not as in DuckDB'}")
            if not same:
                differ = [pair for pair in zip(ours, theirs) if pair[0] != pair[1]]
                found.append(f"{name}: Spark and DuckDB differ: {differ[:2]}")
        spark.stop()
    print(f"the query of the tables' page: {rows} rows")
    for fault in found:
        print(fault)
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
