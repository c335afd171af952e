#!/usr/bin/env python3
"""Alerts provoked by their faults.

`check --alerts` starts this next to Kafka, a registry and an API server.
"""

import re
import sys
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "python"))

from environment import enter

enter("deploy")

from alerts import asked
from provoked_collectors import Collector
from provoked_workers import Worker
from scenes import SEEN

__all__ = ["Collector", "Worker"]


def tearDownModule() -> None:
    """Whatever the rules and the dashboards name, a running program has."""
    named = {name for expression in asked() for name in re.findall(r"\bprorata_\w+", expression)}
    missing = {re.sub("_(bucket|sum|count)$", "", name) for name in named} - SEEN
    if missing:
        raise AssertionError(f"no running program had {missing}")


if __name__ == "__main__":
    unittest.main(verbosity=2)
