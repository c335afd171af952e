//! Problems of one organization, which must not affect other organizations.

use std::time::Duration;

use prorata_samples::trace::{START, TRACE_END, trace};
use prorata_schemas::event::EventRecord;
use prorata_schemas::rules::Rules;
use prorata_schemas::tables::Table;
use prorata_schemas::time::Hour;
use prorata_testkit::fakes::Faults;
use prorata_worker::backfill::BackfillOptions;

use crate::harness::*;
use crate::sim::foreign;
use crate::world::World;
use crate::world::greed;
use crate::world::member::{Member, Stepped};

/// Returns rules under which the charges overflow.
fn protected(_hour: Hour) -> Rules {
    Rules { version: "protected".into(), ..greed::protected(&Rules::default()) }
}

/// Returns nine pods. The charge of each pod fits into 128 bits, but the sum of the charges overflows.
fn nine(organization: &str) -> Vec<EventRecord> {
    greed::greedy(organization, 5, 20, 9)
}

/// Returns one pod with a charge that is too large for any column.
fn one(organization: &str) -> Vec<EventRecord> {
    greed::greedy(organization, 5, 1_000, 1)
}

/// Returns stops of all nine pods at the instant of their start, so that they never ran.
fn stopped(organization: &str) -> Vec<EventRecord> {
    greed::stops(organization, 5)
}

/// Starts a member with rules whose factor makes the charges overflow.
fn member_under(world: &World, name: &str) -> Member {
    world.start(name, Faults::default(), |options| options.rules = protected(Hour(0)))
}

/// Returns an organization of this shard that is not in the trace.
fn tenant_of(world: &World, shard: u16) -> String {
    (0..).map(|n| format!("tenant-{n}")).find(|name| world.shard_of(name) == shard).unwrap()
}

async fn lives(world: &World, member: &mut Member, minutes: u64) {
    for _ in 0..minutes * 12 {
        let stepped = member.step().await;
        assert!(matches!(stepped, Stepped::Done(_)), "{stepped:?}");
        world.pass(Duration::from_secs(5));
    }
}

/// Returns the number of held organizations over all shards, and the reason of one of the holds; `None` if
/// there are none.
fn held(member: &Member) -> (u64, Option<String>) {
    let status = member.status.lock();
    let count = status.shards.values().map(|shard| shard.held).sum();
    (count, status.shards.values().find_map(|shard| shard.held_example.clone()))
}

/// Creates a world in which one organization of shard 0 cannot be folded, and runs a worker on it for an
/// hour. Returns the world, the worker and the organization.
async fn poisoned(poison: impl Fn(&str) -> Vec<EventRecord>) -> (World, Member, String) {
    let world = World::default();
    let evil = tenant_of(&world, 0);
    world.produce(&trace());
    world.produce(&poison(&evil));
    let mut member = member_under(&world, "a");
    lives(&world, &mut member, 60).await;
    assert_eq!(world.dead_letters.letters().len(), 0, "intake takes them for valid");
    for (shard, checkpoint) in world.audit.latest() {
        let closed = checkpoint.closed_through;
        assert!(closed >= Some(TRACE_END), "shard {shard} is closed through {closed:?}");
    }
    let (count, message) = held(&member);
    let begins = format!("organization '{evil}' has been held since hour {}: ", Hour(START));
    assert!(count == 1 && message.as_ref().unwrap().starts_with(&begins), "{count}: {message:?}");
    for hour in [START, START + 3] {
        let clocks = world.lake.clocks(hour, 0);
        assert_eq!(clocks.matches("complete: false").count(), 1, "{clocks}");
    }
    assert!(!world.lake.clocks(START + 3, 1).contains("complete: false"));
    (world, member, evil)
}

/// Asserts that a backfill of these events into a fresh root writes the tables of the world, and holds only
/// `evil`.
async fn backfill_holds_the_same(world: &World, events: &[EventRecord], evil: &str) {
    let fresh = world.fresh();
    let mut options = BackfillOptions::new("fresh".into());
    options.shards = Some(world.shards);
    options.threads = 1;
    options.rules = protected(Hour(0));
    options.to = Some(TRACE_END);
    let outcome = foreign::run(&fresh, events, Faults::default(), options).await.unwrap();
    assert_eq!(outcome.held.keys().map(|id| &**id).collect::<Vec<_>>(), [evil]);
    let within = |lake: &Lake| -> Content {
        lake.content().into_iter().filter(|((_, hour, _), _)| *hour <= TRACE_END).collect()
    };
    assert!(within(&fresh.lake) == within(&world.lake), "a backfill makes other tables");
}

#[tokio::test]
async fn valid_events_of_one_organization_stop_no_other_organization() {
    let (world, _, evil) = poisoned(nine).await;
    backfill_holds_the_same(&world, &[trace(), nine(&evil)].concat(), &evil).await;
}

#[tokio::test]
async fn one_valid_pod_stops_no_other_organization() {
    let (world, _, evil) = poisoned(one).await;
    backfill_holds_the_same(&world, &[trace(), one(&evil)].concat(), &evil).await;
}

#[tokio::test]
async fn an_hour_of_too_much_work_stops_no_other_organization() {
    let crowd = |organization: &str| greed::crowded(organization, 5, 1_500);
    let (world, member, evil) = poisoned(crowd).await;
    let (_, message) = held(&member);
    let cause = "the hour has more than 2000000 pairs of commitments and nodes";
    assert!(message.as_ref().unwrap().contains(cause), "{message:?}");
    backfill_holds_the_same(&world, &[trace(), crowd(&evil)].concat(), &evil).await;
}

#[tokio::test]
async fn a_held_organization_continues_once_its_events_allow_it() {
    let (world, mut member, evil) = poisoned(nine).await;
    let fixes = stopped(&evil);
    world.produce(&fixes);
    lives(&world, &mut member, 10).await;
    assert_eq!(held(&member), (0, None));
    let events = [trace(), nine(&evil), fixes].concat();
    let mut content = Content::new();
    for (shard, checkpoint) in world.audit.latest() {
        let closed = checkpoint.closed_through.unwrap();
        let of = |event: &&EventRecord| world.shard_of(&event.event.organization_id) == shard;
        let events: Vec<_> = events.iter().filter(of).cloned().collect();
        content.extend(expected(&events, closed, |_| shard, protected));
        let published = world.lake.content();
        let is_published = |hour: &i64| published.contains_key(&(Table::Hours, Hour(*hour), shard));
        for hour in (START + 3..=TRACE_END.0).filter(is_published) {
            assert!(!world.lake.clocks(hour, shard).contains("complete: false"), "hour {hour}");
        }
    }
    assert_content(&world.lake, &content, "");
}

#[tokio::test]
async fn a_worker_that_takes_the_shard_tries_the_refused_hour_once_and_holds_on() {
    let (world, mut member, _) = poisoned(one).await;
    let before = world.lake.files();
    member.drain().await;
    let mut member = member_under(&world, "b");
    member.settle(&world).await.unwrap();
    assert_eq!(held(&member).0, 1);
    let after = world.lake.files();
    for (table, files) in before {
        assert!(files.iter().all(|file| after[&table].contains(file)), "{table:?} changes by it");
    }
    assert!(world.audit.latest()[&0].dirty.is_empty());
}
