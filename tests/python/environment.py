"""Finds the virtual environments and servers that the `install` scripts create, and runs scripts in them."""

import hashlib
import os
import sys
from pathlib import Path

# Names the interpreter that a script was started again with.
ENTERED = "PRORATA_CHECKS_PYTHON"
HERE = Path(__file__).resolve().parent
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "prorata"


def python_of(name: str) -> Path:
    """The interpreter of the environment `name`; ends the program with advice when it is not installed."""
    requirements = (HERE / f"requirements-{name}.txt").read_bytes()
    digest = hashlib.sha256(requirements).hexdigest()[:12]
    python = CACHE / f"venv-{name}-{digest}" / "bin" / "python"
    if not python.exists():
        sys.exit(f"the python environment '{name}' is missing: run tests/python/install")
    return python


def enter(name: str) -> None:
    """Starts this script again in the environment `name`, unless it runs there already."""
    python = str(python_of(name))
    if os.environ.get(ENTERED) != python:
        os.environ[ENTERED] = python
        # Engines write times in the local zone; the tables are in UTC.
        os.environ["TZ"] = "UTC"
        os.execv(python, [python, *sys.argv])


def lake_argument() -> Path:
    """The lake's folder, the one argument of every check."""
    if len(sys.argv) != 2 or sys.argv[1].startswith("-"):
        sys.exit(f"usage: {Path(sys.argv[0]).name} LAKE")
    lake = Path(sys.argv[1]).resolve()
    if not (lake / "cost_allocation" / "_delta_log").is_dir():
        sys.exit(f"{lake} is not a lake: cost_allocation/_delta_log is not in it")
    return lake


def installed(name: str) -> Path:
    """The folder that tests/servers/install made for `name`; without it, ends the program with advice."""
    folder = HERE.parent / "servers" / name
    files = [folder / file for file in ("pom.xml", "package-lock.json", "build")]
    pinned = next(file for file in files if file.exists())
    digest = hashlib.sha256(pinned.read_bytes()).hexdigest()[:12]
    found = CACHE / f"{name}-{digest}"
    if not found.is_dir():
        sys.exit(f"the server '{name}' is missing: run tests/servers/install")
    return found
