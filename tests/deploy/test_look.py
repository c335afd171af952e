"""The check and the report: they look at the workers' root on a schedule, with all that reaches it."""

import unittest

from chart import Refused, backfill, of_job, one, render, values, variables, worker

LAKE = {"config": {"root": {"url": "s3://bucket/lake"}}}
PAGE = "s3://bucket/reports/costs.html"
ON = LAKE | {"check": {"enabled": True}, "report": {"enabled": True, "output": PAGE}}


class Look(unittest.TestCase):
    def test_they_look_at_the_workers_root_by_default(self):
        objects = render(override=ON)
        lake = ["--lake", "s3://bucket/lake"]
        self.assertEqual(of_job(objects, "check")["args"], ["check", *lake, "--allow-warnings"])
        page = ["--output", PAGE, "--group-by", "namespace", "--days", "35", "--explain", "50"]
        self.assertEqual(of_job(objects, "report")["args"], ["report", *lake, *page])
        objects, lake = render("everything"), ["--lake", "az://container/lake"]
        self.assertEqual(of_job(objects, "check")["args"], ["check", *lake, "--json"])
        page = ["--output", "az://container/reports/costs.html", "--group-by", "label:team", "--days", "7"]
        page += ["--explain", "0"]
        self.assertEqual(of_job(objects, "report")["args"], ["report", *lake, *page])

    def test_they_reach_the_root_and_need_no_kafka(self):
        objects = render("everything")
        for component in ["check", "report"]:
            own = of_job(objects, component)
            for key in ["env", "envFrom", "image"]:
                self.assertEqual(own[key], backfill(objects)[key], component)
            self.assertFalse([name for name in variables(own) if "KAFKA" in name])
            self.assertNotEqual(own["resources"], worker(objects)["resources"])

    def test_they_may_have_an_account_and_credentials_that_only_read(self):
        def looks(override: dict) -> list[tuple[str, list]]:
            found = render(override=ON | override)
            specs = [
                one(found, "CronJob", component)["spec"]["jobTemplate"]["spec"]["template"]["spec"]
                for component in ["check", "report"]
            ]
            return [(spec["serviceAccountName"], spec["containers"][0].get("envFrom")) for spec in specs]

        self.assertEqual(looks({}), [("prorata", None)] * 2)
        store = {"objectStore": {"existingSecret": "writes", "readerSecret": "reads"}}
        account = {"readerServiceAccount": {"create": True, "annotations": {"role": "reads"}}}
        expected = ("prorata-reader", [{"secretRef": {"name": "reads"}}])
        self.assertEqual(looks(store | account), [expected] * 2)
        objects = render(override=ON | store | account)
        accounts = {d["metadata"]["name"]: d["metadata"] for d in objects if d["kind"] == "ServiceAccount"}
        self.assertEqual(set(accounts), {"prorata", "prorata-reader"})
        self.assertEqual(accounts["prorata-reader"]["annotations"], {"role": "reads"})
        self.assertEqual(worker(objects)["envFrom"], [{"secretRef": {"name": "writes"}}])
        named = {"readerServiceAccount": {"name": "looker"}}
        self.assertEqual([name for name, _ in looks(named)], ["looker"] * 2)

    def test_they_are_off_and_then_run_as_the_values_say(self):
        for component in ["check", "report"]:
            self.assertIs(values()[component]["enabled"], False)
            spec = one(render(override=ON), "CronJob", component)["spec"]
            self.assertEqual((spec["suspend"], spec["concurrencyPolicy"]), (False, "Forbid"))
            self.assertEqual(spec["schedule"], values()[component]["schedule"])
            job = one(render("everything"), "CronJob", component)["spec"]
            self.assertIs(job["suspend"], True)
            configured = values("everything")[component]
            self.assertEqual(job["startingDeadlineSeconds"], configured["startingDeadlineSeconds"])
            for key in ["activeDeadlineSeconds", "backoffLimit", "ttlSecondsAfterFinished"]:
                self.assertEqual(job["jobTemplate"]["spec"][key], configured[key])
            moved = ON | {component: ON[component] | {"placement": {"nodeSelector": {"pool": "spot"}}}}
            objects = render(override=moved)
            pod = one(objects, "CronJob", component)["spec"]["jobTemplate"]["spec"]["template"]["spec"]
            self.assertEqual(pod["nodeSelector"], {"pool": "spot"})

    def test_an_error_names_the_missing_value(self):
        for override, reason in [
            ({"check": {"enabled": True}}, "check.lake: set it"),
            ({"report": {"enabled": True, "output": PAGE}}, "report.lake: set it"),
            (LAKE | {"report": {"enabled": True}}, "report.output: set the URL"),
            (LAKE | {"report": {"enabled": True, "output": "s3://bucket/reports/"}}, "/report/output"),
            ({"report": {"groupBy": "colour"}}, "/report/groupBy"),
        ]:
            with self.assertRaises(Refused) as refused:
                render(override=override)
            self.assertIn(reason, str(refused.exception))


if __name__ == "__main__":
    unittest.main()
