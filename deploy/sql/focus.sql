-- FOCUS: cost and usage in exactly the columns of an edition, 1.2, 1.3 or 1.4, in alphabetical order. The
-- views run unchanged on DuckDB, Spark, Trino, Athena and BigQuery, after `finance.sql` or
-- `finance-closed.sql`, and the `focus-<dialect>.sql` of each.

-- Cost and usage of FOCUS 1.2.
CREATE OR REPLACE VIEW focus_1_2 AS
SELECT
    AvailabilityZone, BilledCost, BillingAccountId, BillingAccountName, BillingAccountType,
    BillingCurrency, BillingPeriodEnd, BillingPeriodStart, CapacityReservationId,
    CapacityReservationStatus, ChargeCategory, ChargeClass, ChargeDescription, ChargeFrequency,
    ChargePeriodEnd, ChargePeriodStart, CommitmentDiscountCategory, CommitmentDiscountId,
    CommitmentDiscountName, CommitmentDiscountQuantity, CommitmentDiscountStatus, CommitmentDiscountType,
    CommitmentDiscountUnit, ConsumedQuantity, ConsumedUnit, ContractedCost, ContractedUnitPrice,
    EffectiveCost, InvoiceId, InvoiceIssuerName, ListCost, ListUnitPrice, PricingCategory,
    PricingCurrency, PricingCurrencyContractedUnitPrice, PricingCurrencyEffectiveCost,
    PricingCurrencyListUnitPrice, PricingQuantity, PricingUnit, ProviderName, PublisherName, RegionId,
    RegionName, ResourceId, ResourceName, ResourceType, ServiceCategory, ServiceName, ServiceSubcategory,
    SkuId, SkuMeter, SkuPriceDetails, SkuPriceId, SubAccountId, SubAccountName, SubAccountType, Tags
FROM finance_allocation;

-- What FOCUS 1.3 and 1.4 add to the table, except the names of columns.
--
-- A charge names the commitment and the reservation that it uses, leaves unused or buys. The amount is the
-- commitment's quantity in hours, or its spend. Without a quantity it is the cost.
--
-- A charge is eligible for the programs that its provider sells for such usage, and for one that it used.
-- Spot capacity, purchases and what a commitment leaves unused are eligible for none.
--
-- Rows with several lines of a bill have no line id: the invoice, the category and the resource name them. A
-- correction of a closed month is a detail of its own in the month in which it is billed.
CREATE OR REPLACE VIEW focus_rows AS
WITH agreements AS (
    SELECT
        *,
        replace(replace(CommitmentDiscountId, chr(92), chr(92) || chr(92)), '"', chr(92) || '"')
            AS commitment,
        replace(replace(CapacityReservationId, chr(92), chr(92) || chr(92)), '"', chr(92) || '"')
            AS reservation,
        CASE
            WHEN ChargeCategory <> 'Usage' OR CommitmentDiscountStatus = 'Unused' THEN NULL
            WHEN PricingCategory = 'Dynamic' OR x_RowKind IN ('pod_pool', 'shared_charge') THEN NULL
            WHEN HostProviderName = 'gcp' THEN '{"ProgramType":"Committed Use Discount"}'
            WHEN HostProviderName NOT IN ('alibaba', 'aws', 'azure') THEN NULL
            WHEN x_RowKind IN ('pod_node', 'node_idle')
            THEN '{"ProgramType":"Reserved Instance"},{"ProgramType":"Savings Plan"}'
            ELSE '{"ProgramType":"Savings Plan"}'
        END AS offered,
        CASE WHEN CommitmentDiscountStatus = 'Used' THEN CommitmentDiscountType END AS used
    FROM focus_amounts
),
elements AS (
    SELECT
        *,
        '{"ContractId":"' || commitment || '","ContractCommitmentId":"' || commitment
            || CASE
                WHEN CommitmentDiscountUnit = 'Hours'
                THEN '","ContractCommitmentAppliedQuantity":' || commitment_amount
                    || ',"ContractCommitmentAppliedUnit":"Hours"}'
                ELSE '","ContractCommitmentAppliedCost":' || commitment_amount || '}'
            END AS of_commitment,
        '{"ContractId":"' || reservation || '","ContractCommitmentId":"' || reservation
            || CASE
                WHEN PricingQuantity <> 0
                THEN '","ContractCommitmentAppliedQuantity":' || reservation_amount
                    || ',"ContractCommitmentAppliedUnit":"Hours"}'
                ELSE '","ContractCommitmentAppliedCost":' || reservation_amount || '}'
            END AS of_reservation
    FROM agreements
)
SELECT
    *,
    '{"Elements":['
        || coalesce(of_commitment || ',' || of_reservation, of_commitment, of_reservation)
        || ']}' AS ContractApplied,
    '{"CommitmentPrograms":['
        || CASE
            WHEN used IS NULL OR offered LIKE ('%"' || used || '"%') THEN offered
            ELSE coalesce(offered || ',', '') || '{"ProgramType":"' || used || '"}'
        END
        || ']}' AS CommitmentProgramEligibilityDetails,
    CASE
        WHEN InvoiceId IS NOT NULL
        THEN coalesce(
            InvoiceDetailId, InvoiceId || '/' || ChargeCategory || '/' || coalesce(x_ResourceKey, ''))
            || CASE WHEN ChargePeriodStart < BillingPeriodStart THEN '/' || billing_period ELSE '' END
    END AS x_InvoiceDetailId
FROM elements;

-- Cost and usage of FOCUS 1.3.
CREATE OR REPLACE VIEW focus_1_3 AS
SELECT
    AllocatedMethodDetails, AllocatedMethodId, AllocatedResourceId, AllocatedResourceName, AllocatedTags,
    AvailabilityZone, BilledCost, BillingAccountId, BillingAccountName, BillingAccountType,
    BillingCurrency, BillingPeriodEnd, BillingPeriodStart, CapacityReservationId,
    CapacityReservationStatus, ChargeCategory, ChargeClass, ChargeDescription, ChargeFrequency,
    ChargePeriodEnd, ChargePeriodStart, CommitmentDiscountCategory, CommitmentDiscountId,
    CommitmentDiscountName, CommitmentDiscountQuantity, CommitmentDiscountStatus, CommitmentDiscountType,
    CommitmentDiscountUnit, ConsumedQuantity, ConsumedUnit, ContractApplied, ContractedCost,
    ContractedUnitPrice, EffectiveCost, HostProviderName, InvoiceId, InvoiceIssuerName, ListCost,
    ListUnitPrice, PricingCategory, PricingCurrency, PricingCurrencyContractedUnitPrice,
    PricingCurrencyEffectiveCost, PricingCurrencyListUnitPrice, PricingQuantity, PricingUnit,
    ProviderName, PublisherName, RegionId, RegionName, ResourceId, ResourceName, ResourceType,
    ServiceCategory, ServiceName, ServiceProviderName, ServiceSubcategory, SkuId, SkuMeter,
    SkuPriceDetails, SkuPriceId, SubAccountId, SubAccountName, SubAccountType, Tags
FROM focus_rows;

-- Cost and usage of FOCUS 1.4.
CREATE OR REPLACE VIEW focus_1_4 AS
SELECT
    AllocatedMethodDetails, AllocatedMethodId, AllocatedResourceId, AllocatedResourceName, AllocatedTags,
    AvailabilityZone, BilledCost, BillingAccountId, BillingAccountName, BillingAccountType,
    BillingCurrency, BillingPeriodEnd, BillingPeriodStart, CapacityReservationId,
    CapacityReservationStatus, ChargeCategory, ChargeClass, ChargeDescription, ChargeFrequency,
    ChargePeriodEnd, ChargePeriodStart, CommitmentDiscountCategory, CommitmentDiscountId,
    CommitmentDiscountName, CommitmentDiscountQuantity, CommitmentDiscountStatus, CommitmentDiscountType,
    CommitmentDiscountUnit, CommitmentProgramEligibilityDetails, ConsumedQuantity, ConsumedUnit,
    ContractApplied, ContractedCost, ContractedUnitPrice, EffectiveCost, HostProviderName,
    x_InvoiceDetailId AS InvoiceDetailId, InvoiceId, InvoiceIssuerName, ListCost, ListUnitPrice,
    PricingCategory, PricingCurrency, PricingCurrencyContractedUnitPrice, PricingCurrencyEffectiveCost,
    PricingCurrencyListUnitPrice, PricingQuantity, PricingUnit, RegionId, RegionName, ResourceId,
    ResourceName, ResourceType, ServiceCategory, ServiceName, ServiceProviderName, ServiceSubcategory,
    SkuId, SkuMeter, SkuPriceDetails, SkuPriceId, SubAccountId, SubAccountName, SubAccountType, Tags
FROM focus_rows;
