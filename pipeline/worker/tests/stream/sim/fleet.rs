//! The processes of a simulation, which start, die, hang and restart, and the pending effects of dead
//! processes.

use std::sync::{Arc, Mutex};

use prorata_schemas::rules::Rules;
use prorata_testkit::fakes::{Faults, Resume};
use prorata_worker::source::SourceError;
use prorata_worker::status::ShardStop;
use prorata_worker::stream::WorkerOptions;
use prorata_worker::{StopReason, WorkerError};

use super::coverage::Coverage;
use super::dice::Dice;
use super::plan::{Plan, Tune};
use super::rules;
use crate::world::World;
use crate::world::member::{Member, Stepped};

/// A place for a process.
pub struct Berth {
    pub name: String,
    pub member: Option<Member>,
    /// The round in which a process starts here, if the berth has no process.
    pub start_at: i64,
    pub kind: Kind,
}

impl Berth {
    /// Returns whether another process starts in the berth after a process has ended.
    fn is_refilled(&self) -> bool {
        self.kind == Kind::Own
    }
}

/// The kind of the processes of a berth.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A member of the group.
    Own,
    /// A second process with the name of another berth.
    Twin,
    /// A member of another group, on another cluster.
    Stranger,
}

/// All processes.
pub struct Fleet {
    pub world: World,
    pub plan: Plan,
    pub berths: Vec<Berth>,
    /// Faults of dead processes whose effects may still happen.
    ghosts: Vec<Faults>,
    /// Whether all faults have ended.
    pub calm: bool,
    /// The rules in the configuration of new processes.
    pub rules: Arc<Mutex<Rules>>,
    pub coverage: Coverage,
    pub seed: u64,
}

impl Fleet {
    pub fn new(world: &World, plan: &Plan, seed: u64) -> Self {
        let berth = |number: usize| Berth {
            name: format!("m{number}"),
            member: None,
            start_at: number as i64,
            kind: Kind::Own,
        };
        Self {
            world: world.clone(),
            plan: plan.clone(),
            berths: (0..plan.members).map(berth).collect(),
            ghosts: Vec::new(),
            calm: false,
            rules: Arc::new(Mutex::new(rules::first(plan))),
            coverage: Coverage::default(),
            seed,
        }
    }

    /// Adds a berth.
    pub fn join(&mut self, name: String, round: i64, kind: Kind) {
        self.berths.push(Berth { name, member: None, start_at: round, kind });
    }

    /// Returns the berths with a process.
    pub fn alive(&self) -> Vec<usize> {
        let alive = self.berths.iter().enumerate().filter(|(_, berth)| berth.member.is_some());
        alive.map(|(index, _)| index).collect()
    }

    fn start(&mut self, index: usize, dice: &mut Dice) {
        let faults = match self.calm {
            true => Faults::default(),
            false => Faults::random(dice.bits(), self.plan.rates),
        };
        let (tune, rules): (Tune, Rules) = (self.plan.tune, self.rules.lock().unwrap().clone());
        let kind = self.berths[index].kind;
        let change = move |options: &mut WorkerOptions| {
            tune.apply(options);
            options.rules = rules;
        };
        let berth = &mut self.berths[index];
        let world = match kind {
            Kind::Own | Kind::Twin => self.world.clone(),
            Kind::Stranger => self.world.of_another_group(),
        };
        berth.member = Some(world.start(&berth.name, faults, change));
    }

    /// Kills a process.
    pub fn kill(&mut self, index: usize, round: i64, dice: &mut Dice) {
        if let Some(member) = &self.berths[index].member {
            member.faults.kill();
            self.coverage.hit("killed");
            self.bury(index, round + dice.between(0, 8));
        }
    }

    /// Forgets a process that is gone, but keeps its pending effects.
    fn bury(&mut self, index: usize, start_at: i64) {
        let berth = &mut self.berths[index];
        let Some(member) = berth.member.take() else { return };
        berth.start_at = if berth.is_refilled() { start_at } else { i64::MAX };
        self.coverage.take(&member);
        if !member.faults.paused().is_empty() {
            self.coverage.hit("dead_with_effects_to_come");
            self.ghosts.push(member.faults.clone());
        }
    }

    /// Steps each process once, except for randomly skipped processes. Returns whether nothing happened.
    pub async fn round(&mut self, round: i64, dice: &mut Dice) -> bool {
        let mut quiet = true;
        for index in 0..self.berths.len() {
            if self.berths[index].member.is_none() && self.berths[index].start_at <= round {
                self.start(index, dice);
                quiet = false;
            }
            let skipped = !self.calm && dice.happens(self.plan.chances.skipped_step);
            let Some(member) = self.berths[index].member.as_mut().filter(|_| !skipped) else { continue };
            let before = member.faults.effects();
            let stepped = member.step().await;
            quiet &= member.faults.effects() == before;
            let stops: Vec<ShardStop> =
                member.status.lock().shards.values().filter_map(|shard| shard.stopped.clone()).collect();
            quiet &= stops.is_empty();
            stops.iter().for_each(|stop| self.judge_stop(stop, index));
            let later = round + if self.calm { 1 } else { dice.between(0, 8) };
            match stepped {
                Stepped::Done(more) => quiet &= !more,
                Stepped::Paused => quiet = false,
                Stepped::Dead | Stepped::Stopped(None) => self.bury(index, later),
                Stepped::Stopped(Some(error)) => {
                    self.judge(&error, index);
                    self.bury(index, later);
                }
            }
        }
        quiet
    }

    /// Asserts that a shard may be stopped for this reason.
    fn judge_stop(&mut self, stop: &ShardStop, index: usize) {
        let rates = &self.plan.rates;
        // A shard stays stopped for a while after the damage ends.
        let damage = rates.truncated + rates.flipped + rates.missing > 0;
        let fine = damage && stop.reason == StopReason::Damaged;
        assert!(fine, "seed {}: {}: {}", self.seed, self.berths[index].name, stop.message);
        self.coverage.hit("stopped_damaged");
    }

    /// Asserts that a worker may stop for this reason.
    fn judge(&mut self, error: &WorkerError, index: usize) {
        let rates = &self.plan.rates;
        let damage = rates.truncated + rates.flipped + rates.missing > 0 && !self.calm;
        let kind = self.berths[index].kind;
        let fine = match error {
            WorkerError::Configuration(message) if message.contains("kafka.moved_from") => {
                self.coverage.hit("stranger_refused");
                kind == Kind::Stranger
            }
            // All clocks are also set together, and again at the end of all trouble. If a request is in
            // progress at that time, a starting process sees a wrong clock. The process is then restarted.
            WorkerError::Configuration(message) if message.contains("clock") => {
                self.plan.chances.wrong_clock > 0 || self.plan.chances.clock_step > 0
            }
            WorkerError::Damaged { .. } | WorkerError::Configuration(_) => damage,
            WorkerError::Source(SourceError::Fenced(_)) => {
                let name = &self.berths[index].name;
                self.berths.iter().filter(|berth| berth.name == *name).count() > 1
            }
            error => error.exit_code() == 4,
        };
        assert!(fine, "seed {}: {} stops: {error}", self.seed, self.berths[index].name);
        self.coverage.hit(match error {
            WorkerError::Damaged { .. } => "stopped_all_damaged",
            WorkerError::Configuration(message) if message.contains("clock") => "stopped_by_its_clock",
            WorkerError::Source(SourceError::Fenced(_)) => "stopped_fenced",
            _ => "stopped_otherwise",
        });
    }

    /// Lets some of the waiting effects happen or fail.
    pub fn wake(&mut self, dice: &mut Dice, chance: u32) {
        let living = self.berths.iter().filter_map(|berth| berth.member.as_ref());
        let living: Vec<Faults> = living.map(|member| member.faults.clone()).collect();
        for faults in living.iter().chain(&self.ghosts) {
            for effect in faults.paused() {
                if dice.happens(chance) {
                    let how = dice.pick(&[Resume::Happen, Resume::HappenUnanswered, Resume::Fail]);
                    self.world.resume(faults, effect, how);
                }
            }
        }
        self.ghosts.retain(|faults| !faults.paused().is_empty());
    }

    /// Ends all faults.
    pub fn calm(&mut self, dice: &mut Dice) {
        self.calm = true;
        for berth in &mut self.berths {
            if let Some(member) = &berth.member {
                member.faults.calm();
            }
            berth.start_at = if berth.is_refilled() { 0 } else { i64::MAX };
        }
        self.wake(dice, 1_000);
    }

    /// Stops all processes cleanly.
    pub async fn stop_all(&mut self, dice: &mut Dice) {
        for berth in &mut self.berths {
            berth.start_at = i64::MAX;
            if let Some(member) = &mut berth.member {
                member.stop();
            }
        }
        for _ in 0..5 {
            self.round(0, dice).await;
            self.berths.iter_mut().for_each(|berth| berth.start_at = i64::MAX);
        }
        assert!(self.alive().is_empty(), "seed {}: a clean stop does not end", self.seed);
        for berth in &mut self.berths {
            berth.start_at = if berth.is_refilled() { 0 } else { i64::MAX };
        }
    }
}
