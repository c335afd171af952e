//! Members that step in order. A member that dies is restarted.

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

/// Number of rounds without any effect until a cluster counts as settled. These rounds take longer than a
/// checkpoint waits.
const QUIET_ROUNDS: u32 = 14;

/// All members of the consumer group.
pub struct Cluster {
    pub world: World,
    pub members: Vec<Member>,
    pub tune: fn(&mut WorkerOptions),
    /// Errors with which processes have stopped.
    pub stops: Vec<WorkerError>,
    /// Stops of shards so far, in processes that continued.
    pub shard_stops: Vec<ShardStop>,
    /// Shards that are stopped.
    stopped: BTreeSet<(usize, Shard)>,
    /// Number of restarts of processes that died, or that stopped because storage was unavailable.
    pub restarts: u32,
    /// Faults for the next processes that are restarted.
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

    /// Steps each member once, and returns whether nothing happened. A member that dies restarts under its
    /// name, with the next faults, if any. A member that stops with exit code 4 restarts with its own faults.
    /// A member that hangs stays as it is.
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

    /// Records the stopped shards of a member. Returns whether any shard is stopped.
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

    /// Runs rounds until nothing has happened for a while.
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

    /// Stops a member cleanly and starts a new process in its place, with the same faults.
    pub async fn replace(&mut self, index: usize) {
        self.members[index].stop();
        self.round().await;
        let (name, faults) = (self.members[index].name.clone(), self.members[index].faults.clone());
        if self.members[index].is_gone() {
            self.members[index] = self.world.start(&name, faults, self.tune);
        }
    }

    /// Runs rounds until the cluster has settled or a member hangs. Returns whether a member hangs.
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
