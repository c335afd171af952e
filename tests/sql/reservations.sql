-- The unused cost of a reservation is in its rows; its used and unused seconds are all of its units'
-- seconds, and its pods share the used ones. A bill may name a reservation that is unknown.
WITH unused AS (
    SELECT BillingAccountId AS organization_id, ChargePeriodStart AS hour, ResourceId AS reservation_id,
        sum(EffectiveCost) AS cost, bool_or(x_CostBasis = 'billed') AS is_billed
    FROM cost_allocation
    WHERE x_RowKind = 'reservation_unused'
    GROUP BY ALL
), used AS (
    SELECT organization_id, hour, reservation_id,
        list_sum(list_transform(json_keys(used_by), pod -> (used_by::JSON ->> pod)::DOUBLE)) AS seconds
    FROM reservation_usage
)
SELECT organization_id, hour, reservation_id, unused_cost, cost, is_billed, units, used_unit_seconds,
    unused_unit_seconds, seconds
FROM reservation_usage
JOIN used USING (organization_id, hour, reservation_id)
FULL JOIN unused USING (organization_id, hour, reservation_id)
WHERE unused_cost IS DISTINCT FROM coalesce(cost, 0) AND (unused_cost IS NOT NULL OR NOT is_billed)
    OR abs(used_unit_seconds + unused_unit_seconds - units * 3600) > 0.00000001
    OR abs(coalesce(seconds, 0) - used_unit_seconds::DOUBLE) > 1e-6;
