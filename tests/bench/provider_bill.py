"""The figure of bills: it needs no servers."""

import argparse
import json
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import compare
import loads
import measure

# The lines from which the time and the memory of an import are bounded, too.
MANY_LINES = 10_000_000


def bills(options: argparse.Namespace, work: Path) -> Iterator[measure.Figure]:
    """Import of a bill of AWS, next to DuckDB grouping its lines by resource and hour. Both have one thread:
    the import never has more."""
    lines = loads.SHAPES[options.shape].bill_lines
    folder = work / "bills"
    folder.mkdir(parents=True)
    bill, ours, theirs = folder / "bill.parquet", folder / "bill.avro", folder / "groups.parquet"
    loads.write_bill(lines, bill)
    peer = [sys.executable, str(loads.PEERS / "bills_duckdb.py"), str(bill), str(theirs)]
    reports = []

    def imported() -> measure.Cost:
        cost, output = measure.run(loads.import_bill(bill, ours), 1)
        reports.append(json.loads(output))
        return cost

    pairs = measure.pairs(options, imported, lambda: measure.run(peer, 1)[0])
    problem = compare.bill(reports, lines, theirs)
    shutil.rmtree(folder)
    yield measure.Figure(f"a bill of {lines:,} lines", "DuckDB", target(lines), pairs, problem)


def target(lines: int) -> str:
    """What an import of so many lines may take: this many times what the peer takes, or so much."""
    return "at most 2, or 120 s and 512 MB" if lines >= MANY_LINES else "at most 2"


FIGURES: dict[str, Callable] = {"bills": bills}
