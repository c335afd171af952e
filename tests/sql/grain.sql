-- Every row has a grain of its own. Parts of charges that join several lines are left out: no column names
-- the entry that divides a charge, or the account that the provider bills.
SELECT BillingAccountId, ChargePeriodStart, x_RowKind, x_ClusterId, ResourceId, x_PodUid,
    CommitmentDiscountId, CapacityReservationId, x_QuotaId, x_QuotaState, ListUnitPrice, x_Unpriced,
    AllocatedTags, Tags, x_CostBasis, x_ResourceKey, InvoiceDetailId, count(*) AS rows
FROM cost_allocation
WHERE x_RowKind <> 'shared_charge' OR x_PodUid IS NULL OR InvoiceDetailId IS NOT NULL
GROUP BY ALL
HAVING rows > 1;
