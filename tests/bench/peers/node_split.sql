-- The node split of RULES.md, section 1, and nothing else: no commitments, quotas, pools or reservations.
-- Reads `events`, sorted by nothing; gives what each pod cost on nodes in each hour, in floats.
CREATE TEMP TABLE node_events AS
SELECT *, lead(time) OVER turn AS next, coalesce(lag(kind) OVER turn = 2, false) AS was_running,
    lag(time) OVER turn AS last_time, lag(kind, 2) OVER turn AS kind_before
FROM events WHERE kind IN (0, 2)
WINDOW turn AS (PARTITION BY organization, cluster, node ORDER BY time, kind);

-- Started and stopped at one instant without running before: it never ran.
CREATE TEMP TABLE node_spans AS
SELECT organization, cluster, node, time AS since, coalesce(next, 9223372036854775807) AS until,
    cpu, memory, gpu, hourly_cost::DOUBLE AS price
FROM node_events
WHERE kind = 2
    AND NOT coalesce(NOT was_running AND last_time = time AND coalesce(kind_before, 0) <> 2, false)
    AND coalesce(next, time + 1) > time;

-- A node that stops ends its pods.
CREATE TEMP TABLE pod_events AS
SELECT kind, organization, time, cluster, node, pod, cpu, memory, gpu FROM events WHERE kind IN (1, 3);

CREATE TEMP TABLE pod_spans AS
WITH turns AS (
    SELECT *, lead(time) OVER turn AS next, lag(time) OVER turn AS last_time,
        lag(kind) OVER turn AS last_kind, lag(kind, 2) OVER turn AS kind_before
    FROM pod_events WINDOW turn AS (PARTITION BY organization, pod ORDER BY time, kind)
), spans AS (
    SELECT organization, pod, cluster, node, time AS since, coalesce(next, 9223372036854775807) AS until,
        cpu, memory, gpu
    FROM turns
    WHERE kind = 3 AND node IS NOT NULL
        AND NOT (coalesce(last_kind, 3) = 1 AND last_time = time AND coalesce(kind_before, 1) <> 3)
), stops AS (
    SELECT organization, cluster, node, time AS stop FROM node_events WHERE kind = 0 AND was_running
)
SELECT spans.* REPLACE (least(until, coalesce(stop, until)) AS until)
FROM spans ASOF LEFT JOIN stops
    ON spans.organization = stops.organization AND spans.cluster = stops.cluster
    AND spans.node = stops.node AND spans.since < stops.stop;

-- What a pod did on its node while that ran, cut at hours.
CREATE TEMP TABLE on_nodes AS
WITH together AS (
    SELECT pods.organization, pods.cluster, pods.node, pods.pod, pods.cpu, pods.memory, pods.gpu,
        greatest(pods.since, nodes.since) AS since, least(pods.until, nodes.until, $end) AS until
    FROM pod_spans AS pods JOIN node_spans AS nodes
        ON pods.organization = nodes.organization AND pods.cluster = nodes.cluster
        AND pods.node = nodes.node AND pods.since < nodes.until AND nodes.since < pods.until
), hours AS (
    SELECT *, unnest(range(since // 3600000000, (until - 1) // 3600000000 + 1)) AS hour
    FROM together WHERE since < until
)
SELECT * REPLACE (greatest(since, hour * 3600000000) AS since,
    least(until, (hour + 1) * 3600000000) AS until) FROM hours;

CREATE TEMP TABLE samples AS
SELECT organization, pod, time AS since, interval_end AS until, cpu, memory, gpu,
    unnest(range(time // 3600000000, (interval_end - 1) // 3600000000 + 1)) AS hour
FROM events WHERE kind = 4 AND time < interval_end;

CREATE TEMP TABLE used AS
SELECT organization, cluster, node, pod, hour, sum(cpu * micros) AS cpu, sum(memory * micros) AS memory,
    sum(gpu * micros) AS gpu
FROM (
    SELECT places.organization, places.cluster, places.node, places.pod, places.hour,
        (least(samples.until, places.until) - greatest(samples.since, places.since))::DOUBLE AS micros,
        samples.cpu, samples.memory, samples.gpu
    FROM on_nodes AS places JOIN samples USING (organization, pod, hour)
    WHERE samples.since < places.until AND places.since < samples.until
)
GROUP BY ALL;

CREATE TEMP TABLE allocated AS
SELECT organization, cluster, node, pod, hour,
    greatest(requested.cpu, coalesce(used.cpu, 0)) AS cpu,
    greatest(requested.memory, coalesce(used.memory, 0)) AS memory,
    greatest(requested.gpu, coalesce(used.gpu, 0)) AS gpu
FROM (
    SELECT organization, cluster, node, pod, hour, sum(cpu * (until - since)::DOUBLE) AS cpu,
        sum(memory * (until - since)::DOUBLE) AS memory, sum(gpu * (until - since)::DOUBLE) AS gpu
    FROM on_nodes GROUP BY ALL
) AS requested LEFT JOIN used USING (organization, cluster, node, pod, hour);

-- What each resource of a node cost in each hour.
CREATE TEMP TABLE node_costs AS
WITH hours AS (
    SELECT *, unnest(range(since // 3600000000, (least(until, $end) - 1) // 3600000000 + 1)) AS hour,
        0.9 * cpu / 1000 AS cpu_weight, 0.1 * memory / 1073741824 AS memory_weight,
        9.0 * gpu / 1000 AS gpu_weight
    FROM node_spans WHERE since < $end
), priced AS (
    SELECT *, price * (least(until, (hour + 1) * 3600000000) - greatest(since, hour * 3600000000))
        / 3.6e9 / nullif(cpu_weight + memory_weight + gpu_weight, 0) AS cost
    FROM hours
)
SELECT organization, cluster, node, hour, sum(cost * cpu_weight) AS cpu, sum(cost * memory_weight) AS memory,
    sum(cost * gpu_weight) AS gpu
FROM priced GROUP BY ALL;

CREATE TABLE pod_costs AS
WITH sums AS (
    SELECT organization, cluster, node, hour, sum(cpu) AS cpu, sum(memory) AS memory, sum(gpu) AS gpu
    FROM allocated GROUP BY ALL
)
SELECT organization, pod, hour, sum(
        coalesce(pods.cpu / nullif(sums.cpu, 0) * costs.cpu, 0)
        + coalesce(pods.memory / nullif(sums.memory, 0) * costs.memory, 0)
        + coalesce(pods.gpu / nullif(sums.gpu, 0) * costs.gpu, 0)
    ) AS cost
FROM allocated AS pods JOIN sums USING (organization, cluster, node, hour)
    JOIN node_costs AS costs USING (organization, cluster, node, hour)
GROUP BY ALL;
