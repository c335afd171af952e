"""Imports bills, folds them into lakes, and compares these with the bills: what bills.py runs."""

import json
import os
import subprocess
import sys
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import NamedTuple

import duckdb

import bills_expected as expected
import checks
import engines
import environment
from bills_expected import ATOMS, Line, World

FORMATS = {"aws": "cur", "azure": "azure", "gcp": "gcp"}
ORGANIZATION = "nise"
# The hour after the month, in which the last pods stop.
LAST_HOUR = "2026-11-01T00"
BY_HAND = environment.HERE.parent.parent / "testdata" / "bills" / "rows.csv"
# Number of problems of a kind that are shown, and of characters of a command's output.
SHOWN = 5
OUTPUT = 4_000

NODE_ROWS = """
    SELECT epoch_us(ChargePeriodStart) // 3600000000, x_NodeName, x_PodName,
        coalesce(CommitmentDiscountId, ''), ListUnitPrice, BilledCost, EffectiveCost
    FROM cost_allocation WHERE x_RowKind IN ('pod_node', 'node_idle')
"""
INVOICES = """
    SELECT coalesce(InvoiceId, ''), sum(BilledCost), sum(EffectiveCost) FROM cost_allocation
    WHERE x_CostBasis = 'billed' GROUP BY ALL
"""
# Billed and effective cost by hour: of rows, and as `hours` has them.
HOURS = """
    WITH costs AS (
        SELECT ChargePeriodStart AS hour, sum(BilledCost) AS billed, sum(EffectiveCost) AS effective
        FROM cost_allocation WHERE x_CostBasis = 'billed' GROUP BY ALL
    )
    SELECT epoch_us(hour) // 3600000000, billed, effective, bill_billed_cost, bill_cost, basis
    FROM costs FULL JOIN hours USING (hour)
    WHERE billed IS NOT NULL OR bill_cost <> 0 OR bill_billed_cost <> 0
"""
ESTIMATED = "SELECT count(*) FROM cost_allocation WHERE x_CostBasis <> 'billed'"

# Billed and effective cost of rows of nodes, with the keys of `Rows` in bills_expected.py.
NodeRows = dict[tuple[int, str, str | None, str, int], tuple[int, int]]


class Bill(NamedTuple):
    """A bill, and what the tables must have of it."""

    provider: str
    path: Path
    world: World
    lines: list[Line]
    # The sum of its costs without any rounding.
    total: Fraction


def run(*arguments: object) -> tuple[str, list[str]]:
    """Runs a command of the program, and returns what it printed, and what is wrong if it fails."""
    command = [os.environ["PRORATA_BINARY"], *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode == 0:
        return done.stdout, []
    output = f"{done.stdout[-OUTPUT:]}\n{done.stderr[-OUTPUT:]}"
    return done.stdout, [f"{' '.join(command)} ended with {done.returncode}:\n{output}"]


def report_of(*arguments: object) -> dict:
    """The report of a command as JSON; ends this program if the command fails."""
    output, problems = run(*arguments, "--json")
    return sys.exit(problems[0]) if problems else json.loads(output)


def shown(amount: int | Fraction) -> str:
    """An amount with three digits more than a table has."""
    return f"{Decimal(round(Fraction(amount) * 1000)).scaleb(-15):f}"


def some(problems: list[str]) -> list[str]:
    """The first problems, and how many more there are."""
    more = len(problems) - SHOWN
    return problems[:SHOWN] + ([f"and {more} more like this"] if more > 0 else [])


def read(provider: str, folder: Path, name: str = "bill.csv") -> Bill:
    lines, total = expected.read_bill(provider, folder / name)
    return Bill(provider, folder / name, World(folder), lines, total)


def import_bill(bill: Bill, exported: str, events: Path, *more: object) -> list[str]:
    """Imports a bill, and compares the report with it."""
    options = ["--organization", ORGANIZATION, "--all", "--recorded-at", exported, "--output", events]
    report = report_of("bills", "import", FORMATS[bill.provider], bill.path, *options, *more)
    costs = ("billed_cost", "effective_cost")
    found = {
        invoice["invoice_id"] or "": tuple(expected.atoms(invoice[cost]) for cost in costs)
        for invoice in report["invoices"]
    }
    problems = different("invoice", expected.invoices(bill.lines), found, "the report")
    # The invoices and what was left out, less what rounding added, are the amounts of the file.
    sums = [*report["invoices"], *report["left_out"].values()]
    rounding = Fraction(report["rounding"]["billed_cost"])
    total = sum(Fraction(costs["billed_cost"]) for costs in sums) - rounding
    if total != bill.total:
        problems.append(f"the report is over {total}, and the bill over {bill.total}")
    return problems


def backfill(events: Path, lake: Path) -> dict:
    report = report_of("backfill", "--events", events, "--lake", lake, "--to", LAST_HOUR)
    if report["dead_letters"] or report["held"]:
        sys.exit(f"not every event was folded: {report['dead_letter_examples']}, {report['held']}")
    return report


def connect(lake: Path) -> duckdb.DuckDBPyConnection:
    connection = engines.connect_duckdb()
    checks.views(connection, lake)
    return connection


def whole(amount) -> int:
    """A decimal of a table as a whole number of 10^-12."""
    return int(Fraction(amount or 0) * ATOMS)


def different(what: str, wanted: dict, found: dict, place: str) -> list[str]:
    """Costs that differ, of two dictionaries with billed and effective cost."""
    problems = []
    for key in sorted(wanted.keys() | found.keys()):
        billed, effective = wanted.get(key, (0, 0))
        there = found.get(key, (0, 0))
        if there != (billed, effective):
            problems.append(
                f"{what} {key!r}: billed {shown(billed)}, effective {shown(effective)} in the bill; "
                f"billed {shown(there[0])}, effective {shown(there[1])} in {place}"
            )
    return some(problems)


def check_sums(bill: Bill, connection: duckdb.DuckDBPyConnection) -> list[str]:
    """Compares invoices and hours."""
    invoices = {
        invoice: (whole(billed), whole(effective))
        for invoice, billed, effective in connection.execute(INVOICES).fetchall()
    }
    problems = different("invoice", expected.invoices(bill.lines), invoices, "the tables")
    by_rows, by_hours = {}, {}
    for hour, *costs, basis in connection.execute(HOURS).fetchall():
        billed, effective, hours_billed, hours_effective = map(whole, costs)
        by_rows[hour], by_hours[hour] = (billed, effective), (hours_billed, hours_effective)
        if basis != "billed":
            problems.append(f"hour {hour} is {basis}, not billed")
    hours = bill.world.hours(bill.lines)
    problems += different("hour", hours, by_rows, "cost_allocation")
    problems += different("hour", hours, by_hours, "hours")
    if estimated := connection.execute(ESTIMATED).fetchone()[0]:
        problems.append(f"{estimated} rows are estimated")
    return problems


def check_rows(bill: Bill, connection: duckdb.DuckDBPyConnection) -> tuple[NodeRows, list[str]]:
    """Compares each row of a node, and returns these rows."""
    found: NodeRows = {}
    problems = []
    for *key, price, billed, effective in connection.execute(NODE_ROWS).fetchall():
        row = (*key, whole(price))
        if row in found:
            problems.append(f"{row} has two rows")
        found[row] = (whole(billed), whole(effective))
    wanted = bill.world.rows(bill.lines)
    for row in sorted(wanted.keys() | found.keys(), key=str):
        if row not in wanted or row not in found:
            problems.append(f"{row} is {'missing in the tables' if row in wanted else 'in the tables alone'}")
            continue
        # A row has its exact part, rounded up or down.
        if any(abs(cost - exact) >= 1 for cost, exact in zip(found[row], wanted[row], strict=True)):
            exact, costs = (list(map(shown, both)) for both in (wanted[row], found[row]))
            problems.append(f"{row}: billed and effective cost {exact} by the bill, {costs} in the tables")
    with_cost = {(hour, node) for (hour, node, *_), (_, effective) in found.items() if effective > 0}
    for node, key in bill.world.keys.items():
        for hour in sorted(bill.world.running[key]):
            if (hour, node) not in with_cost:
                problems.append(f"node {node} has no cost in hour {hour}")
    return found, some(problems)


def check_by_hand(provider: str, found: NodeRows) -> list[str]:
    """Compares the rows that were computed by hand."""
    lines = [line for line in BY_HAND.read_text().splitlines() if not line.startswith("#")]
    names, *rows = (line.split(",") for line in lines)
    problems, compared = [], 0
    for row in (dict(zip(names, cells, strict=True)) for cells in rows):
        if row["provider"] != provider:
            continue
        compared += 1
        hour = expected.hour_of(f"{row['hour']}:00:00Z")
        price = expected.atoms(row["list_unit_price"])
        costs = found.get((hour, row["node"], row["pod"] or None, row["commitment"], price))
        if costs != (expected.atoms(row["billed"]), expected.atoms(row["effective"])):
            problems.append(f"by hand: {row}; in the tables: {costs and list(map(shown, costs))}")
    return problems if compared else [f"{BY_HAND.name} has no rows of {provider}"]


def check_rules(connection: duckdb.DuckDBPyConnection) -> list[str]:
    """Runs the queries of tests/sql, which find nothing in good tables."""
    faults = [(query.stem, checks.check(connection, query)) for query in sorted(checks.QUERIES.glob("*.sql"))]
    return [f"{name} {fault}" for name, fault in faults if fault is not None]


def check_lake(bill: Bill, lake: Path, by_hand: bool) -> list[str]:
    """Compares all of a lake with a bill."""
    connection = connect(lake)
    rows, problems = check_rows(bill, connection)
    if by_hand:
        problems += check_by_hand(bill.provider, rows)
    problems += check_sums(bill, connection) + check_rules(connection)
    options = ["--organization", ORGANIZATION, "--all", "--lake", lake]
    problems += run("bills", "check", FORMATS[bill.provider], bill.path, *options)[1]
    problems += run("check", "--lake", lake, "--allow-warnings")[1]
    invoices = len(expected.invoices(bill.lines).keys() - {""})
    print(
        f"{bill.provider}: {len(bill.lines)} lines of {invoices} invoices, {len(rows)} rows of nodes, "
        f"{len(problems)} problems"
    )
    return [f"{bill.provider}: {problem}" for problem in problems]
