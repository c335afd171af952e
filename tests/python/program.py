"""The program under test, which PRORATA_BINARY names, as the checks of this folder run it."""

import os
import subprocess
import sys
from pathlib import Path

# Rules by version: the weight of a GPU differs, and with it every hour in which one was shared out.
RULES = 'rules: {{version: "{version}", weights: {{gpu: "{gpu}", cpu: "0.9", memory: "0.1"}}}}\n'


def prorata(*arguments: str) -> str:
    """Runs a command to its end and returns what it printed; ends this program when the command fails."""
    command = [os.environ["PRORATA_BINARY"], *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode not in (0, 3):
        sys.exit(f"{command} ended with {done.returncode}: {done.stdout}{done.stderr}")
    return done.stdout


def restate(lake: Path, version: str, gpu: str, *more: str) -> None:
    """Puts other rules in force for every hour, or for those that `more` names."""
    configuration = lake.parent / "prorata.yaml"
    configuration.write_text(RULES.format(version=version, gpu=gpu))
    # Its own archive: no event of it is new.
    events = ["--events", str(lake / "events"), "--lake", str(lake)]
    prorata("backfill", "--config", str(configuration), *events, *more)
