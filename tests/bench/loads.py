"""The events of each shape, and the commands that make and fold them."""

import os
import shutil
from pathlib import Path
from typing import NamedTuple

import duckdb

import measure

HERE = Path(__file__).resolve().parent
PEERS = HERE / "peers"
START = "2026-11-20T00"

# Columns of the peers' events, whose empty fields would not tell their types.
TYPES = {
    **dict.fromkeys(("organization", "cluster", "node", "pod"), "VARCHAR"),
    **dict.fromkeys(("kind", "time", "cpu", "memory", "gpu", "interval_end"), "BIGINT"),
    "hourly_cost": "DECIMAL(28,12)",
}


class Size(NamedTuple):
    """What is generated."""

    organizations: int
    pods: int
    """Pods that run at once in each."""
    hours: int


class Shape(NamedTuple):
    """What every figure is measured on."""

    backfill: dict[str, Size]
    """Of few large organizations, and of many small ones."""
    close: dict[str, Size]
    """As many pods in one organization and in many."""
    shards: Size
    """About 100 rows for each of 16 shards and hour."""
    stream: Size
    pods: tuple[int, ...]
    """Pods of one organization, for two hours."""
    organizations: tuple[int, ...]
    """Organizations of four pods, for two hours."""
    memory: int
    """Running pods."""


SMALL = Size(64, 9, 12)
SHAPES = {
    "small": Shape(
        {"large organizations": Size(2, 600, 6), "small organizations": Size(100, 8, 4)},
        {"1 organization": Size(1, 4000, 2), "100 organizations": Size(100, 40, 2)},
        SMALL,
        Size(12, 150, 12),
        (100, 1000, 3000, 10_000),
        (10, 100, 300, 1000),
        20_000,
    ),
    "middle": Shape(
        {"large organizations": Size(4, 2000, 12), "small organizations": Size(100, 20, 24)},
        {"1 organization": Size(1, 40_000, 2), "1,000 organizations": Size(1000, 40, 2)},
        SMALL,
        Size(40, 200, 24),
        (1000, 10_000, 30_000, 100_000),
        (100, 1000, 3000, 10_000),
        100_000,
    ),
    "large": Shape(
        {"large organizations": Size(4, 10_000, 12), "small organizations": Size(1000, 20, 24)},
        {"1 organization": Size(1, 1_000_000, 2), "1,000 organizations": Size(1000, 1000, 2)},
        SMALL,
        Size(40, 2500, 24),
        (1000, 10_000, 100_000, 1_000_000),
        (100, 1000, 3000, 10_000),
        1_000_000,
    ),
}


class Load(NamedTuple):
    """Events in every form that a side reads."""

    name: str
    files: Path
    lake: Path
    parquet: Path
    """One file of the events, all of which the lake has: what a run is given that folds the archive again."""
    known: Path


def program() -> str:
    """The program that is measured."""
    return os.environ["PRORATA_BINARY"]


def generate(size: Size, target: Path, *more: str) -> list[str]:
    """The command that writes events as files."""
    numbers = zip(("--organizations", "--pods", "--hours"), map(str, size), strict=True)
    made = [argument for pair in numbers for argument in pair]
    return [program(), "generate", *made, "--seed", "9", "--start", START, "--to", str(target), *more]


def backfill(events: Path, lake: Path, *more: str) -> list[str]:
    """The command of a backfill."""
    return [program(), "backfill", "--events", str(events), "--lake", str(lake), *more]


def prepare(name: str, size: Size, work: Path) -> Load:
    """Makes the events of a size, and the lake that they fold to."""
    folder = work / name.replace(" ", "-")
    load = Load(name, folder / "files", folder / "lake", folder / "events.parquet", folder / "known")
    measure.check(generate(size, load.files))
    measure.check(backfill(load.files, load.lake))
    load.known.mkdir()
    shutil.copy(min(load.files.rglob("*.avro"), key=lambda path: path.stat().st_size), load.known)
    return load


def export(lake: Path, parquet: Path) -> None:
    """Writes the events of a lake's archive as the peers read them."""
    csv = parquet.with_suffix(".csv")
    measure.check([str(PEERS / "export_events.py"), str(lake), str(csv)])
    types = ", ".join(f"'{column}': '{kind}'" for column, kind in TYPES.items())
    read = f"read_csv('{csv}', header = true, types = {{{types}}})"
    duckdb.execute(f"COPY (SELECT * FROM {read}) TO '{parquet}' (FORMAT parquet)")
    csv.unlink()
