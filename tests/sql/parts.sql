-- The parts of a row's cost add up to it to the last digit, and stand only where they have a meaning. Only a
-- bill has costs below zero.
SELECT BillingAccountId, ChargePeriodStart, x_RowKind, ResourceId, x_PodUid, EffectiveCost, x_SplitCost,
    x_UnusedCost, x_CpuCost, x_MemoryCost, x_GpuCost
FROM cost_allocation
WHERE (x_RowKind = 'pod_node' AND EffectiveCost IS DISTINCT FROM x_SplitCost + x_UnusedCost)
    OR (x_RowKind IN ('pod_node', 'pod_serverless')
        AND EffectiveCost IS DISTINCT FROM x_CpuCost + x_MemoryCost + x_GpuCost)
    OR (x_RowKind <> 'pod_node' AND coalesce(x_SplitCost, x_UnusedCost) IS NOT NULL)
    OR (x_RowKind NOT IN ('pod_node', 'pod_serverless')
        AND coalesce(x_CpuCost, x_MemoryCost, x_GpuCost) IS NOT NULL)
    OR (x_EstimatedCost IS NOT NULL)
        <> (x_CostBasis = 'billed' AND x_RowKind IN ('pod_node', 'node_idle'))
    OR x_EstimatedCost < 0
    OR x_CostBasis = 'estimated' AND least(x_SplitCost, x_UnusedCost, x_CpuCost, x_MemoryCost, x_GpuCost,
        BilledCost, EffectiveCost, ListCost) < 0;
