"""A collector in trouble."""

import json
import os
import subprocess
import tempfile
from pathlib import Path

import api
import soak
from forgetful import forgetful
from scenes import Scene, block, firing, moved_clock, paused


class Collector(Scene):
    def collector(self, *lines: str, **keys: object) -> soak.Worker:
        name = self.id().rsplit("_", 1)[1]
        config = {
            "collect": {"organization_id": "acme", "file_rotation_interval": "500ms"} | keys,
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

    def follower(
        self, folder: str, context: str = "token", kubeconfig: str = api.KUBECONFIG, **keys: object
    ) -> soak.Worker:
        """A collector of the cluster into a folder, once it is ready; all nodes have a price."""
        to = ["--output", str(self.folder / folder), "--cluster", "cluster"]
        reach = ["--kubeconfig", kubeconfig, "--context", context]
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

    def test_a_node_without_a_price_is_held_and_reported(self):
        self.node("unpriced")
        worker = self.follower("events", price_per_vcpu_hour="")
        text = self.until(worker, "^prorata_collector_unpriced_nodes 1")
        self.assertEqual(self.fires(text), {"ProrataCollectorUnpricedNodes"})

    def kubeconfig(self, name: str, server: str) -> str:
        """A kubeconfig with this server."""
        config = json.loads(Path(api.KUBECONFIG).read_text())
        config["clusters"][0]["cluster"]["server"] = server
        path = self.folder / f"{name}.json"
        path.write_text(json.dumps(config))
        return str(path)

    def test_an_api_server_that_is_away_leaves_it_unready(self):
        path = self.kubeconfig("nowhere", "https://127.0.0.1:1")
        to = str(self.folder / "nothing")
        worker = self.collector("--kubeconfig", path, "--cluster", "away", "--output", to)
        self.assertIn("ProrataCollectorNotReady", firing([self.until(worker, "^prorata_collector_ready 0")]))

    def test_a_folder_that_is_a_file_takes_no_events(self):
        worker = self.follower("full")
        with paused(worker):
            block(self.folder / "full")
        self.node("one-more")
        text = self.until(worker, "^prorata_collector_write_failing 1")
        self.assertEqual(self.fires(text) - {"ProrataCollectorNotReady"}, {"ProrataCollectorWriteFailing"})

    def test_a_folder_that_is_a_file_for_minutes_makes_it_lag(self):
        """Ten minutes go by: the clock of the test goes ahead, and the collector believes it."""
        with moved_clock(self.folder) as offset:
            worker = self.follower("behind")
        with paused(worker):
            block(self.folder / "behind")
        self.node("unstored")
        text = self.until(worker, "^prorata_collector_write_failing 1")
        self.assertNotIn("ProrataCollectorLag", self.fires(text))
        offset.write_text("600")
        text = self.until(worker, r"^prorata_collector_lag_seconds [3-9]\d\d")
        self.assertIn("ProrataCollectorLag", self.fires(text))

    def test_a_permission_that_is_taken_away_is_reported(self):
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
        worker = self.follower("refused", "certificate", relist_interval="3s")
        api.ask(f"/apis/{group}/v1/clusterrolebindings/taken-away", "DELETE")
        text = self.until(worker, '^prorata_collector_watch_failing{kind="Pod"} 1')
        self.assertEqual(self.fires(text), {"ProrataCollectorWatchFailing"})

    def test_a_price_that_is_not_valid_is_reported(self):
        worker = self.follower("unreadable")
        self.node("unreadable", annotations={"prorata.dev/hourly-cost": "dear"})
        text = self.until(worker, "^prorata_collector_unreadable_fields_total [1-9]")
        self.assertEqual(self.fires(text), {"ProrataCollectorUnreadableFields"})

    def test_a_node_without_the_labels_of_its_shared_gpus_is_reported(self):
        self.node("unlabelled", labels={"nvidia.com/gpu.sharing-strategy": "mps"})
        worker = self.follower("unlabelled")
        text = self.until(worker, '^prorata_collector_unknown_gpu_shares{reason="missing_label"} 1')
        self.assertEqual(self.fires(text), {"ProrataCollectorUnknownGpuShares"})

    def test_nodes_that_go_unseen_are_reported_and_many_are_not_believed(self):
        names = [f"many-{number}" for number in range(12)]
        for name in names:
            self.node(name)
        worker = self.follower("gone")
        self.until(worker, "^prorata_collector_nodes 12")
        worker.process.kill()
        worker.process.wait()
        self.remove("many-0")
        worker = self.follower("gone")
        text = self.until(worker, "^prorata_collector_missed_stops_total 1")
        self.assertEqual(self.fires(text), {"ProrataCollectorMissedStops"})
        worker.process.kill()
        worker.process.wait()
        for name in names[1:]:
            self.remove(name)
        worker = self.collector(
            *["--kubeconfig", api.KUBECONFIG, "--context", "token", "--cluster", "cluster"],
            *["--output", str(self.folder / "gone")],
        )
        text = self.until(worker, "^prorata_collector_suspect_lists_total 1")
        self.assertIn("ProrataCollectorSuspectLists", self.fires(text))

    def test_a_node_that_the_watch_never_reported_is_found_by_a_check(self):
        with forgetful("unseen") as server:
            worker = self.follower(
                "checked", kubeconfig=self.kubeconfig("forgetful", server), relist_interval="2s"
            )
            self.node("seen")
            self.until(worker, "^prorata_collector_nodes 1")
            lists = r'^prorata_collector_lists_total{kind="Node"} '
            before = self.until(worker, lists + r"[3-9]")
            self.assertEqual(self.fires(before), set())
            self.node("unseen")
            # The watch must have reported something later.
            self.node("seen-too")
            text = self.until(worker, "^prorata_collector_repaired_objects_total 1")
            self.assertEqual(self.fires(text), {"ProrataCollectorRepairedObjects"})
            self.until(worker, "^prorata_collector_nodes 3")

    def test_changes_that_come_faster_than_they_are_stored_fill_the_queue(self):
        worker = self.follower("slow")
        self.node("busy")
        self.until(worker, "^prorata_collector_nodes 1")
        with paused(worker):
            block(self.folder / "slow")
        for number in range(1_100):
            api.patch("/api/v1/nodes/busy", {"metadata": {"labels": {"number": str(number)}}})
        text = self.until(worker, "^prorata_collector_queue_depth (9[0-9][0-9]|1024)")
        self.assertIn("ProrataCollectorQueueFull", self.fires(text))
