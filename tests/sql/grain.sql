-- Every row has a grain of its own.
SELECT BillingAccountId, ChargePeriodStart, x_RowKind, x_ClusterId, ResourceId, x_PodUid,
    CommitmentDiscountId, CapacityReservationId, x_QuotaId, x_QuotaState, ListUnitPrice, x_Unpriced,
    AllocatedTags, Tags, x_CostBasis, x_ResourceKey, InvoiceDetailId, count(*) AS rows
FROM cost_allocation
GROUP BY ALL
HAVING rows > 1;
