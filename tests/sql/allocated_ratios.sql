-- FOCUS: the ratios of all rows of one origin sum to exactly 1. An origin is a node, an hour, a basis, a
-- resource in the bill, a commitment or none, and a unit price.
SELECT BillingAccountId, ChargePeriodStart, x_ClusterId, ResourceId, x_CostBasis, x_ResourceKey,
    CommitmentDiscountId, ListUnitPrice,
    sum(list_sum(regexp_extract_all(AllocatedMethodDetails, '"AllocatedRatio":([0-9.]+)', 1)
        ::DECIMAL(38, 12)[])) AS ratio
FROM cost_allocation
WHERE AllocatedMethodDetails IS NOT NULL
GROUP BY ALL
HAVING ratio <> 1;
