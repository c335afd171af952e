-- Does every hour add up? The difference is 0 in each.
SELECT organization_id, count(*) AS hours, sum(supply_cost) AS supply, sum(allocated_cost) AS allocated,
    max(abs(difference)) AS difference
FROM delta_scan('lake/hours')
GROUP BY ALL
ORDER BY organization_id;
