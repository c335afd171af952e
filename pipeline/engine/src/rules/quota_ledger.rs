//! Amounts that quotas lend and borrow (RULES.md, section 4): integrals and peaks over the hour, for table
//! `quota_usage`.
//!
//! **Decides** these amounts at an instant, for each cluster and resource:
//! - The pool is the sum over quotas of max(0, min - used).
//! - The guaranteed amount is the pool times min over the sum of min.
//! - The borrowed amount is max(0, used - min).
//! - The lent amount is a quota's part of the smaller of the pool and the borrowed amount, weighted by the
//!   quota's own max(0, min - used).
//!
//! No quota takes precedence over another. A quota is processed when its own levels change. Amounts that
//! depend on all quotas of the cluster are in `quota_lending.rs`.
//!
//! **Interval ends**: a level holds from its instant until the next. Peaks are over states of positive
//! length, so a level that comes and goes within one instant leaves no trace.
//!
//! **Rounding**: guaranteed is floored to the millicore, byte, or whole unit of any other resource. Integrals
//! are exact integers. Lent is a sum of fractions, which is rounded once.

use std::collections::BTreeMap;
use std::sync::Arc;

use dashu_int::UBig;
use prorata_schemas::Text;
use prorata_schemas::decimal::Decimal12;
use prorata_schemas::event::QuotaSet;
use prorata_schemas::ids::QuotaId;
use prorata_schemas::quantity::{AmountUnit, CPU};
use prorata_schemas::time::Timestamp;

use crate::error::EngineError;
use crate::model::span::Span;
use crate::rules::quota_lending::Lending;

/// The levels of a quota at an instant. Amounts are in the order of `min`.
#[derive(Debug)]
pub(crate) struct QuotaLevels {
    pub(crate) description: Arc<QuotaSet>,
    pub(crate) min: Arc<[(Text, u128)]>,
    pub(crate) used: Vec<u128>,
    pub(crate) in_quota: Vec<u128>,
    pub(crate) over_pods: u64,
}

/// A quota's levels of one resource, in bytes or thousandths.
#[derive(Clone, Copy)]
struct Levels {
    min: u128,
    max: Option<u128>,
    used: u128,
    in_quota: u128,
    over_pods: u64,
}

/// A value over time. The values of adjacent spans differ.
type Stretches<V> = Vec<(Span, V)>;

/// One quota and resource in the hour. Integrals are in bytes or thousandths times microseconds.
#[derive(Debug, Default)]
pub(crate) struct ResourceAccount {
    pub(crate) min: UBig,
    pub(crate) max: UBig,
    /// Microseconds for which a max was set.
    pub(crate) max_micros: UBig,
    pub(crate) used: UBig,
    pub(crate) used_peak: u128,
    pub(crate) in_quota: UBig,
    pub(crate) over_quota: UBig,
    pub(crate) borrowed: UBig,
    pub(crate) over_pods_peak: u64,
    /// The pool. Like the next two fields, it is known only after the hour has ended.
    pub(crate) pool: UBig,
    pub(crate) guaranteed: UBig,
    /// Spans in which the quota borrowed more than it was guaranteed.
    pub(crate) above_guaranteed: Vec<Span>,
    mins: Stretches<u128>,
    /// The quota's max(0, min - used), where it is above zero.
    unused: Stretches<u128>,
    /// The quota's min and the amount that it borrows, where it borrows.
    borrowing: Stretches<(u128, u128)>,
}

/// One quota in the hour.
#[derive(Debug)]
pub(crate) struct QuotaAccount {
    /// The last description while the quota counted.
    pub(crate) description: Arc<QuotaSet>,
    pub(crate) resources: BTreeMap<Text, ResourceAccount>,
}

/// One cluster's quotas in the hour, by quota id.
#[derive(Debug, Default)]
pub(crate) struct ClusterLedger {
    current: BTreeMap<QuotaId, CurrentLevels>,
    lending: BTreeMap<Text, Lending>,
    pub(crate) quotas: BTreeMap<QuotaId, QuotaAccount>,
}

/// A quota's levels since they last changed.
#[derive(Debug)]
struct CurrentLevels {
    since: Timestamp,
    levels: QuotaLevels,
}

impl QuotaLevels {
    fn by_resource(&self) -> impl Iterator<Item = (&Text, Levels)> {
        let amounts = self.min.iter().zip(&self.used).zip(&self.in_quota);
        amounts.map(|(((resource, min), used), in_quota)| {
            let max = self.description.max.as_ref().and_then(|max| max.get(resource));
            let max = max.map(|quantity| quantity.amount);
            let (min, used, in_quota) = (*min, *used, *in_quota);
            (resource, Levels { min, max, used, in_quota, over_pods: self.over_pods })
        })
    }
}

impl ClusterLedger {
    /// Sets the levels of a quota from now on. `levels` is `None` if the quota no longer counts.
    pub(crate) fn set(&mut self, now: Timestamp, quota_id: &QuotaId, levels: Option<QuotaLevels>) {
        for (resource, Levels { min, used, .. }) in levels.iter().flat_map(QuotaLevels::by_resource) {
            self.lending.entry(resource.clone()).or_default().add(min, used);
        }
        let before = match levels {
            Some(levels) => self.current.insert(quota_id.clone(), CurrentLevels { since: now, levels }),
            None => self.current.remove(quota_id),
        };
        let Some(CurrentLevels { since, levels }) = before else { return };
        for (resource, Levels { min, used, .. }) in levels.by_resource() {
            self.lending.entry(resource.clone()).or_default().remove(min, used);
        }
        if let Some(span) = Span::new(since, now) {
            self.accrue(quota_id, &levels, span);
        }
    }

    /// Ends an instant, so that the sums over the quotas hold from now on.
    pub(crate) fn end_instant(&mut self, now: Timestamp) {
        self.lending.values_mut().for_each(|lending| lending.end_instant(now));
    }

    /// Ends the hour.
    pub(crate) fn finish(&mut self, end: Timestamp) {
        for quota_id in self.current.keys().cloned().collect::<Vec<_>>() {
            self.set(end, &quota_id, None);
        }
        for (resource, lending) in &self.lending {
            let accounts = self.quotas.values_mut().filter_map(|quota| quota.resources.get_mut(resource));
            settle(accounts.collect(), lending, quota_unit(resource));
        }
    }

    /// Returns the amount that a quota of the cluster lends of a resource, divided by `scale`.
    ///
    /// # Errors
    /// If the amount has more than 38 digits.
    pub(crate) fn lent(
        &self,
        resource: &Text,
        account: &ResourceAccount,
        scale: &UBig,
    ) -> Result<Decimal12, EngineError> {
        let lending = self.lending.get(resource);
        lending.map_or(Ok(Decimal12::ZERO), |lending| lending.lent(&account.unused, scale))
    }

    fn accrue(&mut self, quota_id: &QuotaId, levels: &QuotaLevels, span: Span) {
        let account = self.quotas.entry(quota_id.clone()).or_insert_with(|| QuotaAccount {
            description: levels.description.clone(),
            resources: BTreeMap::new(),
        });
        account.description = levels.description.clone();
        for (resource, levels) in levels.by_resource() {
            account.resources.entry(resource.clone()).or_default().accrue(levels, span);
        }
    }
}

/// Adds the amounts that depend on all quotas of the cluster to the accounts of one resource.
fn settle(mut accounts: Vec<&mut ResourceAccount>, lending: &Lending, unit: u128) {
    // Many quotas have the same min, and they are guaranteed the same amount.
    let mut by_min: BTreeMap<u128, Vec<(usize, Span)>> = BTreeMap::new();
    for (index, account) in accounts.iter_mut().enumerate() {
        for (span, min) in &account.mins {
            account.pool += lending.pool(*span);
            by_min.entry(*min).or_default().push((index, *span));
        }
        let mut above: Stretches<()> = Vec::new();
        for (span, (min, borrowed)) in &account.borrowing {
            let spans = lending.above_guaranteed(*span, *min, *borrowed, unit);
            spans.for_each(|span| extend(&mut above, span, ()));
        }
        account.above_guaranteed = above.into_iter().map(|(span, ())| span).collect();
    }
    for (min, spans) in by_min {
        let hull = spans.iter().map(|(_, span)| *span).reduce(|a, b| a.hull(b));
        let Some(guaranteed) = hull.map(|hull| lending.guaranteed(hull, min, unit)) else { continue };
        for (index, span) in spans {
            accounts[index].guaranteed += guaranteed.over(span);
        }
    }
}

impl ResourceAccount {
    fn accrue(&mut self, levels: Levels, span: Span) {
        let Levels { min, max, used, in_quota, over_pods } = levels;
        let micros = UBig::from(span.micros());
        let add = |sum: &mut UBig, amount: u128| *sum += UBig::from(amount) * &micros;
        add(&mut self.min, min);
        if let Some(max) = max {
            add(&mut self.max, max);
            self.max_micros += &micros;
        }
        add(&mut self.used, used);
        self.used_peak = self.used_peak.max(used);
        add(&mut self.in_quota, in_quota);
        add(&mut self.over_quota, used - in_quota);
        self.over_pods_peak = self.over_pods_peak.max(over_pods);
        extend(&mut self.mins, span, min);
        if let Some(borrowed) = used.checked_sub(min).filter(|borrowed| *borrowed > 0) {
            add(&mut self.borrowed, borrowed);
            extend(&mut self.borrowing, span, (min, borrowed));
        } else if used < min {
            extend(&mut self.unused, span, min - used);
        }
    }
}

/// Adds a span with a value. The span must come after all others.
fn extend<V: PartialEq>(stretches: &mut Stretches<V>, span: Span, value: V) {
    match stretches.last_mut() {
        Some((last, same)) if last.to == span.from && *same == value => last.to = span.to,
        _ => stretches.push((span, value)),
    }
}

/// Returns the unit to which a guaranteed amount is floored: a millicore, a byte, or one unit of any other
/// resource.
fn quota_unit(resource: &str) -> u128 {
    if resource == CPU { 1 } else { AmountUnit::of(resource).per_one().into() }
}
