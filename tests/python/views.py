"""The views of deploy/sql, and what must hold of them in every engine."""

from pathlib import Path

SQL = Path(__file__).resolve().parent.parent.parent / "deploy" / "sql"

# Sums over a whole view that must equal a sum over `cost_allocation` or another table.
COST = "SELECT sum(EffectiveCost) FROM cost_allocation"
FOCUS = {
    "focus_1_2": ("SELECT sum(EffectiveCost) FROM focus_1_2", COST),
    "focus_1_3": ("SELECT sum(EffectiveCost) FROM focus_1_3", COST),
    "focus_1_4": ("SELECT sum(EffectiveCost) FROM focus_1_4", COST),
    "focus_billing_period": (
        "SELECT count(*) FROM focus_billing_period",
        "SELECT count(*) FROM (SELECT DISTINCT BillingAccountId, BillingPeriodStart, InvoiceIssuerName "
        "FROM finance_allocation) AS periods",
    ),
    "focus_invoice_detail": (
        "SELECT coalesce(sum(BilledCost), 0) FROM focus_invoice_detail",
        "SELECT coalesce(sum(BilledCost), 0) FROM cost_allocation WHERE InvoiceId IS NOT NULL",
    ),
    "focus_contract_commitment": (
        "SELECT count(*) FROM focus_contract_commitment",
        "SELECT count(*) FROM (SELECT DISTINCT organization_id, commitment_id FROM commitment_utilization "
        "UNION ALL SELECT DISTINCT organization_id, reservation_id FROM reservation_usage) AS agreements",
    ),
}
EXACT = FOCUS | {
    "showback_daily": (
        "SELECT sum(cost) FROM showback_daily WHERE used_cost + unused_cost = cost",
        COST,
    ),
    "team_daily": ("SELECT sum(cost) FROM team_daily", COST),
    "gpu_daily": (
        "SELECT sum(gpu_cost) FROM gpu_daily",
        "SELECT sum(x_GpuCost) FROM cost_allocation WHERE x_GpuModel IS NOT NULL",
    ),
    "commitment_daily": (
        "SELECT sum(used_cost) + sum(unused_cost) FROM commitment_daily",
        # A bill may name a commitment that is unknown.
        "SELECT sum(EffectiveCost) FROM cost_allocation JOIN commitment_utilization "
        "ON organization_id = BillingAccountId AND hour = ChargePeriodStart "
        "AND commitment_id = CommitmentDiscountId "
        "WHERE x_RowKind <> 'commitment_purchase'",
    ),
    "commitment_coverage_daily": (
        "SELECT sum(covered_list_cost) FROM commitment_coverage_daily",
        "SELECT sum(ListCost) FROM cost_allocation "
        "WHERE CommitmentDiscountStatus = 'Used' AND x_RowKind <> 'shared_charge'",
    ),
    "quota_ledger_daily": (
        "SELECT sum(borrowed_hours) FROM quota_ledger_daily",
        "SELECT sum(borrowed_hours) FROM quota_usage",
    ),
}
# The views in floating point: their sums are the exact ones but for rounding.
ROUNDED = {
    "showback_spread_daily": ("SELECT sum(cost) FROM showback_spread_daily", COST),
    "gpu_node_daily": (
        "SELECT sum(allocated_gpu_hours) FROM gpu_node_daily",
        "SELECT sum(x_GpuHours) FROM cost_allocation "
        "WHERE x_RowKind = 'pod_node' AND SkuPriceDetails LIKE '%GpuCount%'",
    ),
}
NAMES = (*EXACT, *ROUNDED)
# A lake without bills has no invoices.
MAY_BE_EMPTY = ("focus_invoice_detail",)
# Views that only other views read.
HELPERS = (
    "finance_allocation",
    "focus_amounts",
    "focus_commitment_terms",
    "focus_reservation_terms",
    "focus_rows",
)


def read(*names: str) -> list[str]:
    """The statements of files in the folder."""
    texts = [(SQL / f"{name}.sql").read_text() for name in names]
    return [statement for text in texts for statement in text.split(";\n") if statement.strip()]


def focus(dialect: str, closed: bool = False) -> list[str]:
    """The statements that create the views of FOCUS, for a lake with closed months or without."""
    return read("finance-closed" if closed else "finance", f"focus-{dialect}", "focus", "focus-datasets")


def statements(dialect: str) -> list[str]:
    """The statements that create all views of a lake without closed months, for a dialect of the folder."""
    found = read("views", f"teams-{dialect}") + focus(dialect)
    created = {statement.split("CREATE OR REPLACE VIEW ")[1].split()[0] for statement in found}
    known = {*NAMES, *HELPERS}
    if created != known:
        raise SystemExit(f"deploy/sql creates {sorted(created)}, this check knows {sorted(known)}")
    return found


def faults(value, exact: dict = EXACT, rounded: dict = ROUNDED) -> list[str]:
    """Views that do not add up; `value` runs a query of one value."""
    found = []
    for name, (query, expected) in exact.items():
        ours, theirs = value(query), value(expected)
        if ours is None or ours != theirs:
            found.append(f"{name}: {ours} is not {theirs}")
    for name, (query, expected) in rounded.items():
        ours, theirs = value(query), value(expected)
        if not theirs or abs(ours - float(theirs)) > 1e-9 * abs(float(theirs)):
            found.append(f"{name}: {ours} is not {theirs}")
    return found
