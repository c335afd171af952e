-- Costs in `quota_usage` are the effective costs of the quota's rows by label, the same on each of its
-- resources.
WITH labelled AS (
    SELECT BillingAccountId AS organization_id, ChargePeriodStart AS hour, x_ClusterId AS cluster_id,
        x_QuotaId AS quota_id,
        coalesce(sum(EffectiveCost) FILTER (x_QuotaState = 'in-quota'), 0) AS in_quota,
        coalesce(sum(EffectiveCost) FILTER (x_QuotaState = 'over-quota'), 0) AS over_quota
    FROM cost_allocation
    WHERE x_QuotaId IS NOT NULL
    GROUP BY ALL
)
SELECT organization_id, hour, cluster_id, quota_id, resource, in_quota_cost, in_quota, over_quota_cost,
    over_quota
FROM quota_usage
LEFT JOIN labelled USING (organization_id, hour, cluster_id, quota_id)
WHERE in_quota_cost <> coalesce(in_quota, 0) OR over_quota_cost <> coalesce(over_quota, 0);
