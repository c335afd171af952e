"""Alerts, runbook, dashboard and autoscaler: they speak of metrics that a worker has, and of each other."""

import re
import unittest

from alerts import asked, boards, groups, rules
from chart import DEPLOY, REPOSITORY, Refused, config_map, one, render

METRICS = REPOSITORY / "pipeline" / "cli" / "src" / "operations" / "README.md"
SCALED = {
    "replicas": None,
    "autoscaling": {"enabled": True, "prometheus": {"serverAddress": "http://prometheus:9090"}},
    "config": {"root": {"shards": 16}},
}


def documented_metrics() -> dict[str, set[str]]:
    """Every metric of a worker or collector with its labels; a test of the program compares this list with
    its output."""
    found = {}
    for line in METRICS.read_text().splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if len(cells) == 4 and cells[0].startswith("`prorata_"):
            names = [cells[0].strip("`")]
            if cells[1] == "histogram":
                names = [f"{names[0]}_{part}" for part in ("bucket", "sum", "count")]
            found |= {name: set(re.findall(r"`(\w+)`", cells[2])) for name in names}
    return found


class Alerts(unittest.TestCase):
    def test_alerts_and_dashboard_ask_for_metrics_that_a_worker_has(self):
        known = documented_metrics()
        expressions = asked()
        self.assertGreater(len(expressions), 20)
        for expression in expressions:
            names = re.findall(r"\bprorata_\w+", expression)
            self.assertTrue(names, expression)
            for name in names:
                self.assertIn(name, known, expression)
            groups = re.findall(r"\bby \(([^)]*)\)", expression)
            # What Prometheus itself adds to each sample.
            labels = {"namespace", "service", "pod", "le"}.union(*(known[name] for name in names))
            for label in re.split(r",\s*", ",".join(groups)) if groups else []:
                self.assertIn(label, labels, expression)

    def test_a_summary_names_only_labels_that_its_expression_leaves(self):
        for alert in rules():
            kept = re.findall(r"\bby \(([^)]*)\)", alert["expr"])
            left = set(re.split(r",\s*", kept[0])) if kept else {"pod"}
            for label in re.findall(r"\$labels\.(\w+)", alert["annotations"]["summary"]):
                self.assertIn(label, left, alert["alert"])

    def test_alerts_are_of_this_release_alone(self):
        services = {"prorata": "cost-allocation", "prorata-collector": "cost-allocation-collector"}
        self.assertEqual({group["name"] for group in groups()}, set(services))
        for group in groups():
            own = f'{{namespace="finops",service="{services[group["name"]]}"}}'
            for alert in group["rules"]:
                selectors = re.findall(r"prorata_\w+(\{[^}]*\})?", alert["expr"])
                self.assertEqual(set(selectors), {own}, alert["alert"])

    def test_a_release_without_a_collector_has_no_alerts_of_one(self):
        found = groups({"collector": {"enabled": False}})
        self.assertEqual([group["name"] for group in found], ["prorata"])

    def test_each_alert_has_a_section_in_the_runbook_and_each_section_an_alert(self):
        text = (DEPLOY / "RUNBOOK.md").read_text()
        alerts, procedures = text.split("# Procedures\n")
        sections = dict(re.findall(r"^## (\w+)\n(.*?)(?=^## |\Z)", alerts, re.DOTALL | re.MULTILINE))
        self.assertEqual(set(sections), {alert["alert"] for alert in rules()})
        for name, section in sections.items():
            for part in ("**Means**", "**Look**", "**Do**"):
                self.assertIn(part, section, name)
        for alert in rules():
            url = f"https://runbooks.example/prorata#{alert['alert'].lower()}"
            self.assertEqual(alert["annotations"]["runbook_url"], url)
        self.assertGreater(procedures.count("\n## "), 5)

    def test_thresholds_are_as_the_values_say(self):
        by_name = {alert["alert"]: alert for alert in rules()}
        self.assertTrue(by_name["ProrataHoursNotClosed"]["expr"].endswith("- 3600 > 7200"))
        self.assertTrue(by_name["ProrataLag"]["expr"].endswith("> 3600"))
        self.assertTrue(by_name["ProrataBudgetExceeded"]["expr"].endswith("> 0.8"))
        labels = one(render("everything"), "PrometheusRule")["metadata"]["labels"]
        self.assertEqual(labels["release"], "prometheus")
        self.assertTrue(by_name["ProrataShardsUnowned"]["expr"].startswith("32 - "))
        without = {alert["alert"] for alert in rules({"config": {"root": {"shards": None}}})}
        self.assertEqual(set(by_name) - without, {"ProrataShardsUnowned"})

    def test_the_dashboard_is_labelled_for_the_sidecar(self):
        default = config_map(render(override={"dashboard": {"enabled": True}}), "prorata.json")["metadata"]
        self.assertEqual(default["labels"]["grafana_dashboard"], "1")
        metadata = config_map(render("everything"), "prorata.json")["metadata"]
        self.assertNotIn("grafana_dashboard", metadata["labels"])
        self.assertEqual(metadata["labels"]["grafana"], "yes")
        self.assertEqual(metadata["annotations"], {"grafana_folder": "finops"})
        self.assertEqual(len({board["uid"] for board in boards()}), 2)
        for board in boards():
            panels = board["panels"]
            self.assertEqual(len({panel["id"] for panel in panels}), len(panels))
            for panel in panels:
                self.assertTrue(panel["title"] and panel["description"], panel["id"])


class Autoscaling(unittest.TestCase):
    def test_an_autoscaler_s_number_survives_an_upgrade(self):
        objects = render(override=SCALED)
        self.assertNotIn("replicas", one(objects, "StatefulSet")["spec"])
        scaler = one(objects, "ScaledObject")["spec"]
        self.assertEqual(scaler["scaleTargetRef"]["name"], one(objects, "StatefulSet")["metadata"]["name"])
        self.assertEqual((scaler["minReplicaCount"], scaler["maxReplicaCount"]), (1, 16))
        metadata = scaler["triggers"][0]["metadata"]
        self.assertEqual(metadata["threshold"], "1800")
        self.assertIn("prorata_lag_seconds{", metadata["query"])
        self.assertIn("prorata_lag_seconds", documented_metrics())

    def test_contradictory_values_are_refused(self):
        scaling = SCALED["autoscaling"]
        for override, reason in [
            ({"replicas": 2}, "every upgrade would reset the workers"),
            ({"autoscaling": {"enabled": True}}, "autoscaling.prometheus.serverAddress"),
            ({"config": {"root": {}}}, "autoscaling.maxReplicas: set it"),
            ({"autoscaling": scaling | {"maxReplicas": 17}}, "17 workers for 16 shards"),
            ({"autoscaling": scaling | {"minReplicas": 5, "maxReplicas": 4}}, "more than the maximum, 4"),
        ]:
            with self.subTest(reason=reason):
                values = SCALED | override
                with self.assertRaises(Refused) as refused:
                    render(override=values)
                self.assertIn(reason, str(refused.exception))


if __name__ == "__main__":
    unittest.main()
