"""Figures of a worker on real Kafka. `tests/python/servers.py` has started the broker."""

import argparse
import functools
import json
import os
import resource
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import compare
import loads
import measure
import soak

BROKERS = "PRORATA_TEST_KAFKA"
PLAIN = ("--late-rate", "0", "--duplicate-rate", "0")
LATE = ("--late-rate", "0.01", "--duplicate-rate", "0")
TARGETS = {
    loads.MEASURED: "at most 2.5",
    loads.OFTEN: "at least 300,000 events per CPU second",
    loads.CHANGING: "at most 20 µs a row",
}
# So many that every shard has some.
ORGANIZATIONS = 20
# After this long without work the allocator has given back what the start took: states are compressed after
# five seconds, and it waits ten more.
SETTLES_SECONDS = 20


class Topic(NamedTuple):
    """A topic that holds a load, from its beginning to its end."""

    name: str
    size: loads.Size
    events: int

    def last_hour(self) -> str:
        """The last hour that closes: events of the next one say that it is over."""
        return self.size.hour(self.size.hours - 2)


def settings(folder: Path, topic: str, threads: int, shards: int = soak.SHARDS) -> Path:
    """A worker's configuration: all defaults, but for what waits on the wall clock, and for samples of use:
    the longest come when they end, 15 minutes after the time that they are of."""
    config = {
        "root": {"url": str(folder / "lake"), "shards": shards},
        "kafka": {
            "bootstrap_servers": os.environ[BROKERS],
            "group_id": folder.name,
            "topics": [topic],
        },
        # The events are old: no hour closes by the wall clock, and hours are restated while late events come.
        "work": {
            "max_watermark_hold": "365days",
            "max_restate_delay": "10s",
            "out_of_orderness": "20m",
            "threads": threads,
        },
        "http": {"listen": "127.0.0.1:0"},
        "log": {"level": "info", "format": "json"},
    }
    path = folder / "prorata.yaml"
    path.write_text(json.dumps(config))
    return path


@functools.cache
def topic(size: loads.Size, *more: str, shards: int = soak.SHARDS) -> Topic:
    """Sends a load to a topic of its own; the same one for the same load."""
    if size.hours > 24:
        sys.exit("a stream lies within a day")
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        name = Path(folder).name
        soak.create_topic(name, shards)
        command = loads.generate(size, Path("kafka"), *more)
        sent = soak.run(*command[1:], "--config", str(settings(Path(folder), name, 1, shards)))
    return Topic(name, size, int(sent.split()[0]))


def work(source: Topic, folder: Path, threads: int) -> measure.Cost:
    """A worker on a new root in the folder, from its start until all is closed and its clean stop."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    before = children()
    worker = soak.Worker(settings(folder, source.name, threads), folder)
    worker.wait(source.last_hour())
    # Events of the hour that stays open come last.
    wait_for_all(worker, source)
    peak_mb = worker.peak_mib()
    worker.stop()
    return measure.Cost(children() - before, peak_mb)


def wait_for_all(worker: soak.Worker, source: Topic) -> None:
    """Waits until a worker on a new root has taken all events of a topic."""
    deadline = time.monotonic() + soak.PATIENCE
    while (events := taken(worker)) < source.events and time.monotonic() < deadline:
        time.sleep(0.1)
    if events != source.events:
        sys.exit(f"the worker took {events} events of {source.events}")


def taken(worker: soak.Worker) -> int:
    """Events that a worker has taken since its start."""
    return sum(worker.status()["counts"]["events"].values())


def children() -> float:
    """Processor time of all processes that this one has waited for."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def stream(options: argparse.Namespace, folder: Path) -> Iterator[measure.Figure]:
    """All that a worker does, next to a bare consumer that decodes the events and drops them."""
    for name, size in loads.chosen(options, loads.SHAPES[options.shape].stream).items():
        yield next_to_a_consumer(name, topic(size, *PLAIN), options, folder)


def next_to_a_consumer(
    name: str, source: Topic, options: argparse.Namespace, folder: Path
) -> measure.Figure:
    """The same on one topic."""
    consumer = Path(loads.program()).with_name("consume")
    bare = [str(consumer), os.environ[BROKERS], source.name]
    counted = []

    def consume() -> measure.Cost:
        cost, output = measure.run(bare, options.threads)
        counted.append(json.loads(output)["events"])
        return cost

    pairs = measure.pairs(options, lambda: work(source, folder / "work", options.threads), consume)
    problem = None if set(counted) == {source.events} else f"{counted} of {source.events} events were read"
    problem = problem or same_as_backfill(source, folder)
    rows = compare.rows(folder / "work" / "lake")
    title, target = f"stream of {name}", TARGETS[name]
    return measure.Figure(title, "a bare consumer", target, pairs, problem, source.events, rows)


def same_as_backfill(source: Topic, folder: Path) -> str | None:
    """Compares the worker's lake with that of a backfill of the same events, up to the last closed hour."""
    files, lake = folder / "stream-files", folder / "stream-lake"
    measure.check(loads.generate(source.size, files, *PLAIN))
    config = settings(folder / "work", source.name, 1)
    measure.check(loads.backfill(files, lake, "--config", str(config)))
    problem = compare.allocations(folder / "work" / "lake", lake, source.last_hour())
    shutil.rmtree(files)
    shutil.rmtree(lake)
    return problem


def late(options: argparse.Namespace, folder: Path) -> Iterator[measure.Figure]:
    """A worker with one event in a hundred up to six hours late, next to itself with none."""
    size = loads.SHAPES[options.shape].stream[loads.CHANGING]
    ours, theirs = topic(size, *LATE), topic(size, *PLAIN)
    pairs = measure.pairs(
        options,
        lambda: work(ours, folder / "late", options.threads),
        lambda: work(theirs, folder / "work", options.threads),
    )
    found = folder / "late" / "lake", folder / "work" / "lake"
    problem = compare.allocations(*found, theirs.last_hour())
    # At least 0.6 of the throughput.
    peer, target = "itself without late events", "at most 1.67"
    yield measure.Figure("late events", peer, target, pairs, problem, ours.events)


def memory(options: argparse.Namespace, folder: Path) -> Iterator[measure.Bytes]:
    """Resident bytes for each running pod of a worker that has nothing to do, next to the message that
    started the pod. What a worker without pods takes is taken off: another one has few."""
    most = loads.SHAPES[options.shape].memory
    (few, few_bytes, _), (many, many_bytes, message) = (
        resident(loads.running(ORGANIZATIONS, pods), folder / f"{pods}-pods", options.threads)
        for pods in (1, most // ORGANIZATIONS)
    )
    bytes_a_pod = (many_bytes - few_bytes) / (many - few)
    name = f"memory per running pod, {many:,} pods"
    yield measure.Bytes(name, "its PodStarted message", "at most 1", bytes_a_pod, message)


def resident(size: loads.Size, folder: Path, threads: int) -> tuple[int, float, float]:
    """Pods that run when the first hour closes, resident bytes of a worker that is started then, and the mean
    size of the messages that started these pods."""
    source = topic(size, *PLAIN)
    work(source, folder, threads)
    script = loads.PEERS / "running_pods.py"
    report = json.loads(measure.check([str(script), str(folder / "lake"), f"{size.start}:59:59"]))
    # New events of a quiet shard stay in memory until its next checkpoint, ten intervals later.
    config = folder / "prorata.yaml"
    quick = json.loads(config.read_text())
    quick["work"]["checkpoint_interval"] = "100ms"
    config.write_text(json.dumps(quick))
    worker = soak.Worker(config, folder)
    worker.wait(source.last_hour())
    time.sleep(SETTLES_SECONDS)
    lines = Path(f"/proc/{worker.process.pid}/status").read_text().splitlines()
    kib = next(int(line.split()[1]) for line in lines if line.startswith("VmRSS"))
    worker.stop()
    return report["pods"], kib * 1024, report["message_bytes"]


FIGURES: dict[str, Callable] = {"stream": stream, "late": late, "memory": memory}
