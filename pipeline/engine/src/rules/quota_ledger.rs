//! What quotas lend and borrow (RULES.md, section 4): integrals and peaks over the hour, for table
//! `quota_usage`.
//!
//! **Decides**, at an instant and for each cluster and resource: the pool is the sum over quotas of max(0,
//! min - used); guaranteed is the pool times min over the sum of min; borrowed is max(0, used - min); lent is
//! a quota's part, by its own max(0, min - used), of the smaller of the pool and what is borrowed. No quota
//! goes before another.
//!
//! **Interval ends**: a level holds from its instant up to the next. Peaks are over states of positive
//! length, so what comes and goes within one instant leaves no trace.
//!
//! **Rounding**: guaranteed is floored to the millicore, byte, or whole unit of any other resource. Integrals
//! are exact integers, and lent is kept over its pool as the denominator until its row is made.

use std::collections::BTreeMap;
use std::sync::Arc;

use dashu_int::UBig;
use prorata_schemas::Text;
use prorata_schemas::event::QuotaSet;
use prorata_schemas::ids::QuotaId;
use prorata_schemas::quantity::{AmountUnit, CPU};
use prorata_schemas::time::Timestamp;

use crate::timeline::span::Span;
use crate::timeline::state::QuotaKey;

/// The levels of a quota at an instant, amounts in the order of `min`.
#[derive(Debug)]
pub(crate) struct QuotaLevels {
    pub(crate) key: Arc<QuotaKey>,
    pub(crate) description: Arc<QuotaSet>,
    pub(crate) min: Vec<(Text, u128)>,
    pub(crate) used: Vec<u128>,
    pub(crate) in_quota: Vec<u128>,
    pub(crate) over_pods: u64,
}

/// Integrals of one quota and resource, in bytes or thousandths times microseconds.
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
    pub(crate) pool: UBig,
    pub(crate) guaranteed: UBig,
    pub(crate) borrowed: UBig,
    /// Lent amounts times the pool that they are a part of, by that pool: fractions of one denominator add up
    /// as integers.
    pub(crate) lent: BTreeMap<u128, UBig>,
    /// When more was borrowed than guaranteed.
    pub(crate) above_guaranteed: Vec<Span>,
    pub(crate) over_pods_peak: u64,
}

/// One quota in the hour.
#[derive(Debug)]
pub(crate) struct QuotaAccount {
    /// As last described while it counted.
    pub(crate) description: Arc<QuotaSet>,
    pub(crate) resources: BTreeMap<Text, ResourceAccount>,
}

/// One cluster's quotas in the hour, by quota id.
#[derive(Debug, Default)]
pub(crate) struct ClusterLedger {
    since: Timestamp,
    current: Vec<LedgerEntry>,
    pub(crate) quotas: BTreeMap<QuotaId, QuotaAccount>,
}

/// A quota's levels since the ledger's last entry.
#[derive(Debug)]
struct LedgerEntry {
    key: Arc<QuotaKey>,
    description: Arc<QuotaSet>,
    over_pods: u64,
    resources: Vec<ResourceLevels>,
}

/// Levels of one quota and resource, in bytes or thousandths.
#[derive(Debug)]
struct ResourceLevels {
    resource: Text,
    min: u128,
    max: Option<u128>,
    used: u128,
    in_quota: u128,
    pool: u128,
    guaranteed: u128,
    borrowed: u128,
    /// Lent amount times the pool: see [`ResourceAccount::lent`].
    lent: UBig,
}

/// Sums over the quotas of a cluster that name a resource in `min`.
#[derive(Clone, Copy, Debug, Default)]
struct ClusterTotal {
    pool: u128,
    min: u128,
    borrowed: u128,
}

impl ClusterLedger {
    /// Accrues the time since the last levels, then takes the new ones.
    pub(crate) fn record(&mut self, now: Timestamp, levels: Vec<QuotaLevels>) {
        if let Some(span) = Span::new(self.since, now) {
            for entry in std::mem::take(&mut self.current) {
                let id = entry.key.1.clone();
                let account = self.quotas.entry(id).or_insert_with(|| QuotaAccount {
                    description: entry.description.clone(),
                    resources: BTreeMap::new(),
                });
                account.description = entry.description.clone();
                for amounts in entry.resources {
                    let resource = account.resources.entry(amounts.resource.clone()).or_default();
                    resource.accrue(&amounts, entry.over_pods, span);
                }
            }
        }
        self.since = now;
        let totals = totals(&levels);
        self.current = levels.into_iter().map(|levels| entry(levels, &totals)).collect();
    }
}

impl ResourceAccount {
    fn accrue(&mut self, amounts: &ResourceLevels, over_pods: u64, span: Span) {
        let micros = UBig::from(span.micros());
        let add = |sum: &mut UBig, amount: u128| *sum += UBig::from(amount) * &micros;
        add(&mut self.min, amounts.min);
        if let Some(max) = amounts.max {
            add(&mut self.max, max);
            self.max_micros += &micros;
        }
        add(&mut self.used, amounts.used);
        self.used_peak = self.used_peak.max(amounts.used);
        add(&mut self.in_quota, amounts.in_quota);
        add(&mut self.over_quota, amounts.used - amounts.in_quota);
        add(&mut self.pool, amounts.pool);
        add(&mut self.guaranteed, amounts.guaranteed);
        add(&mut self.borrowed, amounts.borrowed);
        if amounts.lent != UBig::ZERO {
            *self.lent.entry(amounts.pool).or_default() += &amounts.lent * &micros;
        }
        self.over_pods_peak = self.over_pods_peak.max(over_pods);
        if amounts.borrowed > amounts.guaranteed {
            match self.above_guaranteed.last_mut() {
                Some(last) if last.to == span.from => last.to = span.to,
                _ => self.above_guaranteed.push(span),
            }
        }
    }
}

fn totals(levels: &[QuotaLevels]) -> BTreeMap<Text, ClusterTotal> {
    let mut totals: BTreeMap<Text, ClusterTotal> = BTreeMap::new();
    for quota in levels {
        for ((resource, min), used) in quota.min.iter().zip(&quota.used) {
            let total = totals.entry(resource.clone()).or_default();
            total.pool += min.saturating_sub(*used);
            total.min += min;
            // Only the smaller of this and the pool is ever lent, so a sum past 128 bits may stay at the top.
            total.borrowed = total.borrowed.saturating_add(used.saturating_sub(*min));
        }
    }
    totals
}

fn entry(levels: QuotaLevels, totals: &BTreeMap<Text, ClusterTotal>) -> LedgerEntry {
    let amounts = levels.min.iter().zip(&levels.used).zip(&levels.in_quota);
    let resources = amounts.map(|(((resource, min), used), in_quota)| {
        let total = totals.get(resource).copied().unwrap_or_default();
        let max = levels.description.max.as_ref().and_then(|max| max.get(resource));
        ResourceLevels {
            resource: resource.clone(),
            min: *min,
            max: max.map(|quantity| quantity.amount),
            used: *used,
            in_quota: *in_quota,
            pool: total.pool,
            guaranteed: guaranteed(total, *min, quota_step(resource)),
            borrowed: used.saturating_sub(*min),
            lent: UBig::from(total.borrowed.min(total.pool)) * UBig::from(min.saturating_sub(*used)),
        }
    });
    let resources = resources.collect();
    LedgerEntry { key: levels.key, description: levels.description, over_pods: levels.over_pods, resources }
}

/// A quota's part of the pool by its min, floored to whole steps of the resource.
fn guaranteed(total: ClusterTotal, min: u128, step: u128) -> u128 {
    if total.min == 0 {
        return 0;
    }
    // At most the pool, as min is a part of the sum of min.
    let part = UBig::from(total.pool) * UBig::from(min) / UBig::from(total.min);
    u128::try_from(part).unwrap_or(total.pool) / step * step
}

/// The smallest part of a resource that a guaranteed amount is floored to: millicore, byte, or whole unit.
fn quota_step(resource: &str) -> u128 {
    if resource == CPU { 1 } else { AmountUnit::of(resource).per_one().into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn guaranteed_is_floored_to_the_step_of_the_resource() {
        let total = |pool, min| ClusterTotal { pool, min, borrowed: 0 };
        assert_eq!(guaranteed(total(15, 60), 10, 1), 2);
        assert_eq!(guaranteed(total(68_000, 88_000), 64_000, 1000), 49_000);
        assert_eq!(guaranteed(total(5, 0), 0, 1), 0);
    }
}
