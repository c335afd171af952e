"""A release: one version everywhere, and workflows that are valid, pinned, and allowed little."""

import re
import shutil
import subprocess
import tempfile
import unittest
from pathlib import Path

import yaml
from chart import DEPLOY, REPOSITORY
from release import CHART, faults, section, versions

GITHUB = Path(DEPLOY / "github" if (DEPLOY / "github").exists() else REPOSITORY / ".github")
WORKFLOWS = sorted((GITHUB / "workflows").glob("*.yml"))
VERSION = versions(REPOSITORY)["Cargo.toml"]


HEADING = rf"^## \[{re.escape(VERSION)}\].*$"
DATED = ("CHANGELOG.md", HEADING, f"## [{VERSION}] - 2026-12-01")


class Versions(unittest.TestCase):
    def refused(self, tag: str, *changes: tuple[str, str, str]) -> str:
        """Why a tag is refused, in a copy whose changelog has a date, after changes of its files."""
        with tempfile.TemporaryDirectory() as folder:
            copy = Path(folder)
            (copy / CHART).parent.mkdir(parents=True)
            for file in ("Cargo.toml", CHART, "CHANGELOG.md"):
                shutil.copy(REPOSITORY / file, copy / file)
            for file, part, instead in [DATED, *changes]:
                text, count = re.subn(part, instead, (copy / file).read_text(), flags=re.MULTILINE)
                self.assertEqual(count, 1, part)
                (copy / file).write_text(text)
            return "\n".join(faults(copy, tag))

    def test_only_one_version_with_a_dated_section_is_released(self):
        tag = f"v{VERSION}"
        self.assertEqual(self.refused(tag), "")
        self.assertIn("not of the form", self.refused(VERSION))
        self.assertIn("Cargo.toml states", self.refused("v9.9.9"))
        for said, change in [
            ("Cargo.toml states 9.9.9", ("Cargo.toml", rf'^version = "{VERSION}"', 'version = "9.9.9"')),
            ("Chart.yaml, version states 9.9.9", (CHART, r"^version: .*", "version: 9.9.9")),
            ("Chart.yaml, appVersion states 9.9.9", (CHART, r"^appVersion: .*", 'appVersion: "9.9.9"')),
            ("has no date", ("CHANGELOG.md", HEADING, f"## [{VERSION}]")),
            ("has no section", ("CHANGELOG.md", HEADING, "## [9.9.9]")),
            ("is empty", ("CHANGELOG.md", rf"({HEADING})[\s\S]*", r"\1\n")),
        ]:
            self.assertIn(said, self.refused(tag, change))

    def test_the_changelog_has_a_section_on_this_version(self):
        self.assertIsNotNone(section(REPOSITORY, VERSION))

    def test_documents_name_the_image_of_this_version(self):
        files = [DEPLOY / "Dockerfile", DEPLOY / "compose" / "compose.yaml"]
        documents = [REPOSITORY / "README.md"]
        documents += [*DEPLOY.rglob("*.md"), *(REPOSITORY / "pipeline").rglob("*.md")]
        for file in files + documents:
            named = set(re.findall(r"\bprorata:(\d[\w.-]*)", file.read_text()))
            self.assertLessEqual(named, {VERSION}, file)
            self.assertTrue(named or file in documents, file)


class Workflows(unittest.TestCase):
    def test_a_linter_finds_no_fault(self):
        self.assertEqual([file.name for file in WORKFLOWS], ["ci.yml", "release.yml"])
        # Its checks of scripts need shellcheck, which not every machine has.
        lint = ["actionlint", "-shellcheck=", "-pyflakes=", *WORKFLOWS]
        done = subprocess.run(lint, capture_output=True, text=True, check=False)
        self.assertEqual((done.returncode, done.stdout + done.stderr), (0, ""))

    def test_actions_of_others_are_pinned_by_commit(self):
        used = [line for file in WORKFLOWS for line in re.findall(r"uses: (.*)", file.read_text())]
        self.assertGreater(len(used), 4)
        for action in used:
            self.assertRegex(action, r"^[\w./-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+$")

    def test_a_job_may_write_only_what_it_must(self):
        for file in WORKFLOWS:
            workflow = yaml.safe_load(file.read_text())
            self.assertEqual(workflow["permissions"], {"contents": "read"}, file.name)
            for name, job in workflow["jobs"].items():
                wanted = {"contents": "read"}
                if file.name == "release.yml" and name in ("image", "publish"):
                    wanted["packages"] = "write"
                if file.name == "release.yml" and name == "publish":
                    wanted |= {"contents": "write", "id-token": "write"}
                self.assertEqual(job.get("permissions", {"contents": "read"}), wanted, f"{file.name}, {name}")
                self.assertIn("timeout-minutes", job, f"{file.name}, {name}")

    def test_nothing_is_published_before_the_versions_are_checked(self):
        jobs = yaml.safe_load((GITHUB / "workflows" / "release.yml").read_text())["jobs"]
        commands = "\n".join(step.get("run", "") for step in jobs["verify"]["steps"])
        self.assertIn('tests/deploy/release.py "$GITHUB_REF_NAME"', commands)
        self.assertEqual(jobs["image"]["needs"], "verify")
        self.assertIn("image", jobs["publish"]["needs"])

    def test_the_compiler_is_the_image_s(self):
        compiler = re.search(r"RUST_IMAGE=rust:([\d.]+)-", (DEPLOY / "Dockerfile").read_text())[1]
        workflow = yaml.safe_load((GITHUB / "workflows" / "ci.yml").read_text())
        self.assertEqual(workflow["env"]["RUSTUP_TOOLCHAIN"], compiler)
