-- ListCost is ListUnitPrice x PricingQuantity before either was rounded: they agree except for half a unit of
-- the last place of the quantity, times the price, and the rounding of the cost. A bill has list costs of its
-- own. Contracted prices are list prices.
SELECT BillingAccountId, ChargePeriodStart, x_RowKind, ResourceId, ListCost, ListUnitPrice, PricingQuantity
FROM cost_allocation
WHERE x_CostBasis = 'estimated' AND abs(ListCost::DOUBLE - ListUnitPrice::DOUBLE * PricingQuantity::DOUBLE)
        > ListUnitPrice::DOUBLE * 5e-13 + 2e-12 + 1e-15 * ListCost::DOUBLE
    OR ContractedCost <> ListCost
    OR ContractedUnitPrice IS DISTINCT FROM ListUnitPrice
    OR PricingCurrencyListUnitPrice IS DISTINCT FROM ListUnitPrice
    OR PricingCurrencyContractedUnitPrice IS DISTINCT FROM ContractedUnitPrice
    OR PricingCurrencyEffectiveCost <> EffectiveCost
    OR PricingCurrency <> BillingCurrency;
