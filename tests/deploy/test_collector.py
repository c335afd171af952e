"""The collector: valid, hardened, one at a time, with its own account and no more rights than it needs."""

import unittest

import yaml
from chart import CHART, HARDENED, KUBERNETES, kinds, one, render, template
from test_objects import faults
from test_program import run

SET = {
    "config": {"kafka": {"bootstrap_servers": "kafka:9092", "topics": ["events"]}},
    "collector": {
        "enabled": True,
        "config": {"organization_id": "acme", "state_topic": "collector-state"},
        "priceList": "provider,region\n",
    },
}


def objects(override: dict | None = None, **options: str) -> list[dict]:
    values = SET | {"collector": SET["collector"] | (override or {})}
    return render(override=values, **options)


class Collector(unittest.TestCase):
    def pod(self) -> dict:
        return template(one(objects(), "Deployment"))["spec"]

    def test_it_is_there_only_when_it_is_wanted(self):
        added = kinds(objects())
        for kind in kinds(render()):
            added.remove(kind)
        self.assertEqual(
            added,
            ["ClusterRole", "ClusterRoleBinding", "ConfigMap", "Deployment", "Service", "ServiceAccount"],
        )

    def test_every_object_is_valid_in_old_and_new_kubernetes(self):
        for version in KUBERNETES:
            found = objects(kubernetes=version)
            self.assertEqual([fault for document in found for fault in faults(document, version)], [])

    def test_one_follows_the_cluster_at_a_time(self):
        spec = one(objects(), "Deployment")["spec"]
        self.assertEqual((spec["replicas"], spec["strategy"]), (1, {"type": "Recreate"}))
        labels = spec["template"]["metadata"]["labels"]
        self.assertLessEqual(spec["selector"]["matchLabels"].items(), labels.items())

    def test_its_container_is_hardened(self):
        pod = self.pod()
        self.assertIs(pod["enableServiceLinks"], False)
        self.assertEqual(pod["securityContext"]["seccompProfile"], {"type": "RuntimeDefault"})
        (container,) = pod["containers"]
        self.assertEqual(container["securityContext"], HARDENED)
        self.assertLessEqual({"requests", "limits"}, container["resources"].keys())

    def test_its_account_alone_may_ask_the_api_server(self):
        found = objects()
        account = one(found, "ServiceAccount", "collector")["metadata"]
        pod = self.pod()
        self.assertEqual(pod["serviceAccountName"], account["name"])
        self.assertIs(pod["automountServiceAccountToken"], True)
        self.assertIs(template(one(found, "StatefulSet"))["spec"]["automountServiceAccountToken"], False)
        binding, role = one(found, "ClusterRoleBinding"), one(found, "ClusterRole")
        self.assertEqual(binding["roleRef"]["name"], role["metadata"]["name"])
        subject = {"kind": "ServiceAccount", "name": account["name"], "namespace": account["namespace"]}
        self.assertEqual(binding["subjects"], [subject])
        # Tests on a real API server read the same file.
        self.assertEqual(role["rules"], yaml.safe_load((CHART / "collector-rules.yaml").read_text()))
        verbs = {verb for rule in role["rules"] for verb in rule["verbs"]}
        self.assertEqual(verbs, {"list", "watch", "get"})
        kinds_read = {kind for rule in role["rules"] for kind in rule["resources"]}
        self.assertTrue(kinds_read.isdisjoint({"secrets", "configmaps", "*"}))

    def test_prometheus_finds_it_by_a_service_of_its_own(self):
        found = render(override=SET | {"serviceMonitor": {"enabled": True}})
        services = {d["metadata"]["name"]: d for d in found if d["kind"] == "Service"}
        monitors = {d["metadata"]["name"]: d["spec"] for d in found if d["kind"] == "ServiceMonitor"}
        # Alerts and dashboard choose by the names of Services.
        self.assertEqual(set(services), {"prorata", "prorata-collector"})
        self.assertEqual(set(monitors), set(services))
        pods = template(one(found, "Deployment"))["metadata"]["labels"]
        self.assertLessEqual(services["prorata-collector"]["spec"]["selector"].items(), pods.items())
        for name, monitor in monitors.items():
            chosen = monitor["selector"]["matchLabels"].items()
            by = [of for of, service in services.items() if chosen <= service["metadata"]["labels"].items()]
            self.assertEqual(by, [name])

    def test_it_gets_nothing_of_the_lake_unless_it_writes_there(self):
        store = {
            "objectStore": {"existingSecret": "bucket", "env": {"AWS_REGION": "eu-central-1"}},
            "serviceAccount": {"annotations": {"eks.amazonaws.com/role-arn": "arn:lake"}},
            "extraEnv": [{"name": "AWS_PROFILE", "value": "lake"}],
            "extraEnvFrom": [{"secretRef": {"name": "bucket-too"}}],
        }
        own = {
            "serviceAccount": {"annotations": {"eks.amazonaws.com/role-arn": "arn:events"}},
            "extraEnv": [{"name": "HTTPS_PROXY", "value": "http://proxy:3128"}],
            "extraEnvFrom": [{"configMapRef": {"name": "proxies"}}],
        }
        found = render(override=SET | store | {"collector": SET["collector"] | own})
        (container,) = template(one(found, "Deployment"))["spec"]["containers"]
        names = [variable["name"] for variable in container["env"]]
        self.assertIn("HTTPS_PROXY", names)
        self.assertFalse([name for name in names if name.startswith("AWS_")])
        self.assertEqual(container["envFrom"], own["extraEnvFrom"])
        account = one(found, "ServiceAccount", "collector")["metadata"]
        self.assertEqual(account["annotations"], own["serviceAccount"]["annotations"])
        files = {"collector": SET["collector"] | {"output": "s3://bucket/events"}}
        found = render(override=SET | store | files)
        (container,) = template(one(found, "Deployment"))["spec"]["containers"]
        self.assertIn({"name": "AWS_REGION", "value": "eu-central-1"}, container["env"])
        self.assertEqual(container["envFrom"], [{"secretRef": {"name": "bucket"}}])

    def test_measured_use_adds_what_its_source_needs(self):
        base = yaml.safe_load((CHART / "collector-rules.yaml").read_text())
        for source, resource in (("metrics_api", "pods"), ("kubelet", "nodes/proxy"), ("none", None)):
            found = objects({"config": SET["collector"]["config"] | {"usage_source": source}})
            added = one(found, "ClusterRole")["rules"][len(base) :]
            resources = [kind for rule in added for kind in rule["resources"]]
            self.assertEqual(resources, [resource] if resource else [])

    def test_the_price_list_and_the_section_are_in_its_file(self):
        data = one(objects(), "ConfigMap", "collector")["data"]
        section = yaml.safe_load(data["prorata.yaml"])["collect"]
        self.assertEqual(section["price_list"], "/etc/prorata/prices.csv")
        self.assertEqual(section["organization_id"], "acme")
        self.assertEqual(data["prices.csv"], "provider,region\n")
        data = one(objects({"priceList": ""}), "ConfigMap", "collector")["data"]
        self.assertEqual(list(data), ["prorata.yaml"])
        self.assertNotIn("price_list", yaml.safe_load(data["prorata.yaml"])["collect"])

    def test_the_program_takes_its_file(self):
        # It looks for a cluster once its configuration is good.
        found = objects({"priceList": "", "output": "events"})
        config = one(found, "ConfigMap", "collector")
        (container,) = template(one(found, "Deployment"))["spec"]["containers"]
        code, message = run([config], container, {})
        self.assertEqual(code, 2, message)
        self.assertIn("no cluster is configured", message)
