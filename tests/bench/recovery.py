"""How long it takes until a worker that was killed commits again."""

import argparse
import json
import time
from collections.abc import Iterator
from pathlib import Path

import loads
import measure
import soak
import stream

# Seconds between two looks at the newest checkpoints.
LOOK_SECONDS = 0.01


def recovery(options: argparse.Namespace, folder: Path) -> Iterator[measure.Seconds]:
    """Seconds from the start of a worker in the place of one that was killed until it has committed events of
    all shards, next to reading the snapshots that it goes on from. Events of the open hour wait for it, so
    that nothing has to be folded."""
    pods = loads.SHAPES[options.shape].memory
    size = loads.Size(stream.ORGANIZATIONS, pods // stream.ORGANIZATIONS, 2)
    source = stream.topic(size, *stream.PLAIN)
    folder = folder / "recovery"
    folder.mkdir()
    config = stream.settings(folder, source.name, options.threads)
    quick = json.loads(config.read_text())
    # A restart takes its place in the group at once, and commits as soon as there is something.
    quick["kafka"]["group_instance_id"] = "bench"
    quick["work"]["checkpoint_every"] = "100ms"
    config.write_text(json.dumps(quick))
    lake = folder / "lake"
    worker = soak.Worker(config, folder)
    worker.wait(source.last_hour())
    pairs = []
    for turn in range(options.pairs):
        worker.process.kill()
        worker.process.wait()
        before = newest(lake)
        send_more(config, size, turn)
        sent = time.monotonic()
        worker = soak.Worker(config, folder)
        # One claims the shard, the next commits.
        while any(seq < before[shard] + 2 for shard, seq in newest(lake).items()):
            if worker.process.poll() is not None or time.monotonic() > sent + soak.PATIENCE:
                raise SystemExit(f"the worker did not recover: {worker.log.read_text()[-3000:]}")
            time.sleep(LOOK_SECONDS)
        pairs.append((time.monotonic() - sent, seconds_to_read(lake)))
        worker.wait(source.last_hour())
    worker.stop()
    yield measure.Seconds(f"recovery, a load of {pods:,} pods", "reading their snapshots", 3.0, pairs)


def send_more(config: Path, size: loads.Size, seed: int) -> None:
    """Sends new events of the open hour to all shards."""
    load = ["--organizations", str(size.organizations), "--pods", "1", "--hours", "1", "--seed", str(seed)]
    start = f"{loads.START[:-2]}{size.hours - 1:02}"
    soak.run("generate", *load, "--start", start, *stream.PLAIN, "--to", "kafka", "--config", str(config))


def newest(lake: Path) -> dict[Path, int]:
    """The number of the newest checkpoint of each shard."""
    found = {}
    for path in (lake / "state").glob("shard=*/checkpoint-*.json"):
        number = int(path.stem.removeprefix("checkpoint-"))
        found[path.parent] = max(number, found.get(path.parent, 0))
    return found


def seconds_to_read(lake: Path) -> float:
    """How long it takes to read the newest snapshot of each shard."""
    snapshots = [
        max(shard.glob("*.snapshot"), key=lambda path: path.stat().st_mtime)
        for shard in (lake / "state").glob("shard=*")
    ]
    began = time.monotonic()
    for path in snapshots:
        path.read_bytes()
    return time.monotonic() - began


FIGURES = {"recovery": recovery}
