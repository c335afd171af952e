//! The rate of checkpoints while messages flow, and the rate of recomputations while late events arrive.

use std::time::Duration;

use prorata_samples::trace::{TRACE_END, pod, trace};
use prorata_schemas::reject::Reason;
use prorata_testkit::fakes::{FakeMessages, Faults};
use prorata_worker::status::RecomputeGate;

use crate::harness::*;
use crate::world::member::{Member, Stepped};
use crate::world::{What, World};

/// A schema that is not registered.
const LATER: u32 = 9;

/// Returns the gate at which the dirty hours of the shard of `acme` wait; `None` if no hour is dirty.
fn gate(world: &World, member: &Member) -> Option<RecomputeGate> {
    member.status.lock().shards[&world.shard_of("acme")].recompute_gate
}

/// Steps without any time passing, often enough to finish all possible work.
async fn rest(member: &mut Member) {
    for _ in 0..40 {
        let stepped = member.step().await;
        assert!(matches!(stepped, Stepped::Done(_)), "{stepped:?}");
    }
}

fn checkpoints(member: &Member) -> u64 {
    member.status.lock().counts.checkpoints
}

#[tokio::test]
async fn while_messages_flow_hours_close_by_the_batch() {
    let world = World::default();
    world.broker.set_poll_messages(1);
    world.produce(&trace());
    let messages = u64::try_from(trace().len()).unwrap();
    let mut member = world.member("a");
    // One step joins the group, and each further step reads one message. Hours could close at every step.
    for _ in 0..messages {
        member.step().await;
    }
    assert_eq!(checkpoints(&member), 0);
    rest(&mut member).await;
    assert!(checkpoints(&member) > 0, "once they no longer flow, at once");
    assert_content(&world.lake, &expected(&trace(), TRACE_END, shard_of, rules), "");
}

#[tokio::test]
async fn while_messages_wait_for_the_registry_hours_close_as_when_none_come() {
    let world = World::default();
    world.broker.set_poll_messages(1);
    world.produce(&trace());
    let mut member = world.member("a");
    for _ in 0..trace().len() {
        member.step().await;
    }
    world.registry.set_down(true);
    let waits = pod("acme", 365, "waits", 1);
    world.send_event(&waits, FakeMessages::encode(LATER, &waits), What::Unregistered(waits.clone()));
    while member.status.lock().waits.is_empty() {
        member.step().await;
    }
    assert_eq!(checkpoints(&member), 0, "it came with others");
    rest(&mut member).await;
    assert!(checkpoints(&member) > 0);
}

#[tokio::test]
async fn messages_that_flow_for_ever_hold_no_hour_open() {
    let world = World::default();
    world.broker.set_poll_messages(1);
    world.produce(&trace());
    let mut member = world.member("a");
    let mut seconds = 0;
    while checkpoints(&member) == 0 {
        seconds += 1;
        assert!(seconds < 30, "no hour closes well before a checkpoint is due anyway");
        world.produce(&[pod("acme", 365, &format!("flows {seconds}"), 1)]);
        member.step().await;
        world.pass(Duration::from_secs(1));
    }
    let closed = world.audit.latest()[&world.shard_of("acme")].closed_through;
    assert!(closed.is_some());
}

/// Returns the seconds until the next checkpoint.
async fn seconds_to_checkpoint(world: &World, member: &mut Member) -> u64 {
    let before = checkpoints(member);
    for seconds in 0..1_000 {
        member.step().await;
        if checkpoints(member) > before {
            return seconds;
        }
        world.pass(Duration::from_secs(1));
    }
    panic!("no checkpoint");
}

#[tokio::test]
async fn a_shard_with_a_few_events_of_open_hours_rests_for_ten_intervals() {
    let open = |uid: String| pod("acme", 365, &uid, 1);
    let few = |world: &World| world.produce(&[open("few".into())]);
    let late = |world: &World| world.produce(&[pod("acme", 70, "late", 1)]);
    let rejected = |world: &World| {
        let (shard, key) = (world.shard_of("acme"), Some(b"acme".to_vec()));
        world.send("pods", shard, key, Some(vec![0; 9]), What::Bad(Reason::Malformed));
    };
    let many = |world: &World| {
        let events: Vec<_> = (0..60_000).map(|number| open(format!("many {number}"))).collect();
        world.produce(&events);
    };
    let sends: [&dyn Fn(&World); 4] = [&few, &late, &rejected, &many];
    let expected = [("few", 600), ("late", 60), ("rejected", 60), ("many", 60)];
    for (send, (name, seconds)) in sends.into_iter().zip(expected) {
        let world = World::default();
        world.broker.set_poll_messages(100_000);
        world.produce(&trace());
        let mut member = world.member("a");
        member.settle(&world).await.unwrap();
        world.produce(&[open("before".into())]);
        seconds_to_checkpoint(&world, &mut member).await;
        // A checkpoint was decided just now.
        send(&world);
        assert_eq!(seconds_to_checkpoint(&world, &mut member).await, seconds, "{name}");
    }
}

#[tokio::test]
async fn late_events_of_a_minute_are_folded_together() {
    let world = World::default();
    world.produce(&trace());
    let mut member = world.start("a", Faults::default(), |options| {
        options.checkpoint_interval = Duration::from_secs(60);
        options.checkpoint_bytes = 1;
        options.max_restate_delay = Duration::ZERO;
    });
    member.settle(&world).await.unwrap();
    let dirty = |world: &World| !world.audit.latest()[&world.shard_of("acme")].dirty.is_empty();
    let late = [pod("acme", 70, "one", 1), pod("acme", 80, "other", 1)];
    world.produce(&late[..1]);
    rest(&mut member).await;
    assert!(!dirty(&world), "the first at once");
    world.produce(&late[1..]);
    world.pass(Duration::from_secs(59));
    rest(&mut member).await;
    assert!(dirty(&world), "it is in the archive, but its hour is not folded again");
    assert_eq!(gate(&world, &member), Some(RecomputeGate::Interval));
    world.pass(Duration::from_secs(1));
    rest(&mut member).await;
    assert!(!dirty(&world));
    assert_eq!(gate(&world, &member), None);
    assert_content(
        &world.lake,
        &expected(&[trace(), late.to_vec()].concat(), TRACE_END, shard_of, rules),
        "",
    );
}

/// A late event must not cause as many writes as the event before it until live hours have been written. So
/// the second late event waits for the delay.
#[tokio::test]
async fn late_events_that_never_end_wait_for_live_hours() {
    let world = World::default();
    world.produce(&trace());
    let mut member = world.start("a", Faults::default(), |options| {
        options.checkpoint_interval = Duration::from_secs(10);
        options.checkpoint_bytes = 1;
        options.max_restate_delay = Duration::from_secs(120);
    });
    member.settle(&world).await.unwrap();
    let late = [pod("acme", 70, "one", 1), pod("acme", 80, "other", 1)];
    let waiting = |member: &Member| member.status.lock().shards[&world.shard_of("acme")].dirty_hours;
    world.produce(&late[..1]);
    rest(&mut member).await;
    assert_eq!(waiting(&member), 0, "a single one at once");
    world.produce(&late[1..]);
    rest(&mut member).await;
    world.pass(Duration::from_secs(119));
    rest(&mut member).await;
    assert_eq!(waiting(&member), 1);
    assert_eq!(gate(&world, &member), Some(RecomputeGate::LateEvents));
    world.pass(Duration::from_secs(1));
    rest(&mut member).await;
    assert_eq!(waiting(&member), 0);
    let all = [trace(), late.to_vec()].concat();
    assert_content(&world.lake, &expected(&all, TRACE_END, shard_of, rules), "");
}

/// A new owner of a shard writes waiting hours at once, because it does not know how long they have waited.
#[tokio::test]
async fn waiting_hours_are_written_when_the_shard_moves_or_input_ends() {
    for restarts in [true, false] {
        let world = World::default();
        world.produce(&trace());
        let mut member = world.start("a", Faults::default(), |options| options.checkpoint_bytes = 1);
        member.settle(&world).await.unwrap();
        let late = [pod("acme", 70, "one", 1), pod("acme", 80, "other", 1)];
        for late in late.chunks(1) {
            world.produce(late);
            rest(&mut member).await;
            world.pass(Duration::from_secs(61));
            rest(&mut member).await;
        }
        let dirty = || !world.audit.latest()[&world.shard_of("acme")].dirty.is_empty();
        assert!(dirty(), "it waits");
        if restarts {
            member.stop();
            rest_until_gone(&mut member).await;
            member = world.member("b");
            member.settle(&world).await.unwrap();
        } else {
            world.pass(Duration::from_secs(3_600));
        }
        rest(&mut member).await;
        world.audit.look();
        assert!(!dirty(), "{restarts}");
    }
}

async fn rest_until_gone(member: &mut Member) {
    while !member.is_gone() {
        member.step().await;
    }
}
