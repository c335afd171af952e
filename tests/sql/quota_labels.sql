-- A row has a label exactly when a quota governs its pod, and only pods are governed.
SELECT BillingAccountId, ChargePeriodStart, x_RowKind, ResourceId, x_PodUid, x_QuotaId, x_QuotaState
FROM cost_allocation
WHERE (x_QuotaId IS NULL) <> (x_QuotaState IS NULL)
    OR x_QuotaState NOT IN ('in-quota', 'over-quota')
    OR (x_QuotaId IS NOT NULL AND x_PodUid IS NULL);
