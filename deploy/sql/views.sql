-- Views for finance and platform teams. They run unchanged on DuckDB, Spark, Trino, Athena and BigQuery, in
-- the schema that has the tables; README.md in this folder says how to register them. Costs are exact
-- decimals, except in `showback_spread_daily`. Ratios are floating-point numbers.

-- Daily cost of each namespace, used and unused side by side. A pod pays its part of the capacity of its node
-- that nobody was allocated: `used_cost` is without it, `unused_cost` has it. Idle capacity, and unused
-- reservations and commitments, are in rows of their own, so that the rows of a day add up to the bill.
-- Shared charges that no pod bears, such as support, taxes and credits, belong to no namespace either. All
-- shared charges count as used.
CREATE OR REPLACE VIEW showback_daily AS
SELECT
    date,
    BillingAccountId AS organization_id,
    BillingCurrency AS currency,
    x_ClusterId AS cluster_id,
    CASE x_RowKind
        WHEN 'node_idle' THEN '(idle capacity)'
        WHEN 'reservation_unused' THEN '(unused reservations)'
        WHEN 'commitment_unused' THEN '(unused commitments)'
        WHEN 'commitment_purchase' THEN '(shared charges)'
        WHEN 'shared_charge' THEN coalesce(x_Namespace, '(shared charges)')
        ELSE x_Namespace
    END AS namespace,
    sum(EffectiveCost) AS cost,
    sum(CASE
        WHEN x_RowKind = 'pod_node' THEN x_SplitCost
        WHEN x_RowKind IN ('node_idle', 'reservation_unused', 'commitment_unused') THEN 0
        ELSE EffectiveCost
    END) AS used_cost,
    sum(CASE
        WHEN x_RowKind = 'pod_node' THEN x_UnusedCost
        WHEN x_RowKind IN ('node_idle', 'reservation_unused', 'commitment_unused') THEN EffectiveCost
        ELSE 0
    END) AS unused_cost,
    sum(x_CpuCoreHours) AS cpu_core_hours,
    sum(x_MemoryGibHours) AS memory_gib_hours,
    sum(x_GpuHours) AS gpu_hours
FROM cost_allocation
WHERE x_RowKind <> 'commitment_purchase' OR EffectiveCost <> 0
GROUP BY 1, 2, 3, 4, 5;

-- The same, with idle capacity spread over the namespaces of its cluster and day, in proportion to the node
-- cost of their pods. If this cost is not above zero, idle capacity keeps a row of its own.
CREATE OR REPLACE VIEW showback_spread_daily AS
WITH lines AS (
    SELECT
        date,
        BillingAccountId AS organization_id,
        BillingCurrency AS currency,
        x_ClusterId AS cluster_id,
        CASE x_RowKind
            WHEN 'node_idle' THEN '(idle capacity)'
            WHEN 'reservation_unused' THEN '(unused reservations)'
            WHEN 'commitment_unused' THEN '(unused commitments)'
            WHEN 'commitment_purchase' THEN '(shared charges)'
            WHEN 'shared_charge' THEN coalesce(x_Namespace, '(shared charges)')
            ELSE x_Namespace
        END AS namespace,
        sum(1e0 * EffectiveCost) AS cost,
        sum(CASE WHEN x_RowKind = 'pod_node' THEN 1e0 * EffectiveCost ELSE 0e0 END) AS node_cost,
        sum(CASE WHEN x_RowKind = 'node_idle' THEN 1e0 * EffectiveCost ELSE 0e0 END) AS idle_cost
    FROM cost_allocation
    WHERE x_RowKind <> 'commitment_purchase' OR EffectiveCost <> 0
    GROUP BY 1, 2, 3, 4, 5
),
clusters AS (
    SELECT date, organization_id, currency, cluster_id,
        sum(node_cost) AS cluster_node_cost, sum(idle_cost) AS cluster_idle_cost
    FROM lines
    WHERE cluster_id IS NOT NULL
    GROUP BY 1, 2, 3, 4
)
SELECT
    lines.date, lines.organization_id, lines.currency, lines.cluster_id, lines.namespace,
    lines.cost AS own_cost,
    CASE
        WHEN clusters.cluster_node_cost > 0
        THEN clusters.cluster_idle_cost * lines.node_cost / clusters.cluster_node_cost
        ELSE 0e0
    END AS idle_share,
    lines.cost + CASE
        WHEN clusters.cluster_node_cost > 0
        THEN clusters.cluster_idle_cost * lines.node_cost / clusters.cluster_node_cost
        ELSE 0e0
    END AS cost
FROM lines
LEFT JOIN clusters
    ON clusters.date = lines.date
    AND clusters.organization_id = lines.organization_id
    AND clusters.currency = lines.currency
    AND clusters.cluster_id = lines.cluster_id
WHERE lines.namespace <> '(idle capacity)' OR clusters.cluster_node_cost <= 0;

-- Allocated and measured GPU-hours, and the cost of idle GPU nodes, by model. `cost_per_gpu_hour` is the cost
-- of an allocated GPU-hour, without `idle_cost`.
CREATE OR REPLACE VIEW gpu_daily AS
SELECT
    date,
    BillingAccountId AS organization_id,
    BillingCurrency AS currency,
    x_ClusterId AS cluster_id,
    x_GpuModel AS gpu_model,
    sum(x_GpuHours) AS gpu_hours,
    sum(x_UsedGpuHours) AS used_gpu_hours,
    sum(x_GpuCost) AS gpu_cost,
    sum(CASE WHEN x_RowKind = 'node_idle' THEN EffectiveCost ELSE 0 END) AS idle_cost,
    1e0 * sum(x_GpuCost) / nullif(1e0 * sum(x_GpuHours), 0e0) AS cost_per_gpu_hour
FROM cost_allocation
WHERE x_GpuModel IS NOT NULL AND ChargeCategory = 'Usage'
GROUP BY 1, 2, 3, 4, 5;

-- Daily utilization of each commitment: used cost, unused cost, and the list cost that it saved.
CREATE OR REPLACE VIEW commitment_daily AS
SELECT
    date,
    organization_id,
    commitment_id,
    max(name) AS name,
    sum(used_cost) AS used_cost,
    sum(unused_cost) AS unused_cost,
    sum(list_cost_avoided) AS list_cost_avoided,
    1e0 * sum(used_cost) / nullif(1e0 * (sum(used_cost) + sum(unused_cost)), 0e0) AS utilization,
    sum(covered_vcpu_hours) AS covered_vcpu_hours,
    sum(committed_vcpu_hours) AS committed_vcpu_hours
FROM commitment_utilization
GROUP BY 1, 2, 3;

-- Which part of the list cost of nodes, serverless pods and unused units did commitments cover on each day, by
-- region and capacity? Spot capacity is never covered and has a row of its own, `Dynamic`.
CREATE OR REPLACE VIEW commitment_coverage_daily AS
SELECT
    date,
    BillingAccountId AS organization_id,
    BillingCurrency AS currency,
    RegionId AS region,
    sum(CASE WHEN PricingCategory = 'Committed' THEN ListCost ELSE 0 END) AS covered_list_cost,
    sum(CASE WHEN PricingCategory = 'Standard' THEN ListCost ELSE 0 END) AS on_demand_list_cost,
    sum(CASE WHEN PricingCategory = 'Dynamic' THEN ListCost ELSE 0 END) AS spot_list_cost,
    1e0 * sum(CASE WHEN PricingCategory = 'Committed' THEN ListCost ELSE 0 END)
        / nullif(1e0 * sum(CASE WHEN PricingCategory <> 'Dynamic' THEN ListCost ELSE 0 END), 0e0) AS coverage
FROM cost_allocation
WHERE x_RowKind IN ('pod_node', 'node_idle', 'pod_serverless', 'reservation_unused')
GROUP BY 1, 2, 3, 4;

-- Borrowing between quotas: amounts that each quota used above its minimum or lent to others, and the cost of
-- pods over quota. Costs belong to the quota and repeat for each of its resources: do not sum them over
-- resources.
CREATE OR REPLACE VIEW quota_ledger_daily AS
SELECT
    date,
    organization_id,
    cluster_id,
    quota_id,
    resource,
    sum(borrowed_hours) AS borrowed_hours,
    sum(lent_hours) AS lent_hours,
    sum(over_quota_amount_hours) AS over_quota_amount_hours,
    sum(in_quota_cost) AS in_quota_cost,
    sum(over_quota_cost) AS over_quota_cost,
    sum(preemptible_cost) AS preemptible_cost,
    max(over_quota_pods_peak) AS over_quota_pods_peak
FROM quota_usage
GROUP BY 1, 2, 3, 4, 5;
