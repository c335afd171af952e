//! The input of one hour's tables.

use prorata_schemas::Text;
use prorata_schemas::ids::OrganizationId;
use prorata_schemas::money::UnitPrice;
use prorata_schemas::rules::Rules;
use prorata_schemas::time::Hour;

use crate::slice::Slice;
use crate::usage::Sample;

/// One hour of one organization.
pub struct HourView<'a> {
    /// The organization.
    pub organization_id: &'a OrganizationId,
    /// The hour.
    pub hour: Hour,
    /// The slices of the hour, in order and without gaps.
    pub slices: &'a [Slice],
    /// All samples of the history.
    pub samples: &'a [Sample],
    /// The rules.
    pub rules: &'a Rules,
}

/// Returns a price as the hour counts it, zero in another currency, and whether it is in another currency.
pub fn counted(view: &HourView, price: UnitPrice, currency: &Text) -> (UnitPrice, bool) {
    let other = currency != view.rules.currency_of(view.organization_id);
    (if other { UnitPrice::ZERO } else { price }, other)
}
