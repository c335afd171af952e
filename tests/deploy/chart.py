"""Renders the chart, and finds one's way in what comes out."""

import functools
import json
import os
import subprocess
import tempfile
from pathlib import Path

import yaml

HERE = Path(__file__).resolve().parent
REPOSITORY = HERE.parent.parent
# Another folder than the repository's is checked to see whether the checks find what is broken there.
DEPLOY = Path(os.environ.get("PRORATA_DEPLOY") or REPOSITORY / "deploy")
CHART = DEPLOY / "helm" / "prorata"
RELEASE = "prorata"
NAMESPACE = "finops"

# The oldest version that Chart.yaml allows, one between, and the newest that there are schemas of.
KUBERNETES = ["1.29.0", "1.31.0", "1.37.0"]

# Sets of values by name; the first is the defaults.
CASES = {"defaults": None} | {
    path.stem.removeprefix("values-"): path for path in sorted(HERE.glob("values-*.yaml"))
}

# The security context that every container has.
HARDENED = {
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
    "privileged": False,
    "readOnlyRootFilesystem": True,
    "runAsNonRoot": True,
}


class Refused(Exception):
    """Helm refused the values; the text is its reason."""


def helm(*arguments: str) -> str:
    """What a helm command prints."""
    done = subprocess.run(["helm", *arguments], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise Refused(done.stderr)
    return done.stdout


def text(
    case: str = "defaults",
    override: dict | None = None,
    release: str = RELEASE,
    kubernetes: str = "1.31.0",
    chart: Path = CHART,
    namespace: str = NAMESPACE,
) -> str:
    """The manifests of a case, with some values on top."""
    return _text(case, json.dumps(override or {}), release, kubernetes, chart, namespace)


@functools.cache
def _text(case: str, override: str, release: str, kubernetes: str, chart: Path, namespace: str) -> str:
    arguments = ["template", release, str(chart), "--namespace", namespace, "--kube-version", kubernetes]
    if CASES[case]:
        arguments += ["--values", str(CASES[case])]
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        file.write(override)
        file.flush()
        return helm(*arguments, "--values", file.name)


def render(
    case: str = "defaults",
    override: dict | None = None,
    release: str = RELEASE,
    kubernetes: str = "1.31.0",
    namespace: str = NAMESPACE,
) -> list[dict]:
    """The objects of a case, with some values on top."""
    manifests = text(case, override, release, kubernetes, namespace=namespace)
    return [document for document in yaml.safe_load_all(manifests) if document]


def one(objects: list[dict], kind: str, part: str = "") -> dict:
    """The only object of its kind, or of those with this label."""
    found = [
        document for document in objects if document["kind"] == kind and component(document).startswith(part)
    ]
    assert len(found) == 1, f"{len(found)} objects are a {kind} {part}"
    return found[0]


def component(document: dict) -> str:
    """What an object is part of: the worker, the backfill, the replay, the upkeep; or of all."""
    return document["metadata"]["labels"].get("app.kubernetes.io/component", "")


def kinds(objects: list[dict]) -> list[str]:
    """Which kinds there are, sorted."""
    return sorted(document["kind"] for document in objects)


def template(document: dict) -> dict:
    """The pod template of a StatefulSet or CronJob; a Pod is its own."""
    if document["kind"] == "Pod":
        return document
    spec = document["spec"]
    return (spec["jobTemplate"]["spec"] if document["kind"] == "CronJob" else spec)["template"]


def pods(objects: list[dict]) -> dict[str, dict]:
    """Every pod template, by what it is part of; the pod of `helm test` is none."""
    return {
        component(d): template(d)
        for d in objects
        if d["kind"]
        not in (
            "ConfigMap",
            "Pod",
            "Service",
            "ServiceAccount",
            "PodDisruptionBudget",
            "NetworkPolicy",
            "ServiceMonitor",
            "PodMonitor",
            "PrometheusRule",
            "ScaledObject",
        )
    }


def worker(objects: list[dict]) -> dict:
    """The worker's container."""
    return template(one(objects, "StatefulSet"))["spec"]["containers"][0]


def backfill(objects: list[dict]) -> dict:
    """The backfill's container."""
    return template(one(objects, "CronJob", "backfill"))["spec"]["containers"][0]


def replay(objects: list[dict]) -> dict:
    """The container of the replay of dead letters."""
    return template(one(objects, "CronJob", "replay"))["spec"]["containers"][0]


def of_job(objects: list[dict], component: str) -> dict:
    """The container of a CronJob."""
    return template(one(objects, "CronJob", component))["spec"]["containers"][0]


def variables(container: dict) -> dict[str, dict]:
    """A container's environment by name."""
    return {variable["name"]: variable for variable in container.get("env", [])}


def config_map(objects: list[dict], file: str = "prorata.yaml") -> dict:
    """The only ConfigMap with this file."""
    return one([d for d in objects if d["kind"] == "ConfigMap" and file in d["data"]], "ConfigMap")


def configuration(objects: list[dict], file: str = "prorata.yaml") -> dict:
    """The configuration file of the workers, or the backfill's."""
    return yaml.safe_load(config_map(objects)["data"][file])


def values(case: str = "defaults") -> dict:
    """The values of a case: the chart's own under those of the file. A null removes a value."""
    own = yaml.safe_load((CHART / "values.yaml").read_text())
    return merged(own, yaml.safe_load(CASES[case].read_text()) if CASES[case] else {})


def merged(below: dict, above: dict) -> dict:
    """Values on top of others, as Helm merges them."""
    result = dict(below)
    for key, value in above.items():
        if value is None:
            result.pop(key, None)
        elif isinstance(value, dict) and isinstance(below.get(key), dict):
            result[key] = merged(below[key], value)
        else:
            result[key] = value
    return result


def documented() -> dict:
    """deploy/prorata.yaml: every key of the configuration with its default."""
    return yaml.safe_load((DEPLOY / "prorata.yaml").read_text())


def seconds(duration: str) -> int:
    """Seconds of a duration such as 2m."""
    return int(duration[:-1]) * {"s": 1, "m": 60, "h": 3600}[duration[-1]]


def size(quantity: str) -> int:
    """Bytes of a quantity such as 2Gi."""
    return int(quantity[:-2]) * {"Mi": 1 << 20, "Gi": 1 << 30}[quantity[-2:]]
