-- FOCUS: the ratios of all rows of one origin - a node, an hour, a commitment or none, a unit price - sum to
-- exactly 1.
SELECT BillingAccountId, ChargePeriodStart, x_ClusterId, ResourceId, CommitmentDiscountId, ListUnitPrice,
    sum(list_sum(regexp_extract_all(AllocatedMethodDetails, '"AllocatedRatio":([0-9.]+)', 1)
        ::DECIMAL(38, 12)[])) AS ratio
FROM cost_allocation
WHERE AllocatedMethodDetails IS NOT NULL
GROUP BY ALL
HAVING ratio <> 1;
