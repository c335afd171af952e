"""The program takes what the chart gives it: the file, the variables, the arguments."""

import os
import subprocess
import tempfile
import unittest
from pathlib import Path

from chart import (
    CASES,
    backfill,
    config_map,
    of_job,
    one,
    render,
    replay,
    template,
    variables,
    worker,
)

PROGRAM = Path(os.environ["PRORATA_BINARY"])
FOLDER = "/etc/prorata"
FILE = f"{FOLDER}/prorata.yaml"


def run(objects: list[dict], container: dict, changes: dict[str, str]) -> tuple[int, str]:
    """Starts the program as a container would, and returns its exit code and output. References to Secrets
    become texts that look like numbers; `changes` replaces arguments."""
    with tempfile.TemporaryDirectory() as folder:
        for name, content in config_map(objects)["data"].items():
            file = Path(folder) / name
            file.write_text(content)
            changes = changes | {f"{FOLDER}/{name}": str(file)}
        arguments = [changes.get(argument, argument) for argument in container["args"]]
        environment = {
            name: variable.get("value", "12345") for name, variable in variables(container).items()
        }
        done = subprocess.run(
            [PROGRAM, *arguments],
            env=environment,
            cwd=folder,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        return done.returncode, done.stderr


class Program(unittest.TestCase):
    def test_the_worker_takes_the_file_and_misses_only_what_the_notes_say(self):
        for case in ["defaults", "bare"]:
            objects = render(case)
            code, message = run(objects, worker(objects), {})
            self.assertEqual(code, 2, message)
            self.assertIn("root.url is not set", message)

    def test_every_file_and_variable_is_known(self):
        # A backfill reads the whole configuration, and then looks for its events.
        for case in CASES:
            objects = render(case)
            container = worker(objects) | {
                "args": ["backfill", "--config", FILE, "--events", "nowhere", "--lake", "lake"]
            }
            code, message = run(objects, container, {})
            self.assertEqual(
                (code, message),
                (2, "prorata: --events 'nowhere' does not exist; name an existing folder\n"),
                case,
            )

    def test_a_key_that_is_not_known_would_be_found(self):
        objects = render(override={"config": {"work": {"drain_timeuot": "30s"}}})
        code, message = run(objects, worker(objects), {})
        self.assertEqual(code, 2)
        self.assertIn("unknown key work.drain_timeuot", message)

    def test_the_backfill_takes_its_arguments(self):
        for case in ["backfill", "everything"]:
            objects = render(case)
            container = backfill(objects)
            at = container["args"].index("--events")
            code, message = run(objects, container, {container["args"][at + 1]: "nowhere"})
            self.assertEqual(
                (code, message),
                (2, "prorata: --events 'nowhere' does not exist; name an existing folder\n"),
                case,
            )

    def test_the_replay_takes_its_arguments(self):
        for case in ["backfill", "everything"]:
            objects = render(case, {"replay": {"enabled": True}, "config": {"root": {"url": "nowhere"}}})
            code, message = run(objects, replay(objects), {})
            self.assertEqual(code, 2, message)
            self.assertIn("'nowhere' has no root.json", message, case)

    def test_the_upkeep_takes_its_arguments(self):
        for case in ["backfill", "everything"]:
            for component in ["maintain", "close"]:
                values = {component: {"enabled": True}, "config": {"root": {"url": "nowhere"}}}
                objects = render(case, values)
                code, message = run(objects, of_job(objects, component), {})
                self.assertEqual(code, 2, message)
                self.assertIn("'nowhere' has no root.json", message, case)

    def test_check_and_report_take_their_arguments(self):
        for component in ["check", "report"]:
            values = {component: {"enabled": True, "lake": "nowhere", "output": "s3://bucket/page.html"}}
            if component == "check":
                del values[component]["output"]
            objects = render(override=values)
            code, message = run(objects, of_job(objects, component), {})
            self.assertEqual(code, 2, message)
            self.assertIn("'nowhere' has no root.json", message)

    def test_the_test_of_a_release_asks_its_service(self):
        objects = render(override={"replicas": 3, "test": {"waitSeconds": 0}})
        (container,) = template(one(objects, "Pod"))["spec"]["containers"]
        service, port = one(objects, "Service")["metadata"]["name"], "8080"
        self.assertEqual(container["args"][:4], ["ready", f"{service}.finops:{port}", "--min-ready", "3"])
        code, message = run(objects, container, {container["args"][1]: "127.0.0.1:1"})
        self.assertEqual(code, 4, message)
        self.assertIn("0 of 1 are ready; all must be, and at least 3", message)
