-- What was paid for and used by nobody, by day?
SELECT date, x_RowKind, ResourceId, sum(EffectiveCost) AS cost
FROM delta_scan('lake/cost_allocation')
WHERE x_RowKind IN ('node_idle', 'reservation_unused', 'commitment_unused')
GROUP BY ALL
ORDER BY date, cost DESC;
