"""The events of each shape, and the commands that make and fold them."""

import argparse
import os
import shutil
from pathlib import Path
from typing import NamedTuple

import duckdb

import measure

HERE = Path(__file__).resolve().parent
PEERS = HERE / "peers"
# At night a third of the pods run that a size names, in the morning of a working day nearly all.
NIGHT, MORNING = "2026-11-20T00", "2026-11-20T09"
# Of November, the month of the bill.
MONTH_HOURS = 720


class Size(NamedTuple):
    """What is generated."""

    organizations: int
    pods: int
    """Pods that run at once in each."""
    hours: int
    usage_interval: str = ""
    """How often every pod is measured, such as `1m`, the collector's default; else rarely, and not all."""
    start: str = NIGHT
    """The first hour."""

    def hour(self, number: int) -> str:
        """An hour, counted from the first; all lie within a day."""
        day, first = self.start.split("T")
        return f"{day}T{int(first) + number:02}"


def running(organizations: int, pods: int, hours: int = 2) -> Size:
    """So many pods that run at once in each organization."""
    return Size(organizations, pods, hours, start=MORNING)


class Shape(NamedTuple):
    """What every figure is measured on."""

    backfill: dict[str, Size]
    """Of few large organizations, of many small ones, and of pods that are measured every minute."""
    close: dict[str, Size]
    """As many pods in one organization and in many."""
    shards: Size
    """About 100 rows for each of 16 shards and hour."""
    stream: dict[str, Size]
    """Of pods that are measured every minute or every six, and of pods that come and go."""
    pods: tuple[int, ...]
    """Pods of one organization."""
    organizations: tuple[int, ...]
    """Organizations of four pods, for two hours."""
    memory: int
    """Running pods."""
    bill_lines: int
    """Lines of a bill."""
    hours: int = 2
    """How long the pods of one organization run."""


SMALL = Size(64, 9, 12)
LARGE, MANY, ONE = "large organizations", "small organizations", "1 organization"
# Of 50 events 49 are samples of use, of ten events nine, and of five events four.
MEASURED, OFTEN, CHANGING = (
    "pods measured every minute", "pods measured every six minutes", "pods that come and go"
)
SHAPES = {
    "small": Shape(
        {LARGE: Size(2, 600, 6), MANY: Size(100, 8, 4), MEASURED: Size(4, 250, 12, "1m")},
        {ONE: running(1, 4000), "100 organizations": running(100, 40)},
        SMALL,
        {MEASURED: Size(20, 50, 12, "1m"), OFTEN: Size(20, 50, 24, "6m"), CHANGING: Size(12, 150, 12)},
        (100, 1000, 3000, 10_000),
        (10, 100, 300, 1000),
        20_000,
        100_000,
    ),
    "middle": Shape(
        {LARGE: Size(4, 2000, 12), MANY: Size(100, 20, 24), MEASURED: Size(4, 2500, 16, "1m")},
        {ONE: running(1, 40_000), "1,000 organizations": running(1000, 40)},
        SMALL,
        {MEASURED: Size(40, 100, 16, "1m"), OFTEN: Size(40, 250, 24, "6m"), CHANGING: Size(40, 200, 24)},
        (1000, 10_000, 30_000, 100_000),
        (100, 1000, 3000, 10_000),
        100_000,
        1_000_000,
    ),
    "large": Shape(
        {LARGE: Size(4, 10_000, 12), MANY: Size(1000, 20, 24), MEASURED: Size(4, 2500, 83, "1m")},
        {ONE: running(1, 1_000_000), "1,000 organizations": running(1000, 1000)},
        SMALL,
        {MEASURED: Size(40, 250, 18, "1m"), OFTEN: Size(40, 1500, 24, "6m"), CHANGING: Size(40, 2500, 24)},
        (100, 1000, 10_000, 100_000, 1_000_000),
        (100, 1000, 3000, 10_000),
        1_000_000,
        10_000_000,
        10,
    ),
}


def chosen(options: argparse.Namespace, sizes: dict[str, Size]) -> dict[str, Size]:
    """The loads that `--load` asks for: those whose name has its text."""
    return {name: size for name, size in sizes.items() if options.load in name}


class Load(NamedTuple):
    """Events, and the lake that they fold to."""

    start: str
    files: Path
    lake: Path
    known: Path
    """One file of the events, all of which the lake has: what a run is given that folds the archive again."""


def program() -> str:
    """The program that is measured."""
    return os.environ["PRORATA_BINARY"]


def generate(size: Size, target: Path, *more: str) -> list[str]:
    """The command that writes events as files."""
    names = "--organizations", "--pods", "--hours", "--usage-interval", "--start"
    options = zip(names, map(str, size), strict=True)
    made = [argument for option, value in options if value for argument in (option, value)]
    return [program(), "generate", *made, "--seed", "9", "--output", str(target), *more]


def backfill(events: Path, lake: Path, *more: str) -> list[str]:
    """The command of a backfill."""
    return [program(), "backfill", "--events", str(events), "--lake", str(lake), *more]


def write_bill(lines: int, target: Path) -> None:
    """Writes a bill of AWS with so many lines as Parquet: a Cost and Usage Report 2.0 of one month."""
    sql = (HERE / "bill.sql").read_text()
    an_hour = (lines + MONTH_HOURS - 1) // MONTH_HOURS
    with duckdb.connect() as database:
        database.execute(sql.replace("$an_hour", str(an_hour)).replace("$lines", str(lines)))
        database.execute(f"COPY (SELECT * FROM bill) TO '{target}' (FORMAT parquet)")


def import_bill(bill: Path, target: Path) -> list[str]:
    """The command that turns all lines of such a bill into events."""
    made = "--organization", "bench", "--all", "--recorded-at", "2026-12-03T00:00:00Z"
    return [program(), "bills", "import", "cur2", str(bill), *made, "--output", str(target), "--json"]


def prepare(name: str, size: Size, work: Path) -> Load:
    """Makes the events of a size, and the lake that they fold to."""
    folder = work / name.replace(" ", "-")
    load = Load(size.start, folder / "files", folder / "lake", folder / "known")
    measure.check(generate(size, load.files))
    measure.check(backfill(load.files, load.lake))
    return with_known(load)


def with_known(load: Load) -> Load:
    """Copies the smallest file of the events."""
    load.known.mkdir()
    shutil.copy(min(load.files.rglob("*.avro"), key=lambda path: path.stat().st_size), load.known)
    return load


# Columns of the clean part that are not texts.
CLEAN_TYPES = {
    **dict.fromkeys(("since", "until", "cpu", "memory", "gpu"), "BIGINT"),
    "hourly_cost": "DECIMAL(28,12)",
}


def clean(load: Load) -> Load:
    """The clean part of a load. The peer reads it as `*.parquet` next to its files."""
    folder = load.lake.with_name("clean")
    cleaned = Load(load.start, folder / "events", folder / "lake", folder / "known")
    measure.check([str(PEERS / "clean_events.py"), str(load.lake), str(folder)])
    for table in folder.glob("*.csv"):
        with table.open() as lines:
            header = next(lines).strip().split(",")
        types = ", ".join(f"'{column}': '{CLEAN_TYPES.get(column, 'VARCHAR')}'" for column in header)
        read = f"read_csv('{table}', header = true, columns = {{{types}}})"
        duckdb.execute(f"COPY (FROM {read}) TO '{table.with_suffix('.parquet')}' (FORMAT parquet)")
        table.unlink()
    measure.check(backfill(cleaned.files, cleaned.lake))
    # A file's name has its hour and its shard.
    files = f"read_parquet('{folder}/lake/hours/**/*.parquet', filename = true)"
    shard = "CAST(split_part(split_part(filename, '/', -1), '-', 2) AS INTEGER)"
    shards = f"SELECT DISTINCT organization_id AS organization, {shard} AS shard FROM {files}"
    duckdb.execute(f"COPY ({shards}) TO '{folder}/shards.parquet' (FORMAT parquet)")
    return with_known(cleaned)
