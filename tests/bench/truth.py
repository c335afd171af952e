"""The true cost of pods and nodes on an API server: what they request, for as long as they run."""

import json
import threading
import time
import urllib.request
from collections.abc import Callable
from datetime import datetime
from typing import NamedTuple

import api

# Dollars an hour. They are in proportion to the weights of the split, so that a request has one price.
VCPU_PRICE, GIB_PRICE = 0.09, 0.01
# What each node has.
NODE_VCPU, NODE_GIB = 16, 64


def price(vcpu: float, gib: float) -> float:
    """Dollars a second."""
    return (vcpu * VCPU_PRICE + gib * GIB_PRICE) / 3600


def moment(text: str) -> float:
    """A time as Kubernetes writes it."""
    return datetime.fromisoformat(text).timestamp()


class Life(NamedTuple):
    """When something ran, and its dollars a second."""

    namespace: str
    price: float
    start: float
    end: float | None = None

    def cost(self) -> float:
        return (self.end - self.start) * self.price


class Truth:
    """What an undisturbed watch shows: pods by uid, by the times that Kubernetes wrote (`pods`) and by the
    clock of the watch (`seen`); nodes by name, until it sees them removed."""

    def __init__(self) -> None:
        self.pods: dict[str, Life] = {}
        self.seen: dict[str, Life] = {}
        self.nodes: dict[str, Life] = {}
        for kind, note in (("pods", self.pod), ("nodes", self.node)):
            version = api.ask(f"/api/v1/{kind}")["metadata"]["resourceVersion"]
            path = f"/api/v1/{kind}?watch=true&timeoutSeconds=3600&resourceVersion={version}"
            threading.Thread(target=self.watch, args=(path, note), daemon=True).start()

    def watch(self, path: str, note: Callable[[dict, bool], None]) -> None:
        request = urllib.request.Request(api.SERVER + path, headers={"Authorization": f"Bearer {api.TOKEN}"})
        with urllib.request.urlopen(request, context=api.TLS) as changes:
            for line in changes:
                change = json.loads(line)
                note(change["object"], change["type"] == "DELETED")

    def pod(self, pod: dict, is_gone: bool) -> None:
        metadata, status = pod["metadata"], pod["status"]
        starts = [of["lastTransitionTime"] for of in status.get("conditions", [])
                  if of["type"] == "PodScheduled" and of["status"] == "True"]
        states = [of["state"] for of in status.get("containerStatuses", [])]
        ends = [state["terminated"]["finishedAt"] for state in states if "terminated" in state]
        ends += [metadata["deletionTimestamp"]] if is_gone else []
        for lives, at in ((self.pods, moment), (self.seen, lambda _: time.time())):
            life = lives.get(metadata["uid"])
            if not life and starts:
                asked = price(*map(float, metadata["annotations"]["asked"].split()))
                lives[metadata["uid"]] = Life(metadata["namespace"], asked, at(starts[0]))
            elif life and not life.end and ends:
                lives[metadata["uid"]] = life._replace(end=at(ends[0]))

    def node(self, node: dict, is_gone: bool) -> None:
        name, start = node["metadata"]["name"], moment(node["metadata"]["creationTimestamp"])
        self.nodes[name] = Life("", price(NODE_VCPU, NODE_GIB), start, time.time() if is_gone else None)
