#!/usr/bin/env python3
"""Alerts provoked by their faults: real workers and a real collector in trouble, their metrics scraped, and
the chart's rules asked by promtool what they make of them.

`check --alerts` starts this next to Kafka, a registry and an API server.
"""

import json
import os
import re
import subprocess
import sys
import tempfile
import time
import unittest
import urllib.request
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "python"))

from environment import enter

enter("deploy")

import datetime

import api
import soak
import yaml
from alerts import promtool, rules, write_rules

SHARDS = 2
DAY = datetime.datetime.now(datetime.UTC).date() - datetime.timedelta(days=2)
# The metrics that were seen, of all that was scraped.
SEEN: set[str] = set()


def series(text: str) -> list[dict]:
    """A scrape as promtool's input: the values stand for three hours, and counters begin at 0 before that."""
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
        found.append({"series": f"{name}{{{own}{labels}}}", "values": f"{before} {number}x180"})
    return found


def firing(scrapes: list[str], minutes: int = 60) -> set[str]:
    """The alerts that fire once things have been like that for so many minutes."""
    inputs = [sample for text in scrapes for sample in series(text)]
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
    def config(cls, name: str, **sections: dict) -> str:
        """A configuration file, with a root and a group of its own; sections lie over it."""
        config = {
            "root": {"url": str(cls.folder / name), "shards": SHARDS},
            "kafka": {
                "bootstrap_servers": os.environ["PRORATA_TEST_KAFKA"],
                "group_id": name,
                "topics": ["provoked"],
            },
            "registry": {"url": os.environ["PRORATA_TEST_REGISTRY"]},
            "work": {"checkpoint_every": "1s", "out_of_orderness": "1s", "idle_after": "2s"},
            "http": {"listen": "127.0.0.1:0"},
            "log": {"level": "info", "format": "json"},
        }
        for section, keys in sections.items():
            config[section] = config[section] | keys if section in config else keys
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

    def until(self, worker: soak.Worker, sample: str, most: int = 60) -> str:
        """A scrape, once a line of it matches."""
        deadline = time.monotonic() + most
        while not re.search(sample, text := self.scrape(worker), re.MULTILINE):
            if time.monotonic() > deadline:
                raise AssertionError(f"{sample}: {text}")
            time.sleep(0.2)
        return text


# Of a release with 32 shards, most are always missing here.
ALWAYS = {"ProrataShardsUnowned", "ProrataCollectorNotReady"}


class Worker(Scene):
    """Workers of one Kafka topic that holds a day."""

    @classmethod
    def setUpClass(cls) -> None:
        super().setUpClass()
        soak.create_topic("provoked", SHARDS)
        load = ["--organizations", "6", "--pods", "2", "--hours", "24", "--seed", "7"]
        soak.run("generate", *load, "--start", f"{DAY}T00", "--to", "kafka", "--config", cls.config("feed"))

    def test_a_healthy_worker_raises_none_and_a_damaged_shard_its_own(self):
        config = self.config("whole")
        worker = self.worker(config)
        worker.wait(f"{DAY}T23")
        text = self.until(worker, "^prorata_unpriced_pod_hours_total [1-9]")
        self.assertEqual(firing([text]) - ALWAYS, {"ProrataUnpricedPods"})
        worker.stop()
        state = self.folder / "whole" / "state"
        newest = max(state.rglob("checkpoint-*"), key=lambda path: (path.parts, path.name))
        newest.write_bytes(b"{}")
        worker = self.worker(config)
        text = self.until(worker, "^prorata_shard_stopped{")
        self.assertIn("ProrataShardStopped", firing([text]))

    def test_events_in_another_currency_are_dead_letters(self):
        worker = self.worker(self.config("letters", rules={"currency": "EUR"}))
        text = self.until(worker, '^prorata_dead_letters_total{reason="[a-z_]+"} [1-9]')
        self.assertIn("ProrataDeadLetters", firing([text]))

    def test_a_registry_that_is_away_is_waited_for(self):
        worker = self.worker(self.config("waiting", registry={"url": "http://127.0.0.1:1"}))
        text = self.until(worker, '^prorata_waiting_for{dependency="registry",kind="transient"} 1')
        self.assertLessEqual({"ProrataWaiting"}, firing([text]))

    def test_kafka_that_is_away_leaves_a_worker_unready(self):
        worker = self.worker(self.config("unready", kafka={"session_timeout": "10s"}))
        broker = json.loads(Path(os.environ["PRORATA_TEST_KAFKA_BROKERS"]).read_text())[0]
        worker.wait(f"{DAY}T23")
        worker.stop()
        os.kill(broker["pid"], 19)
        try:
            worker = self.worker(self.config("unready"))
            text = self.until(worker, "^prorata_ready 0")
            self.assertIn("ProrataNotReady", firing([text]))
        finally:
            os.kill(broker["pid"], 18)

    def test_hours_that_are_held_open_are_told(self):
        worker = self.worker(self.config("open", work={"max_hold": "30days", "idle_after": "30days"}))
        text = self.until(worker, "^prorata_oldest_open_hour_age_seconds{.*} [1-9]")
        text = self.until(worker, "^prorata_watermark_age_seconds{.*} [1-9]")
        self.assertLessEqual({"ProrataHoursNotClosed", "ProrataWatermarkBehind"}, firing([text]))

    def test_a_clock_that_is_wrong_is_told(self):
        library, offset = self.folder / "clock.so", self.folder / "offset"
        source = HERE.parent / "tests" / "work" / "faults" / "clock.c"
        subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-o", library, source, "-ldl"], check=True)
        offset.write_text("0")
        moved = {"LD_PRELOAD": str(library), "CLOCK_OFFSET_FILE": str(offset)}
        os.environ.update(moved)
        try:
            worker = self.worker(self.config("clock"))
        finally:
            for name in moved:
                del os.environ[name]
        worker.wait(f"{DAY}T23")
        offset.write_text("172800")
        text = self.until(worker, "^prorata_clock_ahead_seconds [1-9]", 150)
        self.assertIn("ProrataClockWrong", firing([text]))

    def test_workers_that_are_gone_leave_shards_to_nobody(self):
        self.assertEqual(firing([]), ALWAYS)


class Collector(Scene):
    def collector(self, *lines: str) -> soak.Worker:
        name = self.id().rsplit("_", 1)[1]
        config = {
            "collect": {"organization_id": "acme", "file_every": "500ms"},
            "http": {"listen": "127.0.0.1:0"},
            "log": {"level": "info", "format": "json"},
        }
        folder = Path(tempfile.mkdtemp(dir=self.folder))
        path = folder / "prorata.yaml"
        path.write_text(json.dumps(config))
        worker = soak.Worker.__new__(soak.Worker)
        worker.log, worker.shards = folder / f"{name}.log", 0
        command = [os.environ["PRORATA_BINARY"], "collect", "--config", path, "--context", "token"]
        with worker.log.open("w") as log:
            worker.process = subprocess.Popen([*command, *lines], stdout=log, stderr=log)
        self.addCleanup(lambda: (worker.process.kill(), worker.process.wait()))
        api.eventually("the collector listens", worker.address)
        return worker

    def test_a_node_without_a_price_is_held_and_told(self):
        room = {"cpu": "8", "memory": "32Gi", "pods": "110"}
        node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "unpriced"}}
        api.create(node | {"status": {"capacity": room, "allocatable": room}})
        kubeconfig = ["--kubeconfig", api.KUBECONFIG]
        worker = self.collector(*kubeconfig, "--to", str(self.folder / "events"))
        text = self.until(worker, "^prorata_collector_held_nodes 1")
        text = self.until(worker, "^prorata_collector_ready 1")
        held = {alert for alert in firing([text]) if "Collector" in alert}
        self.assertEqual(held, {"ProrataCollectorHeldNodes"})

    def test_an_api_server_that_is_away_leaves_it_unready(self):
        config = json.loads(Path(api.KUBECONFIG).read_text())
        config["clusters"][0]["cluster"]["server"] = "https://127.0.0.1:1"
        path = self.folder / "nowhere.json"
        path.write_text(json.dumps(config))
        to = str(self.folder / "nothing")
        worker = self.collector("--kubeconfig", str(path), "--cluster", "away", "--to", to)
        self.assertIn("ProrataCollectorNotReady", firing([self.until(worker, "^prorata_collector_ready 0")]))


def tearDownModule() -> None:
    """Whatever the rules name, a running program has."""
    named = {name for alert in rules() for name in re.findall(r"prorata_\w+", alert["expr"])}
    missing = named - SEEN
    if missing:
        raise AssertionError(f"no running program had {missing}")


if __name__ == "__main__":
    unittest.main(verbosity=2)
