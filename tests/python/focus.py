#!/usr/bin/env python3
"""Checks the FOCUS views of a lake, to which focus_lake.py adds a bill.

The view of FOCUS 1.2 goes through the FOCUS validator, with every rule of 1.2 that it knows. Its exit code is
always 0, so its report is read. A rule that fails is accepted only if it is named below with the reason why
it fails on correct data, or if it only sums up accepted rules. Rules across rows, which the validator skips,
and the correct form of the broken ones are in tests/sql. focus_toolkit.py checks all editions.
"""

import environment

environment.enter("focus")

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import focus_toolkit

FALSE_FAILURES = {
    "CapacityReservationStatus-C-003-C": "its condition has a form that the validator ignores: "
    "it wants null even where there is a capacity reservation",
    "CapacityReservationStatus-C-004-C": "its condition has a form that the validator ignores: "
    "it wants a status even where there is no capacity reservation",
    "CommitmentDiscountStatus-C-004-C": "its condition is the wrong way round: "
    "it wants a status where CommitmentDiscountId is null",
    "InvoiceId-C-003-C": "each row meets one of the next two rules, and the validator wants the same in all",
    "InvoiceId-C-004-C": "its condition is words alone: it wants an invoice in no row",
    "InvoiceId-C-005-C": "its condition is words alone: it wants an invoice in every row",
}
# The validator knows 578 rules of FOCUS 1.2 and skips 210: a report with fewer has not run.
RULES_AT_LEAST = 550
PASSES_AT_LEAST = 340
# Number of problems that are printed.
SHOWN = 20


def report_of(data: Path) -> str:
    """What the validator prints. It reads its own files relative to the folder that it is installed in."""
    packages = next(Path(sys.prefix, "lib").glob("python*/site-packages"))
    command = [
        sys.executable,
        "-c",
        "import sys; from focus_validator.main import main; sys.exit(main())",
        *("--data-file", str(data)),
        *("--validate-version", "1.2"),
        *("--applicability-criteria", "ALL"),
        "--block-download",
        "--show-violations",
    ]
    settings = os.environ | {
        "POLARS_UNKNOWN_EXTENSION_TYPE_BEHAVIOR": "load_as_storage",
        "PYTHONIOENCODING": "utf-8",
    }
    done = subprocess.run(command, cwd=packages, env=settings, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"the validator ended with {done.returncode}:\n{done.stderr[-2000:]}")
    return done.stdout


def failed_rules(report: str) -> dict[str, str]:
    """Message of each rule that failed."""
    return {match[1]: match[2] for match in re.finditer(r"^\S+ (\S+): FAIL\s*(.*)$", report, re.MULTILINE)}


def accepted(rule: str, failures: dict[str, str]) -> bool:
    """Whether the rule fails falsely, or only because rules below it do."""
    if rule in FALSE_FAILURES:
        return True
    children = re.search(r"AND failed - failed child rules: \[([^\]]*)\]", failures.get(rule, ""))
    if children is None:
        return False
    return all(accepted(child.strip(), failures) for child in children[1].split(","))


def official(data: Path) -> list[str]:
    """Rules of FOCUS 1.2 that fail, and expectations that are not met."""
    report = report_of(data)
    totals = re.search(r"Total: (\d+) \| Pass: (\d+) \| Fail: (\d+) \| Skipped: (\d+)", report)
    if totals is None:
        return [f"the validator gave no result:\n{report[-2000:]}"]
    total, passed, failed, skipped = map(int, totals.groups())
    failures = failed_rules(report)
    if total < RULES_AT_LEAST or passed < PASSES_AT_LEAST or len(failures) != failed:
        return [f"the validator's report is not whole: {totals[0]}, {len(failures)} failures named"]
    problems = [f"{rule}: {words}" for rule, words in failures.items() if not accepted(rule, failures)]
    print(
        f"focus-validator on {data.stem}: {passed} passed, {skipped} skipped, {failed} failed, "
        f"{len(problems)} of them not expected"
    )
    for rule, reason in FALSE_FAILURES.items():
        print(f"  expected: {rule}: {reason}")
    problems += [f"{rule} no longer fails" for rule in FALSE_FAILURES if rule not in failures]
    return problems


def main() -> None:
    lake = environment.lake_argument()
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        subprocess.run([environment.HERE / "focus_lake.py", lake, folder], check=True)
        problems = official(folder / "focus_1_2.parquet") + focus_toolkit.problems(folder)
    for problem in problems[:SHOWN]:
        print(problem, file=sys.stderr)
    print(f"{len(problems)} problems")
    sys.exit(1 if problems else 0)


if __name__ == "__main__":
    main()
