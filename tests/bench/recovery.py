"""How long it takes until a worker that was killed commits again."""

import argparse
import json
import os
import time
from collections.abc import Iterator
from fnmatch import fnmatch
from pathlib import Path
from typing import NamedTuple

import loads
import measure
import soak
import stream
from pyarrow.fs import FileInfo, FileSelector, FileSystem, LocalFileSystem, S3FileSystem

BUCKET = "PRORATA_TEST_BUCKET"
# Seconds between two looks at the newest checkpoints. A look at S3 takes a moment of the same machine.
LOOK_SECONDS, LOOK_S3_SECONDS = 0.01, 0.05


class Root(NamedTuple):
    """A root in memory or on S3."""

    url: str
    files: FileSystem
    folder: str
    shards: int

    @classmethod
    def in_memory(cls, folder: Path) -> "Root":
        """Of as many shards as other figures have."""
        return cls(str(folder), LocalFileSystem(), str(folder), soak.SHARDS)

    @classmethod
    def on_s3(cls, name: str) -> "Root":
        """Of one shard."""
        at = f"{os.environ[BUCKET]}/{name}"
        files = S3FileSystem(
            endpoint_override=os.environ["AWS_ENDPOINT_URL"], region=os.environ["AWS_REGION"]
        )
        return cls(f"s3://{at}", files, at, 1)

    def is_on_s3(self) -> bool:
        """Whether it is not in memory."""
        return self.url.startswith("s3:")

    def objects(self, name: str) -> dict[str, list[FileInfo]]:
        """The objects of state whose names are of this form, by shard."""
        found: dict[str, list[FileInfo]] = {}
        for info in self.files.get_file_info(FileSelector(f"{self.folder}/state", recursive=True)):
            if fnmatch(info.base_name, name):
                found.setdefault(info.path.split("/")[-2], []).append(info)
        return found

    def newest(self) -> dict[str, int]:
        """The number of the newest checkpoint of each shard."""
        names = {
            shard: max(info.base_name for info in infos)
            for shard, infos in self.objects("checkpoint-*.json").items()
        }
        return {shard: int(Path(name).stem.removeprefix("checkpoint-")) for shard, name in names.items()}

    def seconds_to_read(self) -> float:
        """How long it takes to read the newest snapshot of each shard."""
        newest = [max(infos, key=lambda info: info.mtime) for infos in self.objects("*.snapshot").values()]
        began = time.monotonic()
        for info in newest:
            with self.files.open_input_file(info.path) as file:
                file.read()
        return time.monotonic() - began


def recovery(options: argparse.Namespace, folder: Path) -> Iterator[measure.Seconds]:
    """Recovery of 20 organizations in shards in memory, and of one organization in one shard on S3."""
    pods = loads.SHAPES[options.shape].memory
    (folder / "recovery").mkdir()
    many = loads.running(stream.ORGANIZATIONS, pods // stream.ORGANIZATIONS)
    yield recovered(many, Root.in_memory(folder / "recovery" / "lake"), folder / "recovery", options)
    (folder / "recovery-s3").mkdir()
    yield recovered(
        loads.running(1, pods), Root.on_s3(f"{folder.name}-recovery"), folder / "recovery-s3", options
    )


def recovered(size: loads.Size, root: Root, folder: Path, options: argparse.Namespace) -> measure.Seconds:
    """Seconds from the start of a worker in the place of one that was killed until it has committed events of
    all shards, next to reading the snapshots that it continues from. Events of the open hour wait for it, so
    that nothing has to be folded."""
    source = stream.topic(size, *stream.PLAIN, shards=root.shards)
    config = stream.settings(folder, source.name, options.threads, root.shards)
    quick = json.loads(config.read_text())
    quick["root"]["url"] = root.url
    # A restart takes its place in the group at once, and commits as soon as there is something: a quiet shard
    # after ten intervals.
    quick["kafka"]["group_instance_id"] = "bench"
    quick["work"]["checkpoint_interval"] = "10ms"
    config.write_text(json.dumps(quick))
    worker = soak.Worker(config, folder, root.shards)
    worker.wait(source.last_hour())
    # Events of the hour that stays open come last, and would wait with events that are sent later.
    stream.wait_for_all(worker, source)
    pairs = []
    for turn in range(options.pairs):
        worker.process.kill()
        worker.process.wait()
        before, reading = root.newest(), root.seconds_to_read()
        send_more(config, size, turn)
        sent = time.monotonic()
        worker = soak.Worker(config, folder, root.shards)
        # One claims the shard, the next commits.
        while any(seq < before[shard] + 2 for shard, seq in root.newest().items()):
            if worker.process.poll() is not None or time.monotonic() > sent + soak.PATIENCE:
                raise SystemExit(f"the worker did not recover: {worker.log.read_text()[-3000:]}")
            time.sleep(LOOK_S3_SECONDS if root.is_on_s3() else LOOK_SECONDS)
        pairs.append((time.monotonic() - sent, reading))
        worker.wait(source.last_hour())
    worker.stop()
    pods = size.organizations * size.pods
    where = f"on S3, {root.shards} shard" if root.is_on_s3() else f"in memory, {root.shards} shards"
    name = f"recovery, a load of {pods:,} pods {where}"
    return measure.Seconds(name, "reading their snapshots", "at most 3", pairs)


def send_more(config: Path, size: loads.Size, seed: int) -> None:
    """Sends new events of the open hour to all shards."""
    load = ["--organizations", str(size.organizations), "--pods", "1", "--hours", "1", "--seed", str(seed)]
    load += ["--start", size.hour(size.hours - 1)]
    soak.run("generate", *load, *stream.PLAIN, "--output", "kafka", "--config", str(config))


FIGURES = {"recovery": recovery}
