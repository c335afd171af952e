"""What the worker and the backfill are started with."""

import unittest

from chart import (
    CASES,
    CHART,
    backfill,
    config_map,
    configuration,
    documented,
    merged,
    of_job,
    one,
    pods,
    render,
    replay,
    seconds,
    size,
    template,
    text,
    values,
    variables,
    worker,
)

# Whatever a Secret holds reaches pods by reference alone: these are the names in the cases.
SASL = ["PRORATA_KAFKA__SASL_USERNAME", "PRORATA_KAFKA__SASL_PASSWORD_FILE"]
REGISTRY = ["PRORATA_REGISTRY__USERNAME", "PRORATA_REGISTRY__PASSWORD_FILE"]


def reference(name: str, secret: str, key: str) -> dict:
    return {"name": name, "valueFrom": {"secretKeyRef": {"name": secret, "key": key}}}


class Configuration(unittest.TestCase):
    def test_the_file_says_what_the_values_say(self):
        for case in CASES:
            with self.subTest(case=case):
                self.assertEqual(configuration(render(case)), values(case)["config"])

    def test_the_documented_file_comes_through_unchanged(self):
        listen = {"http": {"listen": "0.0.0.0:8080"}}
        whole = merged(documented(), listen)
        self.assertEqual(configuration(render(override={"config": whole})), whole)
        # Large numbers, and texts that look like something else.
        rules = {
            "rules": {
                "version": "1e3",
                "weights": {"gpu": "09", "cpu": "1_0"},
                "currencies": {"no": "NO", "y": "EUR"},
            }
        }
        whole = merged(
            merged(listen, rules),
            {"work": {"memory_limit": 1234567890}, "log": {"level": "info", "format": "json"}},
        )
        found = configuration(render(override={"config": whole}))
        self.assertEqual(found, whole)
        self.assertIn("memory_limit: 1234567890\n", text(override={"config": whole}))

    def test_every_key_that_is_used_is_documented(self):
        known = documented()
        for case in CASES:
            for section, keys in configuration(render(case)).items():
                self.assertLessEqual(keys.keys(), known[section].keys(), case)
            for pod in pods(render(case)).values():
                for name in variables(pod["spec"]["containers"][0]):
                    if name.startswith("PRORATA_"):
                        section, key = name.removeprefix("PRORATA_").lower().split("__")
                        self.assertIn(key, known[section], name)

    def test_all_read_a_file_that_is_mounted(self):
        objects = render("everything")
        name = config_map(objects)["metadata"]["name"]
        files = dict.fromkeys(["worker", "replay", "maintain", "close"], "prorata.yaml")
        files["backfill"] = "backfill.yaml"
        # These receive only the lake.
        found = {part: pod for part, pod in pods(objects).items() if part not in ("check", "report")}
        self.assertEqual(found.keys(), files.keys())
        for part, pod in found.items():
            container = pod["spec"]["containers"][0]
            volume = next(volume for volume in pod["spec"]["volumes"] if volume["name"] == "config")
            self.assertEqual(volume["configMap"], {"name": name})
            mount = next(mount for mount in container["volumeMounts"] if mount["name"] == "config")
            at = container["args"].index("--config")
            self.assertEqual(container["args"][at + 1], f"{mount['mountPath']}/{files[part]}")
            self.assertIn(files[part], config_map(objects)["data"])

    def test_the_backfill_s_own_configuration_lies_over_the_workers(self):
        mine = {"rules": {"version": "3"}, "backfill": {"max_hours": 5}}
        objects = render("everything", {"backfill": {"config": mine, "keepRules": False}})
        expected = merged(merged(values("everything")["config"], {"backfill": {"threads": 4}}), mine)
        self.assertEqual(configuration(objects, "backfill.yaml"), expected)
        self.assertEqual(configuration(objects), values("everything")["config"])
        self.assertEqual(config_map(render())["data"].keys(), {"prorata.yaml"})

    def test_a_backfill_that_keeps_rules_is_given_none(self):
        rules = {"config": {"rules": {"version": "2"}}}
        self.assertEqual(configuration(render("backfill", rules), "backfill.yaml")["rules"], {"version": "2"})
        objects = render("backfill", rules | {"backfill": {"keepRules": True}})
        workers = configuration(objects)
        self.assertEqual(workers.pop("rules"), {"version": "2"})
        self.assertEqual(configuration(objects, "backfill.yaml"), workers)

    def test_another_configuration_restarts_the_workers(self):
        def checksum(case, override=None):
            return template(one(render(case, override), "StatefulSet"))["metadata"]["annotations"][
                "checksum/config"
            ]

        first = checksum("secrets")
        self.assertNotEqual(checksum("secrets", {"config": {"log": {"level": "debug"}}}), first)
        self.assertNotEqual(checksum("secrets", {"config": {"work": {"idle_timeout": "6m"}}}), first)
        self.assertEqual(
            checksum("secrets", {"replicas": 5, "podDisruptionBudget": {"enabled": False}}), first
        )
        own = {
            "enabled": True,
            "events": "s3://a/events",
            "lake": "s3://b",
            "config": {"log": {"level": "debug"}},
        }
        self.assertEqual(checksum("secrets", {"backfill": own}), first)


class Worker(unittest.TestCase):
    def test_it_is_a_static_member_of_its_group(self):
        for case in CASES:
            objects = render(case)
            spec = one(objects, "StatefulSet")["spec"]
            self.assertEqual(spec["podManagementPolicy"], "Parallel")
            self.assertEqual(spec["updateStrategy"], {"type": "RollingUpdate"})
            self.assertEqual(spec["serviceName"], one(objects, "Service")["metadata"]["name"])
            self.assertEqual(one(objects, "Service")["spec"]["clusterIP"], "None")
            self.assertEqual(spec["replicas"], values(case)["replicas"])
            identity = variables(worker(objects))["PRORATA_KAFKA__GROUP_INSTANCE_ID"]
            self.assertEqual(identity["valueFrom"], {"fieldRef": {"fieldPath": "metadata.name"}})
            self.assertEqual(worker(objects)["args"], ["work", "--config", "/etc/prorata/prorata.yaml"])

    def test_it_is_asked_where_it_listens(self):
        for case in CASES:
            objects = render(case)
            port = int(configuration(objects)["http"]["listen"].rsplit(":", 1)[1])
            container = worker(objects)
            with self.subTest(case=case):
                self.assertEqual(
                    container["ports"], [{"name": "http", "containerPort": port, "protocol": "TCP"}]
                )
                service = one(objects, "Service")["spec"]["ports"][0]
                self.assertEqual((service["port"], service["targetPort"]), (port, "http"))
                for probe, path in [
                    ("startupProbe", "/livez"),
                    ("livenessProbe", "/livez"),
                    ("readinessProbe", "/readyz"),
                ]:
                    timing = dict(container[probe])
                    self.assertEqual(timing.pop("httpGet"), {"path": path, "port": "http"})
                    self.assertEqual(timing, values(case)[probe])

    def test_it_can_drain_before_it_is_killed(self):
        default = documented()["work"]["drain_timeout"]
        for case in CASES:
            objects = render(case)
            drain = seconds(configuration(objects).get("work", {}).get("drain_timeout", default))
            self.assertGreater(
                template(one(objects, "StatefulSet"))["spec"]["terminationGracePeriodSeconds"], drain, case
            )

    def test_its_memory_is_bounded_below_its_limit(self):
        default = documented()["work"]["memory_limit"]
        for case in CASES:
            objects = render(case)
            limit = configuration(objects).get("work", {}).get("memory_limit", default)
            resources = worker(objects)["resources"]
            self.assertGreaterEqual(size(resources["limits"]["memory"]), 2 * limit, case)
            self.assertEqual(resources["requests"]["memory"], resources["limits"]["memory"], case)
            self.assertIn("cpu", resources["requests"], case)

    def test_a_drain_takes_one_worker_at_a_time_but_is_not_held_up(self):
        budget = one(render(), "PodDisruptionBudget")["spec"]
        self.assertEqual((budget["maxUnavailable"], budget["unhealthyPodEvictionPolicy"]), (1, "AlwaysAllow"))
        self.assertEqual(one(render("everything"), "PodDisruptionBudget")["spec"]["maxUnavailable"], "25%")

    def test_the_image_is_the_digest_or_the_tag_or_the_version(self):
        version = next(
            line.split('"')[1]
            for line in (CHART / "Chart.yaml").read_text().splitlines()
            if "appVersion" in line
        )
        self.assertEqual(worker(render())["image"], f"prorata:{version}")
        self.assertEqual(worker(render(override={"image": {"tag": "7"}}))["image"], "prorata:7")
        digest = values("everything")["image"]["digest"]
        for pod in pods(render("everything")).values():
            self.assertEqual(pod["spec"]["containers"][0]["image"], f"registry.test/finops/prorata@{digest}")
            self.assertEqual(pod["spec"]["containers"][0]["imagePullPolicy"], "Always")


class Secrets(unittest.TestCase):
    def test_credentials_come_by_reference(self):
        found = variables(worker(render("secrets")))
        expected = [
            reference(SASL[0], "kafka-credentials", "user"),
            reference(REGISTRY[0], "registry-credentials", "username"),
        ]
        self.assertEqual([found[variable["name"]] for variable in expected], expected)
        self.assertEqual(
            worker(render("secrets"))["envFrom"], [{"secretRef": {"name": "bucket-credentials"}}]
        )
        self.assertEqual(found["AWS_REGION"]["value"], "eu-central-1")

    def test_passwords_are_mounted_files(self):
        for case, sasl, registry in [
            ("secrets", "pass", "password"),
            ("everything", "password", "password"),
        ]:
            pod = template(one(render(case), "StatefulSet"))["spec"]
            (container,) = [of for of in pod["containers"] if of["name"] == worker(render(case))["name"]]
            for volume, variable, secret, key in [
                ("kafka-sasl", SASL[1], "kafka-credentials", sasl),
                ("registry-auth", REGISTRY[1], "registry-credentials", registry),
            ]:
                (source,) = [of["secret"] for of in pod["volumes"] if of["name"] == volume]
                self.assertEqual(source, {"secretName": secret, "items": [{"key": key, "path": key}]})
                (mount,) = [of for of in container["volumeMounts"] if of["name"] == volume]
                self.assertIs(mount["readOnly"], True)
                self.assertEqual(variables(container)[variable]["value"], f"{mount['mountPath']}/{key}")

    def test_without_secrets_nothing_is_asked_for(self):
        for case in ["defaults", "bare", "backfill"]:
            manifests = text(case)
            self.assertNotIn("ecret", manifests)
            self.assertEqual(set(variables(worker(render(case)))), {"PRORATA_KAFKA__GROUP_INSTANCE_ID"})
            self.assertNotIn("envFrom", worker(render(case)))

    def test_no_variable_that_holds_a_secret_has_a_value_in_the_manifest(self):
        for case in CASES:
            for pod in pods(render(case)).values():
                for variable in variables(pod["spec"]["containers"][0]).values():
                    if not variable["name"].endswith("_FILE") and any(
                        word in variable["name"] for word in ("PASSWORD", "SECRET", "SAS_TOKEN", "USERNAME")
                    ):
                        self.assertEqual(set(variable), {"name", "valueFrom"}, variable)

    def test_the_authority_s_certificate_is_a_mounted_file(self):
        for case, secret, key in [
            ("secrets", "kafka-authority", "authority.pem"),
            ("everything", "kafka-certificates", "ca.crt"),
        ]:
            objects = render(case)
            pod = template(one(objects, "StatefulSet"))["spec"]
            volume = next(volume for volume in pod["volumes"] if volume["name"] == "kafka-tls")
            mount = next(mount for mount in worker(objects)["volumeMounts"] if mount["name"] == "kafka-tls")
            self.assertEqual(volume["secret"], {"secretName": secret})
            self.assertEqual(
                variables(worker(objects))["PRORATA_KAFKA__SSL_CA_FILE"]["value"],
                f"{mount['mountPath']}/{key}",
            )

    def test_the_backfill_is_not_given_what_only_the_worker_needs(self):
        objects = render("everything")
        pod, container = template(one(objects, "CronJob", "backfill"))["spec"], backfill(objects)
        self.assertEqual(
            set(variables(container)),
            set(variables(worker(objects)))
            - {*SASL, *REGISTRY, "PRORATA_KAFKA__SSL_CA_FILE", "PRORATA_KAFKA__GROUP_INSTANCE_ID"},
        )
        kafka = {"kafka-tls", "kafka-sasl", "registry-auth"}
        self.assertTrue(kafka.isdisjoint(volume["name"] for volume in pod["volumes"]))
        self.assertEqual(container["envFrom"], worker(objects)["envFrom"])


class Backfill(unittest.TestCase):
    def test_it_folds_the_configured_events_to_the_configured_lake(self):
        self.assertEqual(
            backfill(render("backfill"))["args"],
            [
                "backfill",
                "--config",
                "/etc/prorata/backfill.yaml",
                "--events",
                "s3://bucket/lake/events",
                "--lake",
                "s3://bucket/again",
                "--json",
            ],
        )
        self.assertEqual(
            backfill(render("everything"))["args"],
            [
                "backfill",
                "--config",
                "/etc/prorata/backfill.yaml",
                "--events",
                "az://container/lake/events",
                "--lake",
                "az://container/lake",
                "--take-over",
                "--from=2026-11-01T00",
            ],
        )

    def test_it_is_off_and_takes_nothing_over_by_default(self):
        own = values()["backfill"]
        self.assertEqual((own["enabled"], own["suspend"], own["takeOver"]), (False, True, False))
        enabled = {"backfill": {"enabled": True, "events": "s3://a/events", "lake": "s3://b"}}
        objects = render(override=enabled)
        self.assertIs(one(objects, "CronJob")["spec"]["suspend"], True)
        self.assertNotIn("--take-over", backfill(objects)["args"])
        self.assertIs(one(render("backfill"), "CronJob")["spec"]["suspend"], False)

    def test_two_runs_never_overlap_and_none_lasts_for_ever(self):
        spec = one(render("backfill"), "CronJob")["spec"]
        self.assertEqual(spec["concurrencyPolicy"], "Forbid")
        self.assertEqual((spec["schedule"], spec["timeZone"]), ("15 3 * * 0", "Etc/UTC"))
        self.assertEqual(spec["startingDeadlineSeconds"], 3600)
        job = spec["jobTemplate"]["spec"]
        self.assertEqual(
            (job["activeDeadlineSeconds"], job["backoffLimit"], job["ttlSecondsAfterFinished"]),
            (21600, 2, 604800),
        )
        job = one(render("everything"), "CronJob", "backfill")["spec"]["jobTemplate"]["spec"]
        self.assertEqual(
            (job["activeDeadlineSeconds"], job["backoffLimit"], job["ttlSecondsAfterFinished"]),
            (86400, 0, 3600),
        )

    def test_only_temporary_failures_are_tried_again(self):
        job = one(render("backfill"), "CronJob")["spec"]["jobTemplate"]["spec"]
        self.assertEqual(job["template"]["spec"]["restartPolicy"], "Never")
        stop, evicted = job["podFailurePolicy"]["rules"]
        self.assertEqual(stop["action"], "FailJob")
        self.assertEqual(
            stop["onExitCodes"],
            {"containerName": backfill(render("backfill"))["name"], "operator": "In", "values": [2, 3]},
        )
        self.assertEqual(
            (evicted["action"], evicted["onPodConditions"]),
            ("Ignore", [{"type": "DisruptionTarget", "status": "True"}]),
        )

    def test_it_is_the_worker_s_image_with_bounds_of_its_own(self):
        objects = render("backfill")
        self.assertEqual(backfill(objects)["image"], worker(objects)["image"])
        self.assertEqual(backfill(objects)["resources"], values("backfill")["backfill"]["resources"])
        self.assertIn("cpu", backfill(objects)["resources"]["limits"])


class Upkeep(unittest.TestCase):
    """The maintenance of the workers' root, and the closing of months in it."""

    COMPONENTS = ("maintain", "close")
    ON = {component: {"enabled": True} for component in COMPONENTS}

    def test_it_maintains_and_closes_in_the_workers_root(self):
        for component in self.COMPONENTS:
            begin = [component, "--config", "/etc/prorata/prorata.yaml"]
            self.assertEqual(of_job(render("secrets", self.ON), component)["args"], begin)
            self.assertEqual(of_job(render("everything"), component)["args"], [*begin, "--json"])

    def test_it_reaches_the_root_and_needs_no_kafka(self):
        for case in CASES:
            objects = render(case, self.ON)
            workers = worker(objects)
            for component in self.COMPONENTS:
                with self.subTest(case=case, component=component):
                    own = of_job(objects, component)
                    self.assertNotIn("KAFKA", str(own.get("env")))
                    self.assertLessEqual(variables(own).items(), variables(workers).items())
                    for key in ["image", "envFrom"]:
                        self.assertEqual(own.get(key), workers.get(key))

    def test_it_is_off_and_then_runs_as_the_values_say(self):
        for component in self.COMPONENTS:
            self.assertIs(values()[component]["enabled"], False)
            for case, suspended, deadline in [("secrets", False, 3600), ("everything", True, 900)]:
                objects, configured = render(case, self.ON), values(case)[component]
                spec = one(objects, "CronJob", component)["spec"]
                self.assertEqual(
                    (spec["suspend"], spec["concurrencyPolicy"], spec["startingDeadlineSeconds"]),
                    (suspended, "Forbid", deadline),
                )
                self.assertEqual((spec["schedule"], spec["timeZone"]), (configured["schedule"], "Etc/UTC"))
                job = spec["jobTemplate"]["spec"]
                for key in ["activeDeadlineSeconds", "backoffLimit", "ttlSecondsAfterFinished"]:
                    self.assertEqual(job[key], configured[key])
                self.assertEqual(of_job(objects, component)["resources"], configured["resources"])


class Replay(unittest.TestCase):
    ON = {"replay": {"enabled": True}}

    def test_it_replays_under_the_workers_configuration(self):
        begin = ["dead-letters", "--config", "/etc/prorata/prorata.yaml", "--replay"]
        self.assertEqual(replay(render("secrets", self.ON))["args"], begin)
        self.assertEqual(replay(render("everything"))["args"], [*begin, "--reason=too_late", "--take-over"])

    def test_it_reaches_what_workers_reach_and_is_not_in_their_group(self):
        for case in CASES:
            with self.subTest(case=case):
                objects = render(case, self.ON)
                own, workers = replay(objects), worker(objects)
                expected = variables(workers)
                del expected["PRORATA_KAFKA__GROUP_INSTANCE_ID"]
                self.assertEqual(variables(own), expected)
                for key in ["image", "envFrom", "volumeMounts"]:
                    self.assertEqual(own.get(key), workers.get(key))
                volumes = {part: pod["spec"]["volumes"] for part, pod in pods(objects).items()}
                self.assertEqual(volumes["replay"], volumes["worker"])

    def test_it_is_off_and_starts_by_hand_alone(self):
        self.assertIs(values()["replay"]["enabled"], False)
        for objects in [render("everything"), render(override=self.ON)]:
            spec = one(objects, "CronJob", "replay")["spec"]
            self.assertEqual((spec["suspend"], spec["concurrencyPolicy"]), (True, "Forbid"))

    def test_it_is_bounded_and_not_tried_again(self):
        for case, ends, deleted in [("secrets", 21600, 604800), ("everything", 3600, 7200)]:
            objects = render(case, self.ON)
            job = one(objects, "CronJob", "replay")["spec"]["jobTemplate"]["spec"]
            found = tuple(
                job[key] for key in ("activeDeadlineSeconds", "backoffLimit", "ttlSecondsAfterFinished")
            )
            self.assertEqual(found, (ends, 0, deleted))
            stop = job["podFailurePolicy"]["rules"][0]["onExitCodes"]
            self.assertEqual(stop["containerName"], replay(objects)["name"])
            self.assertEqual(replay(objects)["resources"], values(case)["replay"]["resources"])
