#!/usr/bin/env python3
"""The report's page in a browser: its figures are those that DuckDB adds up from the tables.

usage: tests/browser/check

PRORATA_BINARY names the program. A month of generated events becomes a lake, and the lake a page; so do four
days with very many pods.
"""

import datetime
import decimal
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from environment import HERE, enter

enter("readers")

from engines import connect_duckdb

# Rows of the large page: of each hour, as it has no more of them than a page shows one by one.
ROWS = 100_000
LARGE = ["--organizations", "4", "--pods", "200", "--hours", "96", "--seed", "6"]
MONTH = ["--organizations", "2", "--pods", "2", "--hours", "720", "--seed", "5"]
TILES = {
    "Total cost": "true",
    "Idle nodes": "x_RowKind = 'node_idle'",
    "Unused reservations": "x_RowKind = 'reservation_unused'",
    "Unused commitments": "x_RowKind = 'commitment_unused'",
    "Over quota": "x_QuotaState = 'over-quota'",
}
GROUP = """CASE x_RowKind
    WHEN 'node_idle' THEN '(idle)'
    WHEN 'reservation_unused' THEN '(unused reservations)'
    WHEN 'commitment_unused' THEN '(unused commitments)'
    WHEN 'commitment_purchase' THEN '(shared charges)'
    WHEN 'shared_charge' THEN coalesce(x_Namespace, '(shared charges)')
    ELSE x_Namespace
END"""


def run(*arguments: object) -> None:
    command = [os.environ["PRORATA_BINARY"], *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    # 3: done, and some of the input is dead-lettered.
    if done.returncode not in (0, 3):
        sys.exit(f"{command} ended with {done.returncode}: {done.stderr}")


def exact(amount: decimal.Decimal | None) -> str:
    """As the page writes all decimals."""
    return f"{(amount or 0):f}".rstrip("0").rstrip(".") if amount else "0"


def figures(connection, of: str) -> dict[str, dict[str, str]]:
    """The page's figures for the organizations of a condition."""
    borne = "x_RowKind <> 'commitment_purchase' OR EffectiveCost <> 0"
    usage = f"FROM lake WHERE ({borne}) AND {of}"
    sums = [f"sum(EffectiveCost) FILTER ({condition})" for condition in TILES.values()]
    unused = "CASE WHEN x_RowKind = 'node_idle' THEN EffectiveCost ELSE x_UnusedCost END"
    sums += ["sum(x_SplitCost)", f"sum({unused})"]
    row = connection.execute(f"SELECT {', '.join(sums)} {usage}").fetchone()
    tiles = dict(zip([*TILES, "Used on nodes", "Unused on nodes"], map(exact, row), strict=True))
    groups = connection.execute(f"SELECT {GROUP}, sum(EffectiveCost) {usage} GROUP BY 1").fetchall()
    return {"tiles": tiles, "groups": {name: exact(cost) for name, cost in groups}}


def write(folder: Path, load: list[str], days_ago: int) -> tuple[Path, Path]:
    """A page of a lake of generated events, and the figures that it must show."""
    lake, page = folder / "lake", folder / "report.html"
    # All of it is over.
    start = datetime.datetime.now(datetime.UTC).date() - datetime.timedelta(days=days_ago)
    run("generate", *load, "--start", f"{start}T00", "--output", folder / "events")
    run("backfill", "--events", folder / "events", "--lake", lake)
    run("report", "--lake", lake, "--output", page)
    connection = connect_duckdb()
    connection.execute(f"CREATE VIEW lake AS SELECT * FROM delta_scan('{lake}/cost_allocation')")
    names = connection.execute("SELECT DISTINCT BillingAccountId FROM lake").fetchall()
    expected = {"": figures(connection, "true")}
    for (name,) in names:
        expected[name] = figures(connection, f"BillingAccountId = '{name}'")
    if len(expected[""]["groups"]) < 4 or expected[""]["tiles"]["Total cost"] == "0":
        sys.exit(f"the lake has too little in it: {expected['']}")
    (folder / "expected.json").write_text(json.dumps({"organizations": expected}))
    return page, folder / "expected.json"


def main() -> None:
    for script, load, days_ago, more in [
        ("page.mjs", MONTH, 40, []),
        ("large.mjs", LARGE, 10, [ROWS]),
    ]:
        with tempfile.TemporaryDirectory(prefix="prorata-report-") as folder:
            arguments = [*write(Path(folder), load, days_ago), *more]
            command = ["node", HERE.parent / "browser" / script, *map(str, arguments)]
            if code := subprocess.run(command, check=False).returncode:
                sys.exit(code)


if __name__ == "__main__":
    main()
