-- BigQuery: daily cost of each team. A team is the pod label "team"; replace it with your own label. Rows
-- without this label, such as idle capacity, unused commitments and charges that no pod bears, have no
-- team.
CREATE OR REPLACE VIEW team_daily AS
SELECT
    date,
    BillingAccountId AS organization_id,
    BillingCurrency AS currency,
    json_value(CASE WHEN x_RowKind IN ('pod_node', 'shared_charge') THEN AllocatedTags ELSE Tags END,
        '$.team') AS team,
    sum(EffectiveCost) AS cost,
    sum(x_GpuHours) AS gpu_hours
FROM cost_allocation
WHERE x_RowKind <> 'commitment_purchase' OR EffectiveCost <> 0
GROUP BY 1, 2, 3, 4;

-- GPU-hours of each node: its physical cards, what pods held of them, and what they held above them in some
-- hour, as under time-slicing. A capacity that changes counts for its whole hour.
CREATE OR REPLACE VIEW gpu_node_daily AS
WITH hours AS (
    SELECT
        date,
        BillingAccountId AS organization_id,
        x_ClusterId AS cluster_id,
        ResourceId AS node_id,
        ChargePeriodStart,
        max(x_GpuModel) AS gpu_model,
        sum(1e0 * PricingQuantity
            * safe_cast(json_value(SkuPriceDetails, '$.GpuCount') AS float64)) AS physical,
        sum(1e0 * coalesce(x_GpuHours, 0)) AS allocated
    FROM cost_allocation
    WHERE x_RowKind IN ('pod_node', 'node_idle') AND SkuPriceDetails IS NOT NULL
    GROUP BY 1, 2, 3, 4, 5
)
SELECT
    date,
    organization_id,
    cluster_id,
    node_id,
    max(gpu_model) AS gpu_model,
    sum(physical) AS physical_gpu_hours,
    sum(allocated) AS allocated_gpu_hours,
    sum(CASE WHEN allocated > physical + 1e-9 THEN allocated - physical ELSE 0e0 END)
        AS oversubscribed_gpu_hours
FROM hours
WHERE physical > 0
GROUP BY 1, 2, 3, 4;
