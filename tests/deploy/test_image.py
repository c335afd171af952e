"""The image's recipe: pinned, small, without secrets, not root; and what is sent to be built."""

import itertools
import json
import os
import re
import subprocess
import tempfile
import tomllib
import unittest
from pathlib import Path

from chart import DEPLOY, REPOSITORY, values

FILE = DEPLOY / "Dockerfile"
COMPILE = DEPLOY / "compile"
IGNORE = Path(DEPLOY / "dockerignore" if (DEPLOY / "dockerignore").exists() else REPOSITORY / ".dockerignore")


def instructions() -> list[tuple[str, str]]:
    """Instructions with their arguments, continued lines joined, comments left out."""
    lines = [line for line in FILE.read_text().splitlines() if not line.lstrip().startswith("#")]
    joined = re.sub(r"\\\n\s*", "", "\n".join(lines))
    return [tuple(line.split(None, 1)) for line in joined.splitlines() if line.strip()]


def stages() -> list[list[tuple[str, str]]]:
    """Instructions by stage; the first part stands before any stage."""
    found: list[list[tuple[str, str]]] = [[]]
    for instruction in instructions():
        if instruction[0] == "FROM":
            found.append([])
        found[-1].append(instruction)
    return found


def of(stage: list[tuple[str, str]], name: str) -> list[str]:
    return [arguments for instruction, arguments in stage if instruction == name]


class Recipe(unittest.TestCase):
    def test_a_linter_finds_no_fault(self):
        done = subprocess.run(
            ["dockerfile-utils", "lint", str(FILE)], capture_output=True, text=True, check=False
        )
        self.assertEqual((done.returncode, done.stdout.strip()), (0, ""))

    def test_base_images_are_pinned(self):
        before, build, program, runtime = stages()
        images = dict(argument.split("=", 1) for argument in of(before, "ARG"))
        self.assertEqual(of(build, "FROM"), ["${RUST_IMAGE} AS build"])
        self.assertEqual(of(program, "FROM"), ["scratch AS program"])
        self.assertEqual(of(runtime, "FROM"), ["${RUNTIME_IMAGE}"])
        for image in images.values():
            self.assertRegex(image, r"^[a-z]+:[a-z0-9.]+-[a-z0-9-]+@sha256:[0-9a-f]{64}$")
            self.assertNotIn("latest", image)
        # One Debian release: one C library.
        self.assertEqual(len({re.search(r"trixie|bookworm|forky", image)[0] for image in images.values()}), 1)

    def test_the_compiler_is_the_one_the_workspace_names(self):
        version = tomllib.loads((REPOSITORY / "Cargo.toml").read_text())["workspace"]["package"][
            "rust-version"
        ]
        self.assertRegex(FILE.read_text(), rf"RUST_IMAGE=rust:{re.escape(version)}\.\d+-slim-")

    def test_only_what_compiling_needs_is_installed(self):
        _, build, _, runtime = stages()
        install = next(run for run in of(build, "RUN") if "apt-get" in run)
        packages = re.search(r"--no-install-recommends ([a-z0-9+. -]+?) &&", install)[1].split()
        self.assertEqual(packages, ["ca-certificates", "g++", "gcc", "libc6-dev", "make", "perl"])
        self.assertEqual(of(runtime, "RUN"), [])

    def test_the_program_is_built_as_locked_with_its_own_openssl(self):
        given, _ = self.compile()
        for flags in [["--locked"], ["--package", "prorata"], ["--no-default-features"]]:
            self.assertIn(" ".join(flags), " ".join(given))
        features = given[given.index("--features") + 1].split(",")
        self.assertEqual(features, ["tls-vendored"])
        known = tomllib.loads((REPOSITORY / "pipeline" / "cli" / "Cargo.toml").read_text())["features"]
        self.assertLessEqual(set(features), known.keys())

    def test_the_program_is_the_one_linked_as_one_unit(self):
        _, build, program, _ = stages()
        command = next(run for run in of(build, "RUN") if "compile" in run)
        self.assertRegex(command, r" deploy/compile && install .* target/dist/prorata /out/prorata$")
        self.assertEqual(of(program, "COPY"), ["--from=build /out/prorata /prorata"])
        profile = tomllib.loads((REPOSITORY / "Cargo.toml").read_text())["profile"]["dist"]
        self.assertEqual((profile["inherits"], profile["lto"]), ("release", "fat"))

    def compile(self, *arguments: str, **environment: str) -> tuple[list[str], dict[str, str]]:
        """Cargo's arguments and environment, as deploy/compile calls it: a double stands for cargo."""
        with tempfile.TemporaryDirectory() as folder:
            cargo = Path(folder) / "cargo"
            cargo.write_text('#!/bin/sh\nprintf "%s\\n" "$@"\necho ==\nenv\n')
            cargo.chmod(0o755)
            inherited = {"PATH": f"{folder}:{os.environ['PATH']}", "HOME": "/home/somebody"}
            said = subprocess.run(
                [COMPILE, *arguments],
                env=inherited | environment,
                capture_output=True,
                text=True,
                check=True,
            ).stdout
        given, seen = said.split("\n==\n")
        return given.split("\n"), dict(line.split("=", 1) for line in seen.splitlines() if "=" in line)

    def test_the_profile_is_dist_unless_another_is_asked_for(self):
        for arguments, expected in [((), "dist"), (("--profile", "release"), "release")]:
            given, _ = self.compile(*arguments)
            profiles = [after for before, after in itertools.pairwise(given) if before == "--profile"]
            self.assertEqual(profiles, [expected])

    def test_no_path_and_no_time_of_the_build_is_in_the_program(self):
        top = str(DEPLOY.resolve().parent)
        places = {
            f"{top}=prorata",
            f"{top}/target=target",
            "/home/somebody/.cargo/registry/src=registry",
        }
        _, seen = self.compile()
        self.assertEqual(seen["SOURCE_DATE_EPOCH"], "0")
        for variable, flag in [
            ("RUSTFLAGS", "--remap-path-prefix="),
            ("CFLAGS", "-ffile-prefix-map="),
            ("CXXFLAGS", "-ffile-prefix-map="),
        ]:
            options = seen[variable].split()
            self.assertEqual({option.removeprefix(flag) for option in options}, places)
            # The last that fits counts: the target folder lies in the tree.
            self.assertEqual(options[-1], f"{flag}{top}/target=target")
        _, seen = self.compile(CARGO_HOME="/cargo", CARGO_TARGET_DIR="/built", RUSTFLAGS="-C lto=off")
        self.assertIn("/built=target", seen["RUSTFLAGS"])
        self.assertIn("/cargo/registry/src=registry", seen["RUSTFLAGS"])
        self.assertTrue(seen["RUSTFLAGS"].startswith("-C lto=off "))

    def test_it_is_not_root_and_says_so_by_number(self):
        *_, runtime = stages()
        users = of(runtime, "USER")
        self.assertEqual(users, ["65532:65532"])
        user, group = map(int, users[-1].split(":"))
        own = values()["podSecurityContext"]
        self.assertEqual((own["runAsUser"], own["runAsGroup"]), (user, group))
        self.assertEqual(of(runtime, "WORKDIR"), ["/tmp"])
        self.assertEqual(of(runtime, "VOLUME"), [])

    def test_it_starts_the_program_without_a_shell(self):
        *_, runtime = stages()
        copied = [argument.split()[-1] for argument in of(runtime, "COPY")]
        entry = json.loads(of(runtime, "ENTRYPOINT")[0])
        self.assertEqual(entry, ["/usr/local/bin/prorata"])
        self.assertIn(entry[0], copied)
        self.assertIsInstance(json.loads(of(runtime, "CMD")[0]), list)
        self.assertEqual(of(runtime, "EXPOSE"), [values()["config"]["http"]["listen"].rsplit(":", 1)[1]])

    def test_the_certificates_that_are_copied_are_the_ones_that_are_read(self):
        *_, runtime = stages()
        self.assertIn("SSL_CERT_FILE=/etc/ssl/certs/ca-certificates.crt", of(runtime, "ENV"))
        self.assertIn(
            "--from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/ca-certificates.crt",
            of(runtime, "COPY"),
        )

    def test_nothing_comes_from_elsewhere_and_no_secret_goes_in(self):
        names = [name for name, _ in instructions()]
        self.assertNotIn("ADD", names)
        self.assertLessEqual(
            set(names),
            {"ARG", "FROM", "RUN", "WORKDIR", "COPY", "LABEL", "ENV", "USER", "EXPOSE", "ENTRYPOINT", "CMD"},
        )
        text = "\n".join(f"{name} {arguments}" for name, arguments in instructions())
        self.assertIsNone(re.search(r"(?i)password|secret|token|credential|_key\b|curl|wget|https?://", text))
        *_, runtime = stages()
        for copied in of(runtime, "COPY"):
            self.assertTrue(copied.startswith("--from=build "), copied)


class Context(unittest.TestCase):
    """.dockerignore: the last pattern that fits a path, or a folder above it, decides."""

    def setUp(self):
        lines = [line.strip() for line in IGNORE.read_text().splitlines()]
        self.patterns = [line for line in lines if line and not line.startswith("#")]

    def sent(self, path: str) -> bool:
        parts = path.split("/")
        above = ["/".join(parts[: end + 1]) for end in range(len(parts))]
        ignored = False
        for pattern in self.patterns:
            expression = re.escape(pattern.removeprefix("!"))
            expression = expression.replace(r"\*\*/", "(.*/)?").replace(r"\*", "[^/]*")
            if any(re.fullmatch(expression, folder) for folder in above):
                ignored = not pattern.startswith("!")
        return not ignored

    def crates(self) -> list[Path]:
        members = tomllib.loads((REPOSITORY / "Cargo.toml").read_text())["workspace"]["members"]
        return [REPOSITORY / member for member in members]

    def test_every_crate_of_the_workspace_is_sent(self):
        for file in ["Cargo.toml", "Cargo.lock", "LICENSE", "deploy/compile"]:
            self.assertTrue(self.sent(file), file)
        for crate in self.crates():
            sources = [
                crate / "Cargo.toml",
                *crate.glob("src/**/*.rs"),
                *crate.glob("benches/*.rs"),
                *crate.glob("tests/*.rs"),
            ]
            self.assertGreater(len(sources), 1, crate)
            for source in sources:
                name = str(source.relative_to(REPOSITORY))
                self.assertTrue(self.sent(name), name)

    def test_files_that_sources_include_are_sent(self):
        included = []
        for crate in self.crates():
            for source in crate.glob("src/**/*.rs"):
                for name in re.findall(r'include_(?:str|bytes)!\(\s*"([^"]+)"', source.read_text()):
                    included.append((source.parent / name).resolve())
        self.assertGreater(len(included), 10)
        for path in included:
            self.assertTrue(path.exists() and self.sent(str(path.relative_to(REPOSITORY))), path)

    def test_nothing_else_is_sent(self):
        self.assertEqual(self.patterns[0], "*")
        for path in [
            ".git/config",
            "target/debug/prorata",
            "lake/root.json",
            ".env",
            "pipeline/cli/.env",
            "connectors/target/x",
            "deploy/helm/prorata/values.yaml",
            "README.md",
            "tests/python/install",
            "testdata/README.md",
            # The image has one toolchain, of another name.
            "rust-toolchain.toml",
            "id_rsa",
            "tests/deploy/check",
        ]:
            self.assertFalse(self.sent(path), path)
