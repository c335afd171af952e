//! Second part of a checkpoint: folds hours, first the hours to be recomputed, then the hours that the
//! watermark lets close.
//!
//! Recomputation ([`crate::shard::recompute`]) runs while hours close, a slice per checkpoint. Meanwhile
//! hours continue to close from the current state. They lie after the dirty mark, so they are recomputed if
//! that state proves wrong.
//!
//! A late event of an hour that was just recomputed marks that hour, which waits for the next run. It does
//! not stop the run in progress: otherwise a steady flow of late events would keep the last hours from ever
//! being recomputed. Late events that keep coming are collected, so that their recomputation writes no more
//! than live hours write; see `run_limit` in [`super::schedule`].

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use prorata_schemas::rules::Rules;
use prorata_schemas::time::{Hour, HourRange, WallTime};

use super::LiveShard;
use super::schedule::RestatePace;
use crate::error::{Result, WorkerError};
use crate::ports::Ports;
use crate::shard::emit::{self, EncodedHour, Job, LiveTables};
use crate::shard::fold::{self, OrganizationHour};
use crate::shard::recompute::{RecomputeShard, Recomputed, Recomputer, Set, States};
use crate::shard::rules::RuleBook;
use crate::shard::window::{EventPlaces, WindowLimits, WindowReader};
use crate::status::Counts;

/// The context of folding, besides the shard.
pub(in crate::stream) struct Folding<'a> {
    pub ports: &'a Ports,
    pub rules: &'a mut RuleBook,
    /// The configured rules, for a shard that lists no rules yet.
    pub configured: &'a Rules,
    pub now: WallTime,
    pub limits: WindowLimits,
    pub pace: RestatePace,
    pub counts: &'a mut Counts,
}

impl Folding<'_> {
    /// Recomputes one slice if hours are dirty. The dirty hours must have no events that came since the last
    /// checkpoint: such events cannot be read yet.
    pub async fn recompute_slice(&mut self, shard: &mut LiveShard) -> Result<()> {
        let (Some(closed), Some(namer)) = (shard.next().closed_through, shard.namer()) else { return Ok(()) };
        let set = match shard.states {
            Some(_) => Set::Dirty(shard.slice_end(closed, self.now, self.pace.delay_max)),
            None => Set::AllThrough,
        };
        let begins = !shard.recompute.run().is_under_way() && !shard.recompute_continues();
        let recomputer = Recomputer {
            ports: self.ports,
            rules: &*self.rules,
            limits: self.limits,
            now: self.now,
            owner: &shard.claim.owner,
            retention: shard.retention,
        };
        let (live, run) = (&mut LiveTables::default(), shard.recompute.run_mut());
        let (draft, archive) = (&mut *shard.draft, &mut shard.archive);
        let mut of = RecomputeShard { draft, archive, live, namer, run, set };
        let started = Instant::now();
        let slice = recomputer.slice(&mut of, |_| ()).await;
        if begins && (slice.is_ok() || shard.recompute.run().is_under_way()) {
            shard.recompute.note_begin(self.now);
        }
        match slice {
            Ok(Some(recomputed)) => {
                self.counts.fold.observe(started.elapsed());
                self.take_recomputed(shard, recomputed);
                Ok(())
            }
            Ok(None) => Ok(()),
            Err(error) => wait_for_release(shard, error),
        }
    }

    /// Takes a slice into the draft. States that have reached the last closed hour become the shard's states.
    fn take_recomputed(&mut self, shard: &mut LiveShard, mut recomputed: Recomputed<()>) {
        self.counts.full_restatements += u64::from(recomputed.fallback.is_some());
        self.counts.folded_organization_hours += recomputed.folded;
        self.counts.restated_hours += recomputed.hours.iter().filter(|hour| hour.restated).count() as u64;
        match std::mem::take(&mut recomputed.states) {
            States::All { states, is_current } => {
                if let Some(hour) = recomputed.hours.last() {
                    shard.state_bytes = hour.state_bytes;
                }
                if is_current {
                    shard.states = Some(states);
                }
            }
            States::Some(changed) => {
                let written = recomputed.hours.iter().map(|hour| hour.file_bytes).sum::<u64>();
                shard.recompute.owe(written);
                for (organization_id, state) in changed {
                    let Some(states) = &mut shard.states else { break };
                    match state {
                        Some(state) => states.insert(organization_id, state),
                        None => states.remove(&organization_id),
                    };
                }
            }
        }
        recomputed.take_into(&mut shard.draft);
    }

    /// Closes the next window of hours that the watermark lets close.
    pub async fn close(&mut self, shard: &mut LiveShard) -> Result<()> {
        let (Some(first), Some(closable)) = (shard.next_hour(), shard.closable()) else { return Ok(()) };
        let Some(states) = shard.states.clone() else { return Ok(()) };
        self.list_rules(shard, first).await?;
        let last = Hour(closable.0.min(first.0 + shard.recompute.run().window_hours - 1));
        let range = HourRange::new(first, last);
        shard.archive.ensure(&*self.ports.store, range).await?;
        shard.note_archived(range);
        let open: BTreeMap<Hour, EventPlaces> =
            range.into_iter().map(|hour| (hour, shard.buffer.events(hour))).collect();
        let events = |hour| open.get(&hour).cloned().unwrap_or_default();
        let started = Instant::now();
        let reader = WindowReader { store: &*self.ports.store, rules: &*self.rules, limits: self.limits };
        let window = reader.read(&shard.draft, &mut shard.archive, range, states, events).await?;
        let last = window.hours.last().map_or(last, |(hour, _)| *hour);
        let windows = BTreeMap::from([(shard.shard(), window)]);
        let mut folded = fold::fold(self.ports, windows, self.limits.event_bytes).await?;
        let folded = folded.remove(&shard.shard()).unwrap_or_default();
        self.counts.fold.observe(started.elapsed());
        self.counts.folded_organization_hours += folded.hours.values().map(Vec::len).sum::<usize>() as u64;
        let window_hours = self.limits.next_hours(folded.rows(), folded.hours.len(), 1);
        let closed_hours = folded.hours.len() as u64;
        let unpriced = folded.hours.values().flatten().map(|of| of.tables.totals.unpriced_pods).sum::<i64>();
        let retention = shard.retention;
        let keeps = |hour| retention.keeps_snapshot(hour, closable) || hour == last;
        let encoded = self.encode(shard, folded.hours, keeps).await?;
        let written: u64 = encoded.iter().map(|hour| hour.file_bytes).sum();
        shard.recompute.pay(written);
        if let Some(hour) = encoded.last() {
            shard.state_bytes = hour.state_bytes;
        }
        if let Some(draft) = shard.draft() {
            encoded.into_iter().for_each(|hour| emit::take_into(draft, hour));
            draft.close_through(last);
        }
        self.counts.closed_hours += closed_hours;
        self.counts.unpriced_pod_hours += unpriced.unsigned_abs();
        shard.recompute.run_mut().window_hours = window_hours;
        shard.buffer.close_through(last);
        shard.states = Some(folded.states);
        Ok(())
    }

    /// Encodes hours that close. The shard does not change.
    async fn encode(
        &self,
        shard: &LiveShard,
        folded: BTreeMap<Hour, Vec<OrganizationHour>>,
        keeps: impl Fn(Hour) -> bool,
    ) -> Result<Vec<EncodedHour<()>>> {
        let Some(namer) = shard.namer() else { return Ok(Vec::new()) };
        let jobs = folded.into_iter().map(|(hour, organizations)| Job {
            shard: shard.shard(),
            hour,
            organizations,
            before: None,
            snapshot: keeps(hour),
            file_rows: self.ports.encoder.file_rows(),
            namer: namer.clone(),
            now: self.now,
        });
        emit::encode_all(Arc::clone(&self.ports.encoder), jobs.collect(), |_| ()).await
    }

    /// Lists the configured rules from a shard's first hour on, if the shard lists no rules yet.
    async fn list_rules(&mut self, shard: &mut LiveShard, first: Hour) -> Result<()> {
        if shard.next().rules.is_empty() {
            self.rules.store(&*self.ports.store, self.configured).await?;
            if let Some(draft) = shard.draft() {
                draft.list_rules(first, self.configured.version.clone());
            }
        }
        Ok(())
    }
}

/// Makes late events wait for a release that computes the rules of their hours, if `error` says that this
/// release does not. Hours that close meanwhile need the current state, not the state of these late events.
/// Returns any other error, and also this one if the current state is not known.
fn wait_for_release(shard: &mut LiveShard, error: WorkerError) -> Result<()> {
    if !matches!(error, WorkerError::UnknownEngineVersion { .. }) || shard.states.is_none() {
        return Err(error);
    }
    let shard_number = shard.shard();
    tracing::warn!(shard = shard_number, %error, "late events of these hours not folded yet");
    shard.recompute.wait_for_release();
    Ok(())
}

impl LiveShard {
    /// Returns whether hours are dirty only for some organizations, and the current state of all others is
    /// known.
    pub(super) fn has_dirty_organizations_only(&self) -> bool {
        self.states.is_some() && self.recompute.run().may_be_of_some(self.next())
    }

    /// Notes which of these hours have archived events of earlier owners, which were never in memory here.
    pub(super) fn note_archived(&mut self, HourRange { first, last }: HourRange) {
        for hour in self.archive.hours().range(first..=last) {
            if self.archive.files(*hour).any(|file| self.claim.is_earlier(file)) {
                self.buffer.note_archived(*hour);
            }
        }
    }
}
