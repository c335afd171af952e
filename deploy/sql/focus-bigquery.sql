-- BigQuery: what the views of FOCUS need and each engine writes in its own way. These are numbers and
-- months as text, and the term of an agreement: hours and days, where a part counts as a whole, and its cost.
CREATE OR REPLACE VIEW focus_amounts AS
SELECT
    *,
    CAST(coalesce(
        CommitmentDiscountQuantity,
        CASE x_RowKind WHEN 'commitment_purchase' THEN BilledCost ELSE EffectiveCost END
    ) AS string) AS commitment_amount,
    CAST(CASE WHEN PricingQuantity <> 0 THEN PricingQuantity ELSE EffectiveCost END AS string)
        AS reservation_amount,
    format_timestamp('%Y-%m', BillingPeriodStart) AS billing_period
FROM finance_allocation;

CREATE OR REPLACE VIEW focus_commitment_terms AS
SELECT
    *,
    CAST(div(term_hours + 23, 24) AS string) AS term_days,
    hourly_cost * term_hours AS term_cost
FROM (
    SELECT
        *,
        div(timestamp_diff(ends_at, starts_at, second) + 3599, 3600) AS term_hours
    FROM commitment_utilization
) AS terms;

CREATE OR REPLACE VIEW focus_reservation_terms AS
SELECT *, CAST(div(term_hours + 23, 24) AS string) AS term_days
FROM (
    SELECT
        *,
        div(timestamp_diff(ends_at, starts_at, second) + 3599, 3600) AS term_hours
    FROM reservation_usage
) AS terms;
