-- Trino and Athena: what the views of FOCUS need and each engine writes in its own way. These are numbers and
-- months as text, and the term of an agreement: hours and days, where a part counts as a whole, and its cost.
CREATE OR REPLACE VIEW focus_amounts AS
SELECT
    *,
    CAST(coalesce(
        CommitmentDiscountQuantity,
        CASE x_RowKind WHEN 'commitment_purchase' THEN BilledCost ELSE EffectiveCost END
    ) AS varchar) AS commitment_amount,
    CAST(CASE WHEN PricingQuantity <> 0 THEN PricingQuantity ELSE EffectiveCost END AS varchar)
        AS reservation_amount,
    date_format(BillingPeriodStart, '%Y-%m') AS billing_period
FROM finance_allocation;

CREATE OR REPLACE VIEW focus_commitment_terms AS
SELECT
    *,
    CAST((term_hours + 23) / 24 AS varchar) AS term_days,
    CAST(hourly_cost AS decimal(24, 12)) * CAST(term_hours AS decimal(9, 0)) AS term_cost
FROM (
    SELECT
        *,
        (date_diff('second', starts_at, ends_at) + 3599) / 3600 AS term_hours
    FROM commitment_utilization
) AS terms;

CREATE OR REPLACE VIEW focus_reservation_terms AS
SELECT *, CAST((term_hours + 23) / 24 AS varchar) AS term_days
FROM (
    SELECT
        *,
        (date_diff('second', starts_at, ends_at) + 3599) / 3600 AS term_hours
    FROM reservation_usage
) AS terms;
