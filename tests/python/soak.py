#!/usr/bin/env python3
"""Has a worker live through many days of events, and plots its memory and what its lake holds.

usage: tests/python/servers.py --kafka 1 --registry -- tests/python/soak.py [--days N] [--plot FILE.svg]

PRORATA_BINARY names the program. Each day is generated to Kafka and closed by a worker, then the worker
stops, `prorata maintain` runs, and every file of the lake becomes a day older, so that what is kept for
seven days is kept for seven of these. It prints a line a day; in the end `prorata check` must find nothing
wrong, and what has a bound must have stopped growing: of the days after the longest time for which anything
is kept, the second half is on average not above the first, but for a little.
"""

import argparse
import datetime
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections import Counter
from pathlib import Path

SHARDS = 4
# Seconds until a worker must have closed a day.
PATIENCE = 600
# Days until all that grows has reached what it stays at: the horizon, and what readers are promised.
SETTLED = 35 + 7
# What must not grow any more then, and how far the averages of two halves may differ. Checkpoints of table
# logs come in steps, and name the files of all days.
BOUNDED = {
    "worker MiB": 1.05,
    "state objects": 1.05,
    "checkpoint kB": 1.05,
    "log files": 1.05,
    "log kB": 1.2,
}


def settings(folder: Path, days: int) -> Path:
    config = {
        "root": {"url": str(folder / "lake"), "shards": SHARDS},
        "kafka": {
            "bootstrap_servers": os.environ["PRORATA_TEST_KAFKA"],
            "group_id": folder.name,
            "topics": [f"{folder.name}-events"],
        },
        "registry": {"url": os.environ["PRORATA_TEST_REGISTRY"]},
        # The events are old: nothing closes by the wall clock.
        "work": {
            "checkpoint_interval": "1s",
            "out_of_orderness": "1s",
            "idle_timeout": "2s",
            "max_watermark_hold": f"{days + 7}days",
            "max_restate_delay": "1s",
        },
        "http": {"listen": "127.0.0.1:0"},
        "log": {"level": "info", "format": "json"},
    }
    path = folder / "prorata.yaml"
    path.write_text(json.dumps(config))
    return path


def run(*arguments: str) -> str:
    command = [os.environ["PRORATA_BINARY"], *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    # 3: done, with warnings.
    if done.returncode not in (0, 3):
        sys.exit(f"{arguments} ended with {done.returncode}: {done.stdout}{done.stderr}")
    return done.stdout


def create_topic(name: str, shards: int = SHARDS) -> None:
    """Asks the brokers with Kafka's own client, from the classes that they run on."""
    broker = json.loads(Path(os.environ["PRORATA_TEST_KAFKA_BROKERS"]).read_text())[0]
    classes = broker["command"][broker["command"].index("-cp") + 1]
    program = str(Path(__file__).parent.parent / "java" / "CreateTopic.java")
    command = ["java", "-cp", classes, program, os.environ["PRORATA_TEST_KAFKA"], name, str(shards)]
    subprocess.run(command, check=True)


def feed(config: Path, day: datetime.date) -> None:
    # Of the same seed, so of the same pods: those that run at the end of a day do not pile up.
    load = ["--organizations", "12", "--pods", "8", "--hours", "24", "--seed", "7"]
    run("generate", *load, "--start", f"{day}T00", "--output", "kafka", "--config", str(config))


class Worker:
    """A worker, and the page on which it says how far it has come."""

    def __init__(self, config: Path, folder: Path, shards: int = SHARDS) -> None:
        self.shards = shards
        self.log = folder / "worker.log"
        with self.log.open("w") as log:
            command = [os.environ["PRORATA_BINARY"], "work", "--config", str(config)]
            self.process = subprocess.Popen(command, stderr=log, stdout=log)

    def address(self) -> str:
        for line in self.log.read_text().splitlines():
            address = json.loads(line).get("fields", {}).get("address") if line.startswith("{") else None
            if address:
                return address
        return ""

    def status(self) -> dict:
        if address := self.address():
            with urllib.request.urlopen(f"http://{address}/status?format=json", timeout=30) as answer:
                return json.load(answer)
        return {}

    def has_closed(self, hour: str) -> bool:
        shards = self.status().get("shards", {})
        values = shards.values() if isinstance(shards, dict) else shards
        clean = [shard for shard in values if not shard.get("dirty_from")]
        done = [(shard.get("closed_through") or "") >= hour for shard in clean]
        return len(done) == self.shards and all(done)

    def wait(self, hour: str) -> None:
        until = time.monotonic() + PATIENCE
        while not self.has_closed(hour):
            if self.process.poll() is not None or time.monotonic() > until:
                sys.exit(f"hour {hour} is not closed: {self.log.read_text()[-3000:]}")
            time.sleep(0.2)

    def peak_mib(self) -> float:
        lines = Path(f"/proc/{self.process.pid}/status").read_text().splitlines()
        return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("VmHWM"))

    def stop(self) -> None:
        self.process.send_signal(signal.SIGTERM)
        if code := self.process.wait(PATIENCE):
            sys.exit(f"the worker ended with {code}: {self.log.read_text()[-3000:]}")


def measure(lake: Path) -> dict[str, float]:
    count, size = Counter(), Counter()
    for path in lake.rglob("*"):
        if path.is_file():
            name = path.relative_to(lake)
            kind = "log" if "_delta_log" in name.parts else name.parts[0]
            count[kind] += 1
            size[kind] += path.stat().st_size
            if path.name.startswith("checkpoint-"):
                size["checkpoint"] = max(size["checkpoint"], path.stat().st_size)
    tables = {"log", "state", "events", "dead-letter", "rules", "root.json"}
    return {
        "state objects": count["state"],
        "checkpoint kB": size["checkpoint"] / 1000,
        "log files": count["log"],
        "log kB": size["log"] / 1000,
        "archive files": count["events"],
        "table files": sum(number for kind, number in count.items() if kind not in tables),
    }


def age(lake: Path, seconds: int) -> None:
    for path in lake.rglob("*"):
        if path.is_file():
            modified = path.stat().st_mtime - seconds
            os.utime(path, (modified, modified))


def plot(rows: list[dict[str, float]], file: Path) -> None:
    """One small line chart for each figure, as SVG."""
    width, height, gap = 360, 120, 50
    parts = []
    for index, name in enumerate(rows[0]):
        values = [row[name] for row in rows]
        left, top = 20 + (index % 2) * (width + gap), 30 + (index // 2) * (height + gap)
        scale = height / max(max(values), 1)
        step = width / max(len(values) - 1, 1)
        places = ((left + day * step, top + height - value * scale) for day, value in enumerate(values))
        points = (f"{x:.1f},{y:.1f}" for x, y in places)
        parts += [
            f'<text x="{left}" y="{top - 8}">{name}: {values[-1]:,.0f}, at most {max(values):,.0f}</text>',
            f'<path d="M{left},{top} v{height} h{width}" class="axis"/>',
            f'<polyline points="{" ".join(points)}"/>',
            f'<text x="{left + width}" y="{top + height + 14}" text-anchor="end">{len(values)} days</text>',
        ]
    style = (
        "text{font:12px sans-serif;fill:#888}.axis{fill:none;stroke:#888}"
        "polyline{fill:none;stroke:#2a78d6;stroke-width:2}"
    )
    size = f'width="{2 * width + 2 * gap}" height="{((len(rows[0]) + 1) // 2) * (height + gap) + 20}"'
    body = "\n".join(parts)
    head = f'<svg xmlns="http://www.w3.org/2000/svg" {size}>\n<style>{style}</style>'
    file.write_text(f"{head}\n{body}\n</svg>\n")


def mean(values: list[float]) -> float:
    return sum(values) / len(values)


def main() -> None:
    parser = argparse.ArgumentParser(usage=__doc__.split("\n\n")[1].removeprefix("usage: "))
    parser.add_argument("--days", type=int, default=60)
    parser.add_argument("--plot", type=Path)
    wanted = parser.parse_args()
    rows = []
    with tempfile.TemporaryDirectory(prefix="soak-") as folder:
        folder = Path(folder)
        config, lake = settings(folder, wanted.days), folder / "lake"
        create_topic(f"{folder.name}-events")
        first = datetime.date.today() - datetime.timedelta(days=wanted.days + 1)
        for number in range(wanted.days):
            day = first + datetime.timedelta(days=number)
            worker = Worker(config, folder)
            feed(config, day)
            worker.wait(f"{day}T22")
            row = {"worker MiB": worker.peak_mib()}
            worker.stop()
            run("maintain", "--lake", str(lake))
            rows.append(row | measure(lake))
            age(lake, 86_400)
            print(day, {name: round(value) for name, value in rows[-1].items()}, flush=True)
        run("check", "--lake", str(lake))
    if wanted.plot:
        plot(rows, wanted.plot)
    settled = rows[SETTLED:]
    half = len(settled) // 2
    for name, most in BOUNDED.items() if half >= 5 else ():
        before, last = (mean([row[name] for row in part]) for part in (settled[:half], settled[half:]))
        if last > most * before:
            sys.exit(f"{name} grows for ever: {before:.0f} on average, then {last:.0f}")


if __name__ == "__main__":
    main()
