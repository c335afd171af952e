-- All columns of cost_allocation and the sums of hours, for nodes, pods on nodes and samples of their use. In
-- floats; costs are tied to the rounded charge by largest remainder, so that rows add up.
-- Reads nodes, pods, samples, times and $end, which is the end of the last hour.
CREATE MACRO atoms(value) AS (value::DECIMAL(38, 0) / 1000000000000)::DECIMAL(38, 12);
CREATE MACRO shown(value) AS CASE WHEN value = 0 THEN '0' ELSE rtrim(rtrim(value::VARCHAR, '0'), '.') END;
CREATE MACRO cut(since, until) AS unnest(range(since // 3600000000, (until - 1) // 3600000000 + 1));

CREATE TEMP TABLE node_hours AS
SELECT * REPLACE (greatest(since, hour * 3600000000) AS since, least(until, (hour + 1) * 3600000000) AS until)
FROM (
    SELECT organization, cluster, node, since, coalesce(until, $end) AS until, cpu, memory, gpu, hourly_cost,
        cut(since, coalesce(until, $end)) AS hour
    FROM nodes
);

CREATE TEMP TABLE pod_hours AS
WITH runs AS (
    SELECT pods.organization, pods.cluster, pods.node, pods.pod, pods.since,
        least(coalesce(pods.until, $end), coalesce(nodes.until, $end)) AS until,
        pods.cpu, pods.memory, pods.gpu
    FROM pods JOIN nodes USING (organization, cluster, node)
), hours AS (
    SELECT *, cut(since, until) AS hour FROM runs
)
SELECT * REPLACE (greatest(since, hour * 3600000000) AS since, least(until, (hour + 1) * 3600000000) AS until)
FROM hours;

CREATE TEMP TABLE used AS
SELECT organization, pod, hour, sum(samples.cpu * micros)::DOUBLE AS cpu,
    sum(samples.memory * micros)::DOUBLE AS memory, sum(samples.gpu * micros)::DOUBLE AS gpu
FROM (
    SELECT samples.organization, samples.pod, samples.hour, samples.cpu::HUGEINT AS cpu,
        samples.memory::HUGEINT AS memory, samples.gpu::HUGEINT AS gpu,
        least(samples.until, pods.until) - greatest(samples.since, pods.since) AS micros
    FROM (SELECT *, cut(since, until) AS hour FROM samples) AS samples
        JOIN pod_hours AS pods USING (organization, pod, hour)
    WHERE samples.since < pods.until AND pods.since < samples.until
) AS samples
GROUP BY ALL;

-- Amounts are thousandths or bytes, times microseconds.
CREATE TEMP TABLE allocated AS
SELECT organization, cluster, node, pod, hour, until - since AS micros,
    pods.cpu::DOUBLE * micros AS asked_cpu, pods.memory::DOUBLE * micros AS asked_memory,
    pods.gpu::DOUBLE * micros AS asked_gpu,
    used.cpu AS used_cpu, used.memory AS used_memory, used.gpu AS used_gpu,
    greatest(asked_cpu, coalesce(used_cpu, 0)) AS cpu,
    greatest(asked_memory, coalesce(used_memory, 0)) AS memory,
    greatest(asked_gpu, coalesce(used_gpu, 0)) AS gpu
FROM pod_hours AS pods LEFT JOIN used USING (organization, pod, hour);

-- For each node and hour: hours by resource, allocated sums, and the charge in atoms.
CREATE TEMP TABLE split AS
WITH sums AS (
    SELECT organization, cluster, node, hour, sum(cpu) AS cpu, sum(memory) AS memory, sum(gpu) AS gpu
    FROM allocated GROUP BY ALL
)
SELECT organization, cluster, node, hour, hourly_cost,
    (until - since) / 3.6e9 AS hours, hourly_cost::DOUBLE * 1e12 AS price, price * hours AS charge,
    0.9 * nodes.cpu / 1000 AS cpu_weight, 0.1 * nodes.memory / 1073741824 AS memory_weight,
    9.0 * nodes.gpu / 1000 AS gpu_weight, cpu_weight + memory_weight + gpu_weight AS weight,
    hours * cpu_weight / weight AS cpu_hours, hours * memory_weight / weight AS memory_hours,
    hours * gpu_weight / weight AS gpu_hours,
    nodes.cpu::DOUBLE * (until - since) AS cpu, nodes.memory::DOUBLE * (until - since) AS memory,
    nodes.gpu::DOUBLE * (until - since) AS gpu,
    coalesce(sums.cpu, 0) AS cpu_sum, coalesce(sums.memory, 0) AS memory_sum, coalesce(sums.gpu, 0) AS gpu_sum
FROM node_hours AS nodes LEFT JOIN sums USING (organization, cluster, node, hour);

-- Rows with costs in atoms, before rounding.
CREATE TEMP TABLE exact AS
SELECT 'pod_node' AS kind, pods.*, split.hourly_cost, split.charge,
    coalesce(cpu_hours * pods.cpu / nullif(cpu_sum, 0), 0) AS cpu_part,
    coalesce(memory_hours * pods.memory / nullif(memory_sum, 0), 0) AS memory_part,
    coalesce(gpu_hours * pods.gpu / nullif(gpu_sum, 0), 0) AS gpu_part,
    cpu_part + memory_part + gpu_part AS quantity,
    pods.cpu / nullif(greatest(split.cpu, cpu_sum), 0) AS cpu_usage,
    pods.memory / nullif(greatest(split.memory, memory_sum), 0) AS memory_usage,
    pods.gpu / nullif(greatest(split.gpu, gpu_sum), 0) AS gpu_usage,
    CASE WHEN cpu_sum < split.cpu THEN coalesce(pods.cpu / nullif(cpu_sum, 0), 0)
        WHEN cpu_usage IS NOT NULL THEN 0 END AS cpu_unused,
    CASE WHEN memory_sum < split.memory THEN coalesce(pods.memory / nullif(memory_sum, 0), 0)
        WHEN memory_usage IS NOT NULL THEN 0 END AS memory_unused,
    CASE WHEN gpu_sum < split.gpu THEN coalesce(pods.gpu / nullif(gpu_sum, 0), 0)
        WHEN gpu_usage IS NOT NULL THEN 0 END AS gpu_unused,
    price * cpu_part AS cpu_cost, price * memory_part AS memory_cost, price * gpu_part AS gpu_cost,
    price * quantity AS cost,
    cpu_cost * least(1, cpu_sum / nullif(split.cpu, 0))
        + memory_cost * least(1, memory_sum / nullif(split.memory, 0))
        + gpu_cost * coalesce(least(1, gpu_sum / nullif(split.gpu, 0)), 1) AS split_cost
FROM allocated AS pods JOIN split USING (organization, cluster, node, hour);

INSERT INTO exact BY NAME
SELECT * FROM (
    SELECT 'node_idle' AS kind, organization, cluster, node, hour, hourly_cost, charge,
        CASE WHEN cpu_sum > 0 THEN 0 ELSE cpu_hours END AS cpu_part,
        CASE WHEN memory_sum > 0 THEN 0 ELSE memory_hours END AS memory_part,
        CASE WHEN gpu_sum > 0 THEN 0 ELSE gpu_hours END AS gpu_part,
        cpu_part + memory_part + gpu_part AS quantity, price * quantity AS cost
    FROM split
) WHERE quantity > 0;

-- The charge and the ratio of 1 go to the rows by largest remainder, ties to the earlier row.
CREATE TEMP TABLE tied AS
WITH parts AS (
    SELECT *, floor(cost) AS cost_floor, cost - cost_floor AS cost_rest, cost / charge * 1e12 AS share,
        floor(share) AS share_floor, share - share_floor AS share_rest
    FROM exact
)
SELECT *, cost_floor::HUGEINT
        + (row_number() OVER (of_node ORDER BY cost_rest DESC, kind = 'node_idle', pod)
        <= round(charge)::HUGEINT - sum(cost_floor::HUGEINT) OVER of_node)::INT AS effective,
    share_floor::HUGEINT + (row_number() OVER (of_node ORDER BY share_rest DESC, kind = 'node_idle', pod)
        <= 1000000000000 - sum(share_floor::HUGEINT) OVER of_node)::INT AS ratio
FROM parts WINDOW of_node AS (PARTITION BY organization, cluster, node, hour);

-- A row's cost goes to its parts in the same way.
CREATE TEMP TABLE rounded AS
SELECT *, floor(cpu_cost) AS c, floor(memory_cost) AS m, floor(gpu_cost) AS g,
    cpu_cost - c AS c_rest, memory_cost - m AS m_rest, gpu_cost - g AS g_rest,
    effective - c - m - g AS missing,
    (c + ((m_rest > c_rest)::INT + (g_rest > c_rest)::INT < missing)::INT)::HUGEINT AS cpu_atoms,
    (m + ((c_rest >= m_rest)::INT + (g_rest > m_rest)::INT < missing)::INT)::HUGEINT AS memory_atoms,
    effective - cpu_atoms - memory_atoms AS gpu_atoms,
    least(floor(split_cost) + (split_cost - floor(split_cost) >= 0.5)::INT, effective)::HUGEINT
        AS split_atoms,
    nullif(effective, 0) AS whole, ratio * cpu_atoms // whole AS cr, ratio * memory_atoms // whole AS mr,
    ratio * gpu_atoms // whole AS gr, ratio * cpu_atoms % whole AS cr_rest,
    ratio * memory_atoms % whole AS mr_rest, ratio * gpu_atoms % whole AS gr_rest,
    ratio - cr - mr - gr AS ratio_missing,
    cr + ((mr_rest > cr_rest)::INT + (gr_rest > cr_rest)::INT < ratio_missing)::INT AS cpu_ratio,
    mr + ((cr_rest >= mr_rest)::INT + (gr_rest > mr_rest)::INT < ratio_missing)::INT AS memory_ratio
FROM tied;

CREATE TEMP TABLE described AS
SELECT organization, cluster, node, provider, region, zone, instance_type, gpu_model, currency, capacity_type,
    resource_key, account_id,
    nullif(node_name, '') AS node_name, nullif(nullif(node_name, node), '') AS resource_name,
    '{"node.kubernetes.io/instance-type":"' || instance_type
        || '","topology.kubernetes.io/region":"' || region || '"'
        || coalesce(',"topology.kubernetes.io/zone":"' || zone || '"', '') || '}' AS tags,
    CASE capacity_type WHEN 'SPOT' THEN 'spot' ELSE 'on-demand' END AS capacity,
    provider || '/' || region || '/' || instance_type || '/' || capacity AS sku_price,
    '{"CoreCount":' || shown(cpu::DECIMAL(38, 12) / 1000)
        || CASE WHEN gpu > 0 THEN ',"GpuCount":' || shown(gpu::DECIMAL(38, 12) / 1000) ELSE '' END
        || ',"InstanceSeries":"' || instance_family || '","InstanceType":"' || instance_type
        || '","MemorySize":' || shown((memory::DOUBLE / 1073741824)::DECIMAL(38, 12))
        || ',"x_CapacityType":"' || capacity_type || '"'
        || coalesce(',"x_GpuModel":"' || gpu_model || '"', '') || '}' AS details,
    coalesce(nullif(node_name, ''), node) || ' (' || instance_type || ', '
        || replace(capacity, '-', ' ') || ') at '
        || shown(hourly_cost::DECIMAL(38, 12)) || ' ' || currency || ' per hour' AS words
FROM nodes;

CREATE TEMP TABLE cost_allocation AS
SELECT CASE WHEN kind = 'pod_node' AND effective > 0
        THEN '{"Elements":[{"AllocatedRatio":' || shown(atoms(cpu_ratio))
            || ',"UsageUnit":"vCPU-Hours","UsageQuantity":' || shown(core_hours)
            || '},{"AllocatedRatio":' || shown(atoms(memory_ratio))
            || ',"UsageUnit":"GiB-Hours","UsageQuantity":' || shown(gib_hours)
            || '},{"AllocatedRatio":' || shown(atoms(ratio - cpu_ratio - memory_ratio))
            || ',"UsageUnit":"GPU-Hours","UsageQuantity":' || shown(gpu_hours) || '}]}'
        ELSE '{"Elements":[{"AllocatedRatio":' || shown(atoms(ratio)) || '}]}' END AS AllocatedMethodDetails,
    'prorata-node-split' AS AllocatedMethodId, costs.pod AS AllocatedResourceId,
    nullif(pods.pod_name, '') AS AllocatedResourceName, labels AS AllocatedTags, zone AS AvailabilityZone,
    atoms(effective) AS BilledCost, organization AS BillingAccountId, organization AS BillingAccountName,
    'Organization' AS BillingAccountType, currency AS BillingCurrency,
    date_trunc('month', since) + INTERVAL 1 MONTH AS BillingPeriodEnd,
    date_trunc('month', since) AS BillingPeriodStart,
    NULL::VARCHAR AS CapacityReservationId, NULL::VARCHAR AS CapacityReservationStatus,
    'Usage' AS ChargeCategory, NULL::VARCHAR AS ChargeClass,
    CASE kind WHEN 'pod_node'
        THEN 'Pod ' || namespace || '/' || coalesce(nullif(pods.pod_name, ''), costs.pod) || ' on node '
        ELSE 'Idle capacity of node ' END || words AS ChargeDescription,
    'Usage-Based' AS ChargeFrequency, since + INTERVAL 1 HOUR AS ChargePeriodEnd,
    since AS ChargePeriodStart,
    NULL::VARCHAR AS CommitmentDiscountCategory, NULL::VARCHAR AS CommitmentDiscountId,
    NULL::VARCHAR AS CommitmentDiscountName, NULL::DECIMAL(38, 12) AS CommitmentDiscountQuantity,
    NULL::VARCHAR AS CommitmentDiscountStatus, NULL::VARCHAR AS CommitmentDiscountType,
    NULL::VARCHAR AS CommitmentDiscountUnit, quantity::DECIMAL(38, 12) AS ConsumedQuantity,
    'Hours' AS ConsumedUnit, atoms(round(cost)::HUGEINT) AS ContractedCost,
    costs.hourly_cost::DECIMAL(38, 12) AS ContractedUnitPrice, atoms(effective) AS EffectiveCost,
    provider AS HostProviderName, NULL::VARCHAR AS InvoiceDetailId, NULL::VARCHAR AS InvoiceId,
    provider AS InvoiceIssuerName, ContractedCost AS ListCost,
    ContractedUnitPrice AS ListUnitPrice,
    CASE capacity_type WHEN 'SPOT' THEN 'Dynamic' ELSE 'Standard' END AS PricingCategory,
    currency AS PricingCurrency, ContractedUnitPrice AS PricingCurrencyContractedUnitPrice,
    EffectiveCost AS PricingCurrencyEffectiveCost, ContractedUnitPrice AS PricingCurrencyListUnitPrice,
    ConsumedQuantity AS PricingQuantity, 'Hours' AS PricingUnit, provider AS ProviderName,
    provider AS PublisherName, region AS RegionId, region AS RegionName, node AS ResourceId,
    resource_name AS ResourceName, 'Node' AS ResourceType, 'Compute' AS ServiceCategory,
    'Kubernetes Nodes' AS ServiceName, provider AS ServiceProviderName, 'Containers' AS ServiceSubcategory,
    instance_type AS SkuId, 'Node Hours' AS SkuMeter, details AS SkuPriceDetails, sku_price AS SkuPriceId,
    cluster AS SubAccountId, cluster AS SubAccountName, 'Kubernetes Cluster' AS SubAccountType, tags AS Tags,
    account_id AS x_AccountId, cluster AS x_ClusterId, 'estimated' AS x_CostBasis,
    core_hours AS x_CpuCoreHours,
    CASE kind WHEN 'pod_node' THEN atoms(cpu_atoms) END AS x_CpuCost,
    cpu_usage::DECIMAL(38, 12) AS x_CpuSplitUsageRatio, cpu_unused::DECIMAL(38, 12) AS x_CpuUnusedRatio,
    NULL::DECIMAL(38, 12) AS x_EstimatedCost,
    CASE kind WHEN 'pod_node' THEN atoms(gpu_atoms) END AS x_GpuCost,
    gpu_hours AS x_GpuHours, gpu_model AS x_GpuModel,
    gpu_usage::DECIMAL(38, 12) AS x_GpuSplitUsageRatio, gpu_unused::DECIMAL(38, 12) AS x_GpuUnusedRatio,
    CASE kind WHEN 'pod_node' THEN atoms(memory_atoms) END AS x_MemoryCost,
    gib_hours AS x_MemoryGibHours,
    memory_usage::DECIMAL(38, 12) AS x_MemorySplitUsageRatio,
    memory_unused::DECIMAL(38, 12) AS x_MemoryUnusedRatio, namespace AS x_Namespace,
    node AS x_NodeId, node_name AS x_NodeName, nullif(pods.pod_name, '') AS x_PodName, costs.pod AS x_PodUid,
    NULL::DECIMAL(38, 12) AS x_PoolCharge, NULL::VARCHAR AS x_PoolId, nullif(qos, '') AS x_Qos,
    NULL::VARCHAR AS x_QuotaId, NULL::VARCHAR AS x_QuotaState,
    (asked_cpu / 3.6e12)::DECIMAL(38, 12) AS x_RequestedCpuCoreHours,
    (asked_gpu / 3.6e12)::DECIMAL(38, 12) AS x_RequestedGpuHours,
    (asked_memory / 3.6e9 / 1073741824)::DECIMAL(38, 12) AS x_RequestedMemoryGibHours,
    resource_key AS x_ResourceKey, kind AS x_RowKind, '1' AS x_RulesVersion,
    (micros / 1e6)::DECIMAL(38, 12) AS x_RunningSeconds,
    CASE kind WHEN 'pod_node' THEN atoms(split_atoms) END AS x_SplitCost, NULL::VARCHAR AS x_Unpriced,
    CASE kind WHEN 'pod_node' THEN atoms(effective - split_atoms) END AS x_UnusedCost,
    (used_cpu / 3.6e12)::DECIMAL(38, 12) AS x_UsedCpuCoreHours,
    (used_gpu / 3.6e12)::DECIMAL(38, 12) AS x_UsedGpuHours,
    (used_memory / 3.6e9 / 1073741824)::DECIMAL(38, 12) AS x_UsedMemoryGibHours,
    workload_kind AS x_WorkloadKind, workload_name AS x_WorkloadName
FROM (
    SELECT *, make_timestamptz(hour * 3600000000) AS since, (cpu / 3.6e12)::DECIMAL(38, 12) AS core_hours,
        (memory / 3.6e9 / 1073741824)::DECIMAL(38, 12) AS gib_hours,
        (gpu / 3.6e12)::DECIMAL(38, 12) AS gpu_hours
    FROM rounded
) AS costs
    JOIN described USING (organization, cluster, node)
    LEFT JOIN (
        SELECT organization, pod, namespace, pod_name, qos, labels, workload_kind, workload_name FROM pods
    ) AS pods USING (organization, pod);

CREATE TEMP TABLE hours AS
WITH supply AS (
    SELECT organization, hour, sum(atoms(round(charge)::HUGEINT)) AS supply FROM split GROUP BY ALL
), allocated_cost AS (
    SELECT organization, hour, sum(atoms(effective)) AS cost, count(*) AS rows FROM rounded GROUP BY ALL
), events AS (
    SELECT organization, time // 3600000000 AS hour, count(*) AS events FROM times GROUP BY ALL
)
SELECT organization AS organization_id, make_timestamptz(hour * 3600000000) AS hour, supply AS node_cost,
    0::DECIMAL(38, 12) AS bill_cost, supply AS supply_cost, 0::DECIMAL(38, 12) AS bill_billed_cost,
    'estimated' AS basis, cost AS allocated_cost, supply - cost AS difference, rows,
    coalesce(events, 0) AS events
FROM supply JOIN allocated_cost USING (organization, hour) LEFT JOIN events USING (organization, hour);
