//! Roots that a release wrote whose engine gave the rules another meaning.

use prorata_samples::trace::{START, TRACE_END, pod, pod_stop, trace};
use prorata_schemas::event::EventRecord;
use prorata_schemas::rules::Rules;
use prorata_schemas::time::Hour;
use prorata_testkit::fakes::{FakeBroker, Faults};
use prorata_worker::WorkerError;
use prorata_worker::backfill::BackfillOptions;
use prorata_worker::checkpoint::checksum;
use prorata_worker::names;
use prorata_worker::ports::ObjectStore;

use crate::harness::*;
use crate::sim::foreign;
use crate::world::World;
use crate::world::member::Member;
use crate::world::script::read;

/// Gives the rules that the root has another meaning.
async fn set_meaning(world: &World, from: u32, to: u32) {
    let path = names::rules("1");
    let stored = world.lake.store.get(&path).await.unwrap().unwrap();
    let text = String::from_utf8(checksum::check_text(&stored).unwrap().to_vec()).unwrap();
    let changed = text.replace(&format!("\"meaning\":{from}"), &format!("\"meaning\":{to}"));
    assert_ne!(changed, text);
    world.lake.store.overwrite(&path, checksum::add_to_text(changed.as_bytes()).into());
}

fn version_2() -> Rules {
    let mut rules = Rules { version: "2".into(), ..Rules::default() };
    rules.weights.gpu = "12".parse().unwrap();
    rules
}

/// A worker whose configuration names rules of version 2.
fn member(world: &World, name: &str) -> Member {
    world.start(name, Faults::default(), |options| options.rules = version_2())
}

/// Asserts that hours through `last` are folded by version 1, and those after it by version 2.
fn assert_folded(world: &World, events: &[EventRecord], last: Hour, through: Hour) {
    let rules = |hour| if hour <= last { Rules::default() } else { version_2() };
    assert_content(&world.lake, &expected(events, through, shard_of, rules), "");
}

#[tokio::test]
async fn new_hours_go_on_under_new_rules_and_late_events_wait_for_the_release_that_computes_theirs() {
    let world = read().await;
    set_meaning(&world, 2, 0).await;
    let mut newer = member(&world, "b");
    world.set_minutes(8 * 60 + 10);
    let live = [pod("acme", 475, "live", 1), pod("hooli", 475, "live", 1)];
    world.produce(&live);
    newer.settle(&world).await.unwrap();
    let goes_on = [trace(), live.to_vec()].concat();
    let through = Hour(START + 6);
    assert_folded(&world, &goes_on, TRACE_END, through);
    // An hour of the old meaning waits, and the shard goes on.
    let late = [pod("acme", 70, "late", 1)];
    world.produce(&late);
    world.set_minutes(9 * 60 + 10);
    let later = [pod("acme", 535, "later", 1), pod("hooli", 535, "later", 1)];
    world.produce(&later);
    newer.settle(&world).await.unwrap();
    let goes_on = [goes_on, later.to_vec()].concat();
    let through = Hour(START + 7);
    assert_folded(&world, &goes_on, TRACE_END, through);
    let dirty = |world: &World| {
        world.audit.look();
        world.audit.latest().values().filter_map(|checkpoint| checkpoint.dirty.first()).collect::<Vec<_>>()
    };
    assert_eq!(dirty(&world), [Hour(START + 1)]);
    newer.drain().await;
    // The release that computes the old meaning: the late event counts.
    set_meaning(&world, 0, 2).await;
    let mut older = member(&world, "c");
    older.settle(&world).await.unwrap();
    assert_eq!(dirty(&world), []);
    assert_folded(&world, &[goes_on, late.to_vec()].concat(), TRACE_END, through);
}

#[tokio::test]
async fn a_backfill_with_rules_of_another_version_folds_all_hours_anew() {
    let world = read().await;
    set_meaning(&world, 2, 0).await;
    let mut options = BackfillOptions::new("backfill".into());
    options.shards = Some(world.shards);
    options.readers = 1;
    options.rules = version_2();
    options.rewrite_rules = true;
    foreign::run(&world, &[], Faults::default(), options.clone()).await.unwrap();
    assert_folded(&world, &trace(), Hour(i64::MIN), TRACE_END);
    // Without the rewrite, a late event of such an hour is refused by a sentence with the way out.
    let world = read().await;
    set_meaning(&world, 2, 0).await;
    options.rewrite_rules = false;
    let late = [pod("acme", 70, "late", 1)];
    let error = foreign::run(&world, &late, Faults::default(), options).await.unwrap_err();
    assert!(matches!(error, WorkerError::UnknownMeaning { meaning: 0, .. }), "{error}");
    assert_eq!(error.exit_code(), 2);
    assert!(error.to_string().contains("'prorata backfill --config'"), "{error}");
}

#[tokio::test]
async fn the_same_version_with_another_meaning_is_refused_with_the_way_out() {
    let world = read().await;
    set_meaning(&world, 2, 0).await;
    let error = world.member("b").settle(&world).await.unwrap_err();
    assert_eq!(error.exit_code(), 2);
    assert!(error.to_string().contains("give rules.version another name"), "{error}");
    // As it says.
    member(&world, "c").settle(&world).await.unwrap();
}

/// Rows of `hours` in the last hour closed of the shard.
fn rows_of_last_hour(world: &World) -> usize {
    world.audit.look();
    let last = world.audit.latest()[&0].closed_through.unwrap();
    world.lake.clocks(last.0, 0).matches("revision").count()
}

#[tokio::test]
async fn rules_keep_the_meaning_that_the_root_has_and_a_new_version_has_the_new_one() {
    let world = World::on(FakeBroker::default(), 1);
    let rules = Rules::default();
    let json = serde_json::json!({ "meaning": 1, "rules": rules }).to_string();
    let stored = checksum::add_to_text(json.as_bytes());
    world.lake.store.put_if_absent(&names::rules("1"), stored.into()).await.unwrap();
    world.produce(&[pod("acme", 1, "stays", 1), pod_stop("typo", 5, "p")]);
    let mut older = world.member("a");
    older.settle(&world).await.unwrap();
    assert_eq!(rows_of_last_hour(&world), 2, "by meaning 1 an organization never leaves");
    older.drain().await;
    let mut newer = member(&world, "b");
    for hour in 8..10 {
        world.set_minutes(hour * 60 + 10);
        world.produce(&[pod("acme", hour * 60 - 5, &format!("live {hour}"), 1)]);
        newer.settle(&world).await.unwrap();
    }
    assert_eq!(rows_of_last_hour(&world), 1, "by rules of a new version it does");
    // Hours of the old meaning are folded by it, for good.
    let late = [pod("acme", 70, "late", 1)];
    world.produce(&late);
    newer.settle(&world).await.unwrap();
    let rows = |hour| world.lake.clocks(START + hour, 0).matches("revision").count();
    assert_eq!((rows(1), rows(3)), (2, 2));
    assert_eq!(rows_of_last_hour(&world), 1);
}
