-- What FOCUS calls each kind of row. A row of a line of a bill has the words of the bill. A shared charge may
-- have a pod, which bears a part of one line or of several.
WITH expected (x_RowKind, category, frequency, resource_type, reservation, bearer) AS (
    VALUES
        ('pod_node', 'Usage', 'Usage-Based', 'Node', NULL, true),
        ('node_idle', 'Usage', 'Usage-Based', 'Node', NULL, false),
        ('pod_serverless', 'Usage', 'Usage-Based', 'Pod', 'Used', true),
        ('pod_pool', 'Usage', 'Usage-Based', 'Pod', NULL, true),
        ('reservation_unused', 'Usage', 'Usage-Based', 'Capacity Reservation', 'Unused', false),
        ('commitment_unused', 'Usage', 'Usage-Based', 'Commitment', NULL, false),
        ('commitment_purchase', 'Purchase', 'Recurring', 'Commitment', NULL, false),
        ('shared_charge', NULL, NULL, 'Billed Resource', NULL, NULL)
), charges AS (
    SELECT *, x_CostBasis = 'billed' AND x_RowKind NOT IN ('pod_node', 'node_idle') AS is_line
    FROM cost_allocation
)
SELECT BillingAccountId, ChargePeriodStart, x_RowKind, x_CostBasis, ResourceId, ChargeCategory,
    ChargeFrequency, ResourceType, CapacityReservationId, CapacityReservationStatus, x_PodUid,
    ConsumedQuantity, PricingQuantity
FROM charges
LEFT JOIN expected USING (x_RowKind)
WHERE resource_type IS NULL
    OR NOT is_line AND (
        ChargeCategory IS DISTINCT FROM category
        OR ChargeFrequency IS DISTINCT FROM frequency
        OR CapacityReservationStatus IS DISTINCT FROM
            (CASE WHEN CapacityReservationId IS NOT NULL THEN reservation END)
        OR ConsumedQuantity IS DISTINCT FROM
            (CASE WHEN x_RowKind NOT LIKE 'commitment%' THEN PricingQuantity END)
        OR InvoiceId IS NOT NULL AND x_CostBasis = 'estimated'
        OR ChargeClass IS NOT NULL
    )
    OR is_line AND (
        x_RowKind IN ('pod_serverless', 'pod_pool')
        OR ChargeFrequency <> (CASE ChargeCategory
            WHEN 'Purchase' THEN 'Recurring' WHEN 'Usage' THEN 'Usage-Based' ELSE 'One-Time' END)
        OR InvoiceDetailId IS NULL AND x_PodUid IS NULL
        OR (SubAccountId IS NOT NULL) <> (x_PodUid IS NOT NULL)
        OR x_PodUid IS NOT NULL AND (ListUnitPrice <> 0 OR x_QuotaId IS NOT NULL OR x_Namespace IS NULL
            OR CapacityReservationId IS NOT NULL)
        OR (ConsumedQuantity IS NOT NULL
            AND (ChargeCategory <> 'Usage' OR ConsumedQuantity <> PricingQuantity))
        OR (SkuId IS NULL) <> (ChargeCategory = 'Tax')
    )
    OR ResourceType IS DISTINCT FROM (CASE WHEN ResourceId IS NOT NULL THEN resource_type END)
    OR (ResourceId IS NULL AND x_RowKind <> 'shared_charge')
    OR (x_PodUid IS NOT NULL) <> bearer
    OR (x_RunningSeconds IS NOT NULL) <> coalesce(bearer, false)
    OR (x_RowKind = 'reservation_unused' AND CapacityReservationId IS DISTINCT FROM ResourceId)
    OR (ConsumedUnit IS NULL) <> (ConsumedQuantity IS NULL)
    OR (x_RowKind IN ('pod_serverless', 'pod_pool') AND ResourceId <> x_PodUid);
