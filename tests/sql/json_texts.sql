-- JSON columns hold JSON objects.
WITH texts AS (
    SELECT AllocatedMethodDetails, AllocatedTags, SkuPriceDetails, Tags FROM cost_allocation
)
SELECT name, value
FROM (UNPIVOT texts ON COLUMNS(*) INTO NAME name VALUE value)
WHERE NOT json_valid(value) OR json_type(value) <> 'OBJECT' OR value = '{}';
