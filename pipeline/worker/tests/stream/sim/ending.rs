//! The end of a run. Nothing goes wrong any more, so everything must settle soon. Then all results are
//! compared.

use std::collections::BTreeSet;
use std::time::Duration;

use prorata_schemas::event::EventRecord;
use prorata_schemas::rules::Rules;
use prorata_schemas::time::Hour;
use prorata_testkit::fakes::Faults;
use prorata_worker::backfill::BackfillOptions;
use prorata_worker::names::{self, Shard};
use prorata_worker::ports::ObjectStore;

use super::coverage::Coverage;
use super::dice::Dice;
use super::economy;
use super::fleet::Fleet;
use super::foreign::{self, Foreign};
use super::rules;
use crate::harness::{Content, Lake};
use crate::world::oracle::{self, Also};
use crate::world::{QUIET, World};

/// The number of rounds in which everything must settle, and the number of quiet rounds that count as
/// settled.
const ROUNDS_MAX: i64 = 3_000;
const QUIET_ROUNDS: u32 = 16;

/// Settles, and compares the result with a plain fold and then with backfills.
pub async fn end(fleet: &mut Fleet, foreign: &mut Foreign, dice: &mut Dice) -> Coverage {
    let seed = fleet.seed;
    let world = fleet.world.clone();
    settle(fleet, dice).await;
    if !foreign.events.is_empty() {
        // Some batches may not be folded yet, or only in part.
        fleet.stop_all(dice).await;
        let outcome = foreign.fold(&world, rules::first(&fleet.plan), Faults::default(), |_| {}).await;
        outcome.unwrap_or_else(|error| panic!("seed {seed}: a backfill after a clean stop: {error}"));
        settle(fleet, dice).await;
    }
    let context = format!("seed {seed}");
    let also = Also { foreign: foreign.events.clone(), ..Also::default() };
    let held = oracle::check(&world, &also, rules_of(&world), &context);
    check_closed(fleet);
    fleet.stop_all(dice).await;
    economy::check(&world, &fleet.plan, &fleet.coverage, &context);
    let events = archived(&held);
    backfill_changes_nothing(&world, &events, &context).await;
    backfill_makes_the_same(&world, &events, &context).await;
    absence_is_equal_or_loud(&world, dice, &context).await;
    fleet.coverage.look_back(&world, &held);
    fleet.coverage.clone()
}

async fn settle(fleet: &mut Fleet, dice: &mut Dice) {
    let (mut quiet, mut has_rested) = (0, false);
    let mut read = read_through(fleet);
    for round in 0..ROUNDS_MAX {
        fleet.world.broker.confirm_ends();
        let is_quiet = fleet.round(round, dice).await;
        // Messages that a quiet shard reads have no effect until its checkpoint.
        let before = std::mem::replace(&mut read, read_through(fleet));
        quiet = if is_quiet && read == before { quiet + 1 } else { 0 };
        fleet.wake(dice, 1_000);
        fleet.world.pass(Duration::from_secs(5));
        // A recomputation that wrote many hours rests for a while before the next one begins.
        if quiet >= QUIET_ROUNDS && !any_dirty(&fleet.world) {
            if has_rested {
                return;
            }
            // What is new in quiet shards is in the archive after their rest.
            fleet.world.pass(QUIET);
            (quiet, has_rested) = (0, true);
        }
    }
    panic!("seed {}: it does not settle", fleet.seed);
}

/// Returns the next offset of each topic in each shard of each process.
fn read_through(fleet: &Fleet) -> Vec<Vec<i64>> {
    let members = fleet.berths.iter().filter_map(|berth| berth.member.as_ref());
    let read = members.map(|member| {
        let status = member.status.lock();
        let topics = status.shards.values().flat_map(|shard| shard.topics.values());
        topics.map(|topic| topic.next_offset).collect()
    });
    read.collect()
}

fn any_dirty(world: &World) -> bool {
    world.audit.look();
    world.audit.latest().values().any(|checkpoint| !checkpoint.dirty.is_empty())
}

/// Returns the rules that the latest checkpoints list.
fn rules_of(world: &World) -> impl Fn(Shard, Hour) -> Rules {
    let latest = world.audit.latest();
    move |shard, hour| {
        let version = latest[&shard].rules_of(hour).unwrap().parse::<u32>().unwrap();
        rules::numbered(version - 1)
    }
}

/// Asserts that every shard with events has closed all hours that the watermark allows it to close.
fn check_closed(fleet: &Fleet) {
    let rule = fleet.plan.tune.watermark;
    let held_at = fleet
        .world
        .now()
        .event_time()
        .before(rule.max_watermark_hold + Duration::from_secs(2 * 3_600))
        .hour();
    for (shard, checkpoint) in fleet.world.audit.latest() {
        let closed = checkpoint.closed_through;
        let fine = closed.is_none_or(|closed| closed >= held_at);
        assert!(fine, "seed {}: shard {shard} is closed through {closed:?} only, not {held_at}", fleet.seed);
    }
}

fn archived(held: &oracle::Held) -> Vec<EventRecord> {
    let decode = |(kind, body): &(_, Box<[u8]>)| EventRecord {
        event: prorata_schemas::body::decode(*kind, body).unwrap(),
        body: body.clone(),
    };
    held.events.iter().map(decode).collect()
}

fn options(owner: &str, world: &World) -> BackfillOptions {
    let mut options = BackfillOptions::new(owner.into());
    options.shards = Some(world.shards);
    options.threads = 1;
    options
}

/// Asserts that a backfill over the worker's archive, from the first event, changes no hour.
async fn backfill_changes_nothing(world: &World, events: &[EventRecord], context: &str) {
    let Some(first) = events.iter().map(|event| event.event.event_time.hour()).min() else { return };
    let before = world.lake.files();
    let mut options = options("again", world);
    // All workers have stopped. The claim of a killed worker may have landed after the last checkpoint of the
    // shard's owner. That owner had nothing to decide and so did not notice.
    options.take_over = true;
    options.from = Some(first);
    options.to = world.audit.latest().values().filter_map(|checkpoint| checkpoint.closed_through).min();
    if options.to < options.from {
        return;
    }
    let outcome = foreign::run(world, events, Faults::default(), options).await;
    let outcome = outcome.unwrap_or_else(|error| panic!("{context}: {error}"));
    assert_eq!(
        (outcome.events_new, outcome.hours_restated),
        (0, 0),
        "{context}: a backfill changes something"
    );
    let after = world.lake.files();
    for (table, files) in before {
        let gone = files.iter().find(|file| !after[&table].contains(file));
        assert_eq!(gone, None, "{context}: a backfill replaces files of {table:?}");
    }
}

/// Removes one object at rest. Asserts that a backfill over the worker's archive then ends with the same
/// tables or with an error. Once the object is restored, the backfill must end with the same tables.
async fn absence_is_equal_or_loud(world: &World, dice: &mut Dice, context: &str) {
    // The audit remembers checkpoints, and readers notice lost table files.
    let is_tried = |path: &String| names::parse_checkpoint(path).is_none() && !path.ends_with(".parquet");
    let paths: Vec<String> = world.lake.objects().into_iter().filter(is_tried).collect();
    let path = &paths[dice.below(paths.len())];
    let context = format!("{context}, without {path}");
    let before = world.lake.content();
    let bytes = world.lake.store.get(path).await.unwrap().unwrap();
    let mut options = options("absent", world);
    options.take_over = true;
    options.from = world.audit.latest().values().filter_map(|checkpoint| checkpoint.archive_from).min();
    options.to = world.audit.latest().values().filter_map(|checkpoint| checkpoint.closed_through).min();
    if options.from.is_none() || options.to < options.from {
        return;
    }
    world.lake.store.delete(path).await.unwrap();
    let ends = foreign::run(world, &[], Faults::default(), options.clone()).await;
    assert!(world.lake.content() == before, "{context}: other tables, {ends:?}");
    if world.lake.store.object(path).is_none() {
        world.lake.store.overwrite(path, bytes);
    }
    options.owner = "back".into();
    let ends = foreign::run(world, &[], Faults::default(), options).await;
    ends.unwrap_or_else(|error| panic!("{context}, which is back: {error}"));
    assert!(world.lake.content() == before, "{context}, which is back: other tables");
}

/// Asserts that a backfill of these events into a fresh root writes the tables of the world. Asserts nothing
/// if the checkpoints list several versions of rules.
async fn backfill_makes_the_same(world: &World, events: &[EventRecord], context: &str) {
    let latest = world.audit.latest();
    let versions = latest.values().flat_map(|checkpoint| checkpoint.rules.iter());
    let versions: BTreeSet<u32> = versions.map(|rules| rules.version.parse().unwrap()).collect();
    let Some(version) = versions.first().filter(|_| versions.len() == 1 && !events.is_empty()) else {
        return;
    };
    let fresh = world.fresh();
    let mut options = options("fresh", world);
    options.rules = rules::numbered(version - 1);
    options.to = latest.values().filter_map(|checkpoint| checkpoint.closed_through).max();
    let outcome = foreign::run(&fresh, events, Faults::default(), options).await;
    outcome.unwrap_or_else(|error| panic!("{context}: {error}"));
    let closed = |lake: &Lake| -> Content {
        let within = |shard: &Shard, hour: &Hour| {
            latest.get(shard).is_some_and(|checkpoint| Some(*hour) <= checkpoint.closed_through)
        };
        lake.content().into_iter().filter(|((_, hour, shard), _)| within(shard, hour)).collect()
    };
    assert!(closed(&fresh.lake) == closed(&world.lake), "{context}: a backfill makes other tables");
}
