//! Crashes and races of runs that close months.

use prorata_testkit::fakes::{Effect, Fault, Faults, Resume};
use prorata_worker::root::close::{CloseOptions, CloseReport};

use super::lake::{Lake, not_final, rows};

/// Creates a lake in which a run closes November, takes a correction of October, and replaces another one.
async fn november() -> Lake {
    let lake = Lake::october().await;
    lake.close().await;
    lake.put(&[rows("acme", "2026-10-15T05", 4)]).await;
    lake.close().await;
    lake.put(&[rows("acme", "2026-10-15T05", 5)]).await;
    lake.put(&[rows("acme", "2026-11-03T00", 3)]).await;
    lake.put(&[not_final("acme", "2026-12-01T00")]).await;
    lake
}

/// A fault at an effect with this number.
type AtEffect = fn(u64) -> Fault;

#[tokio::test]
async fn a_run_that_is_cut_off_anywhere_is_repaired_by_the_next() {
    let whole = november().await;
    whole.close().await;
    for fault in [Fault::CrashBefore as AtEffect, Fault::CrashAfter, Fault::LoseAnswer, Fault::Retry] {
        for effect in 0.. {
            let lake = november().await;
            let faults = Faults::with(fault(effect));
            let cut_off = lake.close_with(faults.clone(), CloseOptions::default()).await;
            lake.close().await;
            let struck = format!("{:?}", fault(effect));
            assert_eq!(lake.closed_files(), whole.closed_files(), "{struck}");
            assert_eq!(lake.store.objects(), whole.store.objects(), "{struck}");
            assert_eq!(lake.problems().await, [""; 0], "{struck}");
            if cut_off.is_ok() && faults.counts().is_empty() {
                assert!(effect > 3, "there was something to cut off: {effect}");
                break;
            }
        }
    }
}

/// Returns the number of the first effect of a run on this lake for which `is_it` holds.
async fn effect_number(lake: Lake, is_it: impl Fn(&(Effect, String)) -> bool) -> u64 {
    let counted = Faults::default();
    lake.close_with(counted.clone(), CloseOptions::default()).await.unwrap();
    counted.trail().iter().position(is_it).unwrap() as u64
}

/// Closes months with a run whose effect with this number waits until `meanwhile` has ended.
async fn close_around<T>(lake: &Lake, number: u64, meanwhile: impl Future<Output = T>) -> (CloseReport, T) {
    let slow = Faults::with(Fault::Pause(number));
    let first = lake.close_with(slow.clone(), CloseOptions::default());
    let second = async {
        while slow.paused().is_empty() {
            tokio::task::yield_now().await;
        }
        let result = meanwhile.await;
        assert!(slow.resume(number, Resume::Happen));
        result
    };
    let (first, second) = tokio::join!(first, second);
    (first.unwrap(), second)
}

#[tokio::test]
async fn of_two_runs_at_once_the_first_manifest_counts() {
    let is_manifest = |(effect, object): &(Effect, String)| {
        *effect == Effect::Write && object.starts_with("closed/acme/2026-11")
    };
    let number = effect_number(november().await, is_manifest).await;
    let lake = november().await;
    let (first, second) = close_around(&lake, number, async {
        // The second run sees another ledger, so its manifest has other bytes.
        lake.put(&[rows("acme", "2026-10-01T00", 2)]).await;
        lake.close().await
    })
    .await;
    assert_eq!((first.months.len(), second.months.len()), (0, 1), "the second run has decided");
    assert!(first.failed.is_empty(), "{:?}", first.failed);
    // The first run has compared with the older ledger.
    lake.close().await;
    assert_eq!(lake.problems().await, [""; 0]);
    let [ledger, corrected] = lake.costs("acme", "2026-10");
    assert_eq!(ledger, corrected);
}

#[tokio::test]
async fn corrections_of_a_month_that_another_run_has_closed_are_left_out() {
    let corrected = async || {
        let lake = Lake::october().await;
        lake.close().await;
        lake.put(&[rows("acme", "2026-10-15T05", 4)]).await;
        lake
    };
    let number = effect_number(corrected().await, |(effect, _)| *effect == Effect::Commit).await;
    let lake = corrected().await;
    let (first, closed) = close_around(&lake, number, async {
        // Other runs close November with a newer correction, and compute one for December.
        lake.put(&[rows("acme", "2026-10-15T05", 5)]).await;
        lake.put(&[rows("acme", "2026-11-03T00", 3)]).await;
        lake.put(&[not_final("acme", "2026-12-01T00")]).await;
        assert_eq!(lake.close().await.months.len(), 1);
        lake.put(&[rows("acme", "2026-10-15T05", 6)]).await;
        assert_eq!(lake.close().await.pending.len(), 1);
        lake.closed_files()
    })
    .await;
    assert_eq!((first.files_added, first.files_removed, first.failed.len()), (0, 0, 0));
    assert_eq!(lake.closed_files(), closed);
    assert_eq!(lake.problems().await, [""; 0]);
}

#[tokio::test]
async fn two_runs_at_once_leave_the_lake_of_one() {
    let (lake, whole) = (november().await, november().await);
    whole.close().await;
    let runs = [(); 2].map(|()| lake.close_with(Faults::default(), CloseOptions::default()));
    let [first, second] = runs;
    let (first, second) = tokio::join!(first, second);
    assert!(first.unwrap().failed.is_empty() && second.unwrap().failed.is_empty());
    assert_eq!(lake.closed_files(), whole.closed_files());
    assert_eq!(lake.problems().await, [""; 0]);
}
