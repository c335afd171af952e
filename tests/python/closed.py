#!/usr/bin/env python3
"""Closes months with the program, corrects them, and tampers with them.

usage: tests/python/closed.py

PRORATA_BINARY names the program. closed_world.py makes the events. `prorata check --closed` and
verify_closed.py must agree that a lake is in order, and that it is not. After each change of a closed month:

- The files and manifests of closed months have the same bytes as before.
- Corrections are pending until the open month closes. Then they are in its manifest.
- The corrections have the amount by which the bill changed, to the last digit.

The views of FOCUS of the lake with corrections go through focus-data-toolkit.
"""

import environment

environment.enter("readers")

import csv
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path

import checks
import engines
import views
from focus_lake import line
from program import prorata
from verify_closed import live_files

# As closed_world.py has them.
ORGANIZATION, FOLDER, MACHINE = "Acme & Co.", "Acme=20=26=20Co=2E", "i-0a1b2c3d"
ACCOUNT = "999900001111"
TABLE = "closed_allocation"
# Begin and end of the bill of each month, its hours, and its invoice.
MONTHS = {
    "2026-08": ("2026-08-31T20:00:00Z", "2026-09-01T00:00:00Z", "4", "INV-08"),
    "2026-09": ("2026-09-30T22:00:00Z", "2026-10-01T00:00:00Z", "2", "INV-09"),
}
# How much more the bill of August says, each time that it is sent again.
MORE = [Decimal("0.25"), Decimal("0.75")]
FOCUS_TABLES = ("cost_allocation", TABLE, "hours", "commitment_utilization", "reservation_usage")


def run(*command: object) -> tuple[int, str]:
    """The exit code of a command, and what it printed."""
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False)
    return done.returncode, done.stdout + done.stderr


def verdicts(lake: Path) -> dict[str, tuple[int, str]]:
    """The exit code and the output of both verifiers."""
    check = [os.environ["PRORATA_BINARY"], "check", "--lake", lake, "--closed", "--allow-warnings"]
    return {
        "verify_closed.py": run(sys.executable, environment.HERE / "verify_closed.py", lake),
        "prorata check --closed": run(*check),
    }


def manifests(lake: Path) -> dict[str, dict]:
    """The manifests by month."""
    folder = lake / "closed" / FOLDER
    return {path.stem: json.loads(path.read_text()) for path in sorted(folder.glob("*.json"))}


def issued(lake: Path) -> dict[Path, bytes]:
    """The content of all manifests, and of the files that they list."""
    paths = [path.relative_to(lake) for path in (lake / "closed").rglob("*.json")]
    for manifest in manifests(lake).values():
        paths += [Path(TABLE, file["path"]) for file in manifest["files"]]
    return {path: (lake / path).read_bytes() for path in paths}


def pending(lake: Path) -> set[str]:
    """The live files that no manifest lists."""
    listed = {file["path"] for manifest in manifests(lake).values() for file in manifest["files"]}
    return live_files(lake / TABLE) - listed


def corrections(lake: Path, period: str) -> Decimal:
    """The sum of all corrections in a billing period."""
    query = f"""
        SELECT coalesce(sum(BilledCost), 0) FROM delta_scan('{lake}/{TABLE}')
        WHERE ChargeClass = 'Correction' AND BillingPeriodStart = TIMESTAMPTZ '{period}-01 00:00:00+00'
    """
    return engines.connect_duckdb().execute(query).fetchone()[0]


class World:
    """A lake, and what was found wrong with it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.lake = folder / "lake"
        self.problems: list[str] = []
        # Number of folders with events.
        self.sent = 0

    def expect(self, holds: bool, problem: str) -> None:
        if not holds:
            self.problems.append(problem)

    def fold(self, events: Path) -> None:
        report = prorata("backfill", "--events", str(events), "--lake", str(self.lake), "--json")
        letters = json.loads(report)["dead_letters"]
        self.expect(not letters, f"{letters} events of {events.name} are dead letters")

    def events(self) -> Path:
        """An empty folder for events."""
        self.sent += 1
        events = self.folder / f"events-{self.sent}"
        events.mkdir()
        return events

    def send_bill(self, more: Decimal, exported: str) -> None:
        """Imports and folds the bill of both months, in which the disk of August costs more."""
        lines = []
        for month, (begin, end, hours, invoice) in MONTHS.items():
            of_month = {"ChargePeriodStart": begin, "ChargePeriodEnd": end, "InvoiceId": invoice}
            time = {"PricingUnit": "Hours", "PricingQuantity": hours, "ListUnitPrice": "0.192"}
            machine = {"ResourceId": MACHINE, "ServiceName": "Virtual Machines", "SkuId": "machine"}
            disk = {"ResourceId": "vol-0a1b2c3d", "ServiceName": "Disks", "SkuId": "disk"}
            cost = Decimal("0.7") + (more if month == "2026-08" else 0)
            lines += [
                line("Usage", "Hours of a machine", "0.7", **time, **machine, **of_month),
                line("Usage", "A disk", str(cost), **disk, **of_month),
                line("Tax", "Tax", "0.33", **of_month),
            ]
        path = self.folder / "bill.csv"
        with path.open("w", newline="") as file:
            writer = csv.DictWriter(file, list(dict.fromkeys(name for row in lines for name in row)))
            writer.writeheader()
            writer.writerows(lines)
        events = self.events()
        options = ["--organization", ORGANIZATION, "--all", "--recorded-at", exported]
        prorata("bills", "import", "focus", str(path), *options, "--output", str(events))
        self.fold(events)

    def close_bill(self, period: str, *more: str) -> None:
        """Sends that the bill of a month is complete."""
        events = self.events()
        account = ["--organization", ORGANIZATION, "--provider", "aws", "--billing-account", ACCOUNT]
        prorata("bills", "close", *account, "--period", period, *more, "--to", str(events))
        self.fold(events)

    def close(self) -> None:
        """Closes what can be closed. Nothing that was issued changes."""
        before = issued(self.lake)
        prorata("close", "--lake", str(self.lake))
        after = issued(self.lake)
        changed = [str(path) for path, content in before.items() if after.get(path) != content]
        self.expect(not changed, f"prorata close changed {changed}")

    def is_good(self, step: str, closed: list[str], has_pending: bool) -> None:
        """Compares the lake with the months that must be closed; both verifiers must find nothing."""
        found = list(manifests(self.lake))
        self.expect(found == closed, f"{step}: {found} are closed, and not {closed}")
        left = sorted(pending(self.lake))
        self.expect(bool(left) == has_pending, f"{step}: pending files are {left}")
        for name, (code, output) in verdicts(self.lake).items():
            self.expect(code == 0, f"{step}: {name} ended with {code}:\n{output}")
        print(f"{step}: {len(found)} months closed, {len(left)} pending files", flush=True)

    def late(self, step: str, more: Decimal, exported: str) -> None:
        """Sends the bill of August again, which is closed, and writes the corrections."""
        before = issued(self.lake)
        self.send_bill(more, exported)
        self.expect(issued(self.lake) == before, f"{step}: the late bill changed what was issued")
        for name, (_, output) in verdicts(self.lake).items():
            advice = "prorata close" in output
            self.expect(advice, f"{step}: {name} does not advise to run prorata close:\n{output}")
        self.close()
        self.is_good(step, ["2026-08"], has_pending=True)
        found = corrections(self.lake, "2026-09")
        self.expect(found == more, f"{step}: corrections sum to {found}, and the bill has {more} more")

    def is_tampered(self, step: str, tamper: Callable[[Path], str]) -> None:
        """Tampers with a copy of the lake: both verifiers must print the name that `tamper` returns."""
        copy = self.folder / "tampered"
        shutil.copytree(self.lake, copy)
        name = tamper(copy)
        for verifier, (code, output) in verdicts(copy).items():
            named = code == 1 and name in output
            self.expect(named, f"{step}: {verifier} ended with {code} and does not name {name}:\n{output}")
        shutil.rmtree(copy)
        print(f"{step}: found", flush=True)


def change_byte(lake: Path) -> str:
    path = lake / TABLE / manifests(lake)["2026-08"]["files"][0]["path"]
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    return path.name


def delete_file(lake: Path) -> str:
    path = lake / TABLE / manifests(lake)["2026-09"]["files"][0]["path"]
    path.unlink()
    return path.name


def edit_manifest(lake: Path) -> str:
    path = lake / "closed" / FOLDER / "2026-09.json"
    path.write_text(path.read_text().replace("INV-09", "INV-10"))
    return path.stem


def delete_manifest(lake: Path) -> str:
    path = lake / "closed" / FOLDER / "2026-09.json"
    path.unlink()
    return path.stem


def add_file(lake: Path) -> str:
    """Adds a copy of a file to the table, in a commit of its own."""
    listed = manifests(lake)["2026-08"]["files"][0]
    source = lake / TABLE / listed["path"]
    foreign = source.with_name("foreign.parquet")
    shutil.copy(source, foreign)
    log = lake / TABLE / "_delta_log"
    last = max(log.glob("*.json"))
    partition = foreign.parent.name
    add = {
        "path": f"{partition}/{foreign.name}",
        "partitionValues": {"date": partition.removeprefix("date=")},
        "size": listed["bytes"],
        "modificationTime": 0,
        "dataChange": True,
    }
    (log / f"{int(last.stem) + 1:020}.json").write_text(json.dumps({"add": add}) + "\n")
    return foreign.name


def check_views(world: World) -> None:
    """Creates the views of FOCUS, compares their sums with the ledger, and runs the toolkit on them."""
    connection, lake = engines.connect_duckdb(), world.lake
    for table in FOCUS_TABLES:
        connection.execute(f"CREATE VIEW {table} AS SELECT * FROM delta_scan('{lake}/{table}')")
    for statement in views.focus("duckdb", closed=True):
        connection.execute(statement)

    def value(query: str) -> object:
        return connection.execute(query).fetchone()[0]

    def columns(view: str) -> list[str]:
        return sorted(column[0] for column in connection.execute(f"FROM {view} LIMIT 0").description)

    world.problems += views.faults(value, views.FOCUS, {})
    wanted = sorted([*columns("cost_allocation"), "x_BillingPeriodStatus"])
    found = columns("finance_allocation")
    world.expect(found == wanted, f"finance_allocation lacks or adds {set(found) ^ set(wanted)}")
    query = "SELECT strftime(BillingPeriodStart, '%Y-%m'), {} GROUP BY 1"
    state = query.format("min(BillingPeriodStatus), max(BillingPeriodStatus) FROM focus_billing_period")
    states = {month: set(both) for month, *both in connection.execute(state).fetchall()}
    closed = {month for month, both in states.items() if both == {"Closed"}}
    opened = {month for month, both in states.items() if both == {"Open"}}
    is_split = closed == set(manifests(lake)) and opened == states.keys() - closed and bool(opened)
    world.expect(is_split, f"the billing periods are {states}")
    costs = dict(connection.execute(query.format("sum(BilledCost) FROM focus_1_4")).fetchall())
    for month, manifest in manifests(lake).items():
        total = sum(Decimal(each["billed_cost"]) for each in manifest["totals"])
        world.expect(costs[month] == total, f"FOCUS has {costs[month]} in {month}, its manifest {total}")
    for name in views.FOCUS:
        connection.execute(f"COPY {name} TO '{world.folder}/{name}.parquet' (FORMAT parquet)")
    code, output = run(environment.HERE / "focus_toolkit.py", world.folder)
    print(output, end="", flush=True)
    world.expect(code == 0, f"focus_toolkit.py ended with {code}")


def check_rules(world: World) -> None:
    """Runs the queries of tests/sql on the ledger, whose hours are final."""
    connection = engines.connect_duckdb()
    checks.views(connection, world.lake)
    final = connection.execute("SELECT count(*) FROM hours WHERE basis = 'final'").fetchone()[0]
    world.expect(final > 0, "no hour is final")
    # In October the organization has no hours for weeks, and `grain_hours` wants no gap.
    queries = [path for path in checks.QUERIES.glob("*.sql") if path.stem != "grain_hours"]
    for query in sorted(queries):
        fault = checks.check(connection, query)
        world.expect(fault is None, f"{query.stem} {fault}")


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="prorata-closed-") as temporary:
        world = World(Path(temporary))
        subprocess.run([environment.HERE / "closed_world.py", world.folder], check=True)
        world.fold(world.folder / "world")
        world.send_bill(Decimal(0), "2026-10-02T00:00:00Z")
        world.close()
        world.is_good("nothing to close", [], has_pending=False)
        world.close_bill("2026-08", "--invoice", "INV-08")
        world.close()
        world.is_good("August", ["2026-08"], has_pending=False)
        invoices = manifests(world.lake).get("2026-08", {}).get("invoices")
        world.expect(invoices == ["INV-08"], f"the invoices of August are {invoices}")

        world.late("a late bill", MORE[0], "2026-10-03T00:00:00Z")
        first = pending(world.lake)
        commits = len(list((world.lake / TABLE / "_delta_log").glob("*.json")))
        world.close()
        again = len(list((world.lake / TABLE / "_delta_log").glob("*.json")))
        world.expect(again == commits, "prorata close commits although nothing has changed")
        world.late("a later bill", MORE[1], "2026-10-04T00:00:00Z")
        world.expect(pending(world.lake).isdisjoint(first), "pending files were not replaced")
        # A pod moves cost between rows, and changes no sum.
        world.fold(world.folder / "late")
        before = pending(world.lake)
        world.close()
        world.is_good("a late pod", ["2026-08"], has_pending=True)
        world.expect(pending(world.lake) != before, "the late pod corrects nothing")

        world.close_bill("2026-09")
        world.close()
        world.is_good("September", ["2026-08", "2026-09"], has_pending=False)
        files = [file["path"] for file in manifests(world.lake)["2026-09"]["files"]]
        world.expect(any(path.startswith("date=2026-08-31/") for path in files), f"September has {files}")
        found = corrections(world.lake, "2026-09")
        world.expect(found == MORE[1], f"the corrections of September sum to {found}")
        world.fold(world.folder / "october")
        check_views(world)
        check_rules(world)
        world.close_bill("2026-10")
        world.close()
        world.is_good("October", ["2026-08", "2026-09", "2026-10"], has_pending=False)

        world.is_tampered("a changed byte", change_byte)
        world.is_tampered("a deleted file", delete_file)
        world.is_tampered("an edited manifest", edit_manifest)
        world.is_tampered("a deleted manifest", delete_manifest)
        world.is_tampered("a foreign file", add_file)
    for problem in world.problems:
        print(problem, file=sys.stderr)
    sys.exit(1 if world.problems else 0)


if __name__ == "__main__":
    main()
