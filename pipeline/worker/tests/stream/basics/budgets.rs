//! Costs and budgets in the status and in the topic of exceeded budgets.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use prorata_samples::trace::{START, node, node_stop};
use prorata_schemas::event::{BudgetExceedStrategy, Event, EventRecord, Payload, PoolSet, Quantities};
use prorata_schemas::money::Money;
use prorata_schemas::time::{Hour, Timestamp};
use prorata_testkit::fakes::{FakeBudgetTopic, Fault, Faults};
use prorata_worker::ports::ExceededBudget;
use prorata_worker::status::{Dependency, ShardCosts};
use prorata_worker::stream::WorkerOptions;

use crate::world::World;
use crate::world::cluster::Cluster;
use crate::world::member::Member;

/// Returns a world with a topic of exceeded budgets.
fn world() -> (World, FakeBudgetTopic) {
    let (mut world, topic) = (World::default(), FakeBudgetTopic::default());
    world.budgets = Some(topic.clone());
    (world, topic)
}

fn pool(minutes: i64, day: i32, month: i32) -> EventRecord {
    let pool = PoolSet {
        pool_id: "p".into(),
        cluster_id: "c".into(),
        provider: "aws".into(),
        default_qos: "default".into(),
        qos_pricing: Vec::new(),
        tflops_oversell_percent: 500,
        vram_expand_to_host_disk_percent: 70,
        vram_expand_to_host_mem_percent: 50,
        budget_per_day: Some(Money::from(day)),
        budget_per_month: Some(Money::from(month)),
        budget_per_quarter: None,
        currency: "USD".into(),
        budget_exceed_strategy: BudgetExceedStrategy::AlertOnly,
        max_capacity: Quantities::new(),
        min_capacity: Quantities::new(),
        warm_capacity: Quantities::new(),
    };
    let event_time = Hour(START).start().0 + minutes * 60_000_000;
    let payload = Payload::PoolSet(Box::new(pool));
    EventRecord::new(Event::new("acme".into(), Timestamp(event_time), payload))
}

/// Returns the start of the pool's node, which costs 10 an hour.
fn pooled_node(minutes: i64) -> EventRecord {
    let mut event = node("acme", minutes, 10).event;
    if let Payload::NodeStarted(node) = &mut event.payload {
        node.pool_id = Some("p".into());
    }
    EventRecord::new(event)
}

/// Returns six hours of a pool that exceeds its daily budget in the third hour, and its monthly budget in the
/// fourth hour. The other organizations of the trace move the watermark.
fn story() -> Vec<EventRecord> {
    vec![pool(0, 25, 35), pooled_node(0), node("hooli", 10, 3), node("gamma", 15, 2)]
}

/// Returns the content of the topic in short form, without repeats.
fn taken(topic: &FakeBudgetTopic) -> BTreeMap<String, (i64, String)> {
    let short = |one: ExceededBudget| {
        let (spend, budget) = (one.used.spend, one.used.budget);
        (one.key(), (one.hour.0 - START, format!("{spend} of {budget} {}", one.currency)))
    };
    topic.taken().into_iter().map(short).collect()
}

fn expected() -> BTreeMap<String, (i64, String)> {
    BTreeMap::from([
        (r#"["acme","p","day","2026-11-01"]"#.into(), (2, "30 of 25 USD".into())),
        (r#"["acme","p","month","2026-11-01"]"#.into(), (3, "40 of 35 USD".into())),
    ])
}

fn reading(options: &mut WorkerOptions) {
    options.reads_costs = true;
}

/// Returns the costs and then the budgets that the status reports for the organization with the pool.
fn reported(member: &Member) -> Vec<String> {
    let status = member.status.lock();
    let shards: Vec<Arc<ShardCosts>> = status.shards.values().map(|shard| Arc::clone(&shard.costs)).collect();
    drop(status);
    let costs = shards.iter().flat_map(|shard| &shard.day);
    let costs = costs
        .filter(|((id, _), _)| **id == *"acme")
        .map(|((_, currency), cost)| format!("{cost} {currency}"));
    let budgets = shards.iter().flat_map(|shard| &shard.budgets);
    let budgets = budgets.map(|used| format!("{} {} of {}", used.period.name(), used.spend, used.budget));
    costs.chain(budgets).collect()
}

const REPORTED: [&str; 3] = ["60 USD", "day 60 of 25", "month 60 of 35"];

#[tokio::test]
async fn the_first_hour_over_a_budget_is_sent_once_and_costs_survive_a_restart() {
    let (world, topic) = world();
    world.produce(&story());
    let mut member = world.start("a", Faults::default(), reading);
    member.settle(&world).await.unwrap();
    assert_eq!(taken(&topic), expected());
    assert_eq!(topic.taken().len(), 2, "nothing is repeated without a fault");
    assert_eq!(reported(&member), REPORTED);
    assert_eq!(member.status.lock().counts.budget_messages, 2);
    member.drain().await;
    let mut member = world.start("b", Faults::default(), reading);
    member.settle(&world).await.unwrap();
    assert_eq!(reported(&member), REPORTED);
    assert_eq!(topic.taken().len(), 2);
    for checkpoint in world.audit.latest().values() {
        assert!(checkpoint.unsent_budgets.is_empty(), "{:?}", checkpoint.unsent_budgets);
    }
}

#[tokio::test]
async fn a_late_event_corrects_what_is_reported_and_repeats_a_message_at_most() {
    let (world, topic) = world();
    world.produce(&story());
    let mut member = world.start("a", Faults::default(), reading);
    member.settle(&world).await.unwrap();
    // The node stopped after 90 minutes, so neither budget was ever exceeded.
    world.produce(&[node_stop("acme", 90)]);
    member.settle(&world).await.unwrap();
    assert_eq!(reported(&member), ["15 USD", "day 15 of 25", "month 15 of 35"]);
    assert_eq!(topic.taken().len(), 2, "nothing says so on the topic");
    // The node started again before that hour was over, so the daily budget is exceeded after all.
    world.produce(&[pooled_node(100)]);
    // Hours that changed just now wait for further late events.
    member.settle(&world).await.unwrap();
    world.pass(WorkerOptions::default().max_restate_delay);
    member.settle(&world).await.unwrap();
    let [_, day, _] = reported(&member).try_into().unwrap();
    assert!(day.ends_with("8.333333333333 of 25"), "{day}");
    let keys: BTreeSet<String> = taken(&topic).into_keys().collect();
    assert_eq!(keys, expected().into_keys().collect());
    assert_eq!(topic.taken().len(), 4, "the same keys again");
}

#[tokio::test]
async fn no_crash_loses_a_message() {
    let effects = {
        let (world, _) = world();
        run(&world, Faults::default(), "untouched").await.members[0].faults.effects()
    };
    for fault in [Fault::CrashBefore, Fault::CrashAfter, Fault::LoseAnswer, Fault::Refuse] {
        for effect in 0..effects {
            let context = format!("{:?}", fault(effect));
            let (world, topic) = world();
            run(&world, Faults::with(fault(effect)), &context).await;
            assert_eq!(taken(&topic), expected(), "{context}");
        }
    }
}

async fn run(world: &World, faults: Faults, context: &str) -> Cluster {
    let mut cluster = Cluster::new(world, reading);
    cluster.start("a", faults);
    world.produce(&story());
    cluster.settle(context).await;
    assert!(cluster.stops.is_empty(), "{context}: {:?}", cluster.stops);
    cluster
}

#[tokio::test]
async fn a_missing_topic_is_reported_and_holds_up_nothing() {
    let (world, topic) = world();
    topic.set_missing(true);
    world.produce(&story());
    let mut member = world.member("a");
    member.settle(&world).await.unwrap();
    {
        let status = member.status.lock();
        assert!(status.counts.budget_failures > 1, "it is retried");
        assert!(status.waits[&Dependency::BudgetTopic].message.contains("create it"));
        assert!(status.ready);
        let closed = status.shards.values().map(|shard| shard.closed_through);
        assert_eq!(closed.min(), Some(Some(Hour(START + 5))));
    }
    topic.set_missing(false);
    member.settle(&world).await.unwrap();
    assert_eq!(taken(&topic), expected());
    assert!(member.status.lock().waits.is_empty());
}

#[tokio::test]
async fn a_silent_topic_delays_neither_hours_nor_a_stop_and_the_next_owner_sends() {
    let (world, topic) = world();
    topic.set_silent(true);
    world.produce(&story());
    let mut member = world.member("a");
    member.settle(&world).await.unwrap();
    let closed = member.status.lock().shards.values().map(|shard| shard.closed_through).min();
    assert_eq!(closed, Some(Some(Hour(START + 5))));
    member.drain().await;
    drop(member);
    assert_eq!(topic.taken(), []);
    let waits = world.audit.latest().values().any(|checkpoint| !checkpoint.unsent_budgets.is_empty());
    assert!(waits, "the checkpoint has the hours");
    topic.set_silent(false);
    world.member("b").settle(&world).await.unwrap();
    assert_eq!(taken(&topic), expected());
}
