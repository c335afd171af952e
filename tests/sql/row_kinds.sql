-- What FOCUS calls each kind of row.
WITH expected (x_RowKind, category, frequency, resource_type, reservation, bearer) AS (
    VALUES
        ('pod_node', 'Usage', 'Usage-Based', 'Node', NULL, true),
        ('node_idle', 'Usage', 'Usage-Based', 'Node', NULL, false),
        ('pod_serverless', 'Usage', 'Usage-Based', 'Pod', 'Used', true),
        ('pod_pool', 'Usage', 'Usage-Based', 'Pod', NULL, true),
        ('reservation_unused', 'Usage', 'Usage-Based', 'Capacity Reservation', 'Unused', false),
        ('commitment_unused', 'Usage', 'Usage-Based', 'Commitment', NULL, false),
        ('commitment_purchase', 'Purchase', 'Recurring', 'Commitment', NULL, false)
)
SELECT BillingAccountId, ChargePeriodStart, x_RowKind, ResourceId, ChargeCategory, ChargeFrequency,
    ResourceType, CapacityReservationId, CapacityReservationStatus, x_PodUid, ConsumedQuantity,
    PricingQuantity
FROM cost_allocation
LEFT JOIN expected USING (x_RowKind)
WHERE category IS NULL
    OR ChargeCategory <> category
    OR ChargeFrequency <> frequency
    OR ResourceType <> resource_type
    OR (x_PodUid IS NOT NULL) <> bearer
    OR (x_RunningSeconds IS NOT NULL) <> bearer
    OR CapacityReservationStatus IS DISTINCT FROM
        (CASE WHEN CapacityReservationId IS NOT NULL THEN reservation END)
    OR (x_RowKind = 'reservation_unused' AND CapacityReservationId IS DISTINCT FROM ResourceId)
    OR ConsumedQuantity IS DISTINCT FROM
        (CASE WHEN x_RowKind NOT LIKE 'commitment%' THEN PricingQuantity END)
    OR (ConsumedUnit IS NULL) <> (ConsumedQuantity IS NULL)
    OR (x_RowKind IN ('pod_serverless', 'pod_pool') AND ResourceId <> x_PodUid);
