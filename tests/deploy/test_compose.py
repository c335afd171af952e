"""The demo in containers: a valid compose file of pinned images, whose parts are there."""

import re
import subprocess
import tempfile
import unittest
from pathlib import Path

import yaml
from alerts import promtool
from chart import DEPLOY, REPOSITORY
from test_program import PROGRAM

FOLDER = DEPLOY / "compose"
FILE = FOLDER / "compose.yaml"


def compose(file: Path) -> tuple[int, str]:
    """What the Compose Specification's own loader says of a file."""
    done = subprocess.run(["compose-go", file], cwd=FOLDER, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout + done.stderr


def pinned(path: str, pattern: str) -> str:
    """A version that the tests of this project are pinned to."""
    return re.search(pattern, (REPOSITORY / "tests" / path).read_text(), re.DOTALL)[1]


class Compose(unittest.TestCase):
    def test_the_file_is_valid(self):
        code, said = compose(FILE)
        self.assertEqual(code, 0, said)
        services = yaml.safe_load(said)["services"]
        for name in ("kafka", "registry", "s3", "worker", "generator", "prometheus", "grafana"):
            self.assertIn(name, services)
        for service in services.values():
            for volume in service.get("volumes", []):
                self.assertTrue(Path(volume["source"]).is_file(), volume)
            for port in service.get("ports", []):
                self.assertEqual(port["host_ip"], "127.0.0.1")
            self.assertLessEqual(service.get("depends_on", {}).keys(), services.keys())

    def test_a_wrong_file_would_be_found(self):
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "compose.yaml"
            file.write_text(FILE.read_text().replace("depends_on: [s3]", "depend_on: [s3]"))
            self.assertEqual(compose(file)[0], 1)

    def test_images_are_pinned_to_what_the_tests_run_on(self):
        services = yaml.safe_load(FILE.read_text())["services"].values()
        named = dict(service["image"].rsplit(":", 1) for service in services)
        kafka = pinned("servers/kafka/pom.xml", r"<artifactId>kafka_.*?<version>([\d.]+)<")
        self.assertEqual(named["apache/kafka"], kafka)
        registry = pinned("servers/registry/pom.xml", r"apicurio-registry-app.*?<version>([\d.]+)<")
        self.assertEqual(named["apicurio/apicurio-registry"], registry)
        moto = pinned("python/requirements-servers.txt", r"moto\[server\]==([\d.]+)")
        self.assertEqual(named["motoserver/moto"], moto)
        prometheus = pinned("servers/prometheus/build", r"prometheus=([\d.]+)")
        self.assertEqual(named["prom/prometheus"], f"v{prometheus}")
        major, minor, patch = prometheus.split(".")
        promtool = pinned("deploy/tools.sh", r"\[promtool\]=([\d.]+)")
        self.assertEqual(promtool, f"0.{major}{minor:0>2}.{patch}")
        self.assertNotIn("latest", named.values())

    def test_the_program_and_prometheus_take_their_files(self):
        config = FOLDER / "prorata.yaml"
        command = [PROGRAM, "backfill", "--config", config, "--events", "nowhere", "--lake", "lake"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 2)
        self.assertIn("'nowhere' does not exist", done.stderr)
        code, said = promtool("check", "config", FOLDER / "prometheus.yaml")
        self.assertEqual(code, 0, said)
        scraped = yaml.safe_load((FOLDER / "prometheus.yaml").read_text())["scrape_configs"][0]
        labels = scraped["static_configs"][0]["labels"]
        self.assertEqual(labels.keys(), {"namespace", "service", "pod"})
        for file in ("grafana.yaml", "grafana-dashboards.yaml"):
            self.assertEqual(yaml.safe_load((FOLDER / file).read_text())["apiVersion"], 1)


if __name__ == "__main__":
    unittest.main()
