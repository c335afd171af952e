//! New rows of some organizations in a file: the bytes are the same as if all rows were encoded again.

use std::collections::BTreeSet;

use prorata_samples::hour::{dec, empty_hour, full_hour};
use prorata_schemas::ids::OrganizationId;
use prorata_schemas::rows::HourTables;
use prorata_schemas::tables::{EncodedFile, HourClock, SplicedFiles, Table, TableSplice};
use prorata_schemas::time::WallTime;
use prorata_tables::{EncodeError, encode, encode_files, splice};

use crate::read::{HOUR, clock, file};

/// Returns the clock of rows that changed last.
fn later() -> HourClock {
    HourClock { revision: 4, last_updated: WallTime(HOUR.end().0 + 7), ..clock() }
}

fn put(
    table: Table,
    old: &[&EncodedFile],
    organizations: &BTreeSet<OrganizationId>,
    hours: &[HourTables],
    file_rows: u64,
) -> Result<SplicedFiles, EncodeError> {
    let HourClock { revision, last_updated, .. } = later();
    let clocks = &*vec![later(); hours.len()];
    let old = &*old.iter().map(|old| &*old.bytes).collect::<Vec<_>>();
    splice(table, &TableSplice { old, organizations, hours, clocks, revision, last_updated, file_rows })
}

/// Returns different rows of the same organization.
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
        for table in Table::HOURLY {
            for (new, file_rows) in [&[][..], &fresh, &fresh_changed]
                .into_iter()
                .flat_map(|new| [u64::MAX, 20, 1].map(|file_rows| (new, file_rows)))
            {
                let mut expected = [&others[..], new].concat();
                expected.sort_by(|left, right| left.organization_id.cmp(&right.organization_id));
                let before = encode_files(table, &all, &[clock(); 4], file_rows).unwrap();
                let old: Vec<&EncodedFile> = before.iter().map(|before| &before.file).collect();
                let spliced = put(table, &old, &organizations, new, file_rows).unwrap();
                let clocks = vec![later(); expected.len()];
                let expected = encode_files(table, &expected, &clocks, file_rows).unwrap();
                let context = format!("{} of {organizations:?}, {file_rows}", table.name());
                assert_eq!(spliced.files, expected, "{context}");
                assert!(spliced.old_digests.iter().eq(old.iter().map(|old| &old.digest)), "{context}");
            }
        }
    }
}

#[test]
fn a_file_of_many_batches_is_the_same_too() {
    // 20 rows each: in total more than are turned into columns at a time.
    let mut all: Vec<HourTables> = (0..4_000).map(|n| full_hour(&format!("org-{n:04}"), HOUR)).collect();
    let before = file(Table::CostAllocation, &all);
    all[1_234] = changed(all[1_234].clone());
    let organizations = [all[1_234].organization_id.clone()].into();
    let spliced =
        put(Table::CostAllocation, &[&before], &organizations, &all[1_234..=1_234], u64::MAX).unwrap();
    let [spliced] = &spliced.files[..] else { panic!("one file") };
    assert!(spliced.file == file(Table::CostAllocation, &all));
}

#[test]
fn hours_report_which_organizations_are_not_complete() {
    let all = [full_hour("acme", HOUR), full_hour("bird", HOUR), full_hour("calm", HOUR)];
    let held = HourClock { complete: false, ..clock() };
    let before = encode(Table::Hours, &all, &[held, clock(), held]).unwrap().unwrap();
    let spliced = put(Table::Hours, &[&before], &["acme".into()].into(), &all[..1], u64::MAX).unwrap();
    assert_eq!(spliced.old_incomplete, ["acme".into(), "calm".into()]);
    assert_eq!(spliced.incomplete, ["calm".into()]);
}

#[test]
fn a_damaged_or_foreign_file_is_refused() {
    let acme = [full_hour("acme", HOUR)];
    let mut damaged = file(Table::CostAllocation, &acme);
    let middle = damaged.bytes.len() / 2;
    damaged.bytes.truncate(middle);
    assert!(matches!(
        put(Table::CostAllocation, &[&damaged], &BTreeSet::new(), &[], u64::MAX),
        Err(EncodeError::Read { .. })
    ));
    let other = file(Table::Hours, &acme);
    let foreign = put(Table::PoolUsage, &[&other], &BTreeSet::new(), &[], u64::MAX);
    assert!(matches!(foreign, Err(EncodeError::Foreign { .. })));
}
