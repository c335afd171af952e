"""The example values, and the README that is made of the chart's own values."""

import tempfile
import unittest
from pathlib import Path

import yaml
from chart import CHART, KUBERNETES, helm, render, values, worker
from readme import explained, readme
from test_objects import FOREIGN, faults
from test_program import FILE, run

EXAMPLES = sorted((CHART / "examples").glob("*.yaml"))


class Examples(unittest.TestCase):
    def test_each_cloud_has_one(self):
        names = {path.stem for path in EXAMPLES}
        self.assertEqual(names, {"aws", "azure", "gcp", "on-premises"})

    def test_they_render_to_objects_that_are_valid(self):
        for path in EXAMPLES:
            override = yaml.safe_load(path.read_text())
            helm("lint", "--strict", str(CHART), "--kube-version", "1.31.0", "--values", str(path))
            for version in KUBERNETES:
                documents = render(override=override, kubernetes=version)
                own = [document for document in documents if document["kind"] not in FOREIGN]
                found = [fault for document in own for fault in faults(document, version)]
                self.assertEqual(found, [], path.stem)

    def test_the_program_takes_their_configuration(self):
        for path in EXAMPLES:
            objects = render(override=yaml.safe_load(path.read_text()))
            known = [d for d in objects if not d["metadata"]["name"].endswith("-collector")]
            container = worker(objects) | {
                "args": ["backfill", "--config", FILE, "--events", "nowhere", "--lake", "lake"]
            }
            code, message = run(known, container, {})
            self.assertEqual(code, 2, message)
            self.assertIn("'nowhere' does not exist", message, path.stem)


class Readme(unittest.TestCase):
    def test_it_is_made_of_the_values_as_they_are(self):
        page = (CHART / "README.md").read_text()
        self.assertEqual(page, readme(), "run tests/deploy/check --readme")
        for key in values():
            self.assertIn(f"| `{key}`", page)

    def test_a_value_is_found_with_its_comment(self):
        text = "# What it is,\n# in two lines:\n#\n#   an: example\nupper:\n  # Inner.\n  lower: 1\nbare: 2\n"
        found = [(value.keys, value.meaning) for value in explained(text)]
        self.assertEqual(found, [(("upper",), "What it is, in two lines:"), (("upper", "lower"), "Inner.")])

    def test_the_chart_describes_itself_to_registries(self):
        about = yaml.safe_load((CHART / "Chart.yaml").read_text())
        self.assertEqual(about["annotations"]["artifacthub.io/license"], "Apache-2.0")
        with tempfile.TemporaryDirectory() as folder:
            helm("package", str(CHART), "--destination", folder)
            (package,) = Path(folder).iterdir()
            self.assertEqual(package.name, f"prorata-{about['version']}.tgz")


if __name__ == "__main__":
    unittest.main()
