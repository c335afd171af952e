-- Every organization and hour: what is allocated and what there is to allocate are equal to the last digit,
-- and `hours` counts the rows. So is what is billed, if the lines of bills count with their billed cost. The
-- basis of an hour follows from its rows, unless its bills are closed: then it is final.
WITH costs AS (
    SELECT BillingAccountId AS organization_id, ChargePeriodStart AS hour, count(*) AS rows,
        sum(BilledCost) AS billed, sum(EffectiveCost) AS effective,
        coalesce(sum(BilledCost) FILTER (x_CostBasis = 'billed'), 0) AS billed_of_bills,
        coalesce(sum(EffectiveCost) FILTER (x_CostBasis = 'billed'), 0) AS effective_of_bills,
        CASE count(*) FILTER (x_CostBasis = 'billed')
            WHEN 0 THEN 'estimated' WHEN count(*) THEN 'billed' ELSE 'partial' END AS found_basis
    FROM cost_allocation
    GROUP BY ALL
)
SELECT organization_id, hour, billed, effective, supply_cost, allocated_cost, difference, bill_cost,
    effective_of_bills, bill_billed_cost, billed_of_bills, basis, found_basis, costs.rows, hours.rows
FROM hours
FULL JOIN costs USING (organization_id, hour)
WHERE hours.rows IS DISTINCT FROM coalesce(costs.rows, 0)
    OR difference <> 0
    OR supply_cost <> allocated_cost
    OR supply_cost <> coalesce(effective, 0)
    OR supply_cost - bill_cost + bill_billed_cost <> coalesce(billed, 0)
    OR bill_cost <> coalesce(effective_of_bills, 0)
    OR bill_billed_cost <> coalesce(billed_of_bills, 0)
    OR basis NOT IN (coalesce(found_basis, 'estimated'), 'final');
