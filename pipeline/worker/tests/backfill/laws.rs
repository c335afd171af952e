//! Tables depend only on the set of events and the rules.

use std::collections::BTreeSet;

use prorata_samples::trace::{START, TRACE_END, node, pod, pod_stop, trace};
use prorata_schemas::decimal::Decimal12;
use prorata_schemas::event::EventRecord;
use prorata_schemas::rules::{Allocation, Rules};
use prorata_schemas::tables::Table;
use prorata_schemas::time::{Hour, HourRange};
use prorata_worker::names::TableFile;

use crate::harness::*;

fn changed_hours(before: &Lake, after: &Lake) -> BTreeSet<i64> {
    let (before, after) = (before.files(), after.files());
    let mut hours = BTreeSet::new();
    for table in Table::HOURLY {
        let (old, new): (BTreeSet<_>, BTreeSet<_>) =
            (before[&table].iter().collect(), after[&table].iter().collect());
        hours.extend(
            old.symmetric_difference(&new).map(|path| TableFile::parse(path).unwrap().hour.0 - START),
        );
    }
    hours
}

/// Returns a second lake with the current content of the first lake.
fn copy(lake: &Lake) -> Lake {
    let copy = Lake::default();
    for (path, bytes) in lake.store.objects() {
        copy.store.overwrite(&path, bytes);
    }
    copy.tables.restore(lake.tables.tables());
    copy
}

#[tokio::test]
async fn a_backfill_equals_a_plain_fold() {
    let lake = Lake::default();
    let outcome = lake.run(&files(&[&trace()]), Run::new("aa")).await.unwrap();
    assert_content(&lake, &expected(&trace(), TRACE_END, shard_of, rules), "");
    assert_eq!(outcome.events_new, 10);
    assert_eq!(outcome.closed_through, Some(TRACE_END));
    let totals = &outcome.totals["USD"];
    assert_eq!(totals.difference, Decimal12::ZERO);
    assert_eq!(totals.supply, totals.allocated);
    assert!(totals.supply > Decimal12::from_int(60 + 6), "{:?}", totals.supply);
}

#[tokio::test]
async fn order_of_input_windows_and_checkpoints_do_not_show() {
    let mut backwards = trace();
    backwards.reverse();
    let (one, other) = backwards.split_at(4);
    for run in [Run::new("aa"), Run::new("aa").hurried()] {
        let lake = Lake::default();
        lake.run(&files(&[one, other, one]), run).await.unwrap();
        assert_content(&lake, &expected(&trace(), TRACE_END, shard_of, rules), "");
    }
}

#[tokio::test]
async fn running_again_changes_nothing_but_the_claim() {
    let lake = Lake::default();
    lake.run(&files(&[&trace()]), Run::new("aa")).await.unwrap();
    let (tables, objects) = (lake.tables.tables(), lake.objects());
    let outcome = lake.run(&files(&[&trace()]), Run::new("bb")).await.unwrap();
    assert_eq!(lake.tables.tables(), tables, "no new version of any table");
    let new: Vec<String> = lake.objects().into_iter().filter(|object| !objects.contains(object)).collect();
    assert!(new.iter().all(|object| object.contains("/checkpoint-")) && new.len() == 2, "{new:?}");
    assert_eq!((outcome.events_new, outcome.events_known), (0, 10));
    assert_eq!((outcome.hours, outcome.files_written, outcome.commits), (0, 0, 0));
}

#[tokio::test]
async fn a_changed_input_replaces_just_the_hours_that_differ() {
    let lake = Lake::default();
    lake.run(&files(&[&trace()]), Run::new("aa")).await.unwrap();
    let before = copy(&lake);
    // The late pod runs on acme's node from minute 70 to minute 170. Hours 1 and 2 differ, and no later state
    // differs.
    let late = [pod("acme", 70, "late", 1), pod_stop("acme", 170, "late")];
    let outcome = lake.run(&files(&[&trace(), &late]), Run::new("bb")).await.unwrap();
    let all = [trace(), late.to_vec()].concat();
    assert_content(&lake, &expected(&all, TRACE_END, shard_of, rules), "");
    assert_eq!(changed_hours(&before, &lake), BTreeSet::from([1, 2]));
    assert_eq!(outcome.hours_restated, 2);
    let revision = |hour: i64| lake.clocks(START + hour, shard_of("acme")).contains("revision: 1");
    assert_eq!([0, 1, 2, 3, 4, 5].map(revision), [false, true, true, false, false, false]);
}

#[tokio::test]
async fn an_event_before_every_other_moves_the_first_hour_back() {
    let lake = Lake::default();
    lake.run(&files(&[&trace()]), Run::new("aa")).await.unwrap();
    let early = [node("acme", -200, 4), node("delta", 20, 1)];
    lake.run(&files(&[&early]), Run::new("bb")).await.unwrap();
    let all = [trace(), early.to_vec()].concat();
    assert_content(&lake, &expected(&all, TRACE_END, shard_of, rules), "");
}

#[tokio::test]
async fn input_in_parts_equals_input_at_once() {
    let mut events = trace();
    events.sort_by_key(|event| event.event.event_time);
    for cut in 1..events.len() {
        let lake = Lake::default();
        let (one, other) = events.split_at(cut);
        for (owner, part) in [("aa", one), ("bb", other)] {
            lake.run(&files(&[part]), Run::new(owner)).await.unwrap();
        }
        assert_content(&lake, &expected(&events, TRACE_END, shard_of, rules), &format!("cut at {cut}"));
        let lake = Lake::default();
        for (owner, part) in [("aa", other), ("bb", one)] {
            lake.run(&files(&[part]), Run::new(owner).hurried()).await.unwrap();
        }
        assert_content(&lake, &expected(&events, TRACE_END, shard_of, rules), &format!("late, cut at {cut}"));
    }
}

/// A trace of 45 days, so that hours leave the checkpoints.
fn long_trace() -> Vec<EventRecord> {
    let mut events = vec![node("acme", 0, 10)];
    for day in 0..45 {
        let minutes = day * 24 * 60;
        events.push(pod("acme", minutes + 600, &format!("p{day}"), 1));
        events.push(pod_stop("acme", minutes + 700, &format!("p{day}")));
    }
    events
}

#[tokio::test]
async fn hours_beyond_the_horizon_are_restated_too() {
    let through = Hour(START + 44 * 24 + 11);
    let lake = Lake::default();
    lake.run(&files(&[&long_trace()]), Run::new("aa")).await.unwrap();
    // When another run claims the shard, old hours leave; the next checkpoint records it.
    let late = [pod("acme", 60, "late", 1), pod_stop("acme", 90, "late")];
    lake.run(&files(&[&[node("acme", 44 * 24 * 60 + 690, 11)]]), Run::new("bb")).await.unwrap();
    let before = copy(&lake);
    let outcome = lake.run(&files(&[&late]), Run::new("cc")).await.unwrap();
    let mut all = [long_trace(), late.to_vec()].concat();
    all.push(node("acme", 44 * 24 * 60 + 690, 11));
    assert_content(&lake, &expected(&all, through, shard_of, rules), "");
    assert_eq!(changed_hours(&before, &lake), BTreeSet::from([1]));
    assert_eq!(outcome.hours_restated, 1);
    assert!(
        outcome.hours > 1 && (outcome.hours as i64) <= 45 * 24 - five_weeks().hours() + 48,
        "{}",
        outcome.hours
    );
    assert!(lake.clocks(START + 1, shard_of("acme")).contains("revision: 1"));
    // Once more, to check that the revision increases even though the hour has left.
    let later = [pod("acme", 61, "later", 1), pod_stop("acme", 62, "later")];
    lake.run(&files(&[&[node("acme", 44 * 24 * 60 + 691, 12)]]), Run::new("dd")).await.unwrap();
    lake.run(&files(&[&later]), Run::new("ee")).await.unwrap();
    assert!(lake.clocks(START + 1, shard_of("acme")).contains("revision: 2"));
}

#[tokio::test]
async fn folding_old_hours_again_finds_the_same() {
    let lake = Lake::default();
    lake.run(&files(&[&long_trace()]), Run::new("aa")).await.unwrap();
    lake.run(&files(&[&[node("acme", 44 * 24 * 60 + 690, 11)]]), Run::new("bb")).await.unwrap();
    let before = copy(&lake);
    // Hour 215 has the snapshot before the horizon. So it stays in the checkpoint after the hours around it
    // have left.
    for (owner, hour) in [("cc", 3), ("dd", 214), ("ee", 215), ("ff", 216)] {
        let run = Run::new(owner).with(|options| options.from = Some(Hour(START + hour)));
        let outcome = lake.run(&files(&[&long_trace()]), run).await.unwrap();
        assert_eq!((outcome.files_written, outcome.hours_restated), (0, 0), "from {hour}");
        assert_eq!(changed_hours(&before, &lake), BTreeSet::new(), "from {hour}");
    }
}

#[tokio::test]
async fn a_snapshot_that_cannot_be_used_costs_time_only() {
    let lake = Lake::default();
    lake.run(&files(&[&trace()]), Run::new("aa")).await.unwrap();
    for (path, bytes) in lake.store.objects() {
        if path.ends_with(".snapshot") {
            lake.store.overwrite(&path, bytes.slice(..bytes.len() - 1));
        }
    }
    let more = [pod("acme", 400, "more", 1)];
    lake.run(&files(&[&more]), Run::new("bb")).await.unwrap();
    let all = [trace(), more.to_vec()].concat();
    assert_content(&lake, &expected(&all, Hour(START + 6), shard_of, rules), "");
}

#[tokio::test]
async fn an_hour_named_by_to_is_closed_and_none_after_it() {
    let lake = Lake::default();
    let to = |hour| Run::new("aa").with(|options| options.to = Some(Hour(START + hour)));
    let outcome = lake.run(&files(&[&trace()]), to(2)).await.unwrap();
    assert_content(&lake, &expected(&upto(2), Hour(START + 2), shard_of, rules), "");
    assert_eq!(outcome.ahead.map(|ahead| ahead.last), Some(TRACE_END));
    lake.run(&files(&[&trace()]), to(8)).await.unwrap();
    assert_content(&lake, &expected(&trace(), Hour(START + 8), shard_of, rules), "empty hours too");
    lake.run(&files(&[&trace()]), to(1)).await.unwrap();
    assert_content(&lake, &expected(&trace(), Hour(START + 8), shard_of, rules), "no hour opens again");
}

fn upto(hour: i64) -> Vec<EventRecord> {
    trace().into_iter().filter(|event| event.event.event_time.hour().0 <= START + hour).collect()
}

#[tokio::test]
async fn from_folds_again_and_finds_the_same() {
    let lake = Lake::default();
    lake.run(&files(&[&trace()]), Run::new("aa")).await.unwrap();
    let before = copy(&lake);
    let run = Run::new("bb").with(|options| options.from = Some(Hour(START + 3)));
    let outcome = lake.run(&files(&[&trace()]), run).await.unwrap();
    assert_eq!(outcome.folded, Some(HourRange::new(Hour(START + 3), TRACE_END)));
    assert_eq!((outcome.files_written, outcome.commits), (0, 0));
    assert_eq!(changed_hours(&before, &lake), BTreeSet::new());
}

#[tokio::test]
async fn rules_are_rewritten_from_and_to_the_hours_named() {
    let other = Rules { version: "2".into(), allocation: Allocation::Requests, ..Rules::default() };
    let lake = Lake::default();
    lake.run(&files(&[&trace()]), Run::new("aa")).await.unwrap();
    let run = |owner: &str| {
        Run::new(owner).with(|options| {
            options.rules =
                Rules { version: "2".into(), allocation: Allocation::Requests, ..Rules::default() };
            options.rewrite_rules = true;
            options.from = Some(Hour(START + 2));
            options.to = Some(Hour(START + 3));
        })
    };
    lake.run(&files(&[&trace()]), run("bb")).await.unwrap();
    let rules =
        |hour: Hour| if (2..=3).contains(&(hour.0 - START)) { other.clone() } else { Rules::default() };
    assert_content(&lake, &expected(&trace(), TRACE_END, shard_of, rules), "");
    let tables = lake.tables.tables();
    lake.run(&files(&[&trace()]), run("cc")).await.unwrap();
    assert_eq!(lake.tables.tables(), tables, "the same rules again change nothing");
    // A late event causes each hour to be folded again under its own rules.
    let late = [pod("acme", 60, "late", 1), pod_stop("acme", 260, "late")];
    lake.run(&files(&[&late]), Run::new("dd")).await.unwrap();
    let all = [trace(), late.to_vec()].concat();
    assert_content(&lake, &expected(&all, TRACE_END, shard_of, rules), "");
}
