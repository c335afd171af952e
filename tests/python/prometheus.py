"""Prometheus next to one worker: deploy/compose's configuration, and the alerts of the chart."""

import datetime
import json
import sys
import time
import urllib.parse
import urllib.request
from collections.abc import Callable
from pathlib import Path

import environment
import processes
import yaml

sys.path.append(str(Path(__file__).resolve().parent.parent / "deploy"))

from chart import DEPLOY, one, render

# Seconds until it must have scraped the worker, and then evaluated every rule.
PATIENCE = 600
# The worker's address in deploy/compose.
WORKER = "worker:8080"
# An alert and the dashboard ask for it.
METRIC = "prorata_watermark_lag_seconds"


def groups(labels: dict[str, str], config: dict) -> list[dict]:
    """The rules of a release that has these labels, and whose workers have this configuration."""
    values = {
        "image": {"repository": "prorata"},
        "replicas": 1,
        # A worker in a container does not listen on loopback.
        "config": {key: value for key, value in config.items() if key != "http"},
        "prometheusRule": {"enabled": True},
    }
    objects = render(override=values, release=labels["service"], namespace=labels["namespace"])
    return one(objects, "PrometheusRule")["spec"]["groups"]


class Prometheus:
    """A server on a free port that scrapes the worker at an address, and evaluates the alerts."""

    def __init__(self, folder: Path, worker: str, config: dict):
        settings = yaml.safe_load((DEPLOY / "compose" / "prometheus.yaml").read_text())
        static = settings["scrape_configs"][0]["static_configs"][0]
        if static["targets"] != [WORKER]:
            sys.exit(f"deploy/compose has Prometheus scrape {static['targets']}, not {WORKER}")
        static["targets"] = [worker]
        self.labels = static["labels"]
        rules = folder / "rules.yaml"
        rules.write_text(yaml.safe_dump({"groups": groups(self.labels, config)}))
        settings["rule_files"] = [str(rules)]
        # Nobody wants to wait a minute, as is the default.
        settings["global"]["evaluation_interval"] = "1s"
        file = folder / "prometheus.yaml"
        file.write_text(yaml.safe_dump(settings))
        address = f"127.0.0.1:{next(processes.free_ports())}"
        self.url = f"http://{address}/api/v1"
        program = environment.installed("prometheus") / "prometheus"
        command = [program, f"--config.file={file}", f"--web.listen-address={address}"]
        command.append(f"--storage.tsdb.path={folder / 'prometheus'}")
        self.server = processes.Server("prometheus", folder, command)

    def ask(self, path: str, **parameters: str) -> dict:
        """The data of an answer."""
        query = urllib.parse.urlencode(parameters)
        with urllib.request.urlopen(f"{self.url}/{path}?{query}", timeout=30) as answer:
            return json.load(answer)["data"]

    def wait(self) -> None:
        """Waits until it has scraped the worker, and has evaluated every rule over that."""
        self.until(self.not_scraped)
        scraped = datetime.datetime.now(datetime.UTC)
        self.until(lambda: self.not_evaluated(scraped))

    def until(self, missing: Callable[[], str]) -> None:
        """Waits until nothing is missing; ends the program with what is when that takes too long."""
        deadline = time.monotonic() + PATIENCE
        while True:
            try:
                fault = missing()
            except OSError as error:
                fault = f"Prometheus does not answer: {error}"
            if not fault:
                return
            if self.server.process.poll() is not None or time.monotonic() > deadline:
                sys.exit(f"{fault}\n{self.server.tail()}")
            time.sleep(0.2)

    def not_scraped(self) -> str:
        """Why it has no figures of the worker, with the labels that the dashboard asks for; or empty."""
        targets = self.ask("targets", state="active")["activeTargets"]
        down = [f"{of['scrapeUrl']} is {of['health']}: {of['lastError']}" for of in targets]
        if not targets or any(target["health"] != "up" for target in targets):
            return "; ".join(down) or "Prometheus has no target"
        labels = ",".join(f'{name}="{value}"' for name, value in self.labels.items())
        query = f"{METRIC}{{{labels}}}"
        return "" if self.ask("query", query=query)["result"] else f"Prometheus has no {query}"

    def not_evaluated(self, since: datetime.datetime) -> str:
        """Which rules it has not evaluated since, or not without an error."""
        rules = [rule for group in self.ask("rules")["groups"] for rule in group["rules"]]
        faults = [
            f"rule {rule['name']} is {rule['health']}: {rule.get('lastError', 'not evaluated')}"
            for rule in rules
            if rule["health"] != "ok" or datetime.datetime.fromisoformat(rule["lastEvaluation"]) < since
        ]
        return "; ".join(faults) if rules else "Prometheus has no rules"

    def alerts(self, state: str) -> list[str]:
        """The names of the alerts in a state: firing, or pending."""
        found = self.ask("alerts")["alerts"]
        return sorted({alert["labels"]["alertname"] for alert in found if alert["state"] == state})
