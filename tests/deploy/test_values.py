"""Values that are refused, and that every value is documented."""

import json
import re
import shutil
import tempfile
import tomllib
import unittest
from pathlib import Path

import yaml
from chart import CHART, REPOSITORY, Refused, documented, one, render, text, values

FILLED = {"enabled": True, "events": "s3://bucket/lake/events", "lake": "s3://other/lake"}

# What is refused, and a part of the reason.
REFUSED = [
    ({"replica": 3}, "'replica' not allowed"),
    ({"replicas": "3"}, "/replicas"),
    ({"replicas": -1}, "/replicas"),
    ({"image": {"digest": "sha256:12"}}, "/image/digest"),
    ({"image": {"repository": "prorata@sha256"}}, "/image/repository"),
    ({"image": {"pullPolicy": "Sometimes"}}, "/image/pullPolicy"),
    ({"config": {"http": {"listen": "127.0.0.1:8080"}}}, "/config/http/listen"),
    ({"config": {"http": {"listen": ""}}}, "/config/http/listen"),
    ({"config": {"http": None}}, "/config"),
    ({"config": {"kafka": "kafka:9092"}}, "/config/kafka"),
    ({"config": None}, "config"),
    ({"kafka": {"sasl": {"existingSecret": "Not A Name"}}}, "/kafka/sasl/existingSecret"),
    ({"kafka": {"sasl": {"password": "hunter2"}}}, "'password' not allowed"),
    ({"registry": {"basicAuth": {"passwordKey": "a b"}}}, "/registry/basicAuth/passwordKey"),
    ({"objectStore": {"env": {"AWS_SECRET_ACCESS_KEY": "hunter2"}}}, "AWS_SECRET_ACCESS_KEY"),
    ({"objectStore": {"env": {"AWS_SESSION_TOKEN": "hunter2"}}}, "AWS_SESSION_TOKEN"),
    ({"objectStore": {"env": {"AZURE_STORAGE_ACCOUNT_KEY": "hunter2"}}}, "AZURE_STORAGE_ACCOUNT_KEY"),
    ({"objectStore": {"env": {"GOOGLE_SERVICE_ACCOUNT_KEY": "hunter2"}}}, "GOOGLE_SERVICE_ACCOUNT_KEY"),
    ({"objectStore": {"env": {"PATH": "/"}}}, "PATH"),
    ({"extraEnv": [{"name": "PRORATA_KAFKA__SASL_PASSWORD", "value": "hunter2"}]}, "/extraEnv/0"),
    ({"podSecurityContext": {"runAsUser": 0}}, "/podSecurityContext/runAsUser"),
    ({"resources": {"limits": {"memory": None}}}, "/resources/limits"),
    ({"resources": {"limits": {"memory": "much"}}}, "/resources/limits/memory"),
    ({"podDisruptionBudget": {"maxUnavailable": 0}}, "/podDisruptionBudget/maxUnavailable"),
    ({"backfill": {"enabled": True, "events": "s3://bucket/lake/events"}}, "/backfill/lake"),
    ({"backfill": {"enabled": True, "lake": "s3://bucket/lake"}}, "/backfill/events"),
    ({"backfill": {"takeOver": "no"}}, "/backfill/takeOver"),
    ({"replay": {"placement": {"replicas": 2}}}, "/replay/placement"),
    ({"prometheusRule": {"notClosedSeconds": 60}}, "/prometheusRule/notClosedSeconds"),
    ({"autoscaling": {"prometheus": {"serverAddress": "prometheus:9090"}}}, "serverAddress"),
    ({"serviceMonitor": {"interval": 30}}, "/serviceMonitor/interval"),
    ({"serviceMonitor": {"kind": "Probe"}}, "/serviceMonitor/kind"),
    ({"hostUsers": "no"}, "/hostUsers"),
    # What contradicts itself.
    ({"terminationGracePeriodSeconds": 30}, "not longer than config.work.drain_timeout (30s)"),
    ({"config": {"work": {"drain_timeout": "1m"}}}, "not longer than config.work.drain_timeout (1m)"),
    (
        {"config": {"work": {"drain_timeout": "59001ms"}}},
        "not longer than config.work.drain_timeout (59001ms)",
    ),
    ({"config": {"work": {"drain_timeout": "soon"}}}, "'soon' is not a duration"),
    ({"config": {"work": {"memory_limit": 2147483648}}}, "is not more than config.work.memory_limit"),
    ({"backfill": {"keepRules": "no"}}, "/backfill/keepRules"),
    ({"backfill": {"config": {"rules": "2"}}}, "/backfill/config/rules"),
    (
        {"backfill": {"keepRules": True, "config": {"rules": {"version": "2"}}}},
        "backfill.keepRules: contradicts backfill.config.rules",
    ),
    (
        {"backfill": {"config": {"registry": {"password": "hunter2"}}}},
        "backfill.config.registry.password would be stored",
    ),
    ({"replay": {"schedule": "0 0 * * *"}}, "'schedule' not allowed"),
    *(
        ({"resources": {"limits": {"memory": memory}}}, "is not more than config.work.memory_limit")
        for memory in [
            "1024Mi",
            "1Gi",
            "1G",
            "1.07G",
            "0.5Gi",
            "1.0Gi",
            "0.001T",
            "0.0009Ti",
            "1048576Ki",
            "1073741k",
        ]
        + ["1073M", "1073741824", "1073741824000m", 1073741824]
    ),
    ({"replicas": 17, "config": {"root": {"shards": 16}}}, "17 workers for 16 shards"),
    (
        {"config": {"root": {"url": "s3://other/lake/"}}, "backfill": FILLED | {"suspend": False}},
        "workers hold the shards",
    ),
    # Secrets where they do not belong.
    (
        {"config": {"kafka": {"sasl_password": "hunter2"}}},
        "config.kafka.sasl_password would be stored in plain text",
    ),
    (
        {"config": {"registry": {"password": "hunter2"}}},
        "config.registry.password would be stored in plain text",
    ),
    (
        {"config": {"root": {"aws_secret_access_key": "hunter2"}}},
        "config.root.aws_secret_access_key would be stored",
    ),
    (
        {"config": {"registry": {"url": "https://user:hunter2@registry"}}},
        "config.registry.url has a password in its URL",
    ),
    (
        {"config": {"kafka": {"brokers": [{"token": "hunter2"}]}}},
        "config.kafka.brokers.0.token would be stored",
    ),
]

# Close to what is refused, and right.
ACCEPTED = [
    {"terminationGracePeriodSeconds": 31},
    {"config": {"work": {"drain_timeout": "59s"}}},
    {"config": {"work": {"drain_timeout": "59000ms"}}},
    {"config": {"work": {"memory_limit": 2147483647}}},
    *(
        {"resources": {"limits": {"memory": memory}}}
        for memory in [
            "1025Mi",
            "1.5Gi",
            "1.1Gi",
            "1.1G",
            "2G",
            "0.0011T",
            "0.001Ti",
            "1048577Ki",
            "1073742k",
        ]
        + ["1074M", "1073741825", "1073741825000m", 1073741825]
    ),
    {"backfill": {"keepRules": True, "config": {"log": {"level": "debug"}}}},
    {"replicas": 16, "config": {"root": {"shards": 16}}},
    {"replicas": 0},
    {
        "config": {
            "kafka": {
                "sasl_password": "",
                "sasl_password_file": "/etc/kafka/password",
                "sasl_token_file": "/etc/token",
            }
        }
    },
    {"config": {"rules": {"currencies": {"password": "EUR"}}}},
    {"config": {"http": {"listen": "[::]:8080"}}},
    {
        "objectStore": {
            "env": {
                "AWS_WEB_IDENTITY_TOKEN_FILE": "/t",
                "GOOGLE_APPLICATION_CREDENTIALS": "/g",
                "AWS_SSE_KMS_KEY_ID": "k",
            }
        }
    },
    {
        "extraEnv": [
            {"name": "PRORATA_KAFKA__SASL_PASSWORD", "valueFrom": {"secretKeyRef": {"name": "a", "key": "b"}}}
        ]
    },
    {"config": {"root": {"url": "s3://other/lake"}}, "backfill": FILLED},
    {"config": {"root": {"url": "s3://other/lake"}}, "replicas": 0, "backfill": FILLED | {"suspend": False}},
    {"config": {"root": {"url": "s3://another/lake"}}, "backfill": FILLED | {"suspend": False}},
    {"global": {"anything": 1}},
]

# Their parts are those of Kubernetes.
KNOWN = {"startupProbe", "livenessProbe", "readinessProbe", "requests", "limits"}


class Refusals(unittest.TestCase):
    def test_wrong_values_are_refused_with_the_reason(self):
        for override, reason in REFUSED:
            with self.subTest(override=override):
                with self.assertRaises(Refused) as refused:
                    render(override=override)
                self.assertIn(reason, str(refused.exception))
                self.assertNotIn("hunter2", str(refused.exception))

    def test_right_values_are_not(self):
        for override in ACCEPTED:
            with self.subTest(override=override):
                render(override=override)

    def test_defaults_of_the_chart_equal_defaults_of_the_program(self):
        work = documented()["work"]
        checks = (CHART / "templates" / "_checks.tpl").read_text()
        self.assertIn(f'"work" "drain_timeout" "{work["drain_timeout"]}"', checks)
        self.assertIn(f'"work" "memory_limit" {work["memory_limit"]} ', checks)


class Documentation(unittest.TestCase):
    def paths(self, lines):
        """Keys with their path, and whether a comment stands above."""
        path, commented = [], False
        for line in lines:
            key = re.match(r"^( *)([A-Za-z]+):", line)
            if key:
                path[len(key[1]) // 2 :] = [key[2]]
                yield tuple(path), commented
            commented = line.lstrip().startswith("# ")

    def test_every_value_is_explained(self):
        lines = (CHART / "values.yaml").read_text().splitlines()
        found = list(self.paths(lines))
        self.assertGreater(len(found), 80)
        silent = [".".join(path) for path, commented in found if not commented and not KNOWN & set(path[:-1])]
        self.assertEqual(silent, [])

    def test_the_schema_knows_the_values_and_no_others(self):
        schema = json.loads((CHART / "values.schema.json").read_text())

        def known(node, path=()):
            node = schema["definitions"][node["$ref"].rsplit("/", 1)[1]] if "$ref" in node else node
            for key, inner in node.get("properties", {}).items():
                yield (*path, key)
                yield from known(inner, (*path, key))

        def present(node, path=()):
            for key, inner in node.items():
                yield (*path, key)
                if isinstance(inner, dict):
                    yield from present(inner, (*path, key))

        free = {("global",), *((probe, "initialDelaySeconds") for probe in KNOWN if probe.endswith("Probe"))}
        in_schema = set(known(schema)) - free
        in_values = {
            path
            for path in present(values())
            if path[0] != "config" and not {"requests", "limits"} & set(path[:-1])
        }
        self.assertEqual({path for path in in_schema if path[0] != "config"}, in_values)

    def test_the_chart_s_version_of_the_program_is_the_program_s(self):
        cargo = tomllib.loads((REPOSITORY / "Cargo.toml").read_text())
        self.assertEqual(
            yaml.safe_load((CHART / "Chart.yaml").read_text())["appVersion"],
            cargo["workspace"]["package"]["version"],
        )

    def test_the_example_of_the_page_is_right(self):
        page = (REPOSITORY / "deploy" / "README.md").read_text()
        example = yaml.safe_load(page.split("## Install\n")[1].split("```yaml\n")[1].split("```")[0])
        objects = render(override=example)
        self.assertEqual(one(objects, "StatefulSet")["spec"]["replicas"], example["replicas"])
        for section, keys in example["config"].items():
            self.assertLessEqual(keys.keys(), documented()[section].keys())
        self.assertNotIn("Not set", self.notes("defaults", example))

    def notes(self, case, override=None):
        """What an installation prints: NOTES.txt, from a copy of the chart where it is an object's text."""
        with tempfile.TemporaryDirectory() as folder:
            copy = Path(folder) / "prorata"
            shutil.copytree(CHART, copy)
            notes = (copy / "templates" / "NOTES.txt").read_text()
            notes = (
                '{{- define "notes" }}'
                + notes
                + '{{ end -}}\nkind: Notes\ntext: {{ include "notes" . | toJson }}\n'
            )
            (copy / "templates" / "notes.yaml").write_text(notes)
            documents = yaml.safe_load_all(text(case, override, chart=copy))
            return next(
                document["text"] for document in documents if document and document["kind"] == "Notes"
            )

    def test_the_notes_say_what_is_missing_and_how_to_look(self):
        notes = self.notes("defaults")
        self.assertIn("Not set: config.kafka.bootstrap_servers, config.kafka.topics, config.root.url.", notes)
        self.assertIn("port-forward prorata-0 8080", notes)
        self.assertNotIn("Backfill", notes)
        self.assertNotIn("replay", notes)
        self.assertIn("Only the peers of networkPolicy.ingressFrom reach that port", notes)
        for case in ("bare", "backfill"):
            self.assertIn("Every pod of the cluster reaches that port", self.notes(case))
        notes = self.notes("everything")
        self.assertNotIn("Not set", notes)
        self.assertIn("port-forward cost-allocation-0 9090", notes)
        self.assertIn("--from=cronjob/cost-allocation-backfill", notes)
        self.assertIn("--from=cronjob/cost-allocation-replay", notes)
        stop, wait, start, done, resume = (
            notes.index(part)
            for part in (
                "--set replicas=0",
                "wait --for=delete pod",
                "create job --from=cronjob/cost-allocation-replay",
                "wait --for=condition=complete",
                "--set replicas=12",
            )
        )
        self.assertEqual(sorted([stop, wait, start, done, resume]), [stop, wait, start, done, resume])
        stopped = self.notes("everything", {"replicas": 0})
        self.assertIn("--set replicas=N", stopped)
        self.assertIn("replace N with their number", stopped)
