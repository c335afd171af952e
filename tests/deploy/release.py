#!/usr/bin/env python3
"""Checks that a tag may be released, and prints the changelog's section on it: the text of the release.

usage: tests/deploy/release.py vVERSION

The tag, the workspace, the chart and the program that the chart installs have one version, and CHANGELOG.md
has a section on it with a date. The exit code is 1 if one of them differs.
"""

import re
import sys
import tomllib
from pathlib import Path

TOP = Path(__file__).resolve().parent.parent.parent
CHART = "deploy/helm/prorata/Chart.yaml"


def versions(top: Path) -> dict[str, str]:
    """Returns the version that each place states."""
    workspace = tomllib.loads((top / "Cargo.toml").read_text())["workspace"]["package"]["version"]
    chart = (top / CHART).read_text()
    return {
        "Cargo.toml": workspace,
        f"{CHART}, version": re.search(r"^version: (\S+)$", chart, re.MULTILINE)[1],
        f"{CHART}, appVersion": re.search(r'^appVersion: "(\S+)"$', chart, re.MULTILINE)[1],
    }


def section(top: Path, version: str) -> tuple[str, str] | None:
    """Returns the heading and the text of the changelog's section on a version; `None` without one."""
    for part in re.split(r"^## ", (top / "CHANGELOG.md").read_text(), flags=re.MULTILINE)[1:]:
        heading, text = part.split("\n", 1)
        if heading.startswith(f"[{version}]"):
            return heading, text.strip()
    return None


def faults(top: Path, tag: str) -> list[str]:
    """Returns what keeps a tag from being released, each with the way to fix it."""
    version = tag.removeprefix("v")
    found = []
    if not re.fullmatch(r"v\d+\.\d+\.\d+(-[0-9a-z.]+)?", tag):
        found.append(f"the tag {tag} is not of the form v1.2.3 or v1.2.3-rc.1")
    for place, stated in versions(top).items():
        if stated != version:
            found.append(f"{place} states {stated}, the tag {version}: change one of them")
    written = section(top, version)
    if written is None:
        found.append(f"CHANGELOG.md has no section [{version}]: add it")
    elif not re.fullmatch(rf"\[{re.escape(version)}\] - \d{{4}}-\d\d-\d\d", written[0]):
        found.append(f"CHANGELOG.md, section [{version}] has no date: write `## [{version}] - YYYY-MM-DD`")
    elif not written[1]:
        found.append(f"CHANGELOG.md, section [{version}] is empty: write what changed")
    return found


def main() -> int:
    if len(sys.argv) != 2 or sys.argv[1].startswith("-"):
        print(__doc__.split("\n\n")[1], file=sys.stderr)
        return 2
    found = faults(TOP, sys.argv[1])
    for fault in found:
        print(fault, file=sys.stderr)
    if not found:
        print(section(TOP, sys.argv[1].removeprefix("v"))[1])
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
