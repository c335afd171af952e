"""The API server that `servers.py --kubernetes` starts, asked as its administrator."""

import json
import os
import ssl
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path

KUBECONFIG = os.environ["PRORATA_TEST_KUBERNETES"]
# Longest time for the cluster to do anything, in seconds. An idle machine needs a tenth.
PATIENCE = 120


class Refused(Exception):
    """The API server refused a request: its code and its reason."""

    def __init__(self, code: int, reason: str):
        super().__init__(f"{code}: {reason}")
        self.code = code


class Warned(Exception):
    """The API server or Helm warned of an object."""


def _open() -> tuple[str, str, ssl.SSLContext]:
    config = json.loads(Path(KUBECONFIG).read_text())
    cluster = config["clusters"][0]["cluster"]
    token = next(user["user"]["token"] for user in config["users"] if user["name"] == "token")
    return cluster["server"], token, ssl.create_default_context(cafile=cluster["certificate-authority"])


SERVER, TOKEN, TLS = _open()


def ask(path: str, method: str = "GET", body: dict | None = None, kind: str = "application/json") -> dict:
    """An answer of the API server. A warning is an error."""
    data = json.dumps(body).encode() if body is not None else None
    headers = {"Authorization": f"Bearer {TOKEN}", "Content-Type": kind}
    request = urllib.request.Request(SERVER + path, data, headers, method=method)
    try:
        with urllib.request.urlopen(request, timeout=30, context=TLS) as answer:
            if warnings := answer.headers.get_all("Warning"):
                raise Warned(f"{method} {path}: {warnings}")
            return json.loads(answer.read())
    except urllib.error.HTTPError as error:
        raise Refused(error.code, error.read().decode()) from None


def patch(path: str, body: dict) -> dict:
    """Changes a part of an object."""
    return ask(path, "PATCH", body, "application/merge-patch+json")


def create(document: dict, query: str = "") -> dict:
    """Creates an object of any kind."""
    return ask(path_of(document) + query, "POST", document)


# The plural of a kind and whether it is in a namespace, by group and version.
_RESOURCES: dict[str, dict[str, tuple[str, bool]]] = {}


def path_of(document: dict) -> str:
    """Where objects of this one's kind are created."""
    version = document["apiVersion"]
    base = f"/apis/{version}" if "/" in version else f"/api/{version}"
    if document["kind"] not in _RESOURCES.get(version, {}):
        found = [of for of in ask(base)["resources"] if "/" not in of["name"]]
        _RESOURCES[version] = {of["kind"]: (of["name"], of["namespaced"]) for of in found}
    plural, in_namespace = _RESOURCES[version][document["kind"]]
    within = f"/namespaces/{document['metadata']['namespace']}" if in_namespace else ""
    return f"{base}{within}/{plural}"


def eventually(what: str, holds: Callable[[], object]) -> object:
    """Waits until something holds, and returns it."""
    deadline = time.monotonic() + PATIENCE
    while not (found := holds()):
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {PATIENCE} s: {what}")
        time.sleep(0.1)
    return found


def helm(*arguments: object) -> str:
    """What Helm prints; what it warns of is an error."""
    command = ["helm", "--kubeconfig", KUBECONFIG, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise AssertionError(f"{command}: {done.stdout}{done.stderr}")
    if done.stderr.strip():
        raise Warned(f"{command}: {done.stderr}")
    return done.stdout


def apply_definitions(folder: Path) -> list[str]:
    """Defines the kinds of others, and returns their names once they are served."""
    import yaml

    names = []
    for file in sorted(folder.glob("*.yaml")):
        for document in filter(None, yaml.safe_load_all(file.read_text())):
            create(document)
            names.append(document["metadata"]["name"])
    for name in names:
        path = f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{name}"
        eventually(f"{name} is served", lambda path=path: _is_served(ask(path)))
    return names


def _is_served(definition: dict) -> bool:
    conditions = definition.get("status", {}).get("conditions") or []
    if not any(of["type"] == "Established" and of["status"] == "True" for of in conditions):
        return False
    spec = definition["spec"]
    path = f"/apis/{spec['group']}/{spec['versions'][0]['name']}/{spec['names']['plural']}"
    try:
        return bool(ask(path))
    except Refused as refused:
        # It is still filling its cache.
        if refused.code != 429:
            raise
        return False
