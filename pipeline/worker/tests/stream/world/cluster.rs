//! Members that step in turn; one that dies is restarted.

use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;

use prorata_testkit::fakes::Faults;
use prorata_worker::WorkerError;
use prorata_worker::names::Shard;
use prorata_worker::status::ShardStop;
use prorata_worker::stream::WorkerOptions;

use crate::world::World;
use crate::world::member::{Member, Stepped};

/// Time between two rounds.
pub const ROUND: Duration = Duration::from_secs(5);

/// Rounds without any effect until a cluster counts as settled: longer than a checkpoint waits.
const QUIET_ROUNDS: u32 = 14;

/// All members of the group.
pub struct Cluster {
    pub world: World,
    pub members: Vec<Member>,
    pub tune: fn(&mut WorkerOptions),
    /// Loud stops of processes so far.
    pub stops: Vec<WorkerError>,
    /// Stops of shards so far, in processes that went on.
    pub shard_stops: Vec<ShardStop>,
    /// Shards that are stopped.
    stopped: BTreeSet<(usize, Shard)>,
    /// Processes that died, or stopped because storage was unavailable, and were restarted.
    pub restarts: u32,
    /// Faults of the next processes that are restarted.
    pub next_faults: VecDeque<Faults>,
}

impl Cluster {
    pub fn new(world: &World, tune: fn(&mut WorkerOptions)) -> Self {
        Self {
            world: world.clone(),
            members: Vec::new(),
            tune,
            stops: Vec::new(),
            shard_stops: Vec::new(),
            stopped: BTreeSet::new(),
            restarts: 0,
            next_faults: VecDeque::new(),
        }
    }

    /// Starts a member.
    pub fn start(&mut self, name: &str, faults: Faults) {
        let member = self.world.start(name, faults, self.tune);
        self.members.push(member);
    }

    /// Each member steps once. What has died starts again under its name, without faults; what stops with an
    /// error that says "run it again" starts again with its faults. What hangs stays so.
    pub async fn round(&mut self) -> bool {
        let mut quiet = true;
        for index in 0..self.members.len() {
            let member = &mut self.members[index];
            let before = member.faults.effects();
            let stepped = member.step().await;
            quiet &= member.faults.effects() == before;
            let (name, faults) = (member.name.clone(), member.faults.clone());
            quiet &= !self.note_stopped(index);
            match stepped {
                Stepped::Done(more) => quiet &= !more,
                Stepped::Paused | Stepped::Stopped(None) => {}
                Stepped::Dead => {
                    self.restarts += 1;
                    let faults = self.next_faults.pop_front().unwrap_or_default();
                    self.members[index] = self.world.start(&name, faults, self.tune);
                    quiet = false;
                }
                Stepped::Stopped(Some(error)) if error.exit_code() == 4 => {
                    self.restarts += 1;
                    self.members[index] = self.world.start(&name, faults, self.tune);
                    quiet = false;
                }
                Stepped::Stopped(Some(error)) => {
                    self.stops.push(error);
                    self.members[index] = self.world.start(&name, Faults::default(), self.tune);
                    quiet = false;
                }
            }
        }
        self.world.pass(ROUND);
        quiet
    }

    /// Notes which shards of a member are stopped; whether any is, and will be tried again.
    fn note_stopped(&mut self, index: usize) -> bool {
        let shards = self.members[index].status.lock().shards.clone();
        let before: BTreeSet<_> = self.stopped.iter().filter(|(of, _)| *of == index).copied().collect();
        self.stopped.retain(|(of, _)| *of != index);
        for (shard, stop) in shards.into_iter().filter_map(|(shard, status)| Some((shard, status.stopped?))) {
            if !before.contains(&(index, shard)) {
                self.shard_stops.push(stop);
            }
            self.stopped.insert((index, shard));
        }
        self.stopped.iter().any(|(of, _)| *of == index)
    }

    /// Rounds until nothing has happened for a while.
    pub async fn settle(&mut self, context: &str) {
        let mut quiet = 0;
        for _ in 0..2_000 {
            quiet = if self.round().await { quiet + 1 } else { 0 };
            if quiet >= QUIET_ROUNDS {
                return;
            }
        }
        panic!("{context}: it does not settle");
    }

    /// A member stops cleanly, and a new process takes its place with the same faults.
    pub async fn replace(&mut self, index: usize) {
        self.members[index].stop();
        self.round().await;
        let (name, faults) = (self.members[index].name.clone(), self.members[index].faults.clone());
        if self.members[index].is_gone() {
            self.members[index] = self.world.start(&name, faults, self.tune);
        }
    }

    /// Rounds until it has settled, or a member hangs; whether one does.
    pub async fn settle_or_hang(&mut self, context: &str) -> bool {
        let mut quiet = 0;
        for _ in 0..2_000 {
            quiet = if self.round().await { quiet + 1 } else { 0 };
            if self.members.iter().any(Member::hangs) {
                return true;
            }
            if quiet >= QUIET_ROUNDS {
                return false;
            }
        }
        panic!("{context}: it does not settle");
    }
}
