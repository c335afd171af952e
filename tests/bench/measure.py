"""Processor time and peak memory of whole processes, in pairs."""

import argparse
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from typing import NamedTuple

class Cost(NamedTuple):
    """What one run took."""

    seconds: float
    peak_mb: float

    def __str__(self) -> str:
        return f"{self.seconds:.2f} s, {self.peak_mb:,.0f} MB"


class Figure(NamedTuple):
    """One line of the table: pairs of ours and a peer's."""

    name: str
    peer: str
    target: str
    pairs: list[tuple[Cost, Cost]]
    # How the outputs differ; none when they are the same.
    problem: str | None
    # Events that each side takes, and rows of cost_allocation that ours writes, where a figure counts them.
    events: int = 0
    rows: int = 0

    def ratio(self) -> float:
        """The median over pairs of our processor time over the peer's."""
        return statistics.median(ours.seconds / theirs.seconds for ours, theirs in self.pairs)

    def medians(self) -> list[Cost]:
        """Medians of each side by itself."""
        return [median(list(side)) for side in zip(*self.pairs)]

    def cells(self) -> tuple[str, str, str]:
        """Ours, the peer's, and the result, for people."""
        ours, theirs = self.medians()
        result = f"{self.ratio():.2f}"
        result += f"; {self.events / ours.seconds:,.0f} events per CPU second" if self.events else ""
        result += f"; {per_row(ours, self.rows)}" if self.rows else ""
        return str(ours), f"{self.peer}: {theirs}", result

    def described(self) -> dict:
        """All of it, for machines."""
        ours, theirs = self.medians()
        report = {"peer": self.peer, "ratio": round(self.ratio(), 3), "pairs": len(self.pairs)}
        report |= {"events": self.events} if self.events else {}
        report |= {"rows": self.rows} if self.rows else {}
        return report | {"ours": ours._asdict(), "theirs": theirs._asdict()}


class Rows(NamedTuple):
    """One line of the table: runs of ours alone, by the rows of cost_allocation that they write."""

    name: str
    target: str
    costs: list[Cost]
    rows: int
    problem: None = None

    def cells(self) -> tuple[str, str, str]:
        """Ours, the rows, and the result, for people."""
        ours = median(self.costs)
        return str(ours), f"{self.rows:,} rows", per_row(ours, self.rows)

    def described(self) -> dict:
        """All of it, for machines."""
        return {"runs": len(self.costs), "rows": self.rows, "ours": median(self.costs)._asdict()}


class Growth(NamedTuple):
    """One line of the table: what more of something costs, as an exponent; 1 is a straight line."""

    name: str
    target: str
    # By how much of it there is.
    costs: dict[int, Cost]
    problem: None = None

    def exponents(self) -> tuple[float, float]:
        """Of time and of memory: the slopes of lines through the upper half of the sizes, where what a run
        costs anyway shows less, both axes in logarithms."""
        points = sorted(self.costs.items())
        upper = points[(len(points) - 1) // 2 :]
        sizes = [math.log(size) for size, _ in upper]
        sides = zip(*((math.log(cost.seconds), math.log(cost.peak_mb)) for _, cost in upper))
        seconds, memory = (statistics.linear_regression(sizes, list(side)).slope for side in sides)
        return seconds, memory

    def cells(self) -> tuple[str, str, str]:
        """The ends, and the exponents, for people."""
        least, most = min(self.costs), max(self.costs)
        ends = f"{least:,}: {self.costs[least]}; {most:,}: {self.costs[most]}"
        seconds, memory = self.exponents()
        return ends, "a straight line", f"exponent {seconds:.2f}; of memory {memory:.2f}"

    def described(self) -> dict:
        """All of it, for machines."""
        seconds, memory = self.exponents()
        costs = {size: cost._asdict() for size, cost in self.costs.items()}
        return {"exponent": round(seconds, 3), "memory_exponent": round(memory, 3), "costs": costs}


class Bytes(NamedTuple):
    """One line of the table: bytes of something of ours, next to what they stand for."""

    name: str
    peer: str
    target: str
    ours: float
    theirs: float
    problem: str | None = None

    def cells(self) -> tuple[str, str, str]:
        """Ours, the other, and the ratio, for people."""
        ours, theirs = f"{self.ours:,.0f} B", f"{self.peer}: {self.theirs:,.0f} B"
        return ours, theirs, f"{self.ours / self.theirs:.2f}"

    def described(self) -> dict:
        """All of it, for machines."""
        ratio = round(self.ours / self.theirs, 3)
        return {"peer": self.peer, "ratio": ratio, "ours": self.ours, "theirs": self.theirs}


class Seconds(NamedTuple):
    """One line of the table: pairs of times by the wall clock, ours and a peer's."""

    name: str
    peer: str
    target: str
    pairs: list[tuple[float, float]]
    problem: str | None = None

    def medians(self) -> tuple[float, float]:
        """Medians of each side by itself."""
        ours, theirs = (statistics.median(side) for side in zip(*self.pairs))
        return ours, theirs

    def cells(self) -> tuple[str, str, str]:
        """Ours, the peer's, and the ratio, for people."""
        ours, theirs = self.medians()
        return f"{ours:.2f} s", f"{self.peer}: {theirs:.3f} s", f"{ours / theirs:.1f}"

    def described(self) -> dict:
        """All of it, for machines."""
        ours, theirs = self.medians()
        report = {"peer": self.peer, "ratio": round(ours / theirs, 3), "pairs": len(self.pairs)}
        return report | {"ours": ours, "theirs": theirs}


# A line of the table.
Line = Figure | Rows | Growth | Bytes | Seconds


def median(costs: list[Cost]) -> Cost:
    """The medians of time and of memory, each by itself."""
    return Cost(*map(statistics.median, zip(*costs)))


def per_row(cost: Cost, rows: int) -> str:
    """Processor time of a row."""
    return f"{cost.seconds / rows * 1e6:.1f} µs a row"


def check(command: list[str]) -> str:
    """Runs a command that is not measured and must succeed, and returns what it printed; a script finds its
    own environment."""
    import environment

    settings = {name: value for name, value in os.environ.items() if name != environment.ENTERED}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=settings)
    if done.returncode:
        sys.exit(f"{' '.join(command)}: {done.stdout}{done.stderr}")
    return done.stdout


def run(command: list[str], threads: int, cores: int = 0) -> tuple[Cost, str]:
    """Runs a command to its end, on so many threads where it is ours to say. Its seconds are processor time;
    with a number of cores, it has only those, and its seconds are what they all have by the clock.

    A child's peak memory counts that of the process which it was forked from. So a process that holds nothing
    starts it: this file by itself.
    """
    counts = {name: str(threads) for name in ("RAYON_NUM_THREADS", "TOKIO_WORKER_THREADS")}
    with tempfile.NamedTemporaryFile("r") as report:
        starter = [sys.executable, "-S", __file__, report.name, str(cores), *command]
        done = subprocess.run(
            starter,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=os.environ | counts,
            check=False,
        )
        if done.returncode:
            sys.exit(f"{' '.join(command)}: exit code {done.returncode}: {done.stdout}")
        seconds, peak_mb = map(float, report.read().split())
    return Cost(seconds, peak_mb), done.stdout


def start() -> None:
    """Runs the command that follows the name of a file and a number of cores (see `run`), and writes what it
    took to that file."""
    report, count, *command = sys.argv[1:]
    cores = int(count)
    if cores:
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:cores])
    started = time.monotonic()
    child = os.posix_spawnp(command[0], command, os.environ)
    _, status, usage = os.wait4(child, 0)
    held = cores * (time.monotonic() - started)
    with open(report, "w", encoding="utf-8") as out:
        out.write(f"{held or usage.ru_utime + usage.ru_stime} {usage.ru_maxrss / 1024}")
    sys.exit(os.waitstatus_to_exitcode(status))


def pairs(
    options: argparse.Namespace, ours: Callable[[], Cost], theirs: Callable[[], Cost]
) -> list[tuple[Cost, Cost]]:
    """Runs both sides in turn, and once before that counts."""
    return [(ours(), theirs()) for _ in range(options.pairs + 1)][1:]


def as_json(lines: list[Line]) -> str:
    """All lines, those without a figure with the reason."""
    return json.dumps([described(line) for line in lines], indent=2)


def described(line: Line) -> dict:
    """One line in full."""
    report = {"figure": line.name, "target": line.target}
    return report | ({"differs": line.problem} if line.problem else line.described())


def as_table(lines: list[Line], processor: str) -> str:
    """The table for people, in Markdown."""
    table = [
        f"{os.cpu_count()} x {processor or 'unknown processor'}",
        "",
        "| figure | prorata | compared with | result | target |",
        "|---|---|---|---|---|",
    ]
    for line in lines:
        cells = ("", "", f"outputs differ: {line.problem}") if line.problem else line.cells()
        table.append(f"| {' | '.join((line.name, *cells, line.target))} |")
    return "\n".join(table)


if __name__ == "__main__":
    start()
