#!/usr/bin/env python3
"""DuckDB grouping the lines of a Cost and Usage Report 2.0 by resource and hour, on one thread. It writes
sums of costs, as decimals, to a Parquet file.

usage: bills_duckdb.py BILL TARGET

It reads every column that `prorata bills import` reads. It measures texts instead of keeping them, which is
the least that it can do with them.
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "python"))

import environment

environment.enter("readers")

import duckdb

TEXTS = (
    "identity_line_item_id", "bill_invoice_id", "line_item_usage_account_id", "line_item_product_code",
    "line_item_usage_type", "line_item_operation", "line_item_availability_zone",
    "line_item_line_item_description", "line_item_tax_type", "line_item_currency_code", "product_sku",
    "pricing_public_on_demand_rate", "pricing_rate_code", "reservation_reservation_a_r_n",
    "savings_plan_savings_plan_a_r_n", "capacity_reservation_capacity_reservation_arn",
    "capacity_reservation_capacity_reservation_status",
)
BYTES = " + ".join(f"coalesce(strlen({text}), 0)" for text in TEXTS)
# Costs are as pipeline/bills/README.md says, for the types of lines that the bill has.
GROUPS = f"""
    SELECT bill_payer_account_id AS account, line_item_resource_id AS resource,
        date_trunc('hour', line_item_usage_start_date) AS hour, count(*) AS lines,
        sum(CASE line_item_line_item_type
            WHEN 'SavingsPlanCoveredUsage' THEN exact(0)
            ELSE exact(line_item_unblended_cost) END) AS billed,
        sum(CASE line_item_line_item_type
            WHEN 'DiscountedUsage' THEN exact(reservation_effective_cost)
            WHEN 'SavingsPlanCoveredUsage' THEN exact(savings_plan_savings_plan_effective_cost)
            WHEN 'RIFee' THEN (exact(reservation_unused_amortized_upfront_fee_for_billing_period)
                + exact(reservation_unused_recurring_fee))::DECIMAL(18, 12)
            WHEN 'SavingsPlanRecurringFee' THEN (exact(savings_plan_total_commitment_to_date)
                - exact(savings_plan_used_commitment))::DECIMAL(18, 12)
            ELSE exact(line_item_unblended_cost) END) AS effective,
        sum(exact(coalesce(pricing_public_on_demand_cost, line_item_unblended_cost))) AS list,
        sum(CASE pricing_unit WHEN 'Hrs' THEN line_item_usage_amount END) AS hours,
        max(line_item_usage_end_date) AS until, min(bill_billing_period_start_date) AS month_start,
        max(bill_billing_period_end_date) AS month_end, sum({BYTES})::BIGINT AS bytes
    FROM read_parquet($bill)
    WHERE line_item_line_item_type <> 'SavingsPlanNegation'
    GROUP BY ALL
"""
SETTINGS = "FORMAT parquet, COMPRESSION zstd, COMPRESSION_LEVEL 1"


def main() -> None:
    bill, target = sys.argv[1:]
    database = duckdb.connect()
    database.execute("SET threads = 1")
    # The order of groups does not matter, and keeping one takes memory.
    database.execute("SET preserve_insertion_order = false")
    # All costs are below a million, and have fewer decimals.
    database.execute("CREATE MACRO exact(amount) AS coalesce(amount, 0)::DECIMAL(18, 12)")
    groups = GROUPS.replace("$bill", f"'{bill}'")
    database.execute(f"COPY ({groups}) TO '{target}' ({SETTINGS})")


if __name__ == "__main__":
    main()
