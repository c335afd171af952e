//! Roots of another release, with a newer format or with rules of another engine version.

use prorata_samples::trace::{START, TRACE_END, pod, trace};
use prorata_schemas::event::EventRecord;
use prorata_schemas::rules::Rules;
use prorata_schemas::time::Hour;
use prorata_testkit::fakes::Faults;
use prorata_worker::WorkerError;
use prorata_worker::backfill::BackfillOptions;
use prorata_worker::checkpoint::checksum;
use prorata_worker::names;
use prorata_worker::ports::ObjectStore;
use prorata_worker::root::Root;
use prorata_worker::status::RecomputeGate;
use prorata_worker::stream::WorkerOptions;

use crate::harness::*;
use crate::sim::foreign;
use crate::world::World;
use crate::world::member::Member;
use crate::world::script::read;

/// Replaces a part of a stored object.
fn change(world: &World, path: &str, from: &str, to: &str) {
    let stored = world.lake.store.object(path).unwrap();
    let text = String::from_utf8(checksum::check_json(&stored).unwrap()).unwrap();
    let changed = text.replacen(from, to, 1);
    assert_ne!(changed, text);
    world.lake.store.overwrite(path, checksum::add_to_json(changed.as_bytes()).into());
}

/// Changes the engine version of the root's rules.
fn set_engine_version(world: &World, from: u32, to: u32) {
    let [from, to] = [from, to].map(|version| format!("\"engine_version\":{version},"));
    change(world, &names::rules("1"), &from, &to);
}

/// Changes an object to format 2, which has an additional field.
fn raise(world: &World, path: &str) {
    change(world, path, "\"format\":1,", "\"format\":2,\"more\":0,");
}

fn version_2() -> Rules {
    let mut rules = Rules { version: "2".into(), ..Rules::default() };
    rules.weights.gpu = "12".parse().unwrap();
    rules
}

/// Starts a worker whose configuration names rules of version 2.
fn member(world: &World, name: &str) -> Member {
    world.start(name, Faults::default(), |options| options.rules = version_2())
}

/// Asserts that a worker and a backfill end with exit code 2 and a message with these words.
async fn assert_refused(world: &World, words: &[&str]) {
    let worker = world.member("b").settle(world).await.unwrap_err();
    let mut options = BackfillOptions::new("backfill".into());
    options.take_over = true;
    let backfill = foreign::run(world, &[], Faults::default(), options).await.unwrap_err();
    for error in [worker, backfill] {
        assert_eq!(error.exit_code(), 2, "{error}");
        words.iter().for_each(|word| assert!(error.to_string().contains(word), "{error}"));
    }
}

const WAY_OUT: &str = "has format 2, this program knows 1; use the release that wrote it, or a newer one";

#[tokio::test]
async fn a_root_of_a_newer_format_is_refused() {
    let world = read().await;
    let raised = Root { format: 2, ..Root::new(world.shards) }.to_json().unwrap();
    world.lake.store.put_if_absent(&names::root_raised(2), raised).await.unwrap();
    assert_refused(&world, &["root-2.json", WAY_OUT]).await;
    let world = read().await;
    raise(&world, names::ROOT);
    assert_refused(&world, &["root.json", WAY_OUT]).await;
}

#[tokio::test]
async fn a_shard_of_a_newer_format_is_refused() {
    let world = read().await;
    for (shard, latest) in world.audit.latest() {
        raise(&world, &names::checkpoint(shard, latest.seq));
    }
    assert_refused(&world, &["state/shard=000", "checkpoint-", WAY_OUT]).await;
}

#[tokio::test]
async fn a_root_is_raised_to_no_format_that_the_program_does_not_know() {
    let world = World::default();
    let to = |format| move |options: &mut WorkerOptions| options.root_format = format;
    let error = world.start("a", Faults::default(), to(2)).settle(&world).await.unwrap_err();
    assert_eq!(error.exit_code(), 2);
    let words = "root.format is 2, this program knows formats up to 1; correct it in the configuration";
    assert!(error.to_string().contains(words), "{error}");
    world.start("b", Faults::default(), to(1)).settle(&world).await.unwrap();
}

/// Asserts that hours through `last` are folded by version 1, and later hours by version 2.
fn assert_folded(world: &World, events: &[EventRecord], last: Hour, through: Hour) {
    let rules = |hour| if hour <= last { Rules::default() } else { version_2() };
    assert_content(&world.lake, &expected(events, through, shard_of, rules), "");
}

#[tokio::test]
async fn new_hours_follow_new_rules_and_late_events_wait_for_their_release() {
    let world = read().await;
    set_engine_version(&world, 1, 2);
    let mut newer = member(&world, "b");
    world.set_minutes(8 * 60 + 10);
    let live = [pod("acme", 475, "live", 1), pod("hooli", 475, "live", 1)];
    world.produce(&live);
    newer.settle(&world).await.unwrap();
    let events = [trace(), live.to_vec()].concat();
    let through = Hour(START + 6);
    assert_folded(&world, &events, TRACE_END, through);
    // An hour of the other engine version waits, and the shard continues.
    let late = [pod("acme", 70, "late", 1)];
    world.produce(&late);
    world.set_minutes(9 * 60 + 10);
    let later = [pod("acme", 535, "later", 1), pod("hooli", 535, "later", 1)];
    world.produce(&later);
    newer.settle(&world).await.unwrap();
    let events = [events, later.to_vec()].concat();
    let through = Hour(START + 7);
    assert_folded(&world, &events, TRACE_END, through);
    let dirty = |world: &World| {
        world.audit.look();
        world.audit.latest().values().filter_map(|checkpoint| checkpoint.dirty.first()).collect::<Vec<_>>()
    };
    assert_eq!(dirty(&world), [Hour(START + 1)]);
    let gate = newer.status.lock().shards[&world.shard_of("acme")].recompute_gate;
    assert_eq!(gate, Some(RecomputeGate::Release));
    newer.drain().await;
    // With the release that computes that version, the late event counts.
    set_engine_version(&world, 2, 1);
    let mut older = member(&world, "c");
    older.settle(&world).await.unwrap();
    assert_eq!(dirty(&world), []);
    assert_folded(&world, &[events, late.to_vec()].concat(), TRACE_END, through);
}

#[tokio::test]
async fn a_late_event_that_waits_for_a_release_keeps_no_other_from_being_folded() {
    let world = read().await;
    set_engine_version(&world, 1, 2);
    let shard = world.shard_of("acme");
    let other = (0..).map(|n| format!("neighbor-{n}")).find(|id| world.shard_of(id) == shard).unwrap();
    let mut newer = member(&world, "b");
    world.set_minutes(8 * 60 + 10);
    let live = [pod("acme", 475, "live", 1), pod("hooli", 475, "live", 1), pod(&other, 400, "live", 1)];
    world.produce(&live);
    newer.settle(&world).await.unwrap();
    // Hour 1 has rules of a version that this release does not compute. Hour 6 has rules of the release's
    // version.
    world.produce(&[pod("acme", 70, "waits", 1)]);
    newer.settle(&world).await.unwrap();
    world.produce(&[pod(&other, 380, "late", 1)]);
    world.set_minutes(30 * 60 + 10);
    world.produce(&[pod("acme", 30 * 60 - 5, "later", 1), pod("hooli", 30 * 60 - 5, "later", 1)]);
    for _ in 0..6 {
        newer.settle(&world).await.unwrap();
    }
    let content = world.lake.content().into_iter();
    let of_hour = |((_, hour, of), _): &((_, Hour, u16), String)| *hour == Hour(START + 6) && *of == shard;
    assert!(content.filter(of_hour).any(|(_, text)| text.contains("\"late\"")), "it is folded");
    world.audit.look();
    let dirty = world.audit.latest()[&shard].dirty.first();
    assert_eq!(dirty, Some(Hour(START + 1)), "the other waits");
}

#[tokio::test]
async fn a_backfill_with_rules_of_another_version_folds_all_hours_again() {
    let world = read().await;
    set_engine_version(&world, 1, 2);
    let mut options = BackfillOptions::new("backfill".into());
    options.shards = Some(world.shards);
    options.threads = 1;
    options.rules = version_2();
    options.rewrite_rules = true;
    foreign::run(&world, &[], Faults::default(), options.clone()).await.unwrap();
    assert_folded(&world, &trace(), Hour(i64::MIN), TRACE_END);
    // Without `rewrite_rules`, a late event of such an hour is refused, and the message names the remedy.
    let world = read().await;
    set_engine_version(&world, 1, 2);
    options.rewrite_rules = false;
    let late = [pod("acme", 70, "late", 1)];
    let error = foreign::run(&world, &late, Faults::default(), options).await.unwrap_err();
    assert!(matches!(error, WorkerError::UnknownEngineVersion { engine_version: 2, .. }), "{error}");
    assert_eq!(error.exit_code(), 2);
    assert!(error.to_string().contains("'prorata backfill --config'"), "{error}");
}

#[tokio::test]
async fn the_same_rules_with_another_engine_version_are_refused_with_the_way_out() {
    let world = read().await;
    set_engine_version(&world, 1, 2);
    let error = world.member("b").settle(&world).await.unwrap_err();
    assert_eq!(error.exit_code(), 2);
    assert!(error.to_string().contains("give rules.version another name"), "{error}");
    // The test follows the message.
    member(&world, "c").settle(&world).await.unwrap();
}
