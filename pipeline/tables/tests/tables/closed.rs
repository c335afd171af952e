//! Files of closed months: rows are copied, and corrections have exactly what differs.

use std::sync::Arc;

use arrow_schema::{DataType, Field};
use bytes::Bytes;
use prorata_samples::hour::{dec, full_hour};
use prorata_schemas::rows::HourTables;
use prorata_schemas::tables::{ClosedFile, CorrectedRows, Table};
use prorata_schemas::time::{Hour, Timestamp};
use prorata_tables::closed::{additive, copy, correct, describe};
use prorata_tables::{encode, schema};

use crate::read::HOUR;

/// The billing period of corrections in these tests.
const PERIOD: (Timestamp, Timestamp) = (Timestamp(0), Timestamp(1));

fn ledger(hours: &[HourTables]) -> Bytes {
    encode(Table::CostAllocation, hours, &[]).unwrap().unwrap().bytes.into()
}

fn corrections(ledger: &[Bytes], closed: &[ClosedFile]) -> Vec<ClosedFile> {
    let closed: Vec<Bytes> = closed.iter().map(|file| file.bytes.clone().into()).collect();
    let organization_id = &"acme".into();
    correct(&CorrectedRows { organization_id, ledger, closed: &closed, period: PERIOD }, u64::MAX).unwrap()
}

#[test]
fn rows_of_one_organization_are_copied_whatever_files_they_are_in() {
    let next = Hour(HOUR.0 + 1);
    let first = ledger(&[full_hour("acme", HOUR), full_hour("beta", HOUR)]);
    let second = ledger(&[full_hour("acme", next)]);
    let copied = copy(&[first.clone(), second.clone()], &"acme".into(), u64::MAX).unwrap();
    assert_eq!(copy(&[second.clone(), first.clone()], &"acme".into(), u64::MAX).unwrap(), copied);
    let [file] = &copied[..] else { panic!("{} files", copied.len()) };
    let rows = full_hour("acme", HOUR).cost_allocation.len() as u64;
    assert_eq!((&*file.organization_id, file.rows, file.totals["USD"].rows), ("acme", 2 * rows, 2 * rows));
    let of_hour = full_hour("acme", HOUR).cost_allocation.into_iter();
    let of_hour: i128 = of_hour.map(|row| row.effective_cost.atoms()).sum();
    assert_eq!(file.totals["USD"].effective.atoms(), 2 * of_hour);
    assert_eq!(&describe(&file.bytes.clone().into()).unwrap(), file);
    let cut = copy(&[first.clone(), second.clone()], &"acme".into(), rows).unwrap();
    assert_eq!(cut.iter().map(|file| file.rows).collect::<Vec<_>>(), [rows, rows]);
    assert!(copy(&[first.clone(), second], &"nobody".into(), u64::MAX).unwrap().is_empty());
    assert!(describe(&first).is_err(), "it has rows of two organizations");
}

#[test]
fn corrections_make_the_closed_rows_equal_to_the_ledger() {
    let before = [ledger(&[full_hour("acme", HOUR)])];
    let issued = copy(&before, &"acme".into(), u64::MAX).unwrap();
    assert!(corrections(&before, &issued).is_empty(), "nothing differs");

    let mut changed = full_hour("acme", HOUR);
    let removed = changed.cost_allocation.pop().unwrap();
    changed.cost_allocation[10].effective_cost = dec("100");
    let now = [ledger(&[changed])];
    let files = corrections(&now, &issued);
    assert_eq!((files[0].rows, files[0].corrections), (2, 2), "one row changed, and one is gone");
    let sum = |files: &[ClosedFile]| -> i128 {
        files.iter().map(|file| file.totals["USD"].effective.atoms()).sum()
    };
    let old = full_hour("acme", HOUR).cost_allocation[10].effective_cost;
    let expected = dec("100").atoms() - old.atoms() - removed.effective_cost.atoms();
    assert_eq!(sum(&files), expected);
    let corrected = [&issued[..], &files[..]].concat();
    assert!(corrections(&now, &corrected).is_empty(), "corrections are complete");

    // The change is taken back: the corrections of the corrections cancel them.
    let back = corrections(&before, &corrected);
    assert_eq!(sum(&back), -expected);
    assert!(corrections(&before, &[&corrected[..], &back[..]].concat()).is_empty());
    assert_eq!(corrections(&[], &issued)[0].rows, issued[0].rows, "all rows are gone");
}

#[test]
fn unit_prices_and_ratios_are_not_additive() {
    let schema = schema(Table::ClosedAllocation);
    let is_decimal = |field: &&Arc<Field>| matches!(field.data_type(), DataType::Decimal128(..));
    let decimals = schema.fields().iter().filter(is_decimal);
    let additive = additive();
    let others = decimals.map(|field| field.name().as_str()).filter(|name| !additive.contains(name));
    let others: Vec<&str> = others.collect();
    assert_eq!((additive.len(), others.len()), (25, 10));
    assert!(others.iter().all(|name| name.ends_with("UnitPrice") || name.ends_with("Ratio")), "{others:?}");
}
