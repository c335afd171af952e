-- The rows that finance counts, if no month is ever closed: all rows of the ledger. The view runs
-- unchanged on DuckDB, Spark, Trino, Athena and BigQuery. With closed months, run `finance-closed.sql` instead.

CREATE OR REPLACE VIEW finance_allocation AS
SELECT *, 'Open' AS x_BillingPeriodStatus FROM cost_allocation;
