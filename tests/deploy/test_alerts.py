"""promtool's word on the alerts: each fires at its fault, not before, and for this release alone."""

import tempfile
import unittest
from pathlib import Path
from typing import NamedTuple

import yaml
from alerts import promtool, rules, write_rules

WORKER, COLLECTOR = "cost-allocation", "cost-allocation-collector"
USED = "prorata_budget_used_ratio"


class Case(NamedTuple):
    """An alert, the samples of a fault that begins at minute 60, one a minute, and what the alert says."""

    alert: str
    # By metric with its labels; those of the release are added. Before the fault all is well.
    series: dict[str, str]
    # Minutes at which it fires; it is silent at minute 59, and one minute before `for` is over.
    fires: int
    labels: dict[str, str]
    summary: str


CASES = [
    Case(
        "ProrataShardStopped",
        {'prorata_shard_stopped{shard="3",reason="damaged",pod="p-0"}': "_x60 1x60"},
        62,
        {"shard": "3", "reason": "damaged"},
        "Shard 3 is stopped: damaged. Other shards continue.",
    ),
    Case(
        "ProrataOrganizationHeld",
        {'prorata_organizations_held{shard="3",pod="p-0"}': "0x59 2x60"},
        62,
        {"shard": "3"},
        "2 organizations of shard 3 are held: the engine refused one of their hours. Other organizations "
        "continue.",
    ),
    Case(
        "ProrataHoursNotClosed",
        {'prorata_oldest_open_hour_age_seconds{shard="3",pod="p-0"}': "10800x59 10860+60x60"},
        75,
        {"shard": "3"},
        "An hour with events of shard 3 ended 2h 16m 0s ago and is not closed.",
    ),
    Case(
        "ProrataShardsUnowned",
        {
            'prorata_shards{state="loaded",pod="p-0"}': "16x120",
            'prorata_shards{state="loaded",pod="p-1"}': "16x59 8x60",
        },
        75,
        {},
        "8 shards are not held by any worker.",
    ),
    Case(
        "ProrataShardsUnowned",
        # Workers that are gone have no samples; the last one counts for five minutes.
        {'prorata_shards{state="loaded",pod="p-0"}': "32x54 stale _x60"},
        70,
        {},
        "32 shards are not held by any worker.",
    ),
    Case(
        "ProrataNotReady",
        {'prorata_ready{pod="p-0"}': "1x59 0x60", 'prorata_ready{pod="p-1"}': "1x120"},
        75,
        {"pod": "p-0"},
        "Worker p-0 is not ready.",
    ),
    Case(
        "ProrataClockSkew",
        {'prorata_clock_skew_seconds{pod="p-0"}': "0x59 -900x60"},
        62,
        {"pod": "p-0"},
        "The clock of worker p-0 is -15m 0s ahead of the object store (negative: behind). The worker closes "
        "no hours by its clock.",
    ),
    Case(
        "ProrataWaiting",
        {
            'prorata_waiting_for{dependency="storage",kind="permission",pod="p-0"}': "0x59 1x60",
            'prorata_waiting_for{dependency="kafka",kind="transient",pod="p-0"}': "0x120",
        },
        70,
        {"dependency": "storage", "kind": "permission"},
        "Workers are waiting for storage (permission).",
    ),
    Case(
        "ProrataLag",
        {'prorata_lag_seconds{shard="3",topic="pods",pod="p-0"}': "3600x59 5400x60"},
        75,
        {"shard": "3", "topic": "pods"},
        "Topic pods lags by 1h 30m 0s in shard 3.",
    ),
    Case(
        "ProrataWatermarkLag",
        {'prorata_watermark_lag_seconds{shard="3",pod="p-0"}': "10800x59 14400x60"},
        75,
        {"shard": "3"},
        "The watermark of shard 3 lags by 4h 0m 0s: no hour after it can close.",
    ),
    Case(
        "ProrataCheckpointOld",
        {
            'prorata_checkpoint_age_seconds{shard="3",pod="p-0"}': "60x29 60+60x90",
            'prorata_checkpoint_age_seconds{shard="4",pod="p-0"}': "9000x120",
            'prorata_events_total{event_type="PodUsage",pod="p-0"}': "0+100x120",
            # Another has no news.
            'prorata_checkpoint_age_seconds{shard="5",pod="p-1"}': "9000x120",
            'prorata_events_total{event_type="PodUsage",pod="p-1"}': "700x120",
        },
        70,
        {"pod": "p-0"},
        "Worker p-0 reads events, but has not made a checkpoint for 41m 0s.",
    ),
    Case(
        "ProrataPublishLag",
        {
            'prorata_publish_lag_seconds{shard="3",pod="p-0"}': "60x29 60+60x90",
        },
        70,
        {"shard": "3"},
        "The tables lag the checkpoint of shard 3 by 41m 0s.",
    ),
    Case(
        "ProrataDeadLetters",
        {
            'prorata_dead_letters_total{reason="too_late",pod="p-0"}': "7x59 12x60",
            'prorata_dead_letters_total{reason="malformed",pod="p-0"}': "3x120",
        },
        65,
        {"reason": "too_late"},
        "5 messages became dead letters in the last hour: too_late.",
    ),
    Case(
        "ProrataUnpricedPods",
        {'prorata_unpriced_pod_hours_total{pod="p-0"}': "0x59 4x120"},
        65,
        {},
        "4 pod-hours of the last two hours have no price.",
    ),
    Case(
        "ProrataBudgetExceeded",
        {
            f'{USED}{{organization="acme",pool="a100",period="day",pod="p-0"}}': "0.8x59 0.9x60",
            f'{USED}{{organization="acme",pool="a100",period="month",pod="p-0"}}': "0.1x120",
        },
        65,
        {"organization": "acme", "pool": "a100", "period": "day"},
        "Pool a100 of acme has used 90% of its budget for the day.",
    ),
    Case(
        "ProrataConflicts",
        {'prorata_conflicts_total{pod="p-0"}': "0x59 12x60"},
        90,
        {},
        "Workers lost 12 checkpoints to other workers in an hour.",
    ),
    Case(
        "ProrataRetries",
        {'prorata_retries_total{pod="p-0"}': "0x59 60+60x90"},
        92,
        {"pod": "p-0"},
        "Worker p-0 retries 1.0 times per second.",
    ),
    Case(
        "ProrataRestatementDelayed",
        {'prorata_dirty_age_seconds{shard="3",pod="p-0"}': "43200x59 46800x60"},
        75,
        {"shard": "3"},
        "Dirty hours of shard 3 have waited 13h 0m 0s to be recomputed.",
    ),
    Case(
        "ProrataCollectorNotReady",
        {"prorata_collector_ready": "1x59 0x60"},
        70,
        {},
        "The collector is not running, or has not listed nodes and pods: events of the cluster are missing.",
    ),
    Case(
        "ProrataCollectorNotReady",
        {"prorata_collector_ready": "1x54 stale _x60"},
        65,
        {},
        "The collector is not running, or has not listed nodes and pods: events of the cluster are missing.",
    ),
    Case(
        "ProrataCollectorWriteFailing",
        {"prorata_collector_write_failing": "0x59 1x60"},
        62,
        {},
        "The collector cannot write events. After a few minutes, it misses changes between two lists.",
    ),
    Case(
        "ProrataCollectorWatchFailing",
        {
            'prorata_collector_watch_failing{kind="pods"}': "0x59 1x60",
            'prorata_collector_watch_failing{kind="nodes"}': "0x120",
        },
        65,
        {"kind": "pods"},
        "The collector cannot watch pods.",
    ),
    Case(
        "ProrataCollectorLag",
        {"prorata_collector_lag_seconds": "1x59 420x60"},
        65,
        {},
        "The collector lags the API server by 7m 0s.",
    ),
    Case(
        "ProrataCollectorQueueFull",
        {"prorata_collector_queue_depth": "30x59 1024x60"},
        70,
        {},
        "The queue of the collector is full: 1024 changes.",
    ),
    Case(
        "ProrataCollectorRepairedObjects",
        {"prorata_collector_repaired_objects_total": "0x59 2x60"},
        62,
        {},
        "The watch missed changes of 2 objects; a list has repaired them.",
    ),
    Case(
        "ProrataCollectorMissedStops",
        {"prorata_collector_missed_stops_total": "2x59 4x60"},
        62,
        {},
        "The collector missed the stop of 2 pods and nodes in the last hour; the time is an estimate.",
    ),
    Case(
        "ProrataCollectorSuspectLists",
        {"prorata_collector_suspect_lists_total": "0x59 1x60"},
        62,
        {},
        "A list lacked so many running objects that the collector did not accept it.",
    ),
    Case(
        "ProrataCollectorUnpricedNodes",
        {"prorata_collector_unpriced_nodes": "0x59 3x60"},
        75,
        {},
        "3 nodes without a price are held back, with their pods.",
    ),
    Case(
        "ProrataCollectorUnreadableFields",
        {"prorata_collector_unreadable_fields_total": "0x59 1x60"},
        62,
        {},
        "1 fields of objects could not be read in the last hour.",
    ),
    Case(
        "ProrataCollectorUnknownGpuShares",
        {
            'prorata_collector_unknown_gpu_shares{reason="missing_label"}': "0x59 2x60",
            'prorata_collector_unknown_gpu_shares{reason="unreadable"}': "0x120",
        },
        75,
        {"reason": "missing_label"},
        "The parts of GPUs that pods hold are not known on 2 nodes (missing_label).",
    ),
]


def of_release(series: str, namespace: str) -> str:
    """A series with the labels that Prometheus adds for a release in this namespace."""
    name, _, labels = series.removesuffix("}").partition("{")
    service = COLLECTOR if name.startswith("prorata_collector_") else WORKER
    return f'{name}{{namespace="{namespace}",service="{service}"{"," if labels else ""}{labels}}}'


def unit_test(case: Case, severity: str) -> dict:
    """The case in promtool's form. A release of the same name elsewhere is well all the time."""
    inputs = [{"series": of_release(series, "finops"), "values": v} for series, v in case.series.items()]
    for series, values in case.series.items():
        well = values.split("x")[0].split(" ")[0]
        well = "_" if well == "_" else well.split("+")[0]
        inputs.append({"series": of_release(series, "elsewhere"), "values": f"{well}x200"})
    url = f"https://runbooks.example/prorata#{case.alert.lower()}"
    expected = {
        "exp_labels": case.labels | {"severity": severity},
        "exp_annotations": {"summary": case.summary, "runbook_url": url},
    }
    at = [("59m", []), (f"{case.fires - 2}m", []), (f"{case.fires}m", [expected])]
    return {
        "name": case.alert,
        "interval": "1m",
        "input_series": inputs,
        "alert_rule_test": [
            {"alertname": case.alert, "eval_time": time, "exp_alerts": alerts} for time, alerts in at
        ],
    }


class Promtool(unittest.TestCase):
    def check(self, cases: list[Case]) -> tuple[int, str]:
        severities = {alert["alert"]: alert["labels"]["severity"] for alert in rules()}
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            file = write_rules(folder)
            tests = [unit_test(case, severities[case.alert]) for case in cases]
            content = {"rule_files": [file.name], "evaluation_interval": "1m", "tests": tests}
            (folder / "tests.yaml").write_text(yaml.safe_dump(content))
            return promtool("test", "rules", folder / "tests.yaml")

    def test_the_rules_are_valid_and_have_no_lint(self):
        with tempfile.TemporaryDirectory() as folder:
            code, said = promtool("check", "rules", "--lint=all", "--lint-fatal", write_rules(Path(folder)))
        self.assertEqual(code, 0, said)
        self.assertIn(f"{len(rules())} rules found", said)

    def test_each_alert_fires_at_its_fault_and_not_before(self):
        self.assertEqual({case.alert for case in CASES}, {alert["alert"] for alert in rules()})
        code, said = self.check(CASES)
        self.assertEqual(code, 0, said)

    def test_an_alert_that_stays_silent_would_be_found(self):
        for wrong in [{"fires": 59}, {"summary": "All is well."}, {"labels": {}}]:
            code, said = self.check([CASES[0]._replace(**wrong)])
            self.assertEqual(code, 1, said)


if __name__ == "__main__":
    unittest.main()
