//! The consumer group of the fake Kafka: the member that holds each shard, and the next events of each
//! member.
//!
//! Time has no effect. Sessions end and revocations run out only when the simulation requests it. Shards are
//! assigned by range over the members' names. A shard moves in three steps, unless its holder's session has
//! ended. The holder receives a revocation and releases the shard, and only then the next member receives the
//! shard.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use prorata_schemas::Text;
use prorata_worker::names::Shard;
use prorata_worker::source::{SourceError, SourceEvent};

/// Number of a member. Each process that joins has a number of its own, even if its name was used before.
pub(super) type MemberId = u64;

/// A member's place in the group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Standing {
    /// The process joins when it polls.
    Outside,
    /// The process is a member. It may have died unnoticed.
    Joined,
    /// The member's session has ended without the member's knowledge. The member joins again when it polls.
    Expired,
    /// Another member of the same name has replaced the member.
    Fenced,
    /// The member has left for good.
    Left,
}

#[derive(Debug)]
struct Member {
    name: Text,
    standing: Standing,
    /// Whether the member is cut off from the group's coordinator, but not from the messages.
    isolated: bool,
    /// Shards that the member believes it has.
    believed: BTreeSet<Shard>,
    /// Events that the member gets next.
    queue: VecDeque<SourceEvent>,
    /// Shards that the member's own client has given up because no broker responded.
    given_up: Option<BTreeSet<Shard>>,
}

/// The state of the group.
#[derive(Debug, Default)]
pub(super) struct Group {
    members: BTreeMap<MemberId, Member>,
    /// Holder of each shard; the previous member if the shard is moving.
    owners: BTreeMap<Shard, MemberId>,
    /// Shards that their holders must release.
    revoking: BTreeSet<Shard>,
    /// Number of shards.
    shards: Shard,
    /// Whether every change of the group first takes all shards from all members.
    pub(super) eager: bool,
}

impl Group {
    /// Adds a process that joins when it first polls.
    pub(super) fn enter(&mut self, name: Text) -> MemberId {
        let id = self.members.len() as MemberId;
        let member = Member {
            name,
            standing: Standing::Outside,
            isolated: false,
            believed: BTreeSet::new(),
            queue: VecDeque::new(),
            given_up: None,
        };
        self.members.insert(id, member);
        id
    }

    /// Sets the number of shards.
    pub(super) fn resize(&mut self, shards: Shard) {
        if self.shards != shards {
            self.shards = shards;
            self.rebalance();
        }
    }

    /// Returns the events for the member, in order. If the process is not a member, it joins first.
    pub(super) fn signals(&mut self, id: MemberId) -> Result<Vec<SourceEvent>, SourceError> {
        let Some(member) = self.members.get_mut(&id) else { return Ok(Vec::new()) };
        if let Some(lost) = member.given_up.take() {
            return Ok(vec![SourceEvent::Lost(lost.into_iter().collect())]);
        }
        if member.isolated {
            return Ok(Vec::new());
        }
        let mut signals = Vec::new();
        match member.standing {
            Standing::Joined | Standing::Left => {}
            Standing::Fenced => return Err(SourceError::Fenced(member.name.to_string())),
            Standing::Outside => self.join(id),
            Standing::Expired => {
                let lost = std::mem::take(&mut member.believed);
                if !lost.is_empty() {
                    signals.push(SourceEvent::Lost(lost.into_iter().collect()));
                }
                self.join(id);
            }
        }
        let Some(member) = self.members.get_mut(&id) else { return Ok(signals) };
        for signal in member.queue.drain(..) {
            match &signal {
                SourceEvent::Assigned(shards) => member.believed.extend(shards),
                SourceEvent::Revoked(shards) => shards.iter().for_each(|shard| {
                    member.believed.remove(shard);
                }),
                _ => {}
            }
            signals.push(signal);
        }
        Ok(signals)
    }

    /// Returns whether the member believes that it has the shard.
    pub(super) fn believes(&self, id: MemberId, shard: Shard) -> bool {
        self.members.get(&id).is_some_and(|member| member.believed.contains(&shard))
    }

    /// Returns whether the group assigns the shard to the member when the member asks.
    pub(super) fn assigned(&self, id: MemberId, shard: Shard) -> Result<bool, SourceError> {
        let Some(member) = self.members.get(&id) else { return Ok(false) };
        if member.isolated {
            return Err(SourceError::Unavailable("the group's coordinator does not answer".into()));
        }
        match member.standing {
            Standing::Fenced => Err(SourceError::Fenced(member.name.to_string())),
            Standing::Joined => Ok(self.owners.get(&shard) == Some(&id) && !self.revoking.contains(&shard)),
            Standing::Outside | Standing::Expired | Standing::Left => Ok(false),
        }
    }

    /// Releases shards that were revoked from the member. The member keeps shards that were not revoked.
    pub(super) fn release(&mut self, id: MemberId, shards: &[Shard]) {
        let Some(member) = self.members.get(&id) else { return };
        if member.standing != Standing::Joined || member.isolated {
            return;
        }
        for shard in shards {
            let waited_for = self.revoking.contains(shard) && !member.believed.contains(shard);
            if waited_for && self.owners.get(shard) == Some(&id) {
                self.owners.remove(shard);
                self.revoking.remove(shard);
            }
        }
        self.settle();
    }

    /// Makes the group stop waiting for the members of this name to release their revoked shards.
    pub(super) fn run_out(&mut self, name: &str) {
        for id in self.joined(name) {
            let held: Vec<Shard> = self.held(id);
            self.release(id, &held);
        }
    }

    /// Ends the sessions of members of this name, so that other members receive their shards. Returns whether
    /// there was such a member.
    pub(super) fn expire(&mut self, name: &str) -> bool {
        let ids = self.joined(name);
        for id in &ids {
            self.remove(*id, Standing::Expired);
        }
        !ids.is_empty()
    }

    /// Ends the sessions of members of this name, and their own clients notice it.
    pub(super) fn lapse(&mut self, name: &str) {
        for id in self.joined(name) {
            self.remove(id, Standing::Expired);
            if let Some(member) = self.members.get_mut(&id) {
                member.given_up = Some(std::mem::take(&mut member.believed));
            }
        }
    }

    /// Removes the member for good.
    pub(super) fn leave(&mut self, id: MemberId) {
        let joined = self.members.get(&id).is_some_and(|member| member.standing == Standing::Joined);
        if joined {
            self.remove(id, Standing::Left);
        } else if let Some(member) = self.members.get_mut(&id) {
            member.standing = Standing::Left;
        }
        if let Some(member) = self.members.get_mut(&id) {
            member.believed.clear();
        }
    }

    /// Cuts members of this name off from the coordinator, or connects them again.
    pub(super) fn isolate(&mut self, name: &str, isolated: bool) {
        let members = self.members.values_mut().filter(|member| &*member.name == name);
        members.for_each(|member| member.isolated = isolated);
    }

    /// Returns the name of each shard's holder.
    pub(super) fn owners(&self) -> BTreeMap<Shard, Text> {
        let named = |(shard, id): (&Shard, &MemberId)| Some((*shard, self.members.get(id)?.name.clone()));
        self.owners.iter().filter_map(named).collect()
    }

    /// Returns the shards that the group waits for, each with the holder that must release it.
    pub(super) fn awaited(&self) -> BTreeMap<Shard, Text> {
        self.owners().into_iter().filter(|(shard, _)| self.revoking.contains(shard)).collect()
    }

    /// Assigns the shards again although nothing has changed.
    pub(super) fn rebalance(&mut self) {
        let targets = self.targets();
        let mut taken: BTreeMap<MemberId, Vec<Shard>> = BTreeMap::new();
        for (shard, owner) in &self.owners {
            let moves = self.eager || targets.get(shard) != Some(owner);
            if moves && self.revoking.insert(*shard) {
                taken.entry(*owner).or_default().push(*shard);
            }
        }
        for (id, shards) in taken {
            self.notify(id, SourceEvent::Revoked(shards));
        }
        self.settle();
    }

    fn join(&mut self, id: MemberId) {
        let Some(name) = self.members.get(&id).map(|member| member.name.clone()) else { return };
        let before = self.joined(&name);
        if let Some(member) = self.members.get_mut(&id) {
            member.standing = Standing::Joined;
        }
        if before.is_empty() {
            self.rebalance();
            let unheard = |member: &&mut Member| {
                !member.queue.iter().any(|signal| matches!(signal, SourceEvent::Assigned(_)))
            };
            if let Some(member) = self.members.get_mut(&id).filter(unheard) {
                member.queue.push_back(SourceEvent::Assigned(Vec::new()));
            }
            return;
        }
        let held: Vec<Shard> = before.iter().flat_map(|old| self.held(*old)).collect();
        for old in before {
            if let Some(member) = self.members.get_mut(&old) {
                member.standing = Standing::Fenced;
                member.queue.clear();
            }
        }
        let mut kept = Vec::new();
        for shard in held {
            if self.revoking.remove(&shard) {
                self.owners.remove(&shard);
            } else {
                self.owners.insert(shard, id);
                kept.push(shard);
            }
        }
        if !kept.is_empty() {
            self.notify(id, SourceEvent::Assigned(kept));
        }
        self.settle();
    }

    fn remove(&mut self, id: MemberId, standing: Standing) {
        for shard in self.held(id) {
            self.owners.remove(&shard);
            self.revoking.remove(&shard);
        }
        if let Some(member) = self.members.get_mut(&id) {
            member.standing = standing;
            member.queue.clear();
        }
        self.rebalance();
    }

    /// Grants the free shards. In eager mode, waits until all shards are free and grants them at once.
    fn settle(&mut self) {
        if self.eager && !self.revoking.is_empty() {
            return;
        }
        let mut granted: BTreeMap<MemberId, Vec<Shard>> = BTreeMap::new();
        for (shard, id) in self.targets() {
            if let std::collections::btree_map::Entry::Vacant(free) = self.owners.entry(shard) {
                free.insert(id);
                granted.entry(id).or_default().push(shard);
            }
        }
        for (id, shards) in granted {
            self.notify(id, SourceEvent::Assigned(shards));
        }
    }

    /// Returns the assignment by range, over the members in order of name. If the shards do not divide
    /// evenly, each of the first members has one more shard.
    fn targets(&self) -> BTreeMap<Shard, MemberId> {
        let joined = self.members.iter().filter(|(_, member)| member.standing == Standing::Joined);
        let mut joined: Vec<(&Text, MemberId)> = joined.map(|(id, member)| (&member.name, *id)).collect();
        joined.sort();
        let mut targets = BTreeMap::new();
        let mut next: Shard = 0;
        for (index, (_, id)) in joined.iter().enumerate() {
            let members_left = joined.len() - index;
            let count = usize::from(self.shards - next).div_ceil(members_left);
            for _ in 0..count {
                targets.insert(next, *id);
                next += 1;
            }
        }
        targets
    }

    fn notify(&mut self, id: MemberId, signal: SourceEvent) {
        if let Some(member) = self.members.get_mut(&id) {
            member.queue.push_back(signal);
        }
    }

    fn joined(&self, name: &str) -> Vec<MemberId> {
        let joined = self.members.iter();
        let joined = joined.filter(|(_, one)| one.standing == Standing::Joined && &*one.name == name);
        joined.map(|(id, _)| *id).collect()
    }

    fn held(&self, id: MemberId) -> Vec<Shard> {
        self.owners.iter().filter(|(_, owner)| **owner == id).map(|(shard, _)| *shard).collect()
    }
}
