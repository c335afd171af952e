"""The alerts as files for promtool, and what promtool says of them."""

import json
import subprocess
from pathlib import Path

import yaml
from chart import config_map, one, render

# Alerts of everything: the collector has its own group.
VALUES = {"collector": {"enabled": True, "config": {"organization_id": "acme", "state_topic": "state"}}}


def groups(override: dict | None = None) -> list[dict]:
    """The groups of rules of a release with everything on."""
    return one(render("everything", VALUES | (override or {})), "PrometheusRule")["spec"]["groups"]


def rules(override: dict | None = None) -> list[dict]:
    """Its alerts."""
    return [alert for group in groups(override) for alert in group["rules"]]


def boards() -> list[dict]:
    """The dashboards of a release with everything on."""
    data = config_map(render("everything"), "prorata.json")["data"]
    return [json.loads(data[name]) for name in ("prorata.json", "prorata-cost.json")]


def asked() -> list[str]:
    """The expressions of its alerts and dashboards."""
    panels = [panel for board in boards() for panel in board["panels"]]
    targets = [target["expr"] for panel in panels for target in panel["targets"]]
    return [alert["expr"] for alert in rules()] + targets


def write_rules(folder: Path) -> Path:
    """The rules as Prometheus reads them, in a file of this folder."""
    file = folder / "rules.yaml"
    file.write_text(yaml.safe_dump({"groups": groups()}))
    return file


def promtool(*arguments: object) -> tuple[int, str]:
    """The exit code of promtool, and all that it says."""
    command = ["promtool", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout + done.stderr
