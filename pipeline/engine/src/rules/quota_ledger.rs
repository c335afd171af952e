//! The hour's account of a cluster's quotas: integrals and peaks of what each guarantees, uses, borrows and lends.
//!
//! At an instant and for each resource, the pool is the sum over quotas of max(0, min - used); guaranteed is the pool
//! times min over the sum of min, floored; borrowed is max(0, used - min); lent is a quota's part, by its own
//! max(0, min - used), of the smaller of the pool and what others borrow. Peaks are over states of positive length.

use std::collections::BTreeMap;
use std::sync::Arc;

use dashu_int::UBig;
use prorata_schemas::Text;
use prorata_schemas::event::QuotaSet;
use prorata_schemas::ids::QuotaId;
use prorata_schemas::time::Timestamp;

use crate::exact::div_rem;
use crate::timeline::size::quota_step;
use crate::timeline::slices::Span;
use crate::timeline::state::QuotaKey;

/// What a quota says at an instant, amounts in the order of `min`.
#[derive(Debug)]
pub(crate) struct Reading {
    pub(crate) key: Arc<QuotaKey>,
    pub(crate) description: Arc<QuotaSet>,
    pub(crate) min: Vec<(Text, u128)>,
    pub(crate) used: Vec<u128>,
    pub(crate) in_quota: Vec<u128>,
    pub(crate) over_pods: u64,
}

/// Integrals of one quota and resource, in bytes or thousandths times microseconds.
#[derive(Debug, Default)]
pub(crate) struct Account {
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
    /// Lent amounts times the pool that they are a part of, by that pool.
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
    pub(crate) resources: BTreeMap<Text, Account>,
}

/// One cluster's quotas in the hour, by quota id.
#[derive(Debug, Default)]
pub(crate) struct ClusterLedger {
    since: Timestamp,
    current: Vec<Standing>,
    pub(crate) quotas: BTreeMap<QuotaId, QuotaAccount>,
}

#[derive(Debug)]
struct Standing {
    key: Arc<QuotaKey>,
    description: Arc<QuotaSet>,
    over_pods: u64,
    resources: Vec<Amounts>,
}

#[derive(Debug)]
struct Amounts {
    resource: Text,
    min: u128,
    max: Option<u128>,
    used: u128,
    in_quota: u128,
    pool: u128,
    guaranteed: u128,
    borrowed: u128,
    /// Lent amount times the pool.
    lent: UBig,
}

/// Sums over the quotas of a cluster that name a resource in `min`.
#[derive(Clone, Copy, Debug, Default)]
struct Total {
    pool: u128,
    min: u128,
    borrowed: u128,
}

impl ClusterLedger {
    /// Books the time since the last reading, then takes the new one.
    pub(crate) fn read(&mut self, now: Timestamp, readings: Vec<Reading>) {
        if let Some(span) = Span::new(self.since, now) {
            for standing in std::mem::take(&mut self.current) {
                let id = standing.key.1.clone();
                let account = self.quotas.entry(id).or_insert_with(|| QuotaAccount {
                    description: standing.description.clone(),
                    resources: BTreeMap::new(),
                });
                account.description = standing.description.clone();
                for amounts in standing.resources {
                    let resource = account.resources.entry(amounts.resource.clone()).or_default();
                    resource.book(&amounts, standing.over_pods, span);
                }
            }
        }
        self.since = now;
        let totals = totals(&readings);
        self.current = readings.into_iter().map(|reading| stand(reading, &totals)).collect();
    }
}

impl Account {
    fn book(&mut self, amounts: &Amounts, over_pods: u64, span: Span) {
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

fn totals(readings: &[Reading]) -> BTreeMap<Text, Total> {
    let mut totals: BTreeMap<Text, Total> = BTreeMap::new();
    for reading in readings {
        for ((resource, min), used) in reading.min.iter().zip(&reading.used) {
            let total = totals.entry(resource.clone()).or_default();
            total.pool += min.saturating_sub(*used);
            total.min += min;
            total.borrowed += used.saturating_sub(*min);
        }
    }
    totals
}

fn stand(reading: Reading, totals: &BTreeMap<Text, Total>) -> Standing {
    let amounts = reading.min.iter().zip(&reading.used).zip(&reading.in_quota);
    let resources = amounts.map(|(((resource, min), used), in_quota)| {
        let total = totals.get(resource).copied().unwrap_or_default();
        let max = reading.description.max.as_ref().and_then(|max| max.get(resource));
        Amounts {
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
    Standing { key: reading.key, description: reading.description, over_pods: reading.over_pods, resources }
}

/// A quota's part of the pool by its min, floored to whole steps of the resource.
fn guaranteed(total: Total, min: u128, step: u128) -> u128 {
    if total.min == 0 {
        return 0;
    }
    let part = UBig::from(total.pool) * UBig::from(min);
    let (whole, _) = div_rem(&part, &UBig::from(total.min));
    u128::try_from(whole).unwrap_or(u128::MAX) / step * step
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn guaranteed_is_floored_to_the_step_of_the_resource() {
        let total = |pool, min| Total { pool, min, borrowed: 0 };
        assert_eq!(guaranteed(total(15, 60), 10, 1), 2);
        assert_eq!(guaranteed(total(68_000, 88_000), 64_000, 1000), 49_000);
        assert_eq!(guaranteed(total(5, 0), 0, 1), 0);
    }
}
