-- Rows that split a node or a shared charge, and no others, say by which method, and of a known node and of a
-- charge in what ratio; they name the pod they go to, unless they are idle capacity.
WITH charges AS (
    SELECT *,
        CASE WHEN x_RowKind IN ('pod_node', 'node_idle') THEN 'prorata-node-split'
            WHEN x_RowKind = 'shared_charge' AND x_PodUid IS NOT NULL THEN 'prorata-shared-charge'
        END AS method
    FROM cost_allocation
)
SELECT BillingAccountId, ChargePeriodStart, x_RowKind, ResourceId, AllocatedMethodId, AllocatedMethodDetails,
    AllocatedResourceId
FROM charges
WHERE AllocatedMethodId IS DISTINCT FROM method
    OR (AllocatedMethodDetails IS NOT NULL)
        <> (method IS NOT NULL AND x_Unpriced IS DISTINCT FROM 'unknown_node')
    OR AllocatedResourceId IS DISTINCT FROM
        (CASE WHEN x_RowKind IN ('pod_node', 'shared_charge') THEN x_PodUid END)
    OR (AllocatedTags IS NOT NULL AND x_RowKind NOT IN ('pod_node', 'shared_charge'))
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
