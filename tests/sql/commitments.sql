-- FOCUS: in every hour the used and the unused part of a commitment cost what was paid for it, to the last
-- digit; the hours of the commitment do too, except for the rounding of each row. `commitment_utilization`
-- has the same costs. A billed commitment costs what its lines say, and may be unknown. Shared charges that
-- name a commitment are used cost of it, too.
WITH charges AS (
    SELECT BillingAccountId AS organization_id, ChargePeriodStart AS hour,
        CommitmentDiscountId AS commitment_id,
        count(*) AS rows,
        bool_or(x_CostBasis = 'billed') AS is_billed,
        coalesce(sum(BilledCost) FILTER (x_RowKind = 'commitment_purchase'), 0) AS purchased,
        coalesce(sum(EffectiveCost) FILTER (x_RowKind NOT LIKE 'commitment%'), 0) AS used,
        coalesce(sum(EffectiveCost) FILTER (x_RowKind = 'commitment_unused'), 0) AS unused,
        coalesce(sum(ListCost) FILTER (x_RowKind NOT LIKE 'commitment%'), 0) AS list_cost,
        coalesce(sum(CommitmentDiscountQuantity) FILTER (ChargeCategory = 'Purchase'), 0) AS purchased_hours,
        coalesce(sum(CommitmentDiscountQuantity) FILTER (ChargeCategory = 'Usage'), 0) AS usage_hours
    FROM cost_allocation
    WHERE CommitmentDiscountId IS NOT NULL
    GROUP BY ALL
)
SELECT organization_id, hour, commitment_id, is_billed, purchased, used, used_cost, unused, unused_cost,
    list_cost, list_cost_avoided, purchased_hours, usage_hours
FROM charges
FULL JOIN commitment_utilization USING (organization_id, hour, commitment_id)
WHERE NOT coalesce(is_billed, false) AND (
        coalesce(purchased, 0) <> coalesce(used, 0) + coalesce(unused, 0)
        OR abs(coalesce(purchased_hours, 0) - coalesce(usage_hours, 0)) > rows * 0.000000000001
    )
    OR (used_cost IS NOT NULL OR NOT is_billed) AND (
        used_cost IS DISTINCT FROM coalesce(used, 0)
        OR unused_cost IS DISTINCT FROM coalesce(unused, 0)
        OR list_cost_avoided IS DISTINCT FROM coalesce(list_cost, 0)
    );
