-- Every organization and hour: what is billed, what is allocated and what there is to allocate are equal to
-- the last digit, and `hours` counts the rows.
WITH costs AS (
    SELECT BillingAccountId AS organization_id, ChargePeriodStart AS hour, count(*) AS rows,
        sum(BilledCost) AS billed, sum(EffectiveCost) AS effective
    FROM cost_allocation
    GROUP BY ALL
)
SELECT organization_id, hour, billed, effective, supply_cost, allocated_cost, difference,
    costs.rows, hours.rows
FROM hours
FULL JOIN costs USING (organization_id, hour)
WHERE hours.rows IS DISTINCT FROM coalesce(costs.rows, 0)
    OR difference <> 0
    OR supply_cost <> allocated_cost
    OR supply_cost <> coalesce(billed, 0)
    OR supply_cost <> coalesce(effective, 0);
