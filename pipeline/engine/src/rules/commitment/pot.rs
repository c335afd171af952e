//! Commitments that a provider counts by the clock hour (RULES.md, section 3): the effective time of each in
//! the hour, under one description.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::{Bound, Range};
use std::sync::Arc;

use prorata_schemas::event::CommitmentSet;
use prorata_schemas::ids::CommitmentId;
use prorata_schemas::time::Timestamp;

use crate::model::slices::{CommitmentHour, CommitmentSlice};
use crate::model::span::Span;

/// A commitment of the clock hour under one description.
#[derive(Debug)]
pub(crate) struct Pot {
    pub(crate) description: Arc<CommitmentSet>,
    /// The spans of the effective time, in order. No span begins where the span before it ends.
    pub(crate) spans: Vec<Span>,
    /// The slices of the commitment with this description.
    pub(crate) slices: Range<usize>,
    /// Whether bills of the hour have lines for the commitment, so that it covers nothing.
    pub(crate) is_billed: bool,
}

impl Pot {
    fn new(slice: &CommitmentSlice, index: usize, is_billed: bool) -> Self {
        let description = Arc::clone(&slice.description);
        Self { description, spans: vec![slice.span], slices: index..index + 1, is_billed }
    }

    fn extend(&mut self, span: Span, index: usize) {
        match self.spans.last_mut().filter(|last| last.to == span.from) {
            Some(last) => last.to = span.to,
            None => self.spans.push(span),
        }
        self.slices.end = index + 1;
    }

    fn order(&self) -> (Timestamp, &CommitmentId) {
        (self.description.starts_at, &self.description.commitment_id)
    }

    /// Returns the length of the effective time.
    pub(crate) fn micros(&self) -> u128 {
        self.spans.iter().map(|span| span.micros()).sum()
    }

    /// Returns whether an instant is in the effective time.
    pub(crate) fn holds(&self, at: Timestamp) -> bool {
        let next = self.spans.partition_point(|span| span.from <= at);
        next.checked_sub(1).and_then(|last| self.spans.get(last)).is_some_and(|span| at < span.to)
    }

    /// Returns the slices of this description.
    pub(crate) fn slices_in<'a>(
        &self,
        hours: &'a mut BTreeMap<CommitmentId, CommitmentHour>,
    ) -> &'a mut [CommitmentSlice] {
        let hour = hours.get_mut(&self.description.commitment_id);
        hour.and_then(|hour| hour.slices.get_mut(self.slices.clone())).unwrap_or_default()
    }
}

/// Returns the pots of the commitments for which `is_one` is true, in the order of (starts_at, id). Pots of
/// one commitment are in order of time.
pub(crate) fn pots(
    hours: &BTreeMap<CommitmentId, CommitmentHour>,
    is_one: impl Fn(&CommitmentSet) -> bool,
) -> Vec<Pot> {
    let mut pots: Vec<Pot> = Vec::new();
    for hour in hours.values() {
        let first = pots.len();
        let slices = hour.slices.iter().enumerate();
        for (index, slice) in slices.filter(|(_, slice)| is_one(&slice.description)) {
            let last = pots.get_mut(first..).unwrap_or_default().last_mut();
            match last.filter(|pot| pot.description == slice.description) {
                Some(pot) => pot.extend(slice.span, index),
                None => pots.push(Pot::new(slice, index, hour.is_billed)),
            }
        }
    }
    pots.sort_by(|a, b| a.order().cmp(&b.order()));
    pots
}

/// Returns the instants at which pots become effective or stop being effective.
pub(crate) fn edges<'a>(pots: impl IntoIterator<Item = &'a Pot>) -> BTreeSet<Timestamp> {
    let spans = pots.into_iter().flat_map(|pot| &pot.spans);
    spans.flat_map(|span| [span.from, span.to]).collect()
}

/// Cuts a span at the edges within it.
pub(crate) fn parts(span: Span, edges: &BTreeSet<Timestamp>) -> Vec<Span> {
    let within = (Bound::Excluded(span.from), Bound::Excluded(span.to));
    let edges = edges.range(within).copied();
    let mut from = span.from;
    let parts = edges.chain([span.to]).filter_map(|to| Span::new(std::mem::replace(&mut from, to), to));
    parts.collect()
}
