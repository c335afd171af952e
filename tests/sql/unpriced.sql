-- A row without a price costs nothing. There are three exceptions: a pool pod on a known node keeps its share
-- of the node, a pod on a node in another currency has the cost that a commitment pays, and a pod with an
-- unknown GPU share keeps its price and its cost.
SELECT BillingAccountId, ChargePeriodStart, x_RowKind, ResourceId, x_PodUid, x_Unpriced, EffectiveCost,
    ListUnitPrice, ProviderName, x_PoolCharge
FROM cost_allocation
WHERE x_Unpriced IS NOT NULL
    AND (x_PoolCharge IS NOT NULL AND x_Unpriced <> 'other_currency'
        OR x_Unpriced <> 'unknown_gpu_share'
            AND NOT (x_RowKind = 'pod_node'
                AND x_Unpriced IN ('unknown_pool', 'no_qos_price', 'other_currency'))
            AND (EffectiveCost <> 0 AND CommitmentDiscountId IS NULL OR ListUnitPrice <> 0
                OR ProviderName <> 'unknown' AND x_Unpriced <> 'other_currency'))
    OR x_Unpriced NOT IN ('unknown_node', 'unknown_pool', 'no_qos_price', 'no_rate', 'unknown_gpu_share',
        'other_currency');
