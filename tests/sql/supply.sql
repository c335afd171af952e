-- The six parts of supply in `hours` are the costs of the rows that they name, and add up to it. Five are of
-- estimated rows.
WITH parts AS (
    SELECT BillingAccountId AS organization_id, ChargePeriodStart AS hour,
        sum(BilledCost) FILTER (x_RowKind IN ('pod_node', 'node_idle')) AS node_cost,
        sum(BilledCost) FILTER (x_RowKind = 'pod_serverless') AS serverless_cost,
        sum(BilledCost) FILTER (x_RowKind = 'reservation_unused') AS reservation_unused_cost,
        sum(BilledCost) FILTER (x_RowKind = 'commitment_purchase') AS commitment_cost,
        sum(BilledCost) FILTER (x_RowKind = 'pod_pool') AS pool_cost
    FROM cost_allocation
    WHERE x_CostBasis = 'estimated'
    GROUP BY ALL
), unpriced AS (
    SELECT BillingAccountId AS organization_id, ChargePeriodStart AS hour,
        count(DISTINCT x_PodUid) AS unpriced_pods
    FROM cost_allocation
    WHERE x_Unpriced IS NOT NULL
    GROUP BY ALL
)
SELECT hours.*
FROM hours
LEFT JOIN parts USING (organization_id, hour)
LEFT JOIN unpriced USING (organization_id, hour)
WHERE hours.node_cost <> coalesce(parts.node_cost, 0)
    OR hours.serverless_cost <> coalesce(parts.serverless_cost, 0)
    OR hours.reservation_unused_cost <> coalesce(parts.reservation_unused_cost, 0)
    OR hours.commitment_cost <> coalesce(parts.commitment_cost, 0)
    OR hours.pool_cost <> coalesce(parts.pool_cost, 0)
    OR hours.unpriced_pods <> coalesce(unpriced.unpriced_pods, 0)
    OR hours.supply_cost <> hours.node_cost + hours.serverless_cost + hours.reservation_unused_cost
        + hours.commitment_cost + hours.pool_cost + hours.bill_cost;
