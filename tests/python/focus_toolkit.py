#!/usr/bin/env python3
"""The FOCUS views against the models of FOCUS 1.2 to 1.4 in focus-data-toolkit: what focus.py runs.

usage: tests/python/focus_toolkit.py FOLDER

FOLDER has a Parquet file of each view of a lake with closed months and corrections.

The toolkit knows the columns of each edition. Of 1.4 it knows the types, values and JSON objects of each
column, rules across the columns of a row, and rules across datasets. It converts cost and usage of 1.3 to
1.4: the result must be our own view of 1.4, in the columns that both editions have.
"""

import environment

if __name__ == "__main__":
    environment.enter("focus")

import sys
from collections import Counter
from collections.abc import Callable
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import NamedTuple

import pyarrow.parquet as pq
from focus_data_toolkit import (
    convert_to_focus_1_4,
    detect_focus_schema,
    lint_focus_1_4_structure,
    validate_dataset_bundle,
)
from focus_data_toolkit.model.capabilities import KNOWN_CONDITIONS, CapabilityProfile
from focus_data_toolkit.schema.registry import version_columns

Row = dict[str, str]

# Dataset and edition of each view.
VIEWS = {
    "focus_1_2": ("Cost and Usage", "1.2"),
    "focus_1_3": ("Cost and Usage", "1.3"),
    "focus_1_4": ("Cost and Usage", "1.4"),
    "focus_billing_period": ("Billing Period", "1.4"),
    "focus_invoice_detail": ("Invoice Detail", "1.4"),
    "focus_contract_commitment": ("Contract Commitment", "1.4"),
}
# Conditional columns that a view lacks, because their condition does not hold for what events say.
LEFT_OUT = {
    "focus_invoice_detail": {
        "PaymentCurrency": "no bill says in which currency it is paid",
        "PaymentCurrencyBilledCost": "no bill says in which currency it is paid",
        "PaymentCurrencyInvoiceDetailId": "no bill says in which currency it is paid",
        "PurchaseOrderNumber": "no bill has the number of an order",
    },
    "focus_contract_commitment": {
        "ContractCommitmentPaymentUpfrontPercentage": "no event says how an agreement is paid",
    },
}
# A lake has the agreements and the billing periods of many organizations, which FOCUS does not name in them.
OURS = {
    "focus_billing_period": ["x_BillingAccountId"],
    "focus_contract_commitment": ["x_BillingAccountId"],
}
# Columns of 1.4 that no conversion from 1.3 can fill.
NEW_IN_1_4 = {"CommitmentProgramEligibilityDetails", "InvoiceDetailId"}


class Expected(NamedTuple):
    """Why a rule fails on correct data, and on which rows alone."""

    reason: str
    rows: Callable[[Row], bool] = lambda row: True


def has_line(row: Row) -> bool:
    """Whether lines of the bill decide the cost. Lines without an invoice are in rows of their own."""
    return bool(row["InvoiceId"]) or row["ServiceCategory"] == "Other"


QUANTITY = Expected("a bill set has quantities in hours alone, so other list costs have none", has_line)
UNPAID = Expected("no event says how an agreement is paid")
ENDLESS = Expected(
    "an agreement without an end has none, and FOCUS has no way to say so",
    lambda row: not row["ContractCommitmentPeriodEnd"],
)
# Failures by view, rule and column.
EXPECTED = {
    ("focus_1_4", "cost_not_unit_price_times_quantity", "ListCost"): QUANTITY,
    ("focus_1_4", "cost_not_unit_price_times_quantity", "ContractedCost"): QUANTITY,
    ("focus_invoice_detail", "null_not_allowed", "PaymentTerms"): Expected("no bill says how it is paid"),
    ("focus_contract_commitment", "null_not_allowed", "ContractCommitmentDurationType"): ENDLESS,
    ("focus_contract_commitment", "null_not_allowed", "ContractCommitmentOfferCategory"): Expected(
        "no event says whether the terms of an agreement are public"
    ),
    ("focus_contract_commitment", "null_not_allowed", "ContractCommitmentPaymentInterval"): UNPAID,
    ("focus_contract_commitment", "null_not_allowed", "ContractCommitmentPaymentModel"): UNPAID,
    ("focus_contract_commitment", "null_not_allowed", "ContractCommitmentPeriodEnd"): ENDLESS,
    ("focus_contract_commitment", "null_not_allowed", "ContractPeriodEnd"): ENDLESS,
}
# The failures of corrections of closed months besides.
OF_CORRECTIONS = {
    ("focus_invoice_detail", "null_not_allowed", "ReferenceInvoiceId"): Expected(
        "no bill says which invoice a correction is of",
        lambda row: row["InvoiceDetailId"].endswith(f"/{row['BillingPeriodStart'][:7]}"),
    ),
}


def text(value: object) -> str:
    """A value as FOCUS writes it in CSV."""
    if value is None:
        return ""
    if isinstance(value, datetime):
        return value.isoformat().replace("+00:00", "Z")
    # Floating-point numbers are ratios; FOCUS has no lower-case exponent.
    return f"{Decimal(str(value)):f}" if isinstance(value, Decimal | float) else str(value)


def read(path: Path) -> list[Row]:
    rows = pq.read_table(path).to_pylist()
    return [{name: text(value) for name, value in row.items()} for row in rows]


def columns(view: str, header: list[str]) -> list[str]:
    """What is wrong with the columns of a view, and with their order."""
    dataset, edition = VIEWS[view]
    wanted = sorted(version_columns(dataset, edition) - LEFT_OUT.get(view, {}).keys()) + OURS.get(view, [])
    if header != wanted:
        different = sorted(set(header) ^ set(wanted)) or "their order"
        return [f"{view} has not the columns of {dataset} {edition}: {different}"]
    found = detect_focus_schema(header)
    if (found.dataset, found.detected_version, found.unknown_columns) != (dataset, edition, ()):
        return [f"{view} looks like {found.dataset} {found.detected_version}: {found.notes}"]
    return []


def lint(view: str, rows: list[Row], expected_of: dict) -> list[str]:
    """Rules that the rows break, and expectations that they do not meet."""
    profile = CapabilityProfile.of(*KNOWN_CONDITIONS)
    report = lint_focus_1_4_structure(VIEWS[view][0], rows, profile=profile)
    problems, met = [], Counter()
    for found in report.violations:
        key = (view, found.rule, found.column)
        row = {} if found.row_index is None else rows[found.row_index]
        if key in expected_of and row and expected_of[key].rows(row):
            met[key] += 1
        else:
            problems.append(f"{view}, row {found.row_index}: {found.rule} {found.column}: {found.message}")
    for key, expected in expected_of.items():
        if key[0] == view and not met[key]:
            problems.append(f"{view}: {key[1]} {key[2]} is expected, and does not occur")
        elif key[0] == view:
            print(f"  expected in {met[key]} rows: {key[1]} {key[2]}: {expected.reason}")
    print(f"focus-data-toolkit on {view}: {report.row_count} rows, {len(problems)} problems")
    return problems


def convert(of_1_3: list[Row], of_1_4: list[Row]) -> list[str]:
    """How the toolkit's conversion of our 1.3 differs from our 1.4."""
    result = convert_to_focus_1_4(of_1_3, validate=False)
    problems = [diagnostic.format() for diagnostic in result.diagnostics]
    names = sorted(version_columns("Cost and Usage", "1.4") - NEW_IN_1_4)

    def counted(rows: list[Row]) -> Counter[tuple[str, ...]]:
        return Counter(tuple(row[name] for name in names) for row in rows)

    converted, ours = counted(result.datasets["Cost and Usage"]), counted(of_1_4)
    for row in (converted - ours) + (ours - converted):
        problems.append(f"only in the toolkit's 1.4 or only in ours: {row}")
    print(f"focus-data-toolkit converts 1.3 to 1.4: {len(of_1_3)} rows, {len(problems)} problems")
    return problems


def bundles(rows: dict[str, list[Row]]) -> list[str]:
    """What is wrong between the datasets of each organization."""
    problems = []
    views = [view for view, (_, edition) in VIEWS.items() if edition == "1.4"]
    organizations = sorted({row["BillingAccountId"] for row in rows["focus_1_4"]})
    for organization in organizations:
        of = {
            VIEWS[view][0]: [
                row
                for row in rows[view]
                if organization == row.get("x_BillingAccountId", row.get("BillingAccountId"))
            ]
            for view in views
        }
        report = validate_dataset_bundle(
            of,
            invoice_detail_authoritative=bool(of["Invoice Detail"]),
            rounding_tolerance=Decimal(0),
        )
        print(f"focus-data-toolkit on the datasets of {organization}: {len(report.checks_run)} checks")
        problems += [f"{organization}: {found.format()}" for found in report.errors + report.warnings]
    if not any(row["InvoiceDetailId"] for row in rows["focus_1_4"]):
        problems.append("no charge has an invoice detail, so nothing was checked")
    return problems


def problems(folder: Path, more: dict | None = None) -> list[str]:
    """What is wrong with the views in a folder, in which `more` failures than always are expected."""
    rows = {view: read(folder / f"{view}.parquet") for view in VIEWS}
    empty = [f"{view} is empty" for view, of in rows.items() if not of]
    if empty:
        return empty
    found = [problem for view, of in rows.items() for problem in columns(view, list(of[0]))]
    found += [
        problem
        for view, (_, edition) in VIEWS.items()
        if edition == "1.4"
        for problem in lint(view, rows[view], EXPECTED | (more or {}))
    ]
    found += convert(rows["focus_1_3"], rows["focus_1_4"])
    return found + bundles(rows)


def main() -> None:
    if len(sys.argv) != 2 or sys.argv[1].startswith("-"):
        sys.exit("usage: tests/python/focus_toolkit.py FOLDER")
    found = problems(Path(sys.argv[1]), OF_CORRECTIONS)
    for problem in found:
        print(problem, file=sys.stderr)
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
