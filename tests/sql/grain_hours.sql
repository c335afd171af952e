-- One row for each organization and hour, and no hour is missing between an organization's first and its
-- last.
SELECT organization_id, count(*) AS rows, count(DISTINCT hour) AS hours, min(hour) AS first, max(hour) AS last
FROM hours
GROUP BY ALL
HAVING rows <> hours OR hours <> datediff('hour', first, last) + 1;
