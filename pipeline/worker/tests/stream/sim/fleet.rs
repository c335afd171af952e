//! The processes of a simulation: started, killed, held up, restarted; and what dead ones had asked for.

use std::sync::{Arc, Mutex};

use prorata_schemas::rules::Rules;
use prorata_testkit::fakes::{Faults, Resume};
use prorata_worker::source::SourceError;
use prorata_worker::status::ShardStop;
use prorata_worker::stream::WorkerOptions;
use prorata_worker::{StopReason, WorkerError};

use super::chaos;
use super::coverage::Coverage;
use super::dice::Dice;
use super::plan::{Plan, Tune};
use crate::world::World;
use crate::world::member::{Member, Stepped};

/// A place for a process.
pub struct Berth {
    pub name: String,
    pub member: Option<Member>,
    /// When a process is started in it, where there is none.
    pub start_at: i64,
    pub kind: Kind,
}

impl Berth {
    /// Whether a process is started again where one has ended.
    fn is_refilled(&self) -> bool {
        self.kind == Kind::Own
    }
}

/// What the processes of a berth are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Of the group.
    Own,
    /// A second process of a name that another berth has.
    Twin,
    /// Of another group on another cluster.
    Stranger,
}

/// All processes.
pub struct Fleet {
    pub world: World,
    pub plan: Plan,
    pub berths: Vec<Berth>,
    /// Faults of dead processes with effects that may yet happen.
    ghosts: Vec<Faults>,
    /// Whether anything still goes wrong.
    pub calm: bool,
    /// Rules that new processes are configured with.
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
            rules: Arc::new(Mutex::new(chaos::first_rules(plan))),
            coverage: Coverage::default(),
            seed,
        }
    }

    /// A place for one more.
    pub fn join(&mut self, name: String, round: i64, kind: Kind) {
        self.berths.push(Berth { name, member: None, start_at: round, kind });
    }

    /// Berths with a process.
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

    /// A process dies now.
    pub fn kill(&mut self, index: usize, round: i64, dice: &mut Dice) {
        if let Some(member) = &self.berths[index].member {
            member.faults.kill();
            self.coverage.hit("killed");
            self.bury(index, round + dice.between(0, 8));
        }
    }

    /// Forgets a process that is gone, but not what it asked for.
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

    /// Each process steps once, except for those passed over. Whether nothing happened.
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

    /// Whether a shard may be stopped for this reason.
    fn judge_stop(&mut self, stop: &ShardStop, index: usize) {
        let rates = &self.plan.rates;
        // It stays stopped for a while after all is well.
        let damage = rates.truncated + rates.flipped + rates.missing > 0;
        let fine = damage && stop.reason == StopReason::Damaged;
        assert!(fine, "seed {}: {}: {}", self.seed, self.berths[index].name, stop.message);
        self.coverage.hit("stopped_damaged");
    }

    /// Whether a worker may stop for this reason.
    fn judge(&mut self, error: &WorkerError, index: usize) {
        let rates = &self.plan.rates;
        let damage = rates.truncated + rates.flipped + rates.missing > 0 && !self.calm;
        let kind = self.berths[index].kind;
        let fine = match error {
            WorkerError::Configuration(message) if message.contains("kafka.moved_from") => {
                self.coverage.hit("stranger_refused");
                kind == Kind::Stranger
            }
            // All clocks are set together, too, and when all is well again. A request that was under way then
            // looks like a wrong clock to a process that starts, which is started again.
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

    /// Some of what waits happens, or fails.
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

    /// Nothing goes wrong any more.
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

    /// All stop cleanly.
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
