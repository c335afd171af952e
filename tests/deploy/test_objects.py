"""What the rendered objects are: valid, hardened, connected to each other."""

import copy
import functools
import json
import re
import unittest
from pathlib import Path

import kubernetes_validate
import yaml
from jsonschema import Draft202012Validator
from referencing import Registry, Resource
from chart import CASES, CHART, HARDENED, KUBERNETES, helm, kinds, one, pods, render, template, text

# No schemas of these come with Kubernetes.
FOREIGN = ("ServiceMonitor", "PodMonitor", "PrometheusRule", "ScaledObject")


@functools.cache
def schemas(kubernetes: str) -> tuple[Path, Registry]:
    """The folder with a version's strict schemas, and what these refer to."""
    version = re.sub(r"\.\d+$", ".0", kubernetes)
    folder = Path(kubernetes_validate.__file__).parent / "kubernetes-json-schema" / f"v{version}-local-strict"
    return folder, Resource.from_contents(json.loads((folder / "_definitions.json").read_text())) @ Registry()


def faults(document: dict, kubernetes: str) -> list[str]:
    """What the schemas of a version of Kubernetes find wrong with an object; unknown fields are wrong."""
    folder, registry = schemas(kubernetes)
    group, _, version = document["apiVersion"].rpartition("/")
    name = "-".join(filter(None, [document["kind"].lower(), group.split(".")[0], version]))
    schema = json.loads((folder / f"{name}.json").read_text())
    validator = Draft202012Validator(schema, registry=Resource.from_contents(schema) @ registry)
    return [
        f"{document['kind']} {error.json_path}: {error.message}" for error in validator.iter_errors(document)
    ]


class Validity(unittest.TestCase):
    def test_helm_finds_no_fault_in_the_chart(self):
        for case, path in CASES.items():
            with self.subTest(case=case):
                files = ["--values", str(path)] if path else []
                self.assertIn(
                    "0 chart(s) failed",
                    helm("lint", "--strict", str(CHART), "--kube-version", "1.31.0", *files),
                )

    def test_every_object_is_valid_in_old_and_new_kubernetes(self):
        for case in CASES:
            for version in KUBERNETES:
                with self.subTest(case=case, version=version):
                    documents = [
                        document
                        for document in render(case, kubernetes=version)
                        if document["kind"] not in FOREIGN
                    ]
                    self.assertEqual(
                        [fault for document in documents for fault in faults(document, version)], []
                    )

    def test_an_invalid_object_would_be_found(self):
        for version in KUBERNETES:
            service, workers = (one(copy.deepcopy(render()), kind) for kind in ("Service", "StatefulSet"))
            service["spec"]["clusterIp"] = "None"
            workers["spec"]["replicas"] = "two"
            del template(workers)["spec"]["containers"][0]["name"]
            self.assertEqual(len(faults(service, version)), 1)
            self.assertEqual(len(faults(workers, version)), 2)

    def test_kubernetes_older_than_the_chart_says_is_refused(self):
        oldest = yaml.safe_load((CHART / "Chart.yaml").read_text())["kubeVersion"]
        self.assertEqual(oldest, f">={KUBERNETES[0]}-0")

    def test_nothing_is_left_of_the_templates(self):
        for case in CASES:
            with self.subTest(case=case):
                # What Prometheus and Grafana fill in stays.
                left = re.sub(r"\{\{ ?(\$(labels|value)|\w+)[\w.|% `]*\}\}", "", text(case))
                self.assertIsNone(re.search(r"<nil>|map\[|%!|\{\{|e\+\d\d", left))
                self.assertIsNone(re.search(r"[ \t]$", text(case), re.MULTILINE))

    def test_only_enabled_objects_exist(self):
        open_to_all = ["ConfigMap", "Pod", "PodDisruptionBudget", "Service", "ServiceAccount", "StatefulSet"]
        least = sorted([*open_to_all, "NetworkPolicy"])
        self.assertEqual(kinds(render()), least)
        self.assertEqual(kinds(render("secrets")), least)
        self.assertEqual(kinds(render("backfill")), sorted([*open_to_all, "CronJob"]))
        most = [*least, "ConfigMap", "ConfigMap", *["CronJob"] * 6]
        most += ["PrometheusRule", "ServiceMonitor"]
        self.assertEqual(kinds(render("everything")), sorted(most))
        bare = ["ConfigMap", "NetworkPolicy", "Pod", "Service", "StatefulSet"]
        self.assertEqual(kinds(render("bare")), bare)


class Security(unittest.TestCase):
    def every_pod(self):
        for case in CASES:
            for part, pod in pods(render(case)).items():
                with self.subTest(case=case, part=part):
                    yield case, pod["spec"]

    def test_every_container_is_hardened(self):
        for _, pod in self.every_pod():
            self.assertEqual(pod["securityContext"]["runAsNonRoot"], True)
            self.assertEqual(pod["securityContext"]["seccompProfile"], {"type": "RuntimeDefault"})
            for container in pod["containers"] + pod.get("initContainers", []):
                self.assertEqual(container["securityContext"], HARDENED)
            for shared in ["hostNetwork", "hostPID", "hostIPC", "shareProcessNamespace"]:
                self.assertFalse(pod.get(shared))

    def test_the_pod_of_helm_test_is_hardened_and_no_worker(self):
        for case in CASES:
            objects = render(case)
            pod, workers = one(objects, "Pod"), template(one(objects, "StatefulSet"))
            (container,) = pod["spec"]["containers"]
            self.assertEqual(container["securityContext"], HARDENED)
            self.assertEqual(container["image"], workers["spec"]["containers"][0]["image"])
            for key in ["securityContext", "automountServiceAccountToken", "enableServiceLinks"]:
                self.assertEqual(pod["spec"][key], workers["spec"][key])
            self.assertNotIn("volumes", pod["spec"])
            selector = one(objects, "Service")["spec"]["selector"].items()
            self.assertFalse(selector <= pod["metadata"]["labels"].items())
            self.assertEqual(pod["metadata"]["annotations"]["helm.sh/hook"], "test")

    def test_users_are_as_the_values_say_or_left_to_the_cluster(self):
        expected = {"everything": (2000, 3000, 4000), "bare": (None, None, None)}
        for case, pod in self.every_pod():
            self.assertIs(pod.get("hostUsers"), False if case == "everything" else None)
            context = pod["securityContext"]
            found = tuple(context.get(key) for key in ("runAsUser", "runAsGroup", "fsGroup"))
            self.assertEqual(found, expected.get(case, (65532, 65532, 65532)))
        for key in ["runAsUser", "runAsGroup", "fsGroup"]:
            override = {"podSecurityContext": {key: None}}
            without = template(one(render(override=override), "StatefulSet"))["spec"]
            self.assertNotIn(key, without["securityContext"])

    def test_no_token_of_the_kubernetes_api_is_mounted(self):
        for case, pod in self.every_pod():
            self.assertIs(pod["automountServiceAccountToken"], False)
            accounts = [document for document in render(case) if document["kind"] == "ServiceAccount"]
            for account in accounts:
                self.assertIs(account["automountServiceAccountToken"], False)
                self.assertEqual(pod["serviceAccountName"], account["metadata"]["name"])
            if not accounts:
                self.assertEqual(pod["serviceAccountName"], "default")

    def test_services_of_the_namespace_cannot_configure_the_program(self):
        for _, pod in self.every_pod():
            self.assertIs(pod["enableServiceLinks"], False)

    def test_why_a_container_stopped_stands_in_its_status(self):
        for _, pod in self.every_pod():
            for container in pod["containers"]:
                self.assertEqual(container["terminationMessagePolicy"], "FallbackToLogsOnError")

    def test_only_tmp_can_be_written(self):
        for _, pod in self.every_pod():
            volumes = {volume["name"]: volume for volume in pod["volumes"]}
            self.assertIn("sizeLimit", volumes["tmp"]["emptyDir"])
            for container in pod["containers"]:
                mounts = {mount["mountPath"]: mount for mount in container["volumeMounts"]}
                self.assertEqual(mounts["/tmp"]["name"], "tmp")
                self.assertEqual({mount["name"] for mount in mounts.values()} - volumes.keys(), set())
                for path, mount in mounts.items():
                    self.assertTrue(path == "/tmp" or mount.get("readOnly"), path)
                    # A mount inside a read-only one has no place to be made in.
                    self.assertFalse(any(path.startswith(f"{other}/") for other in mounts), path)

    def test_workload_identity_is_the_account_s(self):
        annotations = one(render("backfill"), "ServiceAccount")["metadata"]["annotations"]
        self.assertEqual(
            annotations, {"eks.amazonaws.com/role-arn": "arn:aws:iam::123456789012:role/prorata"}
        )
        for pod in pods(render("everything")).values():
            self.assertEqual(pod["metadata"]["labels"]["azure.workload.identity/use"], "true")


class Connections(unittest.TestCase):
    def test_workers_are_selected_and_jobs_are_not(self):
        for case in CASES:
            objects = render(case)
            labels = {part: pod["metadata"]["labels"].items() for part, pod in pods(objects).items()}
            selectors = [
                one(objects, "StatefulSet")["spec"]["selector"]["matchLabels"],
                one(objects, "Service")["spec"]["selector"],
            ]
            selectors += [
                d["spec"]["selector"]["matchLabels"] for d in objects if d["kind"] == "PodDisruptionBudget"
            ]
            for selector in selectors:
                with self.subTest(case=case, selector=selector):
                    selected = [part for part in labels if selector.items() <= labels[part]]
                    self.assertEqual(selected, ["worker"])
                    # A selector cannot be changed by an upgrade.
                    self.assertEqual(
                        selector.keys(),
                        {f"app.kubernetes.io/{key}" for key in ("name", "instance", "component")},
                    )

    def test_the_policy_is_for_all_pods(self):
        objects = render("everything")
        policy = one(objects, "NetworkPolicy")["spec"]
        for pod in pods(objects).values():
            self.assertLessEqual(
                policy["podSelector"]["matchLabels"].items(), pod["metadata"]["labels"].items()
            )
        self.assertEqual(policy["policyTypes"], ["Ingress", "Egress"])
        self.assertEqual([port["port"] for port in policy["ingress"][0]["ports"]], ["http"])
        self.assertEqual(len(policy["ingress"][0]["from"]), 1)
        names, rest = policy["egress"]
        self.assertEqual(
            {(port["port"], port["protocol"]) for port in names["ports"]}, {(53, "UDP"), (53, "TCP")}
        )
        self.assertEqual([port["port"] for port in rest["ports"]], [443, 9093])

    def test_only_the_namespace_reaches_the_port_unless_others_are_named(self):
        policy = one(render(), "NetworkPolicy")["spec"]
        self.assertEqual(policy["policyTypes"], ["Ingress"])
        self.assertEqual(policy["ingress"][0]["from"], [{"podSelector": {}}])

    def test_a_policy_that_names_no_targets_does_not_cut_the_pods_off(self):
        policy = one(render("bare"), "NetworkPolicy")["spec"]
        self.assertEqual(policy["policyTypes"], ["Ingress"])
        self.assertNotIn("egress", policy)
        self.assertNotIn("from", policy["ingress"][0])

    def test_prometheus_finds_the_service_and_its_port(self):
        objects = render("everything")
        monitor, service = one(objects, "ServiceMonitor"), one(objects, "Service")
        self.assertLessEqual(
            monitor["spec"]["selector"]["matchLabels"].items(), service["metadata"]["labels"].items()
        )
        self.assertEqual(monitor["metadata"]["labels"]["release"], "prometheus")
        self.assertEqual(
            monitor["spec"]["endpoints"], [{"port": "http", "path": "/metrics", "interval": "15s"}]
        )
        self.assertEqual([port["name"] for port in service["spec"]["ports"]], ["http"])

    def test_a_monitor_of_pods_names_their_service(self):
        collector = {"enabled": True, "config": {"organization_id": "acme", "state_topic": "state"}}
        monitor = {"kind": "PodMonitor", "relabelings": [{"action": "labeldrop", "regex": "node"}]}
        objects = render("everything", {"collector": collector, "serviceMonitor": monitor})
        monitors = [document for document in objects if document["kind"] == "PodMonitor"]
        self.assertEqual(len(monitors), 2)
        services = {of["metadata"]["name"]: of for of in objects if of["kind"] == "Service"}
        workloads = [one(objects, kind) for kind in ("StatefulSet", "Deployment")]
        workloads = [template(workload)["metadata"]["labels"] for workload in workloads]
        for monitor in monitors:
            chosen = monitor["spec"]["selector"]["matchLabels"].items()
            own = [labels for labels in workloads if chosen <= labels.items()]
            (endpoint,) = monitor["spec"]["podMetricsEndpoints"]
            service, given = endpoint["relabelings"]
            self.assertEqual(given["action"], "labeldrop")
            self.assertEqual(service["targetLabel"], "service")
            # As what a ServiceMonitor would find, so that alerts and dashboard find it.
            selector = services[service["replacement"]]["spec"]["selector"].items()
            self.assertEqual([selector <= labels.items() for labels in own], [True])
            self.assertEqual((endpoint["port"], endpoint["path"]), ("http", "/metrics"))
        self.assertEqual([of for of in objects if of["kind"] == "ServiceMonitor"], [])

    def test_additions_of_users_are_there(self):
        more = {"name": "proxy", "image": "proxy:1"}
        objects = render("everything", {"initContainers": [more], "extraContainers": [more]})
        pod = template(one(objects, "StatefulSet"))["spec"]
        self.assertEqual(pod["initContainers"], [more])
        self.assertEqual([container["name"] for container in pod["containers"]], ["worker", "proxy"])
        for part, job in pods(objects).items():
            sources = [next(iter(source)) for source in job["spec"]["containers"][0]["envFrom"]]
            self.assertEqual(sources, ["secretRef", "configMapRef"], part)
            self.assertEqual(len(job["spec"]["containers"]), 2 if part == "worker" else 1)
        (added,) = [document for document in objects if document["metadata"]["name"] == "proxies"]
        self.assertEqual(added["metadata"]["labels"]["app.kubernetes.io/instance"], "prorata")
        for document in objects:
            if document is not added:
                self.assertEqual(document["metadata"]["labels"]["cost-center"], "finops")
        annotations = one(objects, "Service")["metadata"]["annotations"]
        self.assertEqual(annotations, {"example.com/team": "finops"})
        self.assertEqual(one(objects, "StatefulSet")["spec"]["revisionHistoryLimit"], 3)

    def test_names_stay_within_what_kubernetes_appends_to(self):
        long = render("backfill", {"replay": {"enabled": True}}, release="a" * 53)
        self.assertEqual(kinds(long).count("CronJob"), 2)
        for document in long:
            self.assertLessEqual(len(document["metadata"]["name"]), 52)
        self.assertEqual(
            one(render("backfill", release="finops"), "CronJob")["metadata"]["name"],
            "finops-prorata-backfill",
        )
        self.assertEqual(one(render("backfill"), "CronJob")["metadata"]["name"], "prorata-backfill")
        self.assertEqual(one(render("everything"), "StatefulSet")["metadata"]["name"], "cost-allocation")
        self.assertEqual(
            one(render("everything"), "CronJob", "replay")["metadata"]["name"], "cost-allocation-replay"
        )

    def test_every_object_is_in_the_release_s_namespace_under_its_labels(self):
        for case in CASES:
            for document in render(case):
                with self.subTest(case=case, kind=document["kind"]):
                    self.assertEqual(document["metadata"]["namespace"], "finops")
                    self.assertEqual(document["metadata"]["labels"]["app.kubernetes.io/instance"], "prorata")

    def test_where_pods_run_is_as_the_values_say(self):
        objects = render("everything")
        for pod in pods(objects).values():
            self.assertEqual(pod["spec"]["nodeSelector"], {"kubernetes.io/arch": "amd64"})
            self.assertEqual(pod["spec"]["tolerations"], [{"key": "finops", "operator": "Exists"}])
            self.assertIn("podAntiAffinity", pod["spec"]["affinity"])
            self.assertEqual(pod["spec"]["priorityClassName"], "batch")
            self.assertEqual(pod["spec"]["imagePullSecrets"], [{"name": "image-credentials"}])
            self.assertEqual(pod["metadata"]["annotations"]["team"], "finops")
        spread = template(one(objects, "StatefulSet"))["spec"]["topologySpreadConstraints"]
        self.assertEqual(len(spread), 1)

    def test_a_job_s_placement_replaces_the_workers_and_leaves_the_rest(self):
        placement = {
            "nodeSelector": {"pool": "spot"},
            "tolerations": [],
            "podAnnotations": {"karpenter.sh/do-not-disrupt": "true"},
        }
        plain = pods(render("everything"))
        moved = pods(render("everything", {"backfill": {"placement": placement}}))
        job = moved["backfill"]
        self.assertEqual(job["spec"]["nodeSelector"], {"pool": "spot"})
        self.assertNotIn("tolerations", job["spec"])
        self.assertEqual(job["metadata"]["annotations"], {"karpenter.sh/do-not-disrupt": "true"})
        self.assertEqual(job["spec"]["priorityClassName"], "batch")
        self.assertEqual(job["metadata"]["labels"], plain["backfill"]["metadata"]["labels"])
        others = ("worker", "replay", "maintain", "close")
        self.assertEqual([moved[part] for part in others], [plain[part] for part in others])
