-- The biller is provider, publisher, host and issuer; periods are an hour and its calendar month; the
-- partition is the hour's date.
SELECT BillingAccountId, ChargePeriodStart, ChargePeriodEnd, BillingPeriodStart, BillingPeriodEnd, date,
    ProviderName
FROM cost_allocation
WHERE ProviderName <> InvoiceIssuerName
    OR ProviderName <> PublisherName
    OR ProviderName <> ServiceProviderName
    OR ProviderName <> HostProviderName
    OR ChargePeriodEnd <> ChargePeriodStart + INTERVAL 1 HOUR
    OR ChargePeriodStart <> date_trunc('hour', ChargePeriodStart)
    OR BillingPeriodStart <> date_trunc('month', ChargePeriodStart)
    OR BillingPeriodEnd <> date_trunc('month', ChargePeriodStart) + INTERVAL 1 MONTH
    OR date::DATE <> ChargePeriodStart::DATE;
