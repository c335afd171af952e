//! Trouble: changes in a round besides the steps of the workers, and their reversal in a later round.

use std::time::Duration;

use prorata_schemas::rules::Rules;
use prorata_schemas::time::WallTime;
use prorata_worker::names::Shard;

use super::dice::Dice;
use super::fleet::{Fleet, Kind};
use super::foreign::Foreign;
use super::producer::LATER;
use super::rules::{self, RULES};
use crate::world::TOPICS;

/// A change to undo.
enum Undo {
    Registry,
    Brokers,
    Partition(&'static str, Shard),
    Outage,
    CutOff(String),
    Clock(String),
}

/// The troubles of a run.
#[derive(Default)]
pub struct Chaos {
    undo: Vec<(i64, Undo)>,
    joined: usize,
    rules: u32,
    /// The latest time that the clock has shown.
    pub latest: WallTime,
}

impl Chaos {
    /// Causes the trouble of one round.
    pub async fn strike(&mut self, fleet: &mut Fleet, foreign: &mut Foreign, dice: &mut Dice, round: i64) {
        self.heal(fleet, round);
        self.processes(fleet, dice, round);
        self.surroundings(fleet, dice, round);
        self.clocks(fleet, dice, round);
        self.logs(fleet, dice);
        let chances = fleet.plan.chances;
        if dice.happens(chances.backfill) {
            let rules = (chances.new_rules > 0 && dice.happens(300)).then(|| self.other_rules(fleet));
            let (world, plan) = (fleet.world.clone(), fleet.plan.clone());
            foreign.disturb(&world, &plan, rules, &mut fleet.coverage, dice).await;
        }
        if dice.happens(chances.new_rules) {
            let rules = self.other_rules(fleet);
            *fleet.rules.lock().unwrap() = rules;
            fleet.coverage.hit("new_rules");
        }
        fleet.wake(dice, 150);
        self.latest = self.latest.max(fleet.world.now());
    }

    fn other_rules(&mut self, fleet: &Fleet) -> Rules {
        self.rules = (self.rules + 1) % RULES;
        rules::numbered(self.rules + if fleet.plan.chances.greed > 0 { RULES } else { 0 })
    }

    /// Sometimes sets the clock of a process wrong, by an amount that may or may not be noticed.
    fn clocks(&mut self, fleet: &mut Fleet, dice: &mut Dice, round: i64) {
        let (alive, chance) = (fleet.alive(), fleet.plan.chances.wrong_clock);
        if chance == 0 || alive.is_empty() || !dice.happens(chance) {
            return;
        }
        let name = fleet.berths[dice.pick(&alive)].name.clone();
        let seconds = dice.pick(&[300, 590, 3_600, 2 * 86_400, 40 * 86_400]) * dice.pick(&[1, -1]);
        fleet.world.clock_of(&name).set_ahead(seconds);
        self.undo.push((round + dice.between(1, 30), Undo::Clock(name)));
        fleet.coverage.hit("wrong_clock");
    }

    fn processes(&mut self, fleet: &mut Fleet, dice: &mut Dice, round: i64) {
        let chances = fleet.plan.chances;
        let alive = fleet.alive();
        if alive.is_empty() {
            return;
        }
        let index = dice.pick(&alive);
        let name = fleet.berths[index].name.clone();
        let broker = fleet.world.broker.clone();
        if dice.happens(chances.kill) {
            fleet.kill(index, round, dice);
        }
        let hangs = fleet.berths[index].member.as_ref().is_some_and(|member| member.hangs());
        if hangs && dice.happens(300) {
            fleet.kill(index, round, dice);
        }
        if dice.happens(if hangs { 300 } else { chances.expire }) && broker.expire(&name) {
            fleet.coverage.hit("expired");
        }
        if dice.happens(chances.cut_off) {
            broker.isolate(&name, true);
            if dice.happens(800) {
                broker.expire(&name);
            }
            self.undo.push((round + dice.between(1, 10), Undo::CutOff(name.clone())));
            fleet.coverage.hit("cut_off");
        }
        if dice.happens(5 * chances.run_out)
            && let Some(awaited) = broker.awaited().values().next()
        {
            broker.run_out(awaited);
            fleet.coverage.hit("run_out");
        }
        if dice.happens(chances.rebalance) {
            broker.rebalance();
        }
        if dice.happens(chances.stop)
            && let Some(member) = &mut fleet.berths[index].member
        {
            member.stop();
            fleet.coverage.hit("stopped");
        }
        if dice.happens(chances.join) && self.joined < 3 {
            self.joined += 1;
            fleet.join(format!("j{}", self.joined), round, Kind::Own);
            fleet.coverage.hit("joined");
        }
        if dice.happens(chances.twin) {
            fleet.join(name, round, Kind::Twin);
            fleet.coverage.hit("twin");
        }
        if chances.stranger > 0 && dice.happens(chances.stranger) && fleet.world.has_consumer() {
            fleet.join("s".to_owned(), round, Kind::Stranger);
        }
    }

    fn surroundings(&mut self, fleet: &mut Fleet, dice: &mut Dice, round: i64) {
        let chances = fleet.plan.chances;
        let world = fleet.world.clone();
        let until = round + dice.between(1, 8);
        if dice.happens(chances.registry_down) {
            world.registry.set_down(true);
            self.undo.push((until, Undo::Registry));
            fleet.coverage.hit("registry_down");
        }
        if dice.happens(10) {
            world.registry.register(LATER);
        }
        if dice.happens(chances.brokers_down) {
            world.broker.set_down(true);
            self.undo.push((until, Undo::Brokers));
            fleet.coverage.hit("brokers_down");
        }
        if dice.happens(chances.partition_down) {
            let (topic, shard) = (dice.pick(&TOPICS), dice.below(usize::from(world.shards)) as Shard);
            world.broker.set_partition_down(topic, shard, true);
            self.undo.push((round + dice.between(1, 25), Undo::Partition(topic, shard)));
            fleet.coverage.hit("partition_down");
        }
        if dice.happens(chances.outage) {
            world.audit.set_outage(true);
            self.undo.push((until, Undo::Outage));
            fleet.coverage.hit("outage");
        }
        if dice.happens(chances.clock_step) {
            let now = world.now();
            world.clock.set(WallTime(now.0 + dice.between(-1_800, 3_600) * 1_000_000));
            fleet.coverage.hit("clock_step");
        }
        if dice.happens(500) {
            world.broker.confirm_ends();
        }
    }

    /// Sometimes skips offsets in a log, and sometimes compacts or deletes records that are read and decided.
    fn logs(&mut self, fleet: &mut Fleet, dice: &mut Dice) {
        let (world, chances) = (fleet.world.clone(), fleet.plan.chances);
        let (topic, shard) = (dice.pick(&TOPICS), dice.below(usize::from(world.shards)) as Shard);
        if dice.happens(chances.hole) {
            world.broker.skip_offsets(topic, shard, 1 + dice.below(4) as u32).unwrap();
            fleet.coverage.hit("hole");
        }
        let decided =
            world.audit.latest().get(&shard).and_then(|checkpoint| checkpoint.offsets.get(topic).cloned());
        let places = decided.and_then(|offsets| Some((offsets.next?, offsets.last?.offset)));
        let Some((next, last)) = places.filter(|_| dice.happens(chances.retention)) else { return };
        if dice.happens(500) {
            // The last record read is gone too.
            world.broker.compact(topic, shard, last - 1 - dice.between(0, 3)).unwrap();
        } else {
            world.broker.delete_before(topic, shard, next - dice.between(0, 3)).unwrap();
        }
        fleet.coverage.hit("retention");
    }

    fn heal(&mut self, fleet: &Fleet, round: i64) {
        let (due, later) = std::mem::take(&mut self.undo).into_iter().partition(|(at, _)| *at <= round);
        self.undo = later;
        let due: Vec<(i64, Undo)> = due;
        let world = &fleet.world;
        for (_, undo) in due {
            match undo {
                Undo::Registry => world.registry.set_down(false),
                Undo::Brokers => world.broker.set_down(false),
                Undo::Partition(topic, shard) => world.broker.set_partition_down(topic, shard, false),
                Undo::Outage => world.audit.set_outage(false),
                Undo::CutOff(name) => world.broker.isolate(&name, false),
                Undo::Clock(name) => world.clock_of(&name).set_ahead(0),
            }
        }
    }

    /// Ends all trouble, and sets the clock to at least the latest time that it has shown.
    pub fn end(&mut self, fleet: &mut Fleet, dice: &mut Dice) {
        self.heal(fleet, i64::MAX);
        let world = &fleet.world;
        world.audit.no_call();
        for topic in TOPICS {
            (0..world.shards).for_each(|shard| world.broker.set_partition_down(topic, shard, false));
        }
        world.registry.register(LATER);
        if world.now() < self.latest {
            world.clock.set(self.latest);
        }
        world.pass(Duration::from_secs(60));
        fleet.calm(dice);
    }
}
