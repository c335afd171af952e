-- Chargeback by a pod label, here "app"; idle capacity and unused commitments stay unlabelled.
SELECT json_extract_string(coalesce(AllocatedTags, Tags), '$.app') AS app, sum(EffectiveCost) AS cost
FROM delta_scan('lake/cost_allocation')
WHERE ChargeCategory = 'Usage'
GROUP BY ALL
ORDER BY cost DESC;
