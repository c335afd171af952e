//! A short story with everything in it: hours that close in order, late events, dead letters, and a clean
//! stop.

use prorata_samples::trace::{START, TRACE_END, node, pod, pod_stop, trace};
use prorata_schemas::event::EventRecord;
use prorata_schemas::reject::Reason;
use prorata_testkit::fakes::{FakeMessages, Faults};
use prorata_worker::stream::WorkerOptions;

use crate::harness::*;
use crate::world::cluster::Cluster;
use crate::world::oracle::{self, Also};
use crate::world::{SCHEMA, What, World};

/// The way in which the story runs.
#[derive(Clone, Copy)]
pub struct Story {
    pub tune: fn(&mut WorkerOptions),
    pub parts: usize,
    /// The step between tried effects or reads; 1 tries all. Each kind of fault starts at a different effect
    /// or read.
    every: u64,
}

/// A story in which a fold takes many hours, and all hours stay in memory. Every effect is tried.
pub const SHORT: Story = Story { tune: |_| {}, parts: 4, every: 1 };

/// A story with small limits. Hours close one at a time while old hours are recomputed, and events are
/// dropped from memory and read back. `PRORATA_SIM_EVERY=1` tries every effect, which takes minutes.
pub const LONG: Story = Story { tune: hurry, parts: 5, every: 4 };

fn hurry(options: &mut WorkerOptions) {
    options.rows_in_flight = 1;
    options.memory_limit = 700;
    options.checkpoint_bytes = 300;
}

impl Story {
    /// Returns the numbers of the effects or reads to try, out of `all`.
    pub fn numbers(&self, all: u64, first: u64) -> impl Iterator<Item = u64> {
        let every = std::env::var("PRORATA_SIM_EVERY").map_or(self.every, |every| every.parse().unwrap());
        (first % every..all).step_by(usize::try_from(every).unwrap())
    }
}

/// Returns the late events of part 2.
pub fn late() -> Vec<EventRecord> {
    vec![pod("acme", 70, "late", 1), pod_stop("acme", 170, "late"), node("hooli", 200, 8)]
}

/// Produces the events of a part.
pub fn produce_part(world: &World, part: usize) {
    let between = |from: i64, to: i64| -> Vec<EventRecord> {
        let minutes = |event: &EventRecord| (event.event.event_time.0 / 60_000_000) - START * 60;
        trace().into_iter().filter(|event| (from..to).contains(&minutes(event))).collect()
    };
    match part {
        0 => {
            world.set_minutes(180);
            world.produce(&between(0, 180));
            bad(world, "acme", Reason::Malformed);
        }
        1 => {
            world.set_minutes(300);
            world.produce(&between(180, 300));
        }
        2 => {
            world.set_minutes(370);
            world.produce(&between(300, 400));
            world.produce(&late());
            world.produce(&between(0, 60));
            bad(world, "hooli", Reason::UnknownEvent);
        }
        3 => {
            world.set_minutes(425);
            world.produce(&[pod("gamma", 320, "g2", 1), node("acme", 365, 12)]);
        }
        // Many hours are to close while an old hour is recomputed.
        _ => {
            world.set_minutes(900);
            let news = |hour: i64| [pod("acme", hour * 60 + 5, "a3", 1), node("gamma", hour * 60 + 9, hour)];
            world.produce(&(7..14).flat_map(news).collect::<Vec<_>>());
            world.produce(&[pod("gamma", 100, "g3", 1), node("acme", 150, 13)]);
        }
    }
}

fn bad(world: &World, organization: &str, reason: Reason) {
    let event = node(organization, 10, 1);
    let value = match reason {
        Reason::Malformed => vec![1, 2],
        _ => {
            let mut value = FakeMessages::encode(SCHEMA, &event);
            value[4] = 200;
            value
        }
    };
    world.send_event(&event, value, What::Bad(reason));
}

/// Asserts that the root is correct after the whole story.
pub fn check(world: &World, context: &str) {
    oracle::check(world, &Also::default(), |_, hour| rules(hour), context);
    for (shard, checkpoint) in world.audit.latest() {
        assert!(checkpoint.closed_through >= Some(TRACE_END), "{context}: shard {shard} is not closed");
    }
    assert_eq!(world.audit.latest().len(), 2, "{context}");
}

/// Runs the story with one worker, these faults and one clean stop. A worker that dies is restarted.
pub async fn live(faults: Faults, story: Story, context: &str) -> Cluster {
    let world = World::default();
    let mut cluster = Cluster::new(&world, story.tune);
    cluster.start("a", faults);
    for part in 0..story.parts {
        produce_part(&world, part);
        cluster.settle(context).await;
        if part == 1 {
            cluster.replace(0).await;
        }
    }
    cluster
}

/// Creates a root into which a worker has read the trace before it stopped cleanly.
pub async fn read() -> World {
    let world = World::default();
    world.produce(&trace());
    let mut member = world.member("a");
    member.settle(&world).await.unwrap();
    member.drain().await;
    world
}
