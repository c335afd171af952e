-- DuckDB: daily cost of each team. A team is the pod label "team"; replace it with your own label. Rows
-- without this label, such as idle capacity and unused commitments, have no team.
CREATE OR REPLACE VIEW team_daily AS
SELECT
    date,
    BillingAccountId AS organization_id,
    BillingCurrency AS currency,
    json_extract_string(CASE x_RowKind WHEN 'pod_node' THEN AllocatedTags ELSE Tags END, '$.team') AS team,
    sum(EffectiveCost) AS cost,
    sum(x_GpuHours) AS gpu_hours
FROM cost_allocation
WHERE ChargeCategory = 'Usage'
GROUP BY 1, 2, 3, 4;
