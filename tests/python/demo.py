#!/usr/bin/env python3
"""A day of prorata for people: events to Kafka, a worker, tables in S3, a report. `tests/demo` starts it.

usage: tests/demo [--once] [--pods N] [--output FILE.html]

It says where to look, and continues until it is interrupted; with --once it ends when the report is written.
"""

import argparse
import datetime
import json
import os
import signal
import sys
import tempfile
from pathlib import Path

import environment

environment.enter("deploy")

import processes
import soak
from prometheus import METRIC, Prometheus

SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


def settings(folder: Path, lake: str) -> Path:
    config = {
        "root": {"url": lake, "shards": 1},
        "kafka": {
            "bootstrap_servers": os.environ["PRORATA_TEST_KAFKA"],
            "topics": ["kubernetes-events"],
            "dead_letter_topic": "dead-letters",
        },
        "registry": {"url": os.environ["PRORATA_TEST_REGISTRY"]},
        # Nobody wants to wait.
        "work": {"checkpoint_interval": "1s", "out_of_orderness": "1s", "idle_timeout": "2s"},
        "http": {"listen": "127.0.0.1:0"},
        "log": {"level": "info", "format": "json"},
    }
    path = folder / "prorata.yaml"
    path.write_text(json.dumps(config, indent=1))
    return path


def interrupt(_number: int, _frame: object) -> None:
    # Another one must not keep it from ending what it has started.
    for number in SIGNALS:
        signal.signal(number, signal.SIG_IGN)
    raise KeyboardInterrupt


def show(folder: Path, wanted: argparse.Namespace) -> None:
    lake = f"s3://{os.environ['PRORATA_TEST_BUCKET']}/lake"
    config = settings(folder, lake)
    for topic in ("kubernetes-events", "dead-letters"):
        soak.create_topic(topic, 1)
    worker = soak.Worker(config, folder, 1)
    # By the wall clock, each of its hours is over.
    day = datetime.datetime.now(datetime.UTC).date() - datetime.timedelta(days=2)
    print(f"Sending the events of {day} to Kafka ..", flush=True)
    load = ["--organizations", "2", "--pods", str(wanted.pods), "--start", f"{day}T00"]
    soak.run("generate", *load, "--output", "kafka", "--config", str(config))
    print("The worker folds them ..", flush=True)
    worker.wait(f"{day}T23")
    prometheus = Prometheus(folder, worker.address(), json.loads(config.read_text()))
    soak.run("check", "--lake", lake)
    soak.run("report", "--lake", lake, "--output", str(wanted.output))
    prometheus.wait()
    print(f"\n  report     {wanted.output.resolve().as_uri()}")
    print(f"  worker     http://{worker.address()}/status  (also /metrics, /readyz)")
    print(f"  log        {worker.log}")
    print(f"  prometheus {prometheus.url}/query?query={METRIC}")
    print("             (its pages are not built, nor are Grafana's: deploy/compose has both)")
    for state in ("firing", "pending"):
        print(f"  {state:10} {', '.join(prometheus.alerts(state)) or 'no alert'}")
    print(f"  settings   {config}")
    print(f"  lake       {lake}, in an S3 server that forgets it at the end:\n")
    for name in ("AWS_ENDPOINT_URL", "AWS_ALLOW_HTTP", "AWS_REGION"):
        print(f"    export {name}={os.environ[name]}")
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        print(f"    export {name}={os.environ[name]}")
    print(f"    {os.environ['PRORATA_BINARY']} check --lake {lake}", flush=True)
    if not wanted.once:
        print("\nCtrl-C stops everything.", flush=True)
        signal.pause()
    worker.stop()


def main() -> None:
    parser = argparse.ArgumentParser(usage=__doc__.split("\n\n")[1].removeprefix("usage: "))
    parser.add_argument("--once", action="store_true")
    parser.add_argument("--pods", type=int, default=20)
    parser.add_argument("--output", type=Path, default=Path("prorata-demo.html"))
    wanted = parser.parse_args()
    for number in SIGNALS:
        signal.signal(number, interrupt)
    with tempfile.TemporaryDirectory(prefix="prorata-demo-") as folder:
        try:
            show(Path(folder), wanted)
        except KeyboardInterrupt:
            print("\nStopped.")
        finally:
            # Before their folder goes away.
            processes.end_all()


if __name__ == "__main__":
    main()
