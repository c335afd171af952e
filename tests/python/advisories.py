#!/usr/bin/env python3
"""Matches Cargo.lock against the advisories of RustSec without a network, by cargo-deny.

usage: advisories.py check CARGO_DENY
       advisories.py refresh CHECKOUT

`check` unpacks testdata/advisories.tar.gz and runs CARGO_DENY on it, with the exceptions of deny.toml. Then
it makes two advisories up, about a crate of Cargo.lock: the open one must be found, and the fixed one must
not. The sources of all crates must be there: `cargo deny --locked check bans` fetches them.

`refresh` writes the file again from a checkout of https://github.com/rustsec/advisory-db: the head and the
title of each advisory.
"""

import gzip
import io
import re
import subprocess
import sys
import tarfile
import tempfile
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
COPY = ROOT / "testdata/advisories.tar.gz"

# The folder in which cargo-deny looks for the database of its default URL. Under another name it fails.
FOLDER = "advisory-db-3157b0e258782691"

# A crate of Cargo.lock of which `check` makes advisories up.
WITNESS = "tokio"


def refresh(checkout: Path) -> None:
    heads = {}
    for file in sorted(checkout.glob("crates/*/*.md")):
        head, rest = file.read_text().removeprefix("```toml\n").split("\n```\n", 1)
        tomllib.loads(head)
        title = rest.strip().split("\n")[0]
        heads[file.relative_to(checkout).as_posix()] = f"```toml\n{head}\n```\n\n{title}\n"
    if len(heads) < 1_000:
        sys.exit(f"advisories.py: {checkout} has {len(heads)} advisories, so it is not the database")
    # The same advisories make the same bytes.
    with open(COPY, "wb") as file, gzip.GzipFile("", "wb", 9, file, 0) as packed:
        with tarfile.open(fileobj=packed, mode="w", format=tarfile.USTAR_FORMAT) as archive:
            for name, text in heads.items():
                entry = tarfile.TarInfo(name)
                entry.size = len(text.encode())
                archive.addfile(entry, io.BytesIO(text.encode()))
    print(f"{len(heads)} advisories, the newest {newest(heads)}, {COPY.stat().st_size} bytes")


def newest(names) -> str:
    return max(Path(name).stem for name in names if Path(name).stem.startswith("RUSTSEC-"))


class Database:
    """A copy of the database as a repository, which cargo-deny wants it to be."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.repository = folder / FOLDER
        with tarfile.open(COPY) as archive:
            self.newest = newest(archive.getnames())
            archive.extractall(self.repository, filter="data")
        self.git("init", "--quiet")
        self.commit()

    def git(self, *command: str) -> None:
        settings = ("user.name=prorata", "user.email=prorata@localhost", "init.defaultBranch=main")
        options = [option for setting in settings for option in ("-c", setting)]
        subprocess.run(["git", *options, *command], cwd=self.repository, check=True)

    def commit(self) -> None:
        self.git("add", "--all")
        self.git("commit", "--quiet", "--no-gpg-sign", "--no-verify", "--message", "advisories")

    def add(self, number: int, fixed_in: str) -> str:
        """Makes up an advisory about the witness that was fixed in a version. Returns its id."""
        name = f"RUSTSEC-2000-{number:04}"
        head = f'[advisory]\nid = "{name}"\npackage = "{WITNESS}"\ndate = "2000-01-01"\n'
        head += f'[versions]\npatched = ["{fixed_in}"]\n'
        file = self.repository / "crates" / WITNESS / f"{name}.md"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"```toml\n{head}```\n\n# Made up\n")
        self.commit()
        return name

    def check(self, deny: str) -> tuple[int, str]:
        """Returns the exit code and the output of cargo-deny."""
        text = (ROOT / "deny.toml").read_text()
        section = "\n[advisories]\n"
        if text.count(section) != 1:
            sys.exit("advisories.py: deny.toml has no section [advisories]")
        config = self.folder / "deny.toml"
        config.write_text(text.replace(section, f'{section}db-path = "{self.folder}"\n'))
        options = ["--locked", "--offline", "--color", "never", "--config", str(config)]
        # An exception that matches nothing goes.
        command = [deny, *options, "check", "--deny", "advisory-not-detected", "advisories"]
        done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        return done.returncode, done.stdout


def check(deny: str) -> None:
    packages = tomllib.loads((ROOT / "Cargo.lock").read_text())["package"]
    version = next(package["version"] for package in packages if package["name"] == WITNESS)
    with tempfile.TemporaryDirectory() as folder:
        database = Database(Path(folder))
        code, output = database.check(deny)
        if code != 0:
            sys.exit(f"{output}\nUpdate the crate, or say in deny.toml why it may stay.")
        print(f"{len(packages)} packages have no advisory up to {database.newest} without an exception")
        fixed, open_ = database.add(1, f"<= {version}"), database.add(2, f"> {version}")
        code, output = database.check(deny)
        found = set(re.findall(r"ID: (RUSTSEC-\d+-\d+)", output))
        if code == 0 or open_ not in found or fixed in found:
            sys.exit(f"{output}\nadvisories.py: of {open_} and {fixed} the first alone had to be found")


def main() -> None:
    match sys.argv[1:]:
        case ["check", deny]:
            check(deny)
        case ["refresh", checkout]:
            refresh(Path(checkout))
        case _:
            sys.exit(__doc__.split("\n\n")[1])


if __name__ == "__main__":
    main()
