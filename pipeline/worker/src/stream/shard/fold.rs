//! Second part of a checkpoint: hours are folded, first the hours to be recomputed, then the hours that the
//! watermark lets close.
//!
//! Recomputation runs while hours close, a slice per checkpoint. It starts from the nearest base
//! snapshot before the first dirty hour, and moves the dirty mark along. It ends where the state at an hour's
//! end equals the recorded one and no later hour is dirty. Meanwhile hours continue to close from the current
//! state. They lie after the mark, so they are recomputed if that state was not the right one.
//!
//! A late event of an hour that was just recomputed marks that hour. It does not stop the recomputation in
//! progress: otherwise a steady flow of late events would keep the last hours from ever being recomputed.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Instant;

use prorata_schemas::rules::Rules;
use prorata_schemas::time::{Hour, WallTime};

use super::LiveShard;
use super::restate::SliceOutcome;
use super::schedule::RestatePace;
use crate::checkpoint::Draft;
use crate::checkpoint::retention;
use crate::checkpoint::snapshot::ShardState;
use crate::error::{Result, WorkerError};
use crate::ports::Ports;
use crate::root::rules::RuleBook;
use crate::shard::converge::converged;
use crate::shard::cursor::Recompute;
use crate::shard::emit::{self, EncodedHour, Job, LiveTables};
use crate::shard::fold::{self, FoldedWindow, OrganizationHour};
use crate::shard::window::{EventPlaces, WindowLimits, WindowReader};
use crate::status::Counts;

/// The context of folding, besides the shard.
pub(in crate::stream) struct Folding<'a> {
    pub ports: &'a Ports,
    pub rules: &'a mut RuleBook,
    /// The configured rules, for a shard that has none yet.
    pub configured: &'a Rules,
    pub now: WallTime,
    pub limits: WindowLimits,
    pub pace: RestatePace,
    pub counts: &'a mut Counts,
}

/// A folded window.
struct Slice {
    folded: FoldedWindow,
    /// The window's last hour.
    last: Hour,
    /// Hours in the next window.
    window_hours: i64,
}

impl Folding<'_> {
    /// Recomputes one slice if hours are dirty. The dirty hours must have no events that came since the last
    /// checkpoint: those events are not readable yet.
    pub async fn recompute_slice(&mut self, shard: &mut LiveShard) -> Result<()> {
        if shard.has_dirty_organizations_only() {
            match self.restate_slice(shard).await {
                Ok(SliceOutcome::Done) => return Ok(()),
                Ok(SliceOutcome::NeedsAll(cause)) => {
                    let shard_number = shard.shard();
                    tracing::warn!(shard = shard_number, cause, "folding all organizations again");
                    self.counts.full_restatements += 1;
                    shard.recompute.courses.clear();
                    if let Some(draft) = shard.draft() {
                        draft.mark_all();
                    }
                }
                Err(error) => return wait_for_release(shard, error),
            }
        }
        self.recompute_all(shard).await
    }

    /// Recomputes one slice of all organizations.
    async fn recompute_all(&mut self, shard: &mut LiveShard) -> Result<()> {
        let Some(Recompute { next, emit_from, states }) = self.cursor(shard).await? else { return Ok(()) };
        let Some(closed) = shard.next().closed_through else { return Ok(()) };
        // A late event that has come meanwhile may belong to an hour that would otherwise be folded without
        // output.
        let dirty = shard.next().dirty.first_after(next.previous());
        let emit_from = dirty.map_or(emit_from, |dirty| dirty.min(emit_from));
        let last = Hour(closed.0.min(next.0 + shard.recompute.window_hours - 1));
        let slice = match self.fold(shard, (next, last), states, |_| EventPlaces::archived()).await {
            Err(error) => return wait_for_release(shard, error),
            Ok(slice) => slice,
        };
        let Slice { folded: FoldedWindow { mut hours, states }, last, window_hours } = slice;
        let stop = shard.states.as_ref().and_then(|_| converged(shard.next(), &hours, emit_from));
        let through = stop.unwrap_or(last);
        let led_up: Vec<(Hour, Vec<OrganizationHour>)> = hours.extract_if(..emit_from, |_, _| true).collect();
        let way_marks = emit::way_marks(shard.next(), closed, (led_up, last), shard.namer())?;
        hours.retain(|hour, _| (emit_from..=through).contains(hour));
        let encoded = self.encode(shard, hours, |hour| retention::keeps_snapshot(hour, closed)).await?;
        let continues_at = (stop.is_none() && last < closed).then(|| last.next().max(emit_from));
        self.take(shard, encoded, |draft| {
            draft.recomputed((next, through), continues_at);
            way_marks.into_iter().for_each(|(hour, path, bytes)| draft.set_snapshot(hour, path, bytes));
        });
        shard.recompute.window_hours = window_hours;
        shard.recompute.through = Some(through);
        (shard.recompute.cursor, shard.states) = match (stop, continues_at) {
            // The current state was the right one.
            (Some(_), _) => (None, shard.states.take()),
            (None, Some(emit_from)) => {
                (Some(Recompute { next: last.next(), emit_from, states }), shard.states.take())
            }
            (None, None) => (None, Some(states)),
        };
        Ok(())
    }

    /// Closes the next window of hours that the watermark lets close.
    pub async fn close(&mut self, shard: &mut LiveShard) -> Result<()> {
        let (Some(first), Some(closable)) = (shard.next_hour(), shard.closable()) else { return Ok(()) };
        let Some(states) = shard.states.clone() else { return Ok(()) };
        self.list_rules(shard, first).await?;
        let last = Hour(closable.0.min(first.0 + shard.recompute.window_hours - 1));
        shard.archive.ensure(&*self.ports.store, (first, last)).await?;
        shard.note_archived(first, last);
        let open: BTreeMap<Hour, EventPlaces> =
            (first.0..=last.0).map(|hour| (Hour(hour), shard.buffer.events(Hour(hour)))).collect();
        let events = |hour| open.get(&hour).cloned().unwrap_or_default();
        let Slice { folded, last, window_hours } = self.fold(shard, (first, last), states, events).await?;
        let closed_hours = folded.hours.len() as u64;
        let unpriced = folded.hours.values().flatten().map(|of| of.tables.totals.unpriced_pods).sum::<i64>();
        let keeps = |hour| retention::keeps_snapshot(hour, closable) || hour == last;
        let encoded = self.encode(shard, folded.hours, keeps).await?;
        let written: u64 = encoded.iter().map(|hour| hour.file_bytes).sum();
        shard.recompute.pay(written);
        self.take(shard, encoded, |draft| draft.close_through(last));
        self.counts.closed_hours += closed_hours;
        self.counts.unpriced_pod_hours += unpriced.unsigned_abs();
        shard.recompute.window_hours = window_hours;
        shard.buffer.close_through(last);
        shard.states = Some(folded.states);
        Ok(())
    }

    /// Returns where recomputation stands; begins it at the first dirty hour.
    async fn cursor(&self, shard: &mut LiveShard) -> Result<Option<Recompute>> {
        let Some(dirty) = shard.next().dirty.first() else { return Ok(None) };
        if let Some(cursor) = &shard.recompute.cursor {
            return Ok(Some(cursor.clone()));
        }
        let store = &*self.ports.store;
        let (cursor, unusable) = Recompute::begin(store, shard.next(), dirty).await?;
        if let Some(draft) = shard.draft() {
            draft.drop_snapshots(&unusable);
        }
        if !shard.recompute_goes_on() {
            shard.recompute.began_at = Some(self.now);
        }
        shard.recompute.cursor = Some(cursor.clone());
        Ok(Some(cursor))
    }

    /// Reads and folds as many of these hours as fit. The shard does not change.
    async fn fold(
        &mut self,
        shard: &mut LiveShard,
        range: (Hour, Hour),
        states: ShardState,
        events: impl Fn(Hour) -> EventPlaces,
    ) -> Result<Slice> {
        let started = Instant::now();
        let reader = WindowReader { store: &*self.ports.store, rules: &*self.rules, limits: self.limits };
        let window = reader.read(&shard.draft, &mut shard.archive, range, states, events).await?;
        let last = window.hours.last().map_or(range.1, |(hour, _)| *hour);
        let windows = BTreeMap::from([(shard.shard(), window)]);
        let mut folded = fold::fold(self.ports, windows, self.limits.event_bytes).await?;
        let folded = folded.remove(&shard.shard()).unwrap_or_default();
        self.counts.fold.observe(started.elapsed());
        self.counts.folded_organization_hours += folded.hours.values().map(Vec::len).sum::<usize>() as u64;
        let window_hours = self.limits.next_hours(folded.rows(), folded.hours.len(), 1);
        Ok(Slice { folded, last, window_hours })
    }

    /// Encodes folded hours. The shard does not change.
    async fn encode(
        &self,
        shard: &LiveShard,
        folded: BTreeMap<Hour, Vec<OrganizationHour>>,
        keeps: impl Fn(Hour) -> bool,
    ) -> Result<Vec<EncodedHour<()>>> {
        let next = shard.next();
        let mut live = LiveTables::default();
        let wanted = folded.keys().map(|hour| (next, *hour));
        live.ensure(self.ports, &shard.claim.owner, wanted).await?;
        live.refuse_lost(&BTreeSet::new())?;
        let Some(namer) = shard.namer() else { return Ok(Vec::new()) };
        let before = |hour| {
            let mut before = emit::entry_before(next, Some(&live.hours), hour)?;
            for (_, table) in shard.recompute.unusable.iter().filter(|(of, _)| *of == hour) {
                Arc::make_mut(&mut before).tables.remove(table);
            }
            Some(before)
        };
        let jobs = folded.into_iter().map(|(hour, organizations)| Job {
            shard: shard.shard(),
            hour,
            organizations,
            before: before(hour),
            snapshot: keeps(hour),
            file_rows: self.ports.encoder.file_rows(),
            namer: namer.clone(),
            now: self.now,
        });
        emit::encode_all(Arc::clone(&self.ports.encoder), jobs.collect(), |_| ()).await
    }

    /// Takes encoded hours into the draft, with their marks.
    fn take(&mut self, shard: &mut LiveShard, encoded: Vec<EncodedHour<()>>, mark: impl FnOnce(&mut Draft)) {
        if let Some(hour) = encoded.last() {
            shard.state_bytes = hour.state_bytes;
        }
        let written: BTreeSet<Hour> = encoded.iter().map(|hour| hour.hour).collect();
        shard.recompute.unusable.retain(|(hour, _)| !written.contains(hour));
        let Some(draft) = shard.draft() else { return };
        for hour in encoded {
            self.counts.restated_hours += u64::from(hour.restated);
            emit::take_into(draft, hour);
        }
        mark(draft);
        draft.touch();
    }

    /// Lists the configured rules with a shard's first hour.
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

/// Lets late events wait for a release that computes their rules, if this release does not. Hours that close
/// meanwhile need the current state, not the state of those events.
fn wait_for_release(shard: &mut LiveShard, error: WorkerError) -> Result<()> {
    if !matches!(error, WorkerError::UnknownEngineVersion { .. }) || shard.states.is_none() {
        return Err(error);
    }
    let shard_number = shard.shard();
    tracing::warn!(shard = shard_number, %error, "late events of these hours not folded yet");
    shard.recompute.waits_for_release = true;
    Ok(())
}

impl LiveShard {
    /// Returns whether hours are dirty for some organizations alone, and the current state of all others is
    /// known.
    pub(super) fn has_dirty_organizations_only(&self) -> bool {
        let dirty = &self.next().dirty;
        let alone = dirty.of_all().is_empty() && !dirty.of_organizations().is_empty();
        alone && self.states.is_some() && self.recompute.cursor.is_none()
    }

    /// Notes which of these hours have archived events of earlier owners, which were never in memory here.
    pub(super) fn note_archived(&mut self, first: Hour, last: Hour) {
        for hour in self.archive.hours().range(first..=last) {
            if self.archive.files(*hour).any(|file| self.claim.is_earlier(file)) {
                self.buffer.note_archived(*hour);
            }
        }
    }
}
