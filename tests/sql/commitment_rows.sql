-- Estimated rows of a commitment: its purchase has no effective cost, its use no bill, and all of them a
-- quantity: spend of a savings plan, hours of any other. Billed rows have no quantity.
SELECT BillingAccountId, ChargePeriodStart, x_RowKind, x_CostBasis, CommitmentDiscountId, BilledCost,
    EffectiveCost, CommitmentDiscountStatus, CommitmentDiscountQuantity, PricingCategory
FROM cost_allocation
WHERE x_CostBasis = 'estimated' AND CommitmentDiscountId IS NOT NULL AND (
        CommitmentDiscountQuantity IS NULL OR CommitmentDiscountType IS NULL
        OR CommitmentDiscountUnit IS DISTINCT FROM
            (CASE CommitmentDiscountType WHEN 'Savings Plan' THEN BillingCurrency ELSE 'Hours' END)
        OR CommitmentDiscountCategory IS DISTINCT FROM
            (CASE CommitmentDiscountType WHEN 'Savings Plan' THEN 'Spend' ELSE 'Usage' END)
        OR (ChargeCategory = 'Purchase' AND (EffectiveCost <> 0 OR CommitmentDiscountStatus IS NOT NULL
            OR PricingCategory <> 'Standard' OR ResourceId <> CommitmentDiscountId))
        OR (ChargeCategory = 'Usage' AND (BilledCost <> 0 OR CommitmentDiscountStatus IS NULL
            OR PricingCategory <> 'Committed'))
        OR (CommitmentDiscountStatus = 'Unused' AND ResourceId <> CommitmentDiscountId)
    )
    OR CommitmentDiscountId IS NULL AND (
        CommitmentDiscountStatus IS NOT NULL
        OR CommitmentDiscountQuantity IS NOT NULL OR CommitmentDiscountUnit IS NOT NULL
        OR CommitmentDiscountCategory IS NOT NULL OR CommitmentDiscountType IS NOT NULL
        OR CommitmentDiscountName IS NOT NULL OR PricingCategory = 'Committed'
        OR x_CostBasis = 'estimated' AND (ChargeCategory <> 'Usage' OR BilledCost <> EffectiveCost)
    )
    OR x_CostBasis = 'billed' AND (
        CommitmentDiscountQuantity IS NOT NULL OR CommitmentDiscountUnit IS NOT NULL
        OR (CommitmentDiscountId IS NOT NULL
            AND (CommitmentDiscountType IS NULL OR CommitmentDiscountCategory IS NULL))
        OR (x_RowKind IN ('commitment_unused', 'commitment_purchase')
            AND ResourceId IS DISTINCT FROM CommitmentDiscountId)
        OR (x_RowKind IN ('pod_node', 'node_idle')
            AND (PricingCategory = 'Committed') <> (CommitmentDiscountId IS NOT NULL))
    );
