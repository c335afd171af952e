//! A law: imported amounts and amounts that are left out add up to the document, whatever it holds.

use std::collections::BTreeSet;

use bytes::Bytes;
use proptest::prelude::*;
use prorata_bills::{BillFilter, BillFormat, Exact};

use crate::rig::import_with;

/// A row: the digits of its cost, the number of its decimals, and what decides whether it is imported.
type RandomRow = (i64, u32, u8, u8, bool, bool);

fn rows() -> impl Strategy<Value = Vec<RandomRow>> {
    let cost = prop_oneof![-1_000_000_i64..1_000_000, any::<i32>().prop_map(i64::from), any::<i64>()];
    let row = (cost, 9..20_u32, 0..4_u8, 0..3_u8, any::<bool>(), any::<bool>());
    proptest::collection::vec(row, 0..60)
}

/// Writes a decimal with a point, or with an exponent.
fn decimal(digits: i64, decimals: u32, has_exponent: bool) -> String {
    if has_exponent {
        return format!("{digits}E-{decimals}");
    }
    let sign = if digits < 0 { "-" } else { "" };
    let one = 10_u128.pow(decimals);
    let magnitude = u128::from(digits.unsigned_abs());
    let places = usize::try_from(decimals).unwrap();
    format!("{sign}{}.{:0>places$}", magnitude / one, magnitude % one)
}

/// The columns of a document.
const HEADER: &str = "ProviderName,BillingAccountId,BillingCurrency,ChargePeriodStart,ChargePeriodEnd,\
                      ChargeCategory,BilledCost,EffectiveCost,ResourceId,SubAccountId,CommitmentDiscountId,\
                      CommitmentDiscountStatus\n";

fn document(rows: &[RandomRow]) -> String {
    let mut text = HEADER.to_owned();
    for (digits, decimals, resource, account, has_exponent, has_plan) in rows {
        let cost = decimal(*digits, *decimals, *has_exponent);
        let plan = if *has_plan && *resource == 0 { "sp-1,Used" } else { "," };
        let resource = ["", "i-1", "i-2", "i-3"][usize::from(*resource)];
        let period = format!("2026-11-01T0{account}:00:00Z,2026-11-01T09:30:00Z");
        text += &format!("AWS,1,USD,{period},Usage,{cost},{cost},{resource},account-{account},{plan}\n");
    }
    text
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn nothing_is_lost(rows in rows()) {
        let mut filter = BillFilter::new(false, BTreeSet::from(["account-1".to_owned()]));
        filter.add_key("i-1");
        let done = import_with(BillFormat::Focus, filter, &[Bytes::from(document(&rows))], &[]).unwrap();
        prop_assert_eq!(done.report.faults, 0, "{:?}", done.report.first_faults);
        // In units of 10^-24, which every cost is a multiple of.
        let units = |(digits, decimals, ..): &RandomRow| i128::from(*digits) * 10_i128.pow(24 - decimals);
        let file: i128 = rows.iter().map(units).sum();
        let left_out = done.report.left_out.values();
        let left_out: i128 = left_out.map(|left| left.costs.billed_cost.atoms()).sum();
        let imported = done.sums()[0].atoms();
        let written = (imported + left_out) * 10_i128.pow(12);
        let rounding = Exact::parse(&decimal_of(written - file)).unwrap();
        prop_assert_eq!(done.report.rounding.billed_cost, rounding);
        prop_assert_eq!(done.report.rounding.effective_cost, rounding);
        let invoiced: i128 = done.report.invoices.values().map(|costs| costs.billed_cost.atoms()).sum();
        prop_assert_eq!(invoiced, imported);
        let counted = done.report.left_out.values().map(|left| left.lines).sum::<u64>();
        prop_assert_eq!(counted + done.report.set_lines + done.report.merged, done.report.lines);
    }
}

/// Writes a number of 10^-24.
fn decimal_of(units: i128) -> String {
    format!("{units}E-24")
}
