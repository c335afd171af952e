-- FOCUS: an SKU price has one SKU, an SKU one meter. A tax has neither.
SELECT SkuPriceId AS id, count(DISTINCT SkuId) AS parents
FROM cost_allocation WHERE SkuPriceId IS NOT NULL GROUP BY ALL HAVING parents <> 1
UNION ALL
SELECT SkuId, count(DISTINCT SkuMeter)
FROM cost_allocation WHERE SkuId IS NOT NULL GROUP BY ALL HAVING count(DISTINCT SkuMeter) <> 1;
