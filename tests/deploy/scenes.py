"""Real programs in trouble, their metrics scraped, and the chart's rules asked by promtool what they make of
them."""

import contextlib
import datetime
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
import unittest
import urllib.request
from collections.abc import Iterator
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "python"))

import api
import soak
import yaml
from alerts import promtool, rules, write_rules

SHARDS = 2
DAY = datetime.datetime.now(datetime.UTC).date() - datetime.timedelta(days=2)
# The metrics that were seen, of all that was scraped.
SEEN: set[str] = set()


def growth(text: str) -> dict[str, float]:
    """Values of counters and ages, by name with labels."""
    lines = (line for line in text.splitlines() if re.match(r"\w+(_total|_(age|lag)_seconds)\b", line))
    return {key: float(value) for key, value in (line.rsplit(" ", 1) for line in lines)}


def series(text: str, minutes: int, per_minute: dict[str, float] | None = None) -> list[dict]:
    """A scrape as promtool's input: the values stand for so many minutes and some more, and counters begin at
    0 before that. Counters that go up by so much a minute continue so."""
    found = []
    kinds = dict(re.findall(r"^# TYPE (\S+) (\S+)$", text, re.MULTILINE))
    for name, kind in kinds.items():
        SEEN.add(name + {"counter": "_total"}.get(kind, ""))
    for line in text.splitlines():
        if line.startswith("#") or not line:
            continue
        key, value = line.rsplit(" ", 1)
        name, _, labels = key.removesuffix("}").partition("{")
        service = "cost-allocation" + ("-collector" if name.startswith("prorata_collector_") else "")
        own = f'namespace="finops",service="{service}",pod="pod-0"'
        number = repr(float(value)) if value not in ("+Inf", "NaN") else "0"
        before = "0x10" if name.endswith("_total") else f"{number}x10"
        labels = f",{labels}" if labels else ""
        values = f"{before} {number}x{minutes + 10}"
        if per_minute and key in per_minute:
            first = "0" if name.endswith("_total") else number
            values = f"{first}+{per_minute[key]:f}x{minutes + 10}"
        found.append({"series": f"{name}{{{own}{labels}}}", "values": values})
    return found


def growing(first: str, second: str, seconds: float) -> dict[str, float]:
    """By how much counters go up a minute, between two scrapes, and ages that nothing has made younger."""
    before = growth(first)
    grown = {key: value - before.get(key, 0) for key, value in growth(second).items()}
    continuing = {key: value for key, value in grown.items() if "_total" in key or value > seconds * 0.9}
    return {key: value * 60 / seconds for key, value in continuing.items()}


def firing(
    scrapes: list[str], minutes: int = 60, per_minute: dict[str, float] | None = None
) -> set[str]:
    """The alerts that fire once things have been like that for so many minutes."""
    inputs = [sample for text in scrapes for sample in series(text, minutes, per_minute)]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        file = write_rules(folder)
        fires = set()
        names = sorted({alert["alert"] for alert in rules()})
        expressions = [
            {
                "expr": f'max(ALERTS{{alertname="{alert}",alertstate="firing"}})',
                "eval_time": f"{minutes}m",
                "exp_samples": [],
            }
            for alert in names
        ]
        test = {"interval": "1m", "input_series": inputs, "promql_expr_test": expressions}
        content = {"rule_files": [file.name], "evaluation_interval": "1m", "tests": [test]}
        (folder / "tests.yaml").write_text(yaml.safe_dump(content))
        code, said = promtool("test", "rules", folder / "tests.yaml")
        # What is silent is as expected; promtool names what is not.
        fires = set(re.findall(r'alertname=\\?"(\w+)\\?"', said))
        if bool(code) != bool(fires) or not fires <= set(names):
            raise AssertionError(said)
        return fires


class Scene(unittest.TestCase):
    """Programs in a folder that goes away with them."""

    @classmethod
    def setUpClass(cls) -> None:
        cls.folder = Path(cls.enterClassContext(tempfile.TemporaryDirectory(prefix="provoked-")))

    @classmethod
    def of_run(cls, name: str) -> str:
        """A name on the brokers that no other run has."""
        return f"{cls.folder.name}-{name}"

    @classmethod
    def config(cls, name: str, **sections: dict) -> str:
        """A configuration file, with a root and a group of its own; sections lie over it."""
        config = {
            "root": {"url": str(cls.folder / name), "shards": SHARDS},
            "kafka": {
                "bootstrap_servers": os.environ["PRORATA_TEST_KAFKA"],
                "group_id": cls.of_run(name),
                "topics": ["provoked"],
            },
            "registry": {"url": os.environ["PRORATA_TEST_REGISTRY"]},
            "work": {"checkpoint_interval": "1s", "out_of_orderness": "1s", "idle_timeout": "2s"},
            "http": {"listen": "127.0.0.1:0"},
            "log": {"level": "info", "format": "json"},
        }
        for section, keys in sections.items():
            config[section] = config[section] | keys if section in config else keys
        config["kafka"]["topics"] = [cls.of_run(topic) for topic in config["kafka"]["topics"]]
        path = cls.folder / f"{name}.yaml"
        path.write_text(json.dumps(config))
        return str(path)

    def worker(self, config: str) -> soak.Worker:
        folder = Path(tempfile.mkdtemp(dir=self.folder))
        worker = soak.Worker(Path(config), folder, SHARDS)
        self.addCleanup(lambda: (worker.process.kill(), worker.process.wait()))
        api.eventually("the worker listens", worker.address)
        return worker

    def scrape(self, worker: soak.Worker) -> str:
        with urllib.request.urlopen(f"http://{worker.address()}/metrics", timeout=30) as answer:
            return answer.read().decode()

    def until(self, worker: soak.Worker, sample: str) -> str:
        """A scrape, once a line of it matches."""
        deadline = time.monotonic() + soak.PATIENCE
        while not re.search(sample, text := self.scrape(worker), re.MULTILINE):
            if time.monotonic() > deadline:
                raise AssertionError(f"{sample}: {text}")
            time.sleep(0.2)
        return text

    def going_on(self, worker: soak.Worker, minutes: int = 60) -> set[str]:
        """The alerts that fire if counters and ages grow for so many minutes as they do now."""
        began, first = time.monotonic(), self.scrape(worker)
        time.sleep(10)
        second, seconds = self.scrape(worker), time.monotonic() - began
        return firing([second], minutes, growing(first, second, seconds))

    def until_firing(self, worker: soak.Worker, alerts: set[str], silent: str = "") -> None:
        """Waits until all these alerts would fire if things continued, and that other one would not. On a
        busy machine, a checkpoint of ten seconds may hide an alert from one look.
        """
        deadline = time.monotonic() + soak.PATIENCE
        while not alerts <= (fires := self.going_on(worker)) or silent in fires:
            if time.monotonic() > deadline:
                raise AssertionError(f"{alerts}, not {silent}: {fires} fire; {self.scrape(worker)}")


@contextlib.contextmanager
def paused(worker: soak.Worker) -> Iterator[None]:
    """A program that does nothing within it."""
    os.kill(worker.process.pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(worker.process.pid, signal.SIGCONT)


def block(folder: Path) -> None:
    """Puts a file where a folder was."""
    folder.rename(folder.with_name(f"{folder.name}-away"))
    folder.write_text("in the way")


def unblock(folder: Path) -> None:
    """Puts the folder back."""
    folder.unlink()
    folder.with_name(f"{folder.name}-away").rename(folder)


@contextlib.contextmanager
def moved_clock(folder: Path) -> Iterator[Path]:
    """Programs that start within it add the seconds of a file to the wall clock: the file."""
    library, offset = folder / "clock.so", folder / "offset"
    source = HERE.parent / "tests" / "work" / "faults" / "clock.c"
    subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-o", library, source, "-ldl"], check=True)
    offset.write_text("0")
    moved = {"LD_PRELOAD": str(library), "CLOCK_OFFSET_FILE": str(offset)}
    os.environ.update(moved)
    try:
        yield offset
    finally:
        for name in moved:
            del os.environ[name]
