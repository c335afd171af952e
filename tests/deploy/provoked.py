#!/usr/bin/env python3
"""Alerts provoked by their faults: real workers and a real collector in trouble, their metrics scraped, and
the chart's rules asked by promtool what they make of them.

`check --alerts` starts this next to Kafka, a registry and an API server.
"""

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
    def collector(self, *lines: str, **keys: object) -> soak.Worker:
        name = self.id().rsplit("_", 1)[1]
        config = {
            "collect": {"organization_id": "acme", "file_every": "500ms"} | keys,
            "http": {"listen": "127.0.0.1:0"},
            "log": {"level": "info", "format": "json"},
        }
        folder = Path(tempfile.mkdtemp(dir=self.folder))
        path = folder / "prorata.yaml"
        path.write_text(json.dumps(config))
        worker = soak.Worker.__new__(soak.Worker)
        worker.log, worker.shards = folder / f"{name}.log", 0
        command = [os.environ["PRORATA_BINARY"], "collect", "--config", path, *lines]
        with worker.log.open("w") as log:
            worker.process = subprocess.Popen(command, stdout=log, stderr=log)
        self.addCleanup(lambda: (worker.process.kill(), worker.process.wait()))
        api.eventually("the collector listens", worker.address)
        return worker

    def follower(self, folder: str, context: str = "token", **keys: object) -> soak.Worker:
        """A collector of the cluster into a folder, once it is ready; all nodes have a price."""
        to = ["--to", str(self.folder / folder), "--cluster", "cluster"]
        reach = ["--kubeconfig", api.KUBECONFIG, "--context", context]
        worker = self.collector(*reach, *to, **({"price_per_vcpu_hour": "0.03"} | keys))
        self.until(worker, "^prorata_collector_ready 1")
        return worker

    def fires(self, scraped: str) -> set[str]:
        return {alert for alert in firing([scraped]) if "Collector" in alert}

    def node(self, name: str, **metadata: object) -> dict:
        room = {"cpu": "8", "memory": "32Gi", "pods": "110"}
        node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name} | metadata}
        node = api.create(node | {"status": {"capacity": room, "allocatable": room}})
        self.addCleanup(self.remove, name)
        return node

    def remove(self, node: str) -> None:
        try:
            api.ask(f"/api/v1/nodes/{node}", "DELETE")
        except api.Refused as refused:
            if refused.code != 404:
                raise

    def test_a_node_without_a_price_is_held_and_told(self):
        self.node("unpriced")
        worker = self.follower("events", price_per_vcpu_hour="")
        text = self.until(worker, "^prorata_collector_held_nodes 1")
        self.assertEqual(self.fires(text), {"ProrataCollectorHeldNodes"})

    def test_an_api_server_that_is_away_leaves_it_unready(self):
        config = json.loads(Path(api.KUBECONFIG).read_text())
        config["clusters"][0]["cluster"]["server"] = "https://127.0.0.1:1"
        path = self.folder / "nowhere.json"
        path.write_text(json.dumps(config))
        to = str(self.folder / "nothing")
        worker = self.collector("--kubeconfig", str(path), "--cluster", "away", "--to", to)
        self.assertIn("ProrataCollectorNotReady", firing([self.until(worker, "^prorata_collector_ready 0")]))

    def test_a_folder_that_is_a_file_takes_no_events(self):
        worker = self.follower("full")
        folder, away = self.folder / "full", self.folder / "away"
        os.kill(worker.process.pid, signal.SIGSTOP)
        folder.rename(away)
        folder.write_text("")
        os.kill(worker.process.pid, signal.SIGCONT)
        self.node("one-more")
        text = self.until(worker, "^prorata_collector_storing_fails 1")
        self.assertEqual(self.fires(text) - {"ProrataCollectorNotReady"}, {"ProrataCollectorStoringFails"})

    def test_a_permission_that_is_taken_away_is_told(self):
        group = "rbac.authorization.k8s.io"
        user = {"kind": "User", "name": "certificate", "apiGroup": group}
        binding = {
            "apiVersion": f"{group}/v1",
            "kind": "ClusterRoleBinding",
            "metadata": {"name": "taken-away"},
            "subjects": [user],
            "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": "cluster-admin"},
        }
        api.create(binding)
        # Its next check of pods is refused.
        worker = self.follower("refused", "certificate", list_every="3s")
        api.ask(f"/apis/{group}/v1/clusterrolebindings/taken-away", "DELETE")
        text = self.until(worker, '^prorata_collector_watch_fails{kind="Pod"} 1')
        self.assertEqual(self.fires(text), {"ProrataCollectorWatchFails"})

    def test_a_price_that_is_none_is_told(self):
        worker = self.follower("unreadable")
        self.node("unreadable", annotations={"prorata.dev/hourly-cost": "dear"})
        text = self.until(worker, "^prorata_collector_unreadable_total [1-9]")
        self.assertEqual(self.fires(text), {"ProrataCollectorUnreadable"})

    def test_nodes_that_go_unseen_are_told_and_many_are_not_believed(self):
        names = [f"many-{number}" for number in range(12)]
        for name in names:
            self.node(name)
        worker = self.follower("gone")
        self.until(worker, "^prorata_collector_nodes 12")
        worker.process.kill()
        worker.process.wait()
        self.remove("many-0")
        worker = self.follower("gone")
        text = self.until(worker, "^prorata_collector_lost_stops_total 1")
        self.assertEqual(self.fires(text), {"ProrataCollectorLostStops"})
        worker.process.kill()
        worker.process.wait()
        for name in names[1:]:
            self.remove(name)
        worker = self.collector(
            *["--kubeconfig", api.KUBECONFIG, "--context", "token", "--cluster", "cluster"],
            *["--to", str(self.folder / "gone")],
        )
        text = self.until(worker, "^prorata_collector_held_lists_total 1")
        self.assertIn("ProrataCollectorListsHeld", self.fires(text))

    def test_changes_that_come_faster_than_they_are_stored_fill_the_queue(self):
        worker = self.follower("slow")
        folder, away = self.folder / "slow", self.folder / "slow-away"
        self.node("busy")
        self.until(worker, "^prorata_collector_nodes 1")
        os.kill(worker.process.pid, signal.SIGSTOP)
        folder.rename(away)
        folder.write_text("")
        os.kill(worker.process.pid, signal.SIGCONT)
        for number in range(1_100):
            api.patch("/api/v1/nodes/busy", {"metadata": {"labels": {"number": str(number)}}})
        text = self.until(worker, "^prorata_collector_queue (9[0-9][0-9]|1024)")
        self.assertIn("ProrataCollectorQueue", self.fires(text))


def tearDownModule() -> None:
    """Whatever the rules name, a running program has."""
    named = {name for alert in rules() for name in re.findall(r"prorata_\w+", alert["expr"])}
    missing = named - SEEN
    if missing:
        raise AssertionError(f"no running program had {missing}")


if __name__ == "__main__":
    unittest.main(verbosity=2)
