//! The simulation. Everything happens at once and at random, but equal seeds lead to equal runs.
//!
//! `PRORATA_SIM_SEEDS` is the number of seeds. `PRORATA_SIM_FIRST_SEED` is the first seed, or `fresh` for a
//! seed that is taken from the clock. To repeat a failing seed, run `PRORATA_SIM_FIRST_SEED=<seed>
//! PRORATA_SIM_SEEDS=1 cargo test -p prorata-worker --test stream sim`.

mod chaos;
mod coverage;
mod dice;
mod economy;
mod ending;
mod fleet;
pub mod foreign;
mod plan;
pub mod producer;
mod rules;

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use futures::FutureExt;
use prorata_testkit::fakes::FakeBroker;
use prorata_worker::names::Shard;

use crate::world::World;
use chaos::Chaos;
use coverage::Coverage;
use dice::Dice;
use fleet::Fleet;
use foreign::Foreign;
use plan::Plan;
use producer::Producer;

/// The number of seeds that are always tried.
const FIXED: u64 = 64;

/// Fresh seeds that have found faults; they are always tried too.
const FOUND: [u64; 12] = [
    302160609,
    434207631,
    1442718900,
    12579014564,
    14895112249,
    11336297303,
    17539984188,
    12456127214,
    15968895542,
    12962843655,
    12962844066,
    12962844974,
];

#[tokio::test]
async fn the_tables_always_equal_a_fold_of_the_archive() {
    let (first, seeds, fixed) = seeds();
    let mut coverage = Coverage::default();
    let mut failed = Vec::new();
    let found = FOUND.into_iter().filter(|_| fixed);
    for seed in (first..first + seeds).chain(found) {
        match std::panic::AssertUnwindSafe(simulate(seed)).catch_unwind().await {
            Ok(covered) => coverage.merge(&covered),
            Err(_) => {
                println!(
                    "repeat: PRORATA_SIM_FIRST_SEED={seed} PRORATA_SIM_SEEDS=1 \
                     cargo test -p prorata-worker --test stream sim"
                );
                failed.push(seed);
            }
        }
    }
    println!("{seeds} seeds from {first} on");
    let missing = coverage.missing();
    assert!(failed.is_empty(), "seeds that fail: {failed:?}");
    assert!(!fixed || missing.is_empty(), "never reached: {missing:?}");
}

/// Returns the first seed, the number of seeds, and whether these are the fixed seeds.
fn seeds() -> (u64, u64, bool) {
    let number = |name: &str| std::env::var(name).ok().map(|text| (text.parse::<u64>().ok(), text));
    let seeds = number("PRORATA_SIM_SEEDS").map(|(seeds, text)| seeds.unwrap_or_else(|| panic!("{text}")));
    let first = number("PRORATA_SIM_FIRST_SEED").map(|(first, text)| match first {
        Some(first) => first,
        None => {
            assert_eq!(text, "fresh", "PRORATA_SIM_FIRST_SEED is a number, or 'fresh'");
            let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
            // The first seed is a multiple of sixteen, so that every run has its share of long seeds.
            (now.as_micros() as u64 % 1_000_000_000) * 16
        }
    });
    (first.unwrap_or(0), seeds.unwrap_or(FIXED), first.is_none() && seeds.is_none())
}

/// Runs one seed from beginning to end.
async fn simulate(seed: u64) -> Coverage {
    let mut dice = Dice::new(seed);
    let plan = Plan::of(seed, &mut dice);
    println!("seed {seed}: {plan:?}");
    let started = Instant::now();
    let broker = FakeBroker::seeded(dice.bits());
    broker.set_poll_messages(plan.poll_messages);
    broker.set_ends(plan.ends);
    broker.set_eager(plan.eager);
    let mut world = World::on(broker, plan.shards);
    // Some seeds cut the files of an hour early.
    world.lake.file_rows = seed.is_multiple_of(3).then_some(3);
    if plan.slow > 0 {
        let (mut slow, chance) = (Dice::new(seed ^ 0x5_10), plan.slow);
        world.set_slow(move || {
            let seconds = if slow.happens(chance) { slow.between(1, 5 * 3_600) } else { 0 };
            Duration::from_secs(seconds.unsigned_abs())
        });
    }
    world.set_minutes(0);
    let mut producer = Producer::new(&plan);
    let mut foreign = Foreign::default();
    let mut chaos = Chaos::default();
    let mut fleet = Fleet::new(&world, &plan, seed);
    if plan.slow > 0 {
        fleet.coverage.hit("slow_storage");
    }
    if plan.backfill_first {
        foreign.disturb(&world, &plan, None, &mut fleet.coverage, &mut dice).await;
    }
    if let Some(topic) = plan.behind {
        (0..plan.shards).for_each(|shard: Shard| world.broker.set_partition_down(topic, shard, true));
    }
    for round in 0..plan.rounds {
        producer.produce(&world, &plan, &mut dice, round);
        chaos.strike(&mut fleet, &mut foreign, &mut dice, round).await;
        if let Some(topic) = plan.behind
            && round == plan.rounds / 2
        {
            (0..plan.shards).for_each(|shard| world.broker.set_partition_down(topic, shard, false));
        }
        fleet.round(round, &mut dice).await;
        world.pass(Duration::from_secs(plan.round_seconds.unsigned_abs()));
    }
    producer.finish(&world);
    chaos.end(&mut fleet, &mut dice);
    let coverage = ending::end(&mut fleet, &mut foreign, &mut dice).await;
    println!("seed {seed}: {:?}", started.elapsed());
    coverage
}
