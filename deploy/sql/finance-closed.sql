-- The rows that finance counts, if `prorata close` closes months. The views run unchanged on DuckDB, Spark,
-- Trino, Athena and BigQuery. Without the table `closed_allocation`, run `finance.sql` instead.

-- Months that an organization has closed. Every row of `closed_allocation` is charged in such a month:
-- corrections are billed in a later month, and charged in the month that they correct.
CREATE OR REPLACE VIEW closed_periods AS
SELECT DISTINCT
    periods.BillingAccountId AS closed_account,
    periods.BillingPeriodStart AS closed_period
FROM (
    SELECT DISTINCT BillingAccountId, BillingPeriodStart, BillingPeriodEnd FROM cost_allocation
    UNION ALL
    SELECT DISTINCT BillingAccountId, BillingPeriodStart, BillingPeriodEnd FROM closed_allocation
) AS periods
JOIN (SELECT DISTINCT BillingAccountId, ChargePeriodStart FROM closed_allocation) AS charges
    ON charges.BillingAccountId = periods.BillingAccountId
    AND charges.ChargePeriodStart >= periods.BillingPeriodStart
    AND charges.ChargePeriodStart < periods.BillingPeriodEnd;

-- Closed months as they were issued, corrections of them in later months, and open months of the ledger. The
-- columns are named, because a table that is older than a column has it last.
CREATE OR REPLACE VIEW finance_allocation AS
SELECT
    date, AllocatedMethodDetails, AllocatedMethodId, AllocatedResourceId, AllocatedResourceName,
    AllocatedTags, AvailabilityZone, BilledCost, BillingAccountId, BillingAccountName,
    BillingAccountType, BillingCurrency, BillingPeriodEnd, BillingPeriodStart, CapacityReservationId,
    CapacityReservationStatus, ChargeCategory, ChargeClass, ChargeDescription, ChargeFrequency,
    ChargePeriodEnd, ChargePeriodStart, CommitmentDiscountCategory, CommitmentDiscountId,
    CommitmentDiscountName, CommitmentDiscountQuantity, CommitmentDiscountStatus,
    CommitmentDiscountType, CommitmentDiscountUnit, ConsumedQuantity, ConsumedUnit, ContractedCost,
    ContractedUnitPrice, EffectiveCost, HostProviderName, InvoiceDetailId, InvoiceId, InvoiceIssuerName,
    ListCost, ListUnitPrice, PricingCategory, PricingCurrency, PricingCurrencyContractedUnitPrice,
    PricingCurrencyEffectiveCost, PricingCurrencyListUnitPrice, PricingQuantity, PricingUnit,
    ProviderName, PublisherName, RegionId, RegionName, ResourceId, ResourceName, ResourceType,
    ServiceCategory, ServiceName, ServiceProviderName, ServiceSubcategory, SkuId, SkuMeter,
    SkuPriceDetails, SkuPriceId, SubAccountId, SubAccountName, SubAccountType, Tags, x_AccountId,
    x_ClusterId, x_CostBasis, x_CpuCoreHours, x_CpuCost, x_CpuSplitUsageRatio, x_CpuUnusedRatio,
    x_EstimatedCost, x_GpuCost, x_GpuHours, x_GpuModel, x_GpuSplitUsageRatio, x_GpuUnusedRatio,
    x_MemoryCost, x_MemoryGibHours, x_MemorySplitUsageRatio, x_MemoryUnusedRatio, x_Namespace, x_NodeId,
    x_NodeName, x_PodName, x_PodUid, x_PoolCharge, x_PoolId, x_Qos, x_QuotaId, x_QuotaState,
    x_RequestedCpuCoreHours, x_RequestedGpuHours, x_RequestedMemoryGibHours, x_ResourceKey, x_RowKind,
    x_RulesVersion, x_RunningSeconds, x_SplitCost, x_Unpriced, x_UnusedCost, x_UsedCpuCoreHours,
    x_UsedGpuHours, x_UsedMemoryGibHours, x_WorkloadKind, x_WorkloadName,
    CASE WHEN closed_period IS NULL THEN 'Open' ELSE 'Closed' END AS x_BillingPeriodStatus
FROM closed_allocation
LEFT JOIN closed_periods ON closed_account = BillingAccountId AND closed_period = BillingPeriodStart
UNION ALL
SELECT
    date, AllocatedMethodDetails, AllocatedMethodId, AllocatedResourceId, AllocatedResourceName,
    AllocatedTags, AvailabilityZone, BilledCost, BillingAccountId, BillingAccountName,
    BillingAccountType, BillingCurrency, BillingPeriodEnd, BillingPeriodStart, CapacityReservationId,
    CapacityReservationStatus, ChargeCategory, ChargeClass, ChargeDescription, ChargeFrequency,
    ChargePeriodEnd, ChargePeriodStart, CommitmentDiscountCategory, CommitmentDiscountId,
    CommitmentDiscountName, CommitmentDiscountQuantity, CommitmentDiscountStatus,
    CommitmentDiscountType, CommitmentDiscountUnit, ConsumedQuantity, ConsumedUnit, ContractedCost,
    ContractedUnitPrice, EffectiveCost, HostProviderName, InvoiceDetailId, InvoiceId, InvoiceIssuerName,
    ListCost, ListUnitPrice, PricingCategory, PricingCurrency, PricingCurrencyContractedUnitPrice,
    PricingCurrencyEffectiveCost, PricingCurrencyListUnitPrice, PricingQuantity, PricingUnit,
    ProviderName, PublisherName, RegionId, RegionName, ResourceId, ResourceName, ResourceType,
    ServiceCategory, ServiceName, ServiceProviderName, ServiceSubcategory, SkuId, SkuMeter,
    SkuPriceDetails, SkuPriceId, SubAccountId, SubAccountName, SubAccountType, Tags, x_AccountId,
    x_ClusterId, x_CostBasis, x_CpuCoreHours, x_CpuCost, x_CpuSplitUsageRatio, x_CpuUnusedRatio,
    x_EstimatedCost, x_GpuCost, x_GpuHours, x_GpuModel, x_GpuSplitUsageRatio, x_GpuUnusedRatio,
    x_MemoryCost, x_MemoryGibHours, x_MemorySplitUsageRatio, x_MemoryUnusedRatio, x_Namespace, x_NodeId,
    x_NodeName, x_PodName, x_PodUid, x_PoolCharge, x_PoolId, x_Qos, x_QuotaId, x_QuotaState,
    x_RequestedCpuCoreHours, x_RequestedGpuHours, x_RequestedMemoryGibHours, x_ResourceKey, x_RowKind,
    x_RulesVersion, x_RunningSeconds, x_SplitCost, x_Unpriced, x_UnusedCost, x_UsedCpuCoreHours,
    x_UsedGpuHours, x_UsedMemoryGibHours, x_WorkloadKind, x_WorkloadName,
    'Open'
FROM cost_allocation
LEFT JOIN closed_periods ON closed_account = BillingAccountId AND closed_period = BillingPeriodStart
WHERE closed_period IS NULL;
