"""Processor time and peak memory of whole processes, in pairs."""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable
from typing import NamedTuple

# What makes a side's run ready, and its command.
Side = tuple[Callable[[], None], list[str]]


class Cost(NamedTuple):
    """What one run took."""

    seconds: float
    peak_mb: float


class Figure(NamedTuple):
    """One line of the table: pairs of ours and a peer's."""

    name: str
    peer: str
    target: float
    pairs: list[tuple[Cost, Cost]]
    # How the outputs differ; none when they are the same.
    problem: str | None

    def ratio(self) -> float:
        """The median over pairs of our processor time over the peer's."""
        return statistics.median(ours.seconds / theirs.seconds for ours, theirs in self.pairs)

    def medians(self) -> list[Cost]:
        """Medians of each side by itself."""
        sides = zip(*self.pairs)
        return [Cost(*map(statistics.median, zip(*side))) for side in sides]


def check(command: list[str]) -> None:
    """Runs a command that is not measured and must succeed; a script finds its own environment."""
    import environment

    settings = {name: value for name, value in os.environ.items() if name != environment.ENTERED}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=settings)
    if done.returncode:
        sys.exit(f"{' '.join(command)}: {done.stdout}{done.stderr}")


def run(command: list[str], threads: int) -> tuple[Cost, str]:
    """Runs a command to its end, on so many threads where it is ours to say.

    A child's peak memory counts that of the process which it was forked from. So a process that holds nothing
    starts it: this file by itself.
    """
    counts = {name: str(threads) for name in ("RAYON_NUM_THREADS", "TOKIO_WORKER_THREADS")}
    with tempfile.NamedTemporaryFile("r") as told:
        starter = [sys.executable, "-S", __file__, told.name, *command]
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
        seconds, peak_mb = map(float, told.read().split())
    return Cost(seconds, peak_mb), done.stdout


def start() -> None:
    """Runs the command that follows the name of a file, and writes what it took to that file."""
    told, *command = sys.argv[1:]
    child = os.posix_spawnp(command[0], command, os.environ)
    _, status, usage = os.wait4(child, 0)
    with open(told, "w", encoding="utf-8") as out:
        out.write(f"{usage.ru_utime + usage.ru_stime} {usage.ru_maxrss / 1024}")
    sys.exit(os.waitstatus_to_exitcode(status))


def pairs(
    options: argparse.Namespace,
    ours: Side,
    theirs: Side,
    their_seconds: Callable[[str], float] | None = None,
) -> list[tuple[Cost, Cost]]:
    """Runs both sides in turn, and once before that counts. A peer may tell its own time by its output."""

    def one(side: Side) -> tuple[Cost, str]:
        ready, command = side
        ready()
        return run(command, options.threads)

    measured = []
    for turn in range(options.pairs + 1):
        our_cost, _ = one(ours)
        their_cost, output = one(theirs)
        if their_seconds:
            their_cost = their_cost._replace(seconds=their_seconds(output))
        if turn:
            measured.append((our_cost, their_cost))
    return measured


def as_json(figures: list[Figure]) -> str:
    """All figures, those without a ratio with the reason."""
    return json.dumps([described(figure) for figure in figures], indent=2)


def described(figure: Figure) -> dict:
    """One figure in full."""
    told = {"figure": figure.name, "peer": figure.peer, "target": figure.target}
    if figure.problem:
        return told | {"differs": figure.problem}
    ours, theirs = figure.medians()
    told |= {"ratio": round(figure.ratio(), 3), "pairs": len(figure.pairs)}
    return told | {"ours": ours._asdict(), "theirs": theirs._asdict()}


def as_table(figures: list[Figure], processor: str) -> str:
    """The table for people, in Markdown."""
    lines = [
        f"{os.cpu_count()} x {processor or 'unknown processor'}",
        "",
        "| figure | peer | ours, CPU s | theirs, CPU s | ratio | target | ours, MB | theirs, MB |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for figure in figures:
        if figure.problem:
            lines.append(f"| {figure.name} | {figure.peer} | outputs differ: {figure.problem} | | | | | |")
            continue
        ours, theirs = figure.medians()
        costs = f"{ours.seconds:.2f} | {theirs.seconds:.2f} | {figure.ratio():.2f} | {figure.target:g}"
        memory = f"{ours.peak_mb:.0f} | {theirs.peak_mb:.0f}"
        lines.append(f"| {figure.name} | {figure.peer} | {costs} | {memory} |")
    return "\n".join(lines)


if __name__ == "__main__":
    start()
