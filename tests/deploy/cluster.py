#!/usr/bin/env python3
"""Installs the chart on a real API server, and upgrades, rolls back, drains, tests and removes it there.

`check --cluster` starts this. Namespaces enforce the restricted Pod Security level, and a warning of the API
server or of Helm is a failure. No container runs: kwok plays the kubelets.
"""

import copy
import json
import os
import sys
import tempfile
import threading
import unittest
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "python"))

from environment import enter

enter("deploy")

import api
import yaml
from api import Refused, ask, eventually, helm, patch
from chart import CASES, CHART, render

WORKER = "app.kubernetes.io/component%3Dworker"
# What a release may consist of.
KINDS = [
    *("/api/v1/" + kind for kind in ("pods", "services", "configmaps", "secrets", "serviceaccounts")),
    *("/apis/apps/v1/" + kind for kind in ("statefulsets", "deployments", "replicasets")),
    *("/apis/batch/v1/" + kind for kind in ("cronjobs", "jobs")),
    "/apis/policy/v1/poddisruptionbudgets",
    "/apis/networking.k8s.io/v1/networkpolicies",
    *("/apis/rbac.authorization.k8s.io/v1/" + kind for kind in ("clusterroles", "clusterrolebindings")),
    *("/apis/monitoring.coreos.com/v1/" + kind for kind in ("servicemonitors", "podmonitors")),
    "/apis/monitoring.coreos.com/v1/prometheusrules",
    "/apis/keda.sh/v1alpha1/scaledobjects",
]
BASE = {
    "replicas": 4,
    "config": {"root": {"url": "s3://bucket/lake", "shards": 16}},
    "prometheusRule": {"enabled": True},
    "serviceMonitor": {"enabled": True},
}


def node(number: int) -> dict:
    """A node with room for all."""
    zone = f"zone-{number}"
    labels = {"kubernetes.io/arch": "amd64", "topology.kubernetes.io/zone": zone}
    labels["kubernetes.io/hostname"] = f"node-{number}"
    room = {"cpu": "192", "memory": "2Ti", "pods": "110", "ephemeral-storage": "1Ti"}
    metadata = {"name": f"node-{number}", "labels": labels}
    status = {"capacity": room, "allocatable": room}
    return {"apiVersion": "v1", "kind": "Node", "metadata": metadata, "status": status}


def setUpModule() -> None:
    api.apply_definitions(Path(os.environ["PRORATA_CRDS"]))
    for number in range(3):
        api.create(node(number))
    priority = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "value": 1}
    api.create(priority | {"metadata": {"name": "batch"}})


class Room(unittest.TestCase):
    """A namespace for each test."""

    def setUp(self) -> None:
        # Named after the test, and short enough for a release's names.
        self.name = self.id().rsplit(".", 1)[1].removeprefix("test_").replace("_", "-")[:40].strip("-")
        self.namespace(self.name)

    def namespace(self, name: str) -> None:
        level = dict.fromkeys(
            [f"pod-security.kubernetes.io/{mode}" for mode in ("enforce", "warn")], "restricted"
        )
        api.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": level}})
        account = f"/api/v1/namespaces/{name}/serviceaccounts/default"
        eventually("the namespace has its account", lambda: exists(account))

    def helm(self, verb: str, *arguments: object, case: str = "defaults", values: dict | None = None) -> str:
        """Helm with the release of this test."""
        with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
            json.dump(values or {}, file)
            file.flush()
            given = [] if verb in ("rollback", "uninstall", "test") else [CHART, "--values", file.name]
            if given and CASES[case]:
                given[1:1] = ["--values", CASES[case]]
            return helm(verb, "prorata", *given, "--namespace", self.name, *arguments)

    def path(self, kind: str, name: str = "", group: str = "/api/v1") -> str:
        return f"{group}/namespaces/{self.name}/{kind}" + (f"/{name}" if name else "")

    def workers(self) -> dict[str, dict]:
        """The workers' pods by name."""
        found = ask(self.path("pods") + f"?labelSelector={WORKER}")["items"]
        return {pod["metadata"]["name"]: pod for pod in found}

    def uids(self) -> dict[str, str]:
        return {name: pod["metadata"]["uid"] for name, pod in self.workers().items()}

    def stateful_set(self) -> dict:
        return ask(self.path("statefulsets", group="/apis/apps/v1"))["items"][0]

    def are_ready(self, count: int) -> None:
        """Waits until so many workers are ready, all of the newest revision."""

        def holds() -> bool:
            status = self.stateful_set()["status"]
            whole = status.get("currentRevision") == status.get("updateRevision")
            return whole and status.get("readyReplicas", 0) == count and len(self.workers()) == count

        eventually(f"{count} workers are ready", holds)

    def objects(self) -> list[str]:
        """What there is of the release, in its namespace and outside, without what namespaces come with."""
        found = []
        for kind in KINDS:
            for item in ask(kind)["items"]:
                metadata = item["metadata"]
                release = metadata.get("annotations", {}).get("meta.helm.sh/release-namespace")
                if self.name in (release, metadata.get("namespace")):
                    found.append(f"{kind.rsplit('/', 1)[1]}/{metadata['name']}")
        return sorted(set(found) - {"configmaps/kube-root-ca.crt", "serviceaccounts/default"})


def exists(path: str) -> bool:
    try:
        return bool(ask(path))
    except Refused as refused:
        if refused.code != 404:
            raise
        return False


def is_ready(pod: dict) -> bool:
    conditions = pod["status"].get("conditions", [])
    return any(of["type"] == "Ready" and of["status"] == "True" for of in conditions)


class Admission(Room):
    def test_every_object_is_taken_as_it_stands(self):
        everything = {
            "replicas": None,
            "autoscaling": {"enabled": True, "prometheus": {"serverAddress": "http://prometheus:9090"}},
            "collector": {"enabled": True, "config": {"organization_id": "acme", "state_topic": "state"}},
        }
        taken = set()
        for case in CASES:
            self.take(render(case, everything if case == "everything" else {}), taken)
        for example in sorted((CHART / "examples").glob("*.yaml")):
            self.take(render(override=yaml.safe_load(example.read_text())), taken)
        self.take(render("everything", everything | {"serviceMonitor": {"kind": "PodMonitor"}}), taken)
        foreign = {"ScaledObject", "PrometheusRule", "ServiceMonitor", "PodMonitor"}
        self.assertLessEqual(foreign | {"Deployment"}, taken)

    def take(self, documents: list[dict], taken: set[str]) -> None:
        """Has the API server look at objects, as if it created them."""
        for document in sorted(documents, key=lambda of: of["kind"] != "ServiceAccount"):
            metadata = document["metadata"]
            if "namespace" in metadata:
                metadata["namespace"] = self.name
            if document["kind"] != "ServiceAccount":
                api.create(document, "?dryRun=All&fieldValidation=Strict")
            elif not exists(self.path("serviceaccounts", metadata["name"])):
                # The pod of `helm test` is refused without its account.
                api.create(document, "?fieldValidation=Strict")
            taken.add(document["kind"])

    def test_a_wrong_manifest_is_found(self):
        objects = render("everything", {"replicas": 3})
        rule = next(document for document in objects if document["kind"] == "PrometheusRule")
        rule["metadata"]["namespace"] = self.name
        wrong = copy.deepcopy(rule)
        wrong["spec"]["groups"][0]["rules"][0]["four"] = "5m"
        with self.assertRaises(Refused):
            api.create(wrong, "?dryRun=All&fieldValidation=Strict")
        workers = next(document for document in objects if document["kind"] == "StatefulSet")
        workers["metadata"]["namespace"] = self.name
        container = workers["spec"]["template"]["spec"]["containers"][0]
        container["securityContext"]["allowPrivilegeEscalation"] = True
        with self.assertRaises(api.Warned):
            api.create(workers, "?dryRun=All")


class Lifecycle(Room):
    def test_each_set_of_values_is_installed_and_leaves_nothing(self):
        for case in CASES:
            with self.subTest(case=case):
                self.name = f"whole-{case}"
                self.namespace(self.name)
                self.helm("install", case=case)
                self.are_ready(self.stateful_set()["spec"]["replicas"])
                before = self.uids(), self.stateful_set()["metadata"]["generation"]
                self.helm("upgrade", case=case)
                after = self.uids(), self.stateful_set()["metadata"]["generation"]
                self.assertEqual(after, before, "an upgrade that changes nothing touched the workers")
                self.helm("uninstall", "--wait")
                eventually("nothing is left", lambda: not self.objects())

    def test_an_upgrade_replaces_workers_one_by_one(self):
        self.helm("install", values=BASE)
        self.are_ready(4)
        before = self.uids()
        changed = BASE | {"config": BASE["config"] | {"work": {"checkpoint_interval": "30s"}}}
        fewest, done = [4], threading.Event()

        def watch() -> None:
            while not done.wait(0.05):
                fewest[0] = min(fewest[0], sum(map(is_ready, self.workers().values())))

        watcher = threading.Thread(target=watch)
        watcher.start()
        try:
            self.helm("upgrade", values=changed)
            eventually("all are new", lambda: not set(before.values()) & set(self.uids().values()))
            self.are_ready(4)
        finally:
            done.set()
            watcher.join()
        self.assertGreaterEqual(fewest[0], 3)

    def test_a_broken_upgrade_stops_at_one_worker_and_rolls_back(self):
        self.helm("install", values=BASE)
        self.are_ready(4)
        before = self.uids()
        self.helm("upgrade", values=BASE | {"podAnnotations": {"test/never-ready": "true"}})

        def last_is_new() -> bool:
            pod = self.workers().get("prorata-3")
            old = pod is None or pod["metadata"]["uid"] == before["prorata-3"]
            return not old and pod["status"].get("phase") == "Running"

        eventually("the last worker is replaced and runs", last_is_new)
        now = self.uids()
        self.assertEqual([name for name in before if now[name] != before[name]], ["prorata-3"])
        self.assertFalse(is_ready(self.workers()["prorata-3"]))
        self.helm("rollback")
        self.are_ready(4)
        untouched = [name for name, uid in self.uids().items() if uid == before[name]]
        self.assertEqual(sorted(untouched), ["prorata-0", "prorata-1", "prorata-2"])

    def test_an_autoscaler_s_number_survives_upgrades(self):
        self.helm("install", values=BASE | {"replicas": None})
        self.are_ready(1)
        patch(self.path("statefulsets", "prorata/scale", "/apis/apps/v1"), {"spec": {"replicas": 3}})
        self.are_ready(3)
        self.helm("upgrade", values=BASE | {"replicas": None, "podLabels": {"new": "yes"}})
        self.are_ready(3)
        self.assertEqual(self.stateful_set()["spec"]["replicas"], 3)

    def test_a_drain_waits_for_each_worker(self):
        self.helm("install", values=BASE)
        self.are_ready(4)
        budget = self.path("poddisruptionbudgets", "prorata", "/apis/policy/v1")

        def allowed() -> bool:
            return ask(budget)["status"].get("disruptionsAllowed") == 1

        def evict(name: str) -> None:
            eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}}
            ask(self.path("pods", f"{name}/eviction"), "POST", eviction)

        eventually("one may be evicted", allowed)
        evict("prorata-0")
        with self.assertRaises(Refused) as refused:
            evict("prorata-1")
        self.assertEqual(refused.exception.code, 429)
        eventually("the next may be evicted", allowed)
        evict("prorata-1")


class Jobs(Room):
    def by_hand(self, component: str) -> dict:
        """A Job of a CronJob, once it has ended: its last condition."""
        cron = ask(self.path("cronjobs", f"prorata-{component}", "/apis/batch/v1"))
        name = f"{component}-by-hand"
        metadata = cron["spec"]["jobTemplate"]["metadata"] | {"name": name, "namespace": self.name}
        job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata}
        api.create(job | {"spec": cron["spec"]["jobTemplate"]["spec"]})
        path = self.path("jobs", name, "/apis/batch/v1")

        def ended() -> list[dict]:
            conditions = ask(path)["status"].get("conditions", [])
            true = [of for of in conditions if of["status"] == "True"]
            return [of for of in true if of["type"] in ("Complete", "Failed")]

        return eventually(f"{name} ends", ended)[0]

    def test_jobs_end_as_their_exit_code_says(self):
        def ending(code: str) -> dict:
            return {"enabled": True, "placement": {"podAnnotations": {"test/exit-code": code}}}

        replay = ending("2")
        report = {"enabled": True, "output": "s3://bucket/costs.html"}
        jobs = {"maintain": {"enabled": True}, "close": {"enabled": True}, "check": ending("1")}
        self.helm("install", values=BASE | jobs | {"replay": replay, "report": report})
        for component in ["maintain", "close", "report"]:
            self.assertEqual(self.by_hand(component)["type"], "Complete")
        # Tried once more, as its backoffLimit says.
        self.assertEqual(self.by_hand("check")["reason"], "BackoffLimitExceeded")
        self.assertEqual(self.by_hand("replay")["reason"], "PodFailurePolicy")

    def test_helm_test_runs_its_pod(self):
        self.helm("install", values=BASE)
        self.are_ready(4)
        pod, ended = self.path("pods", "prorata-test"), []

        def end() -> None:
            # kwok starts the pod and runs nothing: the end of its container is reported here.
            eventually("the test runs", lambda: exists(pod) and ask(pod)["status"].get("phase") == "Running")
            ended.append(patch(f"{pod}/status", {"status": {"phase": "Succeeded"}}))

        teller = threading.Thread(target=end)
        teller.start()
        self.assertIn("Phase:          Succeeded", self.helm("test"))
        teller.join()
        self.assertEqual(len(ended), 1)


if __name__ == "__main__":
    unittest.main(verbosity=2, failfast="--failfast" in sys.argv, argv=sys.argv[:1])
