//! One organization: an iterator of its events, in the order in which producers send them.
//!
//! Time advances by minutes. Each minute draws the pods that start in it. Ends of pods and scripted changes
//! wait in one queue, ordered by time. Only running nodes, pods and workloads and their pending actions are
//! kept. So memory grows with the pods that run at once, not with the length of the run.

mod actions;
mod agreements;
mod classes;
mod fleet;
mod oddities;
mod sharing;
mod workload;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};
use std::sync::Arc;

use prorata_schemas::event::{Event, Payload, PodStarted};
use prorata_schemas::ids::{OrganizationId, PodUid};
use prorata_schemas::time::Timestamp;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

use crate::clusters::{GCP_POOL, PROD_POOL};
use crate::random::{chance, pick, span};
use crate::{HOUR, MINUTE};
pub use agreements::Run;
use classes::{CLASSES, Lifetime, PodClass, day_load};
use fleet::{Amounts, Fleet, Node};
use workload::Workload;

/// An action that is due at a time.
enum Action {
    /// A scripted event is sent.
    Emit(Box<Payload>),
    /// A pod starts. `lifetime` is the time for which it runs, `waited` the time for which it was pending,
    /// both in microseconds.
    Start { workload: Arc<Workload>, lifetime: i64, waited: i64, service: Option<usize> },
    /// A pod ends.
    Stop(u64),
    /// A pod's interval of measured use ends.
    Sample(u64),
    /// A running pod's description changes.
    Amend(u64),
    /// The provider reclaims a spot node.
    Reclaim(u64),
    /// A node stops and starts again.
    Reboot(u64),
    /// An empty node is removed.
    ScaleDown(u64),
    /// The price of a spot node changes.
    Reprice(u64),
    /// The provider cuts prices.
    CutPrices,
    /// A rebooted node starts again.
    BringBack(Box<Node>),
}

/// An action with its due time, ordered by that time, then by the order in which it was planned.
struct Due {
    at: i64,
    number: u64,
    action: Action,
}

/// A running pod.
struct LivePod {
    workload: Arc<Workload>,
    uid: PodUid,
    node: Option<u64>,
    service: Option<usize>,
    /// The time at which the pod is due to end.
    until: i64,
    /// Length of the pod's intervals of measured use, and start of the current interval.
    sampling: Option<(i64, i64)>,
    /// The pod's description, kept if it is going to change.
    described: Option<Box<PodStarted>>,
}

/// A deployment whose replicas follow the time of day.
struct Service {
    workload: Arc<Workload>,
    /// Mean number of replicas in thousandths.
    replicas: u64,
    /// Number of planned replicas that have not started.
    pending: u64,
    live: Vec<u64>,
}

/// One organization.
pub struct Organization {
    id: OrganizationId,
    run: Run,
    rng: ChaCha8Rng,
    fleet: Fleet,
    pods: BTreeMap<u64, LivePod>,
    next_pod: u64,
    /// Start of the minute to draw next.
    tick: i64,
    due: BinaryHeap<Reverse<Due>>,
    next_number: u64,
    services: Vec<Service>,
    out: VecDeque<Event>,
}

impl PartialEq for Due {
    fn eq(&self, other: &Self) -> bool {
        (self.at, self.number) == (other.at, other.number)
    }
}

impl Eq for Due {}

impl PartialOrd for Due {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Due {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.at, self.number).cmp(&(other.at, other.number))
    }
}

impl Organization {
    /// Creates the organization with this number. Equal arguments give equal events.
    pub fn new(number: u64, seed: u64, run: Run) -> Self {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        rng.set_stream(2 * number);
        let mut organization = Self {
            id: name(number).into(),
            run,
            rng,
            fleet: Fleet::new(number),
            pods: BTreeMap::new(),
            next_pod: 0,
            tick: run.start,
            due: BinaryHeap::new(),
            next_number: 0,
            services: Vec::new(),
            out: VecDeque::new(),
        };
        organization.set_up();
        organization
    }

    /// Returns the progress of the run: the next minute to draw, in microseconds since the epoch.
    pub const fn clock(&self) -> i64 {
        self.tick
    }

    /// Returns the organization's id.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Returns the number of pods, nodes and actions that are kept.
    #[cfg(test)]
    pub fn kept(&self) -> usize {
        self.pods.len() + self.fleet.len() + self.due.len() + self.services.len()
    }

    fn set_up(&mut self) {
        for (at, payload) in agreements::script(&self.run).into_iter().chain(sharing::script(&self.run)) {
            self.plan(at, Action::Emit(Box::new(payload)));
        }
        self.plan(self.run.at(550), Action::CutPrices);
        for group in [PROD_POOL, GCP_POOL] {
            // More vCPU than a small node has, so that a pool starts with a node of several GPUs.
            let need = Amounts { cpu_millis: 16_000, ..Amounts::default() };
            self.start_node(self.run.start, group, need);
        }
        for class in CLASSES.iter().filter(|class| class.lifetime == Lifetime::Diurnal) {
            self.set_up_services(class);
        }
    }

    /// Adds the services of a class, each with four replicas on average.
    fn set_up_services(&mut self, class: &'static PodClass) {
        let mut left = self.run.pods * class.share;
        while left > 0 {
            let drawn = 40 * self.rng.random_range(60..=140_u64);
            let replicas = drawn.min(left);
            left -= replicas;
            let workload = Arc::new(Workload::draw(&mut self.rng, class));
            self.services.push(Service { workload, replicas, pending: 0, live: Vec::new() });
        }
    }

    /// Adds an action to the queue.
    fn plan(&mut self, at: i64, action: Action) {
        self.due.push(Reverse(Due { at, number: self.next_number, action }));
        self.next_number += 1;
    }

    /// Sends an event, unless it is after the end of the run.
    fn emit(&mut self, at: i64, payload: Payload) {
        if at < self.run.end {
            let event = Event::new(self.id.clone(), Timestamp(at), payload);
            self.out.push_back(event);
        }
    }

    /// Draws the pods that start in one minute.
    fn draw_minute(&mut self) {
        let minute = self.tick;
        if minute.rem_euclid(HOUR) == 0 && minute > self.run.start {
            self.hourly(minute);
        }
        for class in CLASSES {
            let expected = class.arrivals_per_minute(self.run.pods);
            let left = u32::try_from(expected % 1_000_000).unwrap_or(0);
            let count = expected / 1_000_000 + u64::from(chance(&mut self.rng, left));
            for _ in 0..count {
                let at = minute + span(&mut self.rng, 0, MINUTE - 1);
                self.plan_gang(at, class);
            }
        }
        for index in 0..self.services.len() {
            self.follow_the_day(index, minute);
        }
    }

    /// Plans the pods of one new workload, which start together.
    fn plan_gang(&mut self, at: i64, class: &'static PodClass) {
        let workload = Arc::new(Workload::draw(&mut self.rng, class));
        let members = pick(&mut self.rng, class.gang).copied().unwrap_or(1);
        let (lifetime, waited) = (class.lifetime.draw(&mut self.rng), span(&mut self.rng, 0, 10 * MINUTE));
        for _ in 0..members {
            let lifetime = lifetime + span(&mut self.rng, 0, lifetime / 20);
            self.plan(at, Action::Start { workload: workload.clone(), lifetime, waited, service: None });
        }
    }

    /// Starts or stops replicas of a service to follow the time of day.
    fn follow_the_day(&mut self, index: usize, minute: i64) {
        let Some(service) = self.services.get(index) else { return };
        let wanted = (service.replicas * day_load(minute) / 10_000 + 500) / 1000;
        let have = u64::try_from(service.live.len()).unwrap_or(u64::MAX) + service.pending;
        let workload = service.workload.clone();
        let first = minute == self.run.start;
        for _ in have..wanted {
            let (offset, waited) = if first {
                (0, span(&mut self.rng, HOUR, 200 * HOUR))
            } else {
                (span(&mut self.rng, 0, MINUTE - 1), span(&mut self.rng, 0, 20_000_000))
            };
            let lifetime = workload.class.lifetime.draw(&mut self.rng);
            let start = Action::Start { workload: workload.clone(), lifetime, waited, service: Some(index) };
            self.plan(minute + offset, start);
            if let Some(service) = self.services.get_mut(index) {
                service.pending += 1;
            }
        }
        let surplus = usize::try_from(have.saturating_sub(wanted)).unwrap_or(0);
        let newest: Vec<u64> = self
            .services
            .get(index)
            .map(|service| service.live.iter().rev().take(surplus).copied().collect())
            .unwrap_or_default();
        for key in newest {
            let at = minute + span(&mut self.rng, 0, MINUTE - 1);
            self.plan(at, Action::Stop(key));
        }
    }

    /// Records that a replica of a service has started; `key` is `None` if no node had room.
    fn replica_started(&mut self, service: Option<usize>, key: Option<u64>) {
        if let Some(service) = service.and_then(|index| self.services.get_mut(index)) {
            service.pending = service.pending.saturating_sub(1);
            service.live.extend(key);
        }
    }

    /// Records that a replica of a service has ended.
    fn replica_ended(&mut self, service: Option<usize>, key: u64) {
        if let Some(service) = service.and_then(|index| self.services.get_mut(index)) {
            service.live.retain(|&other| other != key);
        }
    }
}

impl Iterator for Organization {
    type Item = Event;

    fn next(&mut self) -> Option<Event> {
        loop {
            if let Some(event) = self.out.pop_front() {
                return Some(event);
            }
            let next_at = self.due.peek().map(|Reverse(due)| due.at);
            match next_at {
                Some(at) if at < self.tick => {
                    if let Some(Reverse(due)) = self.due.pop() {
                        self.act(due.at, due.action);
                    }
                }
                _ if self.tick < self.run.end => {
                    self.draw_minute();
                    self.tick += MINUTE;
                }
                _ => return None,
            }
        }
    }
}

/// Returns the id of the organization with this number. The first eight ids also contain a word.
fn name(number: u64) -> String {
    const WORDS: &[&str] = &["aurora", "borealis", "cascade", "delta", "ember", "fjord", "glacier", "harbor"];
    match usize::try_from(number).ok().and_then(|index| WORDS.get(index)) {
        Some(word) => format!("org-{number:04}-{word}"),
        None => format!("org-{number:04}"),
    }
}
