-- Rows that split a node, and no others, say by which method, and of a known node in what ratio; they name
-- the pod they go to, unless they are idle capacity.
SELECT BillingAccountId, ChargePeriodStart, x_RowKind, ResourceId, AllocatedMethodId, AllocatedMethodDetails,
    AllocatedResourceId
FROM cost_allocation
WHERE (AllocatedMethodId IS NOT NULL) <> (x_RowKind IN ('pod_node', 'node_idle'))
    OR (AllocatedMethodDetails IS NOT NULL)
        <> (x_RowKind IN ('pod_node', 'node_idle') AND x_Unpriced IS DISTINCT FROM 'unknown_node')
    OR AllocatedResourceId IS DISTINCT FROM (CASE WHEN x_RowKind = 'pod_node' THEN x_PodUid END)
    OR (AllocatedTags IS NOT NULL AND x_RowKind <> 'pod_node')
    OR AllocatedMethodDetails IS NOT NULL
        AND NOT regexp_full_match(AllocatedMethodDetails,
            '\{"Elements":\[\{"AllocatedRatio":[0-9]+(\.[0-9]+)?'
                || CASE WHEN x_RowKind = 'pod_node' AND EffectiveCost <> 0
                    THEN ',"UsageUnit":"vCPU-Hours","UsageQuantity":[0-9]+(\.[0-9]+)?\},'
                        || '\{"AllocatedRatio":[0-9]+(\.[0-9]+)?,"UsageUnit":"GiB-Hours",'
                        || '"UsageQuantity":[0-9]+(\.[0-9]+)?\},'
                        || '\{"AllocatedRatio":[0-9]+(\.[0-9]+)?,"UsageUnit":"GPU-Hours",'
                        || '"UsageQuantity":[0-9]+(\.[0-9]+)?'
                    ELSE '' END
                || '\}\]\}');
