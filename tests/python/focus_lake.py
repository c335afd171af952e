#!/usr/bin/env python3
"""Copies a lake, adds a bill for one of its nodes, and writes each FOCUS view of the copy to a Parquet file.

usage: tests/python/focus_lake.py LAKE FOLDER

PRORATA_BINARY names the program. The bill has each kind of line whose rows differ in FOCUS: the hours of a
machine, lines of a machine that are only known together, a disk, a tax, a credit, an adjustment, and a disk
that is on no invoice yet. The invoice details must have the amounts of the bill, to the last digit.
"""

import environment

environment.enter("readers")

import csv
import shutil
import sys
from decimal import Decimal
from pathlib import Path

import duckdb

import engines
import views
from program import prorata

EXPORTED = "2026-11-05T00:00:00Z"
INVOICE = "INV-2026-11"
# Day on which every line is charged.
BEGIN, END = "2026-11-01T00:00:00Z", "2026-11-02T00:00:00Z"
NODE = """
    SELECT BillingAccountId, x_ResourceKey, x_AccountId
    FROM delta_scan('{lake}/cost_allocation')
    WHERE x_RowKind = 'pod_node' AND HostProviderName = 'aws' AND PricingCategory <> 'Dynamic'
        AND x_ResourceKey IS NOT NULL
    GROUP BY ALL
    HAVING count(DISTINCT ChargePeriodStart) = 24
    ORDER BY count(*) DESC, x_ResourceKey
    LIMIT 1
"""


def line(category: str, words: str, cost: str, **more: str) -> dict[str, str]:
    """A line of the bill, as FOCUS 1.2 has it."""
    return {
        "ProviderName": "AWS",
        "BillingAccountId": "999900001111",
        "BillingCurrency": "USD",
        "ChargePeriodStart": BEGIN,
        "ChargePeriodEnd": END,
        "ChargeCategory": category,
        "ChargeDescription": words,
        "InvoiceId": INVOICE,
        "BilledCost": cost,
        "EffectiveCost": cost,
        "ListCost": cost,
        **more,
    }


def bill(machine: str, account: str) -> list[dict[str, str]]:
    """The lines of the bill of a machine and of what belongs to no machine."""
    of_machine = {"ResourceId": machine, "SubAccountId": account, "ServiceName": "Virtual Machines"}
    traffic = {"PricingUnit": "GB", "PricingQuantity": "20", **of_machine}
    disk = {"SubAccountId": account, "ServiceName": "Disks", "PricingUnit": "GB-Mo", "PricingQuantity": "8"}
    hours = {"PricingUnit": "Hours", "PricingQuantity": "24", "ListUnitPrice": "0.192", "ListCost": "4.608"}
    return [
        line("Usage", "Hours of a machine", "4.1472", SkuId="machine", **hours, **of_machine),
        line("Usage", "Traffic to the internet", "1.8", SkuId="out", **traffic),
        line("Usage", "Traffic between zones", "0.2", SkuId="zone", **traffic),
        line("Usage", "A disk", "0.7", SkuId="disk", ResourceId="vol-0a1b2c3d4e5f60718", **disk),
        line("Usage", "A disk, not invoiced yet", "0.3", SkuId="disk", InvoiceId="", **disk),
        line("Tax", "Tax", "1.33"),
        line("Credit", "Credit for an outage", "-0.5"),
        line("Adjustment", "Rounding", "0.0028"),
    ]


def add_bill(lake: Path, folder: Path) -> Decimal:
    """Folds the bill into the lake, and returns the sum of its invoice."""
    node = engines.connect_duckdb().execute(NODE.format(lake=lake)).fetchone()
    if node is None:
        sys.exit(f"{lake} has no node of aws that runs for a day")
    organization, machine, account = node
    lines = bill(machine, account)
    path = folder / "bill.csv"
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(dict.fromkeys(name for row in lines for name in row)))
        writer.writeheader()
        writer.writerows(lines)
    events = folder / "bill-events"
    events.mkdir()
    options = ("--organization", organization, "--all", "--recorded-at", EXPORTED, "--output", str(events))
    prorata("bills", "import", "focus", str(path), *options)
    prorata("backfill", "--events", str(events), "--lake", str(lake))
    return sum(Decimal(row["BilledCost"]) for row in lines if row["InvoiceId"])


def write_views(connection: duckdb.DuckDBPyConnection, lake: Path, folder: Path) -> list[str]:
    """Writes the views, and returns what is wrong with their sums."""
    for table in engines.tables_of(lake):
        connection.execute(f"CREATE VIEW {table} AS SELECT * FROM delta_scan('{lake}/{table}')")
    for statement in views.statements("duckdb"):
        connection.execute(statement)
    for name in views.FOCUS:
        connection.execute(f"COPY {name} TO '{folder}/{name}.parquet' (FORMAT parquet)")
    return views.faults(lambda query: connection.execute(query).fetchone()[0], views.FOCUS, {})


def main() -> None:
    if len(sys.argv) != 3:
        sys.exit(f"usage: {Path(sys.argv[0]).name} LAKE FOLDER")
    source, folder = Path(sys.argv[1]).resolve(), Path(sys.argv[2]).resolve()
    lake = folder / "lake"
    shutil.copytree(source, lake)
    invoiced = add_bill(lake, folder)
    connection = engines.connect_duckdb()
    problems = write_views(connection, lake, folder)
    query = f"SELECT sum(BilledCost) FROM focus_invoice_detail WHERE InvoiceId = '{INVOICE}'"
    details = connection.execute(query).fetchone()[0]
    if details != invoiced:
        problems.append(f"the details of the invoice sum to {details}, and the bill to {invoiced}")
    for problem in problems:
        print(problem, file=sys.stderr)
    sys.exit(1 if problems else 0)


if __name__ == "__main__":
    main()
