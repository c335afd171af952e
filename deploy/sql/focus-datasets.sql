-- FOCUS 1.4: the datasets Billing Period, Invoice Detail and Contract Commitment. The views run unchanged on
-- DuckDB, Spark, Trino, Athena and BigQuery, after the `focus-<dialect>.sql` of each and `focus.sql`.
-- README.md in this folder says which columns are null, and why.

-- Billing periods: the calendar months of each provider in which an organization has costs. A record is
-- created when the first of its hours is written, and updated when the last one is.
CREATE OR REPLACE VIEW focus_billing_period AS
SELECT
    min(hours.last_updated) AS BillingPeriodCreated,
    charges.BillingPeriodEnd,
    max(hours.last_updated) AS BillingPeriodLastUpdated,
    charges.BillingPeriodStart,
    charges.x_BillingPeriodStatus AS BillingPeriodStatus,
    charges.InvoiceIssuerName,
    charges.BillingAccountId AS x_BillingAccountId
FROM (
    SELECT DISTINCT
        BillingAccountId, BillingPeriodStart, BillingPeriodEnd, InvoiceIssuerName, ChargePeriodStart,
        x_BillingPeriodStatus
    FROM finance_allocation
) AS charges
-- The ledger may have lost an hour that was issued.
LEFT JOIN hours
    ON hours.organization_id = charges.BillingAccountId AND hours.hour = charges.ChargePeriodStart
GROUP BY 2, 4, 5, 6, 7;

-- Invoice details: one for each line of a bill that has an invoice, and one for each invoice, category and
-- resource whose lines are only known together. Rows of a node say `Usage` of a line, others its category.
-- Bills do not say when an invoice was issued, when and how it is paid, or which invoice a correction is of.
CREATE OR REPLACE VIEW focus_invoice_detail AS
WITH details AS (
    SELECT
        focus_rows.x_InvoiceDetailId AS id,
        InvoiceId,
        InvoiceIssuerName,
        BillingAccountId,
        BillingCurrency,
        sum(BilledCost) AS cost,
        min(BillingPeriodStart) AS period_start,
        min(BillingPeriodEnd) AS period_end,
        min(ChargeCategory) AS category,
        max(ChargeClass) AS class,
        -- Words of rows of nodes and pods are not those in the bill.
        min(CASE WHEN x_PodUid IS NULL AND x_RowKind <> 'node_idle' THEN ChargeDescription END) AS words,
        replace(replace(min(x_AccountId), chr(92), chr(92) || chr(92)), '"', chr(92) || '"') AS account,
        replace(replace(min(x_ResourceKey), chr(92), chr(92) || chr(92)), '"', chr(92) || '"') AS resource,
        min(hours.last_updated) AS created,
        max(hours.last_updated) AS updated
    FROM focus_rows
    LEFT JOIN hours ON hours.organization_id = BillingAccountId AND hours.hour = ChargePeriodStart
    WHERE InvoiceId IS NOT NULL
    GROUP BY 1, 2, 3, 4, 5
)
SELECT
    cost AS BilledCost,
    BillingAccountId,
    BillingCurrency,
    period_end AS BillingPeriodEnd,
    period_start AS BillingPeriodStart,
    category AS ChargeCategory,
    created AS InvoiceDetailCreated,
    words AS InvoiceDetailDescription,
    '{' || coalesce(
        '"x_AccountId":"' || account || '","x_ResourceKey":"' || resource || '"',
        '"x_AccountId":"' || account || '"',
        '"x_ResourceKey":"' || resource || '"'
    ) || '}' AS InvoiceDetailGrain,
    id AS InvoiceDetailId,
    updated AS InvoiceDetailLastUpdated,
    InvoiceId,
    CAST(NULL AS timestamp) AS InvoiceIssueDate,
    'Issued' AS InvoiceIssueStatus,
    InvoiceIssuerName,
    CAST(NULL AS timestamp) AS PaymentDueDate,
    nullif('', '') AS PaymentTerms,
    CASE WHEN class IS NULL THEN InvoiceId END AS ReferenceInvoiceId
FROM details;

-- Contract commitments: each commitment and each capacity reservation under its last description. Each is a
-- contract of its own. Its term is in hours, where a part of an hour counts as an hour.
--
-- A reservation whose last hour is before the last one of its organization has expired, or was released.
-- Events do not say how an agreement is paid, or whether its terms are public. Without an end it has no term.
CREATE OR REPLACE VIEW focus_contract_commitment AS
WITH commitments AS (
    SELECT
        organization_id,
        commitment_id,
        max(hour) AS last_hour,
        sum(used_cost) AS used_cost,
        sum(list_cost_avoided) AS list_cost,
        min(last_updated) AS created,
        max(last_updated) AS updated
    FROM commitment_utilization
    JOIN hours USING (organization_id, hour)
    GROUP BY 1, 2
),
reservations AS (
    SELECT
        organization_id,
        reservation_id,
        max(hour) AS last_hour,
        min(last_updated) AS created,
        max(last_updated) AS updated
    FROM reservation_usage
    JOIN hours USING (organization_id, hour)
    GROUP BY 1, 2
),
organizations AS (
    SELECT organization_id, max(hour) AS last_hour FROM hours GROUP BY 1
),
agreements AS (
    SELECT
        terms.organization_id,
        terms.commitment_id AS id,
        terms.name,
        terms.provider,
        terms.currency,
        'Discount' AS benefit,
        CASE terms.kind WHEN 'SAVINGS_PLAN' THEN 'Spend' ELSE 'Usage' END AS category,
        CASE terms.kind
            WHEN 'SAVINGS_PLAN' THEN 'Savings Plan'
            WHEN 'RESERVED_INSTANCE' THEN 'Reserved Instance'
            ELSE 'Committed Use Discount'
        END AS type,
        CASE terms.state
            WHEN 'deleted' THEN 'Canceled'
            WHEN 'expired' THEN 'Expired'
            WHEN 'pending' THEN 'Pending'
            ELSE 'Active'
        END AS status,
        terms.region,
        nullif('', '') AS zone,
        terms.instance_family,
        terms.gpu_model,
        terms.starts_at,
        terms.ends_at,
        terms.term_hours,
        terms.term_days,
        CASE WHEN terms.kind <> 'SAVINGS_PLAN' THEN terms.term_hours END AS quantity,
        terms.term_cost AS cost,
        -- Used usage at its own prices, less what it cost.
        CASE
            WHEN commitments.used_cost BETWEEN 0 AND commitments.list_cost AND commitments.list_cost > 0
            THEN 1e0 - 1e0 * commitments.used_cost / commitments.list_cost
        END AS discount,
        commitments.created,
        commitments.updated
    FROM focus_commitment_terms AS terms
    JOIN commitments
        ON commitments.organization_id = terms.organization_id
        AND commitments.commitment_id = terms.commitment_id
        AND commitments.last_hour = terms.hour
    UNION ALL
    SELECT
        terms.organization_id,
        terms.reservation_id,
        terms.name,
        terms.provider,
        terms.currency,
        'Availability',
        'Usage',
        'Capacity Reservation',
        CASE
            WHEN terms.ends_at <= organizations.last_hour THEN 'Expired'
            WHEN reservations.last_hour < organizations.last_hour THEN 'Canceled'
            ELSE 'Active'
        END,
        terms.region,
        terms.zone,
        nullif('', ''),
        terms.gpu_model,
        terms.starts_at,
        terms.ends_at,
        terms.term_hours,
        terms.term_days,
        terms.quantity * terms.term_hours,
        NULL,
        NULL,
        reservations.created,
        reservations.updated
    FROM focus_reservation_terms AS terms
    JOIN reservations
        ON reservations.organization_id = terms.organization_id
        AND reservations.reservation_id = terms.reservation_id
        AND reservations.last_hour = terms.hour
    JOIN organizations ON organizations.organization_id = terms.organization_id
)
SELECT
    currency AS BillingCurrency,
    -- Sizes, families and the order of coverage are beyond the form in which FOCUS writes rules.
    '{"IsComplexScope":true'
        || coalesce(',"x_RegionId":"'
            || replace(replace(region, chr(92), chr(92) || chr(92)), '"', chr(92) || '"') || '"', '')
        || coalesce(',"x_AvailabilityZone":"'
            || replace(replace(zone, chr(92), chr(92) || chr(92)), '"', chr(92) || '"') || '"', '')
        || coalesce(',"x_InstanceFamily":"'
            || replace(replace(instance_family, chr(92), chr(92) || chr(92)), '"', chr(92) || '"') || '"', '')
        || coalesce(',"x_GpuModel":"'
            || replace(replace(gpu_model, chr(92), chr(92) || chr(92)), '"', chr(92) || '"') || '"', '')
        || '}' AS ContractCommitmentApplicability,
    benefit AS ContractCommitmentBenefitCategory,
    category AS ContractCommitmentCategory,
    cost AS ContractCommitmentCost,
    created AS ContractCommitmentCreated,
    name AS ContractCommitmentDescription,
    discount AS ContractCommitmentDiscountPercentage,
    CASE
        WHEN term_hours BETWEEN 8760 AND 8784 THEN '1 Year'
        WHEN term_hours BETWEEN 26280 AND 26304 THEN '3 Years'
        WHEN term_hours BETWEEN 43800 AND 43848 THEN '5 Years'
        WHEN term_hours <= 24 THEN '1 Day'
        ELSE term_days || ' Days'
    END AS ContractCommitmentDurationType,
    'Hourly' AS ContractCommitmentFulfillmentInterval,
    id AS ContractCommitmentId,
    updated AS ContractCommitmentLastUpdated,
    status AS ContractCommitmentLifecycleStatus,
    'Continuous' AS ContractCommitmentModel,
    nullif('', '') AS ContractCommitmentOfferCategory,
    nullif('', '') AS ContractCommitmentPaymentInterval,
    nullif('', '') AS ContractCommitmentPaymentModel,
    ends_at AS ContractCommitmentPeriodEnd,
    starts_at AS ContractCommitmentPeriodStart,
    quantity AS ContractCommitmentQuantity,
    type AS ContractCommitmentType,
    CASE WHEN quantity IS NOT NULL THEN 'Hours' END AS ContractCommitmentUnit,
    id AS ContractId,
    ends_at AS ContractPeriodEnd,
    starts_at AS ContractPeriodStart,
    provider AS InvoiceIssuerName,
    currency AS PricingCurrency,
    cost AS PricingCurrencyContractCommitmentCost,
    provider AS ServiceProviderName,
    organization_id AS x_BillingAccountId
FROM agreements;
