#!/usr/bin/env python3
"""The chart's README, made of README.head.md, its values, and the comments that explain them."""

import json
import sys
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "python"))

import environment

if __name__ == "__main__":
    environment.enter("deploy")

import yaml
from chart import CHART


class Value(NamedTuple):
    """A value that a comment explains: its keys, and the comment in one line."""

    keys: tuple[str, ...]
    meaning: str


def explained(text: str) -> list[Value]:
    """All values with comments; examples in comments are left out."""
    found: list[Value] = []
    keys: list[str] = []
    comment: list[str] = []
    for line in text.splitlines():
        body = line.strip()
        if body.startswith("#"):
            # Examples stand further in.
            if not body.startswith("#  "):
                comment.append(body[1:].strip())
            continue
        name, colon, _ = body.partition(":")
        if body and colon and not body.startswith("-"):
            depth = (len(line) - len(line.lstrip())) // 2
            keys[depth:] = [name]
            if comment:
                found.append(Value(tuple(keys), " ".join(filter(None, comment))))
        comment = []
    return found


def readme() -> str:
    """The whole page."""
    text = (CHART / "values.yaml").read_text()
    values, about = yaml.safe_load(text), yaml.safe_load((CHART / "Chart.yaml").read_text())
    all_values = explained(text)
    facts = {"description": about["description"], "kubernetes": about["kubeVersion"].removesuffix("-0")}
    page = (CHART / "README.head.md").read_text().format(**facts)
    for value in all_values:
        default = values
        for key in value.keys:
            default = default[key]
        # What has values of its own that are explained shows these.
        has_own = any(of.keys[:-1] == value.keys for of in all_values)
        shown = "" if has_own else f"`{json.dumps(default, ensure_ascii=False)}`"
        meaning = value.meaning.replace("|", "\\|").replace("<", "\\<")
        page += f"| `{'.'.join(value.keys)}` | {shown} | {meaning} |\n"
    return page


if __name__ == "__main__":
    (CHART / "README.md").write_text(readme())
