#!/usr/bin/env python3
"""Runs the checks of deploy/. `check` installs what they need and starts this."""

import sys
import unittest
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "python"))

from environment import enter


def main() -> int:
    enter("deploy")
    # Discovery takes imports from the folder of the tests.
    suite = unittest.defaultTestLoader.discover(str(HERE), pattern="test_*.py")
    if suite.countTestCases() < 40:
        sys.exit(f"only {suite.countTestCases()} checks were found")
    return 0 if unittest.TextTestRunner(failfast="--failfast" in sys.argv).run(suite).wasSuccessful() else 1


if __name__ == "__main__":
    sys.exit(main())
