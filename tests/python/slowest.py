#!/usr/bin/env python3
"""Passes on what `cargo test -- --report-time` prints, without the tests that pass, and notes their times.

usage: cargo test .. | slowest.py FILE

A line of FILE is the seconds of a test and its name. FILE is added to, as several runs share it.
"""

import re
import sys

PASSED = re.compile(r"test (?P<name>\S+)( - should panic)? \.\.\. ok <(?P<seconds>[0-9.]+)s>\s*")


def main() -> None:
    with open(sys.argv[1], "a", encoding="utf-8") as times:
        for line in sys.stdin:
            if passed := PASSED.fullmatch(line):
                times.write(f"{float(passed['seconds']):8.1f} s  {passed['name']}\n")
            elif line.strip():
                print(line, end="", flush=True)


if __name__ == "__main__":
    main()
