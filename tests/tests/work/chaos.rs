//! Kills, freezes and restarts workers, and checks that the tables stay correct.

mod bills;

use std::collections::BTreeSet;
use std::ops::Range;
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use prorata_testkit::wait::eventually;
use prorata_tests::program::Program;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use serde_json::json;

use super::world::topics::Admin;
use super::world::worker::Worker;
use super::world::{Load, SHARDS, World, rounds, sent, tuned};

/// Maximum number of times that all workers may wake up by chance without a conflict.
const TURNS_MAX: usize = 4;

/// Repeatable random choices.
pub struct Dice(ChaCha8Rng);

impl Dice {
    /// Seeds the choices by `PRORATA_CHAOS_SEED` if it is set, else by the clock. A failed test shows the
    /// seed.
    pub fn new() -> Self {
        let clock = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
        let seed = tuned("PRORATA_CHAOS_SEED", u64::from(clock.subsec_micros()));
        println!("PRORATA_CHAOS_SEED={seed}");
        Self(ChaCha8Rng::seed_from_u64(seed))
    }

    /// Returns a number below `count`.
    pub fn pick(&mut self, count: usize) -> usize {
        self.0.random_range(0..count)
    }

    /// Sleeps for some milliseconds, so that faults strike whatever is in progress. The moment is under test.
    pub fn sleep(&mut self, milliseconds: Range<u64>) {
        let time = self.0.random_range(milliseconds);
        println!("{time} ms");
        thread::sleep(Duration::from_millis(time));
    }

    /// Starts to send load for about this many seconds.
    pub fn start_sending(&mut self, world: &World, seconds: u64) -> (Load, Program) {
        // Every shard gets some of so many organizations: a worker without events has nothing to lose.
        let load = Load { organizations: 16, pods: 5, ..Load::small(self.0.random_range(1..1_000)) };
        let folder = world.folder.path().join(format!("count-{}", load.seed));
        let events = u64::try_from(world.write(load, &folder)).unwrap();
        let rate = u32::try_from(events / seconds.max(1) + 1).unwrap();
        (load, world.start_sending(load, Some(rate)))
    }
}

/// Waits until these workers together stably hold all shards, and each worker holds at least one. Returns the
/// shards of each worker.
fn settled(world: &World, workers: &mut [Worker]) -> Vec<BTreeSet<u64>> {
    workers.iter_mut().for_each(Worker::ready);
    let admin = Admin::new(world);
    eventually("all shards are held", || {
        let held: Vec<BTreeSet<u64>> = workers.iter_mut().map(Worker::shards).collect();
        let all: BTreeSet<u64> = held.iter().flatten().copied().collect();
        let whole = all.len() == usize::from(SHARDS) && held.iter().all(|held| !held.is_empty());
        // Compares the members' view of the group with the coordinator's, which may be about to move shards.
        let (state, members) = admin.group(&world.name);
        if whole && state == "Stable" && members == held.len() {
            return Ok(held);
        }
        Err(format!("they hold {held:?}, and the group of {members} is {state}"))
    })
}

#[test]
fn killed_workers_lose_nothing_and_double_nothing() {
    let mut dice = Dice::new();
    let mut world = World::new("kill");
    world.set("kafka.session_timeout", json!("2s"));
    let mut workers: Vec<Worker> = (0..3).map(|_| world.worker()).collect();
    let (load, generator) = dice.start_sending(&world, 4 * rounds());
    for round in 0..rounds() {
        dice.sleep(500..3_500);
        let victim = dice.pick(workers.len());
        println!("round {round} kills worker {victim}");
        workers[victim].program.kill();
        dice.sleep(0..1_500);
        workers[victim] = world.worker();
    }
    let messages = sent(generator);
    world.drained(&mut workers, messages);
    workers.into_iter().for_each(|worker| drop(worker.stop()));
    let owners = world.lake().owners();
    assert!(owners.len() > usize::from(SHARDS), "nobody took over from anybody: {owners:?}");
    world.assert_law(&[load]);
}

#[test]
fn frozen_workers_that_wake_up_without_their_shards_release_them() {
    let mut dice = Dice::new();
    let mut world = World::new("freeze");
    world.set("kafka.session_timeout", json!("2s"));
    let mut workers: Vec<Worker> = (0..3).map(|_| world.worker()).collect();
    settled(&world, &mut workers);
    let (mut loads, mut messages, mut conflicts) = (Vec::new(), 0, 0_u64);
    // By chance, the frozen workers may have had nothing to decide.
    while conflicts == 0 {
        assert!(loads.len() < TURNS_MAX, "no worker tried to decide what others had decided");
        let (load, generator) = dice.start_sending(&world, 6 * rounds());
        for round in 0..rounds() {
            dice.sleep(800..2_000);
            let victim = dice.pick(workers.len());
            println!("round {round} freezes worker {victim}");
            workers[victim].program.signal("STOP");
            dice.sleep(3_000..5_000);
            workers[victim].program.signal("CONT");
        }
        messages += sent(generator);
        world.drained(&mut workers, messages);
        loads.push(load);
        conflicts = workers.iter_mut().map(|worker| worker.counter("conflicts")).sum();
        println!("{conflicts} conflicts");
    }
    workers.into_iter().for_each(|worker| drop(worker.stop()));
    world.assert_law(&loads);
}

#[test]
fn a_rolling_restart_with_static_membership_moves_no_shard() {
    let mut dice = Dice::new();
    let mut world = World::new("rolling");
    world.set("kafka.session_timeout", json!("40s"));
    let member = |index: usize| {
        let name = format!("{}-{index}", world.name);
        world.worker_with(&[("PRORATA_KAFKA__GROUP_INSTANCE_ID", &name)])
    };
    let mut workers: Vec<Worker> = (0..3).map(member).collect();
    let held = settled(&world, &mut workers);
    let (load, generator) = dice.start_sending(&world, 12);
    for index in 0..workers.len() {
        dice.sleep(500..1_500);
        let rebalances = |workers: &mut Vec<Worker>| -> Vec<u64> {
            let others = workers.iter_mut().enumerate().filter(|(other, _)| *other != index);
            others.map(|(_, worker)| worker.counter("rebalances")).collect()
        };
        let before = rebalances(&mut workers);
        let worker = workers.remove(index);
        worker.stop();
        let checkpoints = world.lake().checkpoints();
        for shard in &held[index] {
            let owner = checkpoints[&u16::try_from(*shard).unwrap()].owner.as_ref().unwrap();
            assert!(owner.released, "shard {shard} is not released by {owner:?}");
        }
        workers.insert(index, member(index));
        workers[index].ready();
        assert_eq!(workers[index].shards(), held[index], "worker {index}");
        assert_eq!(rebalances(&mut workers), before, "the others were rebalanced");
    }
    let messages = sent(generator);
    world.drained(&mut workers, messages);
    workers.into_iter().for_each(|worker| drop(worker.stop()));
    world.assert_law(&[load]);
}
