-- What did each namespace cost on each day, and how many GPU-hours did it hold?
SELECT date, x_Namespace, sum(EffectiveCost) AS cost, sum(x_GpuHours) AS gpu_hours
FROM delta_scan('lake/cost_allocation')
GROUP BY ALL
ORDER BY date, cost DESC;
