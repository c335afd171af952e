"""Figures of a backfill: they need no servers."""

import argparse
import os
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import compare
import loads
import measure

# Of which growth is measured, as far as the machine has them.
CORES = 1, 2, 4, 8, 16


def tables(options: argparse.Namespace, work: Path) -> Iterator[measure.Figure]:
    """Backfill of a clean load next to DuckDB writing the same tables in as many files."""
    shape = loads.SHAPES[options.shape]
    sizes = shape.backfill | {loads.ONE: shape.close[loads.ONE]}
    for name, size in loads.chosen(options, sizes).items():
        load = loads.clean(loads.prepare(f"tables {name}", size, work))
        folder = load.files.parent
        fresh, target = folder / "fresh", folder / "written"
        script = str(loads.PEERS / "tables_duckdb.py")
        theirs = [sys.executable, script, str(folder), str(target), str(options.threads)]
        rows = compare.rows(load.lake)
        sources = {
            "files": (fresh, loads.backfill(load.files, fresh)),
            "archive": (load.lake, loads.backfill(load.known, load.lake, "--from", load.start)),
        }
        for source, (ours, command) in sources.items():
            pairs = measure.pairs(
                options, lambda: without(fresh, command, options), lambda: without(target, theirs, options)
            )
            problem = compare.written(ours, target)
            title = f"the same tables, {name}, from {source}"
            yield measure.Figure(title, "DuckDB", "at most 1", pairs, problem, rows=rows)


def without(folder: Path, command: list[str], options: argparse.Namespace) -> measure.Cost:
    """Runs a command when a folder of an earlier run is gone."""
    shutil.rmtree(folder, ignore_errors=True)
    return measure.run(command, options.threads)[0]


def close(options: argparse.Namespace, work: Path) -> Iterator[measure.Rows]:
    """Hour close: folding the archive again and encoding all tables, of as many pods in one organization and
    in many."""
    for name, size in loads.chosen(options, loads.SHAPES[options.shape].close).items():
        load = loads.prepare(f"close {name}", size, work)
        command = loads.backfill(load.known, load.lake, "--from", load.start)
        costs = [measure.run(command, options.threads)[0] for _ in range(options.pairs + 1)][1:]
        yield measure.Rows(f"hour close, {name}", "at most 20 µs a row", costs, compare.rows(load.lake))


def growth(options: argparse.Namespace, work: Path) -> Iterator[measure.Growth]:
    """Time and memory of a backfill with more pods, more shards, more organizations, more cores.

    Time is that of processors; with more cores, what they all have by the clock, busy or not: when twice as
    many take half the time, its exponent is 0.
    """
    shape = loads.SHAPES[options.shape]
    by_pods = {shape.hours * pods: (loads.running(1, pods, shape.hours), ()) for pods in shape.pods}
    yield grown("pod-hours", by_pods, options, work)
    by_shards = {count: (shape.shards, shards_of(count, work)) for count in (1, 4, 16, 64)}
    yield grown("shards of one load", by_shards, options, work)
    by_count = {count: (loads.running(count, 4), ()) for count in shape.organizations}
    yield grown("organizations", by_count, options, work)
    cores = len(os.sched_getaffinity(0))
    by_cores = {count: (shape.backfill[loads.MEASURED], ()) for count in CORES if count <= cores}
    if len(by_cores) > 1:
        yield grown("cores", by_cores, options, work, on_cores=True)


def shards_of(count: int, work: Path) -> tuple[str, str]:
    """The option that makes a root of so many shards."""
    config = work / f"{count}-shards.yaml"
    config.write_text(f"root: {{shards: {count}}}\n")
    return "--config", str(config)


def grown(
    name: str,
    sizes: dict[int, tuple[loads.Size, tuple[str, ...]]],
    options: argparse.Namespace,
    work: Path,
    *,
    on_cores: bool = False,
) -> measure.Growth:
    """Runs a backfill of each size in turn, as many rounds as there are pairs. Sizes may be cores, each of
    which runs a thread."""
    folder = work / f"growth-{name.split()[0]}"
    events, lake = {}, folder / "lake"
    for number, (size, _) in sizes.items():
        events[number] = folder / "-".join(map(str, size))
        if not events[number].exists():
            measure.check(loads.generate(size, events[number]))
    costs = {number: [] for number in sizes}
    for _ in range(options.pairs):
        for number, (_, more) in sizes.items():
            shutil.rmtree(lake, ignore_errors=True)
            held = (number, number) if on_cores else (options.threads,)
            cost, _ = measure.run(loads.backfill(events[number], lake, *more), *held)
            costs[number].append(cost)
    medians = {number: measure.median(found) for number, found in costs.items()}
    shutil.rmtree(folder)
    return measure.Growth(f"growth with {name}", "at most 1.15", medians)


FIGURES: dict[str, Callable] = {
    "tables": tables,
    "close": close,
    "growth": growth,
}
