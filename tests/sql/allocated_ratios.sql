-- FOCUS: the ratios of all rows of one origin sum to exactly 1. An origin is a node, an hour, a basis, a
-- resource in the bill, a commitment or none, and a unit price. If pods divide a shared charge, it is their
-- origin. No column distinguishes charges of two entries or billing accounts, so the ratios of such charges
-- sum to the number of charges.
WITH ratios AS (
    SELECT *, list_sum(regexp_extract_all(AllocatedMethodDetails, '"AllocatedRatio":([0-9.]+)', 1)
        ::DECIMAL(38, 12)[]) AS part
    FROM cost_allocation
    WHERE AllocatedMethodDetails IS NOT NULL
)
SELECT BillingAccountId, ChargePeriodStart, x_ClusterId, ResourceId, x_CostBasis, x_ResourceKey,
    CommitmentDiscountId, ListUnitPrice, sum(part) AS ratio
FROM ratios
WHERE x_RowKind <> 'shared_charge'
GROUP BY ALL
HAVING ratio <> 1
UNION ALL BY NAME
SELECT BillingAccountId, ChargePeriodStart, HostProviderName, ServiceName, x_AccountId, InvoiceId,
    InvoiceDetailId, ResourceId, x_ResourceKey, CommitmentDiscountId, sum(part) AS ratio
FROM ratios
WHERE x_RowKind = 'shared_charge'
GROUP BY ALL
HAVING ratio < 1 OR ratio <> floor(ratio);
