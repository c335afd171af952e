-- FOCUS: in every hour the used and the unused part of a commitment cost what was paid for it, to the last
-- digit; the hours of the commitment do too, except for the rounding of each row. `commitment_utilization`
-- has the same costs.
WITH charges AS (
    SELECT BillingAccountId AS organization_id, ChargePeriodStart AS hour,
        CommitmentDiscountId AS commitment_id,
        count(*) AS rows,
        coalesce(sum(BilledCost) FILTER (ChargeCategory = 'Purchase'), 0) AS purchased,
        coalesce(sum(EffectiveCost) FILTER (CommitmentDiscountStatus = 'Used'), 0) AS used,
        coalesce(sum(EffectiveCost) FILTER (CommitmentDiscountStatus = 'Unused'), 0) AS unused,
        coalesce(sum(CommitmentDiscountQuantity) FILTER (ChargeCategory = 'Purchase'), 0) AS purchased_hours,
        coalesce(sum(CommitmentDiscountQuantity) FILTER (ChargeCategory = 'Usage'), 0) AS usage_hours
    FROM cost_allocation
    WHERE CommitmentDiscountId IS NOT NULL
    GROUP BY ALL
)
SELECT organization_id, hour, commitment_id, purchased, used, used_cost, unused, unused_cost, purchased_hours,
    usage_hours
FROM charges
FULL JOIN commitment_utilization USING (organization_id, hour, commitment_id)
WHERE coalesce(purchased, 0) <> coalesce(used, 0) + coalesce(unused, 0)
    OR used_cost IS DISTINCT FROM coalesce(used, 0)
    OR unused_cost IS DISTINCT FROM coalesce(unused, 0)
    OR abs(coalesce(purchased_hours, 0) - coalesce(usage_hours, 0)) > rows * 0.000000000001;
