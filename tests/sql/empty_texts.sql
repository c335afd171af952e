-- What there is no value for is null, never an empty text.
WITH texts AS (SELECT COLUMNS(*)::VARCHAR FROM cost_allocation)
SELECT name, count(*) AS rows
FROM (UNPIVOT texts ON COLUMNS(*) INTO NAME name VALUE value)
WHERE trim(value) = ''
GROUP BY ALL;
