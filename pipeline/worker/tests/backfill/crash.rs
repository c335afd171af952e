//! Crashes, lost answers and full disks at every single effect. The next run ends in the same state as an
//! undisturbed run.

use prorata_samples::trace::{TRACE_END, node, pod, pod_stop, trace};
use prorata_schemas::event::EventRecord;
use prorata_testkit::fakes::{Fault, Faults};
use prorata_worker::WorkerError;
use prorata_worker::ports::ErrorKind;

use crate::harness::*;

/// The events that the second input adds. They change an earlier hour, so that hours are folded again.
fn late() -> Vec<EventRecord> {
    vec![pod("acme", 70, "late", 1), pod_stop("acme", 170, "late"), node("hooli", 200, 8)]
}

fn all() -> Vec<EventRecord> {
    [trace(), late()].concat()
}

/// Returns the number of effects of a run on `lake`, which is not used afterwards.
async fn effects(lake: &Lake, input: &Files, run: Run) -> u64 {
    let faults = Faults::default();
    lake.run(input, run.faults(faults.clone())).await.unwrap();
    faults.effects()
}

async fn folded() -> Lake {
    let lake = Lake::default();
    lake.run(&files(&[&trace()]), Run::new("aa")).await.unwrap();
    lake
}

/// Runs a backfill into each fault, runs it again without a fault, and compares the result with an
/// undisturbed run.
async fn survives(
    fault: impl Fn(u64) -> Fault,
    hurried: bool,
    check: impl Fn(Fault, &Result<(), WorkerError>),
) {
    let run = |owner: &str| if hurried { Run::new(owner).hurried() } else { Run::new(owner) };
    let fresh = effects(&Lake::default(), &files(&[&all()]), run("bb")).await;
    let again = effects(&folded().await, &files(&[&all()]), run("bb")).await;
    assert!(fresh > 40 && again > 15, "{fresh} and {again} effects");
    let expected = expected(&all(), TRACE_END, shard_of, rules);
    for effect in 0..fresh.max(again) {
        for lake in [Lake::default(), folded().await] {
            let faulty = run("bb").faults(Faults::with(fault(effect)));
            let outcome = lake.run(&files(&[&all()]), faulty).await.map(|_| ());
            check(fault(effect), &outcome);
            lake.run(&files(&[&all()]), run("cc")).await.unwrap();
            assert_content(&lake, &expected, &format!("{:?}", fault(effect)));
        }
    }
}

#[tokio::test]
async fn a_crash_before_any_effect_leaves_nothing_that_counts() {
    survives(Fault::CrashBefore, false, |_, _| {}).await;
}

#[tokio::test]
async fn a_crash_after_any_effect_is_repaired_by_the_next_run() {
    survives(Fault::CrashAfter, false, |_, _| {}).await;
}

#[tokio::test]
async fn a_crash_between_any_two_of_many_checkpoints_is_repaired() {
    survives(Fault::CrashBefore, true, |_, _| {}).await;
    survives(Fault::CrashAfter, true, |_, _| {}).await;
}

#[tokio::test]
async fn an_answer_lost_at_any_effect_needs_no_second_run() {
    survives(Fault::LoseAnswer, false, |fault, outcome| assert!(outcome.is_ok(), "{fault:?}: {outcome:?}"))
        .await;
}

#[tokio::test]
async fn a_refusal_at_any_effect_is_tried_again() {
    survives(Fault::Refuse, false, |fault, outcome| assert!(outcome.is_ok(), "{fault:?}: {outcome:?}")).await;
}

#[tokio::test]
async fn a_full_disk_is_reported_and_repaired_once_there_is_space() {
    survives(Fault::Full, false, |fault, outcome| {
        if let Err(error) = outcome {
            assert_eq!(error.exit_code(), 4, "{fault:?}: {error}");
            assert!(error.to_string().contains("no space left on device"), "{error}");
        }
    })
    .await;
}

#[tokio::test]
async fn storage_that_needs_a_person_ends_a_run_and_is_not_an_outage() {
    for (kind, code) in [(ErrorKind::Permission, 2), (ErrorKind::Missing, 2), (ErrorKind::Transient, 4)] {
        let (lake, faults) = (Lake::default(), Faults::default());
        faults.set_storage_down(Some(kind));
        let error = lake.run(&files(&[&all()]), Run::new("bb").faults(faults)).await.unwrap_err();
        assert_eq!((error.exit_code(), error.storage_kind()), (code, Some(kind)), "{error}");
        assert!(error.remedy().is_some_and(|remedy| remedy.contains("nothing is lost or duplicated")));
    }
}

#[tokio::test]
async fn a_crash_while_recovering_from_a_crash_is_repaired() {
    let expected = expected(&all(), TRACE_END, shard_of, rules);
    let first = effects(&folded().await, &files(&[&all()]), Run::new("bb")).await;
    for one in 0..first {
        for other in (0..first).step_by(7) {
            let lake = folded().await;
            let input = files(&[&all()]);
            let _died = lake.run(&input, Run::new("bb").faults(Faults::with(Fault::CrashAfter(one)))).await;
            let _died =
                lake.run(&input, Run::new("cc").faults(Faults::with(Fault::CrashBefore(other)))).await;
            lake.run(&input, Run::new("dd")).await.unwrap();
            assert_content(&lake, &expected, &format!("after effect {one}, then before effect {other}"));
        }
    }
}

#[tokio::test]
async fn a_client_that_asks_again_by_itself_needs_no_second_run() {
    survives(Fault::Retry, false, |fault, outcome| assert!(outcome.is_ok(), "{fault:?}: {outcome:?}")).await;
}

#[tokio::test]
async fn an_object_cut_short_or_missing_at_any_read_never_reaches_a_table() {
    for damage in [Fault::Truncated, Fault::Missing, Fault::ReadFails] {
        survives(damage, false, |_, _| {}).await;
    }
}
