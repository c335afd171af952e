//! Closing months on in-memory fakes with Parquet files: what is issued never changes, and with its
//! corrections it equals the ledger, after any change, crash or race.

mod crash;
mod lake;

use std::collections::BTreeSet;

use proptest::collection::vec;
use proptest::prelude::*;
use prorata_schemas::tables::Table;
use prorata_testkit::fakes::Faults;
use prorata_worker::root::close::{CloseOptions, OpenReason};
use serde_json::{Value, json};
use tokio::runtime::Runtime;

use self::lake::{Lake, month, not_final, rows};

fn manifest(lake: &Lake, path: &str) -> Value {
    serde_json::from_slice(&lake.store.object(path).unwrap()).unwrap()
}

#[tokio::test]
async fn a_final_month_closes_once() {
    let lake = Lake::october().await;
    let closed = lake.close().await;
    assert_eq!(closed.months.len(), 1);
    let october = &closed.months[0];
    assert_eq!((&*october.organization_id, october.period), ("acme", month("2026-10")));
    assert_eq!((october.totals["USD"].rows, closed.files_added), (16, 2));
    assert!(closed.pending.is_empty() && closed.open.is_empty(), "November is not over");
    let manifest = manifest(&lake, "closed/acme/2026-10.json");
    assert_eq!(manifest["previous"], Value::Null);
    assert_eq!(manifest["files"].as_array().unwrap().len(), 2);
    assert_eq!(manifest["ledger"].as_object().unwrap().len(), 31);
    assert_eq!(manifest["totals"][0]["rows"], 16);
    let [ledger, issued] = lake.costs("acme", "2026-10");
    assert_eq!(ledger, issued);
    assert_eq!(lake.problems().await, [""; 0]);
    let (objects, version) = (lake.store.objects(), lake.tables.tables());
    let again = lake.close().await;
    assert_eq!((again.months.len(), again.files_added, again.files_removed), (0, 0, 0));
    assert_eq!((lake.store.objects(), lake.tables.tables()), (objects, version));
}

#[tokio::test]
async fn a_late_change_becomes_corrections_that_the_next_month_takes() {
    let lake = Lake::october().await;
    lake.close().await;
    let issued = lake.closed_files();
    lake.put(&[rows("acme", "2026-10-15T05", 4)]).await;
    assert_eq!(lake.problems().await, ["not_corrected"]);
    let closed = lake.close().await;
    assert_eq!((closed.pending.len(), closed.files_added), (1, 1));
    assert_eq!(closed.pending[0].period, month("2026-11"));
    let pending: Vec<(String, (u64, u64))> =
        lake.closed_files().into_iter().filter(|(path, _)| !issued.contains_key(path)).collect();
    let [(path, (count, corrections))] = &pending[..] else { panic!("{pending:?}") };
    assert!(path.starts_with("date=2026-10-15/2026-11-") && count == corrections, "{pending:?}");
    assert_eq!(lake.problems().await, [""; 0]);
    assert_eq!(lake.close().await.files_added, 0, "equal content has an equal name");

    // The change is taken back, and another one comes.
    lake.put(&[rows("acme", "2026-10-15T05", 7)]).await;
    let closed = lake.close().await;
    assert_eq!((closed.pending.len(), closed.files_removed), (0, 1));
    assert_eq!(lake.closed_files(), issued);
    lake.put(&[rows("acme", "2026-10-02T05", 5)]).await;
    lake.close().await;
    let pending = lake.closed_files();

    // November is final now.
    lake.put(&[rows("acme", "2026-11-03T00", 3)]).await;
    lake.put(&[not_final("acme", "2026-12-01T00")]).await;
    let closed = lake.close().await;
    assert_eq!((closed.months.len(), closed.pending.len()), (1, 0));
    assert_eq!((closed.files_added, closed.files_removed), (1, 0), "the correction is live already");
    let manifest = manifest(&lake, "closed/acme/2026-11.json");
    assert_eq!(manifest["previous"]["period"], "2026-10");
    let paths: BTreeSet<&str> =
        manifest["files"].as_array().unwrap().iter().map(|file| file["path"].as_str().unwrap()).collect();
    let correction = pending.keys().find(|path| !issued.contains_key(*path)).unwrap();
    assert!(paths.contains(&**correction) && paths.len() == 2, "{paths:?}");
    let live = lake.closed_files();
    assert!(issued.keys().all(|path| live.contains_key(path)), "what was issued stays");
    assert_eq!(lake.problems().await, [""; 0]);
}

#[tokio::test]
async fn months_close_in_order_from_the_first_one_on() {
    let lake = Lake::new().await;
    lake.put(&[not_final("acme", "2026-09-03T00")]).await;
    lake.put(&[rows("acme", "2026-10-03T00", 2)]).await;
    lake.put(&[not_final("acme", "2026-11-03T00")]).await;
    lake.put(&[rows("acme", "2026-12-03T00", 2)]).await;
    lake.put(&[rows("acme", "2027-01-03T00", 2)]).await;
    let options = CloseOptions { dry_run: true, ..CloseOptions::default() };
    let objects = lake.store.objects();
    let dry = lake.close_with(Faults::default(), options).await.unwrap();
    assert_eq!(lake.store.objects(), objects, "a dry run writes nothing");
    assert_eq!(lake.live(Table::ClosedAllocation), [""; 0]);
    let closed = lake.close().await;
    assert_eq!((dry.months, dry.open), (closed.months.clone(), closed.open.clone()));
    let periods: Vec<_> = closed.months.iter().map(|of| of.period).collect();
    assert_eq!(periods, [month("2026-10")], "November keeps December open");
    let open: Vec<_> = closed.open.iter().map(|of| (of.period, of.reason)).collect();
    let reason = OpenReason::NotFinal { hours: 1, not_final: 1 };
    assert_eq!(open, [(month("2026-11"), reason)], "nobody waits for September");

    // A month without rows, such as February, is no obstacle.
    lake.put(&[rows("acme", "2026-11-03T00", 2)]).await;
    lake.put(&[rows("acme", "2027-03-03T00", 2)]).await;
    lake.put(&[rows("acme", "2027-04-03T00", 2)]).await;
    let options = CloseOptions { from: Some(month("2026-11").first()), ..CloseOptions::default() };
    let closed = lake.close_with(Faults::default(), options).await.unwrap();
    let periods: Vec<_> = closed.months.iter().map(|of| of.period).collect();
    assert_eq!(periods, ["2026-11", "2026-12", "2027-01", "2027-03"].map(month));
    assert_eq!(lake.problems().await, [""; 0]);

    // The next month is older than the hours that are read.
    lake.put(&[rows("acme", "2027-12-03T00", 2)]).await;
    assert_eq!(lake.close().await.open[0].reason, OpenReason::NotRead);
    let from = Some(month("2027-04").first());
    let options = CloseOptions { from, ..CloseOptions::default() };
    assert_eq!(lake.close_with(Faults::default(), options).await.unwrap().months.len(), 1);
}

#[tokio::test]
async fn a_damaged_organization_does_not_stop_the_others() {
    let lake = Lake::new().await;
    for at in ["2026-10-01T00", "2026-11-01T00"] {
        lake.put(&[rows("acme", at, 3), rows("beta", at, 3)]).await;
    }
    let acme = BTreeSet::from(["acme".into()]);
    let options = CloseOptions { organizations: Some(acme), ..CloseOptions::default() };
    lake.close_with(Faults::default(), options).await.unwrap();
    assert_eq!(lake.store.paths_under("closed/"), ["closed/acme/2026-10.json"]);
    let live = lake.live(Table::ClosedAllocation);
    lake.store.overwrite("closed/acme/2026-10.json", "{}".into());
    let closed = lake.close_with(Faults::default(), CloseOptions::default()).await.unwrap();
    assert_eq!(closed.months.iter().map(|of| &*of.organization_id).collect::<Vec<_>>(), ["beta"]);
    let [(place, error)] = &closed.failed[..] else { panic!("{:?}", closed.failed) };
    assert!(place.contains("acme") && error.to_string().contains("cannot be computed again"), "{error}");
    assert!(live.iter().all(|path| lake.live(Table::ClosedAllocation).contains(path)));
    assert_eq!(lake.problems().await, ["manifest_damaged"]);
}

#[tokio::test]
async fn a_damaged_file_of_an_organization_does_not_stop_the_others() {
    let lake = Lake::new().await;
    lake.put(&[rows("acme", "2026-10-01T00", 3), rows("beta", "2026-10-01T00", 3)]).await;
    lake.put(&[not_final("acme", "2026-11-03T00"), not_final("beta", "2026-11-03T00")]).await;
    lake.close().await;
    let issued = manifest(&lake, "closed/acme/2026-10.json");
    let path = format!("closed_allocation/{}", issued["files"][0]["path"].as_str().unwrap());
    lake.store.overwrite(&path, "no Parquet".into());
    lake.put(&[rows("acme", "2026-10-01T00", 2), rows("beta", "2026-10-01T00", 2)]).await;
    let closed = lake.close_with(Faults::default(), CloseOptions::default()).await.unwrap();
    let [(place, error)] = &closed.failed[..] else { panic!("{:?}", closed.failed) };
    assert_eq!(place, "organization 'acme'");
    assert!(error.to_string().contains("its digest differs from the manifest"), "{error}");
    assert_eq!(closed.pending.iter().map(|of| &*of.organization_id).collect::<Vec<_>>(), ["beta"]);
}

#[tokio::test]
async fn a_check_reports_damage() {
    let lake = Lake::october().await;
    lake.close().await;
    let path = lake.live(Table::ClosedAllocation)[0].clone();
    let object = format!("closed_allocation/{path}");
    let intact = lake.store.object(&object).unwrap();
    let other = format!("closed_allocation/{}", lake.live(Table::ClosedAllocation)[1]);
    for damaged in [intact.slice(..intact.len() - 1), lake.store.object(&other).unwrap()] {
        lake.store.overwrite(&object, damaged);
        assert!(lake.problems().await.contains(&"closed_file_damaged"));
    }
    lake.store.overwrite(&object, intact.clone());
    let logs = lake.tables.tables();
    lake.tables.remove_foreign(Table::ClosedAllocation, &path);
    assert_eq!(lake.problems().await, ["closed_file_not_live"]);
    assert_eq!(lake.close().await.files_added, 1, "the next run adds it again");
    lake.tables.restore(logs);
    let pending = path.replace("/2026-10-", "/2026-11-");
    lake.store.overwrite(&format!("closed_allocation/{pending}"), intact);
    lake.tables.add_foreign(Table::ClosedAllocation, &pending);
    assert_eq!(lake.problems().await, ["foreign_file"], "its rows are not corrections");
}

#[tokio::test]
async fn a_check_compares_a_manifest_with_its_files() {
    let lake = Lake::october().await;
    lake.close().await;
    let path = "closed/acme/2026-10.json";
    let issued = manifest(&lake, path);
    for (field, other) in [("/totals/0/billed_cost", json!("0.000000000001")), ("/invoices", json!(["X"]))] {
        let mut edited = issued.clone();
        *edited.pointer_mut(field).unwrap() = other;
        lake.store.overwrite(path, edited.to_string().into());
        assert_eq!(lake.problems().await, ["manifest_damaged"], "{field}");
    }
    lake.store.overwrite(path, issued.to_string().into());
    assert_eq!(lake.problems().await, [""; 0]);
}

#[tokio::test]
async fn maintenance_deletes_replaced_corrections_and_nothing_that_was_issued() {
    let lake = Lake::october().await;
    lake.close().await;
    let issued = lake.store.paths_under("closed_allocation/");
    // Each of these runs stores a correction, and replaces the one before.
    for (day, count) in [(0, 6), (1, 5), (7, 4), (9, 3)] {
        lake.clock.set(lake::after_days(day));
        lake.put(&[rows("acme", "2026-10-15T05", count)]).await;
        lake.close().await;
        if day == 7 {
            lake.maintain().await;
            let kept = lake.store.paths_under("closed_allocation/").len();
            assert_eq!(kept, issued.len() + 3, "the first correction left the table six days ago");
        }
    }
    // Not even if the table has lost what was issued.
    lake.tables.remove_foreign(Table::ClosedAllocation, &lake.live(Table::ClosedAllocation)[0]);
    let maintained = lake.maintain().await;
    assert_eq!(maintained.tables[&Table::ClosedAllocation].files, 1);
    let left = lake.store.paths_under("closed_allocation/");
    assert_eq!(left.len(), issued.len() + 3);
    assert!(issued.iter().all(|path| left.contains(path)));
}

/// Hours of which the changes choose: of two closed months, and of the open one.
const HOURS: [&str; 5] =
    ["2026-10-01T00", "2026-10-01T07", "2026-10-31T23", "2026-11-03T00", "2026-12-01T00"];

proptest! {
    #![proptest_config(ProptestConfig { cases: 16, ..ProptestConfig::default() })]

    /// After any changes of the ledger, with a close after each, what was issued stays and the law holds.
    #[test]
    fn the_law_holds_after_any_changes(changes in vec((0..HOURS.len(), 0..12_usize, any::<bool>()), 1..6)) {
        Runtime::new().unwrap().block_on(async {
            let lake = Lake::october().await;
            lake.close().await;
            let issued = lake.live(Table::ClosedAllocation);
            for (at, count, is_final) in changes {
                let mut of_hour = rows("acme", HOURS[at], count);
                if !is_final {
                    of_hour.totals.basis = not_final("acme", HOURS[at]).totals.basis;
                }
                lake.put(&[of_hour]).await;
                lake.close().await;
                assert_eq!(lake.problems().await, [""; 0]);
                let [ledger, corrected] = lake.costs("acme", "2026-10");
                assert_eq!(ledger, corrected);
            }
            let live = lake.live(Table::ClosedAllocation);
            assert!(issued.iter().all(|path| live.contains(path)));
        });
    }
}
