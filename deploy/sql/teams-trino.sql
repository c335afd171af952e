-- Trino and Athena: what did each team cost on each day? A team is the pod label "team"; put your own label
-- in its place. What has no such label has no team: idle capacity and unused commitments among it.
CREATE OR REPLACE VIEW team_daily AS
SELECT
    date,
    BillingAccountId AS organization_id,
    BillingCurrency AS currency,
    json_extract_scalar(CASE x_RowKind WHEN 'pod_node' THEN AllocatedTags ELSE Tags END, '$.team') AS team,
    sum(EffectiveCost) AS cost,
    sum(x_GpuHours) AS gpu_hours
FROM cost_allocation
WHERE ChargeCategory = 'Usage'
GROUP BY 1, 2, 3, 4;
