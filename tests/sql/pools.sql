-- The charges of a pool are those on its pods' rows, except for the rounding of each.
WITH charged AS (
    SELECT BillingAccountId AS organization_id, ChargePeriodStart AS hour, x_PoolId AS pool_id,
        sum(x_PoolCharge) AS charge, count(*) AS rows
    FROM cost_allocation
    WHERE x_PoolCharge IS NOT NULL
    GROUP BY ALL
)
SELECT organization_id, hour, pool_id, charges, charge, margin, node_cost
FROM pool_usage
FULL JOIN charged USING (organization_id, hour, pool_id)
WHERE charges IS NULL
    OR abs(charges - coalesce(charge, 0)) > coalesce(rows, 0) * 0.000000000001
    OR abs(margin - (charges - node_cost)) > 0.000000000002;
