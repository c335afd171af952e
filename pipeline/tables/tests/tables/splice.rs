//! New rows of some organizations in a file: the bytes are those of encoding everything again.

use std::collections::BTreeSet;

use prorata_samples::hour::{dec, empty_hour, full_hour};
use prorata_schemas::ids::OrganizationId;
use prorata_schemas::rows::HourTables;
use prorata_schemas::tables::{EncodedFile, HourClock, SplicedFile, Table, TableSplice};
use prorata_schemas::time::WallTime;
use prorata_tables::{EncodeError, encode, splice};

use crate::read::{HOUR, clock, file};

/// The clock of rows that changed last.
fn later() -> HourClock {
    HourClock { revision: 4, last_updated: WallTime(HOUR.end().0 + 7), ..clock() }
}

fn put(
    table: Table,
    old: &EncodedFile,
    organizations: &BTreeSet<OrganizationId>,
    hours: &[HourTables],
) -> Result<SplicedFile, EncodeError> {
    let HourClock { revision, last_updated, .. } = later();
    let clocks = vec![later(); hours.len()];
    let old = &*old.bytes;
    splice(table, &TableSplice { old, organizations, hours, clocks: &clocks, revision, last_updated })
}

/// Other rows of the same organization.
fn changed(mut hour: HourTables) -> HourTables {
    for row in &mut hour.cost_allocation {
        row.effective_cost = dec("0.450000000001");
    }
    hour.pool_usage.clear();
    hour.totals.events += 1;
    hour
}

#[test]
fn any_organizations_are_replaced_by_any_rows() {
    let all = [
        full_hour("acme", HOUR),
        full_hour("bird", HOUR),
        empty_hour("calm", HOUR),
        changed(full_hour("dove", HOUR)),
    ];
    for chosen in 0..1_u32 << all.len() {
        let is_chosen = |index: usize| chosen & 1 << index != 0;
        let named = |hours: &[HourTables]| -> BTreeSet<OrganizationId> {
            let chosen = hours.iter().enumerate().filter(|(index, _)| is_chosen(*index));
            chosen.map(|(_, hour)| hour.organization_id.clone()).collect()
        };
        let organizations = named(&all);
        let others: Vec<HourTables> =
            all.iter().filter(|hour| !organizations.contains(&hour.organization_id)).cloned().collect();
        let fresh: Vec<HourTables> =
            all.iter().filter(|hour| organizations.contains(&hour.organization_id)).cloned().collect();
        let fresh_changed: Vec<HourTables> = fresh.iter().cloned().map(changed).collect();
        for table in Table::ALL {
            let Some(before) = encode(table, &all, &[clock(); 4]).unwrap() else { continue };
            for new in [&[][..], &fresh, &fresh_changed] {
                let mut expected = [&others[..], new].concat();
                expected.sort_by(|left, right| left.organization_id.cmp(&right.organization_id));
                let spliced = put(table, &before, &organizations, new).unwrap();
                let expected = encode(table, &expected, &vec![later(); expected.len()]).unwrap();
                assert_eq!(spliced.file, expected, "{} of {organizations:?}", table.name());
                assert_eq!(spliced.old_digest, before.digest);
            }
        }
    }
}

#[test]
fn a_file_of_many_batches_is_the_same_too() {
    // 19 rows each: more than are turned into columns at a time.
    let mut all: Vec<HourTables> = (0..4_000).map(|n| full_hour(&format!("org-{n:04}"), HOUR)).collect();
    let before = file(Table::CostAllocation, &all);
    all[1_234] = changed(all[1_234].clone());
    let organizations = [all[1_234].organization_id.clone()].into();
    let spliced = put(Table::CostAllocation, &before, &organizations, &all[1_234..=1_234]).unwrap();
    assert!(spliced.file == Some(file(Table::CostAllocation, &all)));
}

#[test]
fn hours_tell_which_organizations_are_not_complete() {
    let all = [full_hour("acme", HOUR), full_hour("bird", HOUR), full_hour("calm", HOUR)];
    let held = HourClock { complete: false, ..clock() };
    let before = encode(Table::Hours, &all, &[held, clock(), held]).unwrap().unwrap();
    let spliced = put(Table::Hours, &before, &["acme".into()].into(), &all[..1]).unwrap();
    assert_eq!(spliced.old_incomplete, ["acme".into(), "calm".into()]);
    assert_eq!(spliced.incomplete, ["calm".into()]);
}

#[test]
fn what_is_no_file_of_ours_is_refused() {
    let acme = [full_hour("acme", HOUR)];
    let mut damaged = file(Table::CostAllocation, &acme);
    let middle = damaged.bytes.len() / 2;
    damaged.bytes.truncate(middle);
    assert!(matches!(
        put(Table::CostAllocation, &damaged, &BTreeSet::new(), &[]),
        Err(EncodeError::Read { .. })
    ));
    let other = file(Table::Hours, &acme);
    assert!(matches!(put(Table::PoolUsage, &other, &BTreeSet::new(), &[]), Err(EncodeError::Foreign { .. })));
}
