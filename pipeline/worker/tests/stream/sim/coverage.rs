//! Counts of everything that a simulation must reach.

use std::collections::BTreeMap;

use prorata_schemas::reject::Reason;

use crate::world::World;
use crate::world::member::Member;
use crate::world::oracle::Held;

/// Names that the fixed seeds must reach, each at least once.
const WANTED: &[&str] = &[
    // Faults.
    "crash_before",
    "crash_after",
    "lose_answer",
    "refuse",
    "pause",
    "retry",
    "read_fails",
    "truncated",
    "flipped",
    "missing",
    "outage",
    // Processes and the group.
    "killed",
    "dead_with_effects_to_come",
    "expired",
    "cut_off",
    "run_out",
    "stopped",
    "joined",
    "twin",
    "stopped_fenced",
    "stopped_damaged",
    "rebalances",
    "conflicts",
    "stale_claim",
    "claim_after_release",
    // Kafka and its registry.
    "registry_down",
    "brokers_down",
    "partition_down",
    "hole",
    "retention",
    "clock_step",
    // Clocks of processes, slow storage, another consumer group.
    "wrong_clock",
    "stopped_by_its_clock",
    "slow_storage",
    "stranger_refused",
    // Organizations whose hours cannot be folded.
    "held",
    // Time.
    "late_events",
    "late_duplicates",
    "restated_hours",
    "refold_converged",
    "refold_to_the_end",
    "read_back",
    // Backfills and rules.
    "backfill",
    "backfill_refused",
    "backfill_took_over",
    "backfill_broke_off",
    "foreign_ahead",
    "new_rules",
    // Dead letters.
    "malformed",
    "unknown_schema",
    "unknown_event",
    "invalid_field",
    "key_mismatch",
    "currency_mismatch",
    "in_the_future",
    "too_late",
];

/// Counts by name.
#[derive(Clone, Debug, Default)]
pub struct Coverage(BTreeMap<&'static str, u64>);

impl Coverage {
    pub fn hit(&mut self, what: &'static str) {
        self.add(what, 1);
    }

    pub fn add(&mut self, what: &'static str, count: u64) {
        if count > 0 {
            *self.0.entry(what).or_default() += count;
        }
    }

    /// Returns the number of reads that failed or returned something other than the stored bytes.
    pub fn failed_reads(&self) -> u64 {
        let classes = ["read_fails", "truncated", "flipped", "missing"];
        classes.iter().filter_map(|class| self.0.get(class)).sum()
    }

    pub fn merge(&mut self, other: &Self) {
        other.0.iter().for_each(|(what, count)| self.add(what, *count));
    }

    /// Adds the counts of a process at its end.
    pub fn take(&mut self, member: &Member) {
        member.faults.counts().into_iter().for_each(|(class, count)| self.add(class, count));
        let status = member.status.lock();
        self.add("held", status.shards.values().map(|shard| shard.held).max().unwrap_or_default());
        self.add("late_events", status.counts.late_events);
        self.add("late_duplicates", status.counts.late_duplicates);
        self.add("restated_hours", status.counts.restated_hours);
        self.add("conflicts", status.counts.conflicts);
        self.add("rebalances", status.counts.rebalances);
    }

    /// Adds the counts that follow from the checkpoint log and the dead letters at the end.
    pub fn look_back(&mut self, world: &World, held: &Held) {
        self.add("read_back", world.audit.read_back());
        for reason in held.letters.values() {
            self.hit(name(*reason));
        }
        let checkpoints = world.audit.checkpoints();
        for ((shard, seq), after) in &checkpoints {
            let Some(before) = checkpoints.get(&(*shard, seq - 1)) else { continue };
            if after.owner.as_ref().map(|owner| &owner.id) != before.owner.as_ref().map(|owner| &owner.id) {
                let released = before.owner.as_ref().is_some_and(|owner| owner.released);
                self.hit(if released { "claim_after_release" } else { "stale_claim" });
            }
            if let Some(closed) = before.closed_through
                && !before.dirty.is_empty()
                && after.dirty.is_empty()
            {
                let state = |checkpoint: &prorata_worker::checkpoint::Checkpoint| {
                    checkpoint.hours.get(&closed).map(|entry| entry.state_digest.clone())
                };
                let same = state(before) == state(after);
                self.hit(if same { "refold_converged" } else { "refold_to_the_end" });
            }
        }
    }

    /// Prints all counts, and returns the names that were never reached.
    pub fn missing(&self) -> Vec<&'static str> {
        for (what, count) in &self.0 {
            println!("{count:>8} {what}");
        }
        WANTED.iter().copied().filter(|what| !self.0.contains_key(what)).collect()
    }
}

fn name(reason: Reason) -> &'static str {
    match reason {
        Reason::Malformed => "malformed",
        Reason::UnknownSchema => "unknown_schema",
        Reason::UnknownEvent => "unknown_event",
        Reason::InvalidField => "invalid_field",
        Reason::KeyMismatch => "key_mismatch",
        Reason::ForeignOrganization => "foreign_organization",
        Reason::CurrencyMismatch => "currency_mismatch",
        Reason::InTheFuture => "in_the_future",
        Reason::TooLate => "too_late",
    }
}
