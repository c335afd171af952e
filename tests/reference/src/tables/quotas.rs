//! `quota_usage`: means over the hour, costs by label, and borrowed and lent amounts.

use std::collections::BTreeMap;

use num_traits::Zero;
use prorata_schemas::Text;
use prorata_schemas::ids::PodUid;
use prorata_schemas::rows::{CostRow, QuotaState, QuotaUsageRow};

use crate::hour::{HourView, ResourceStanding, Slice, Standing};
use crate::rounding::{Exact, exact, fraction, half_even, hours, larger, zero};
use crate::tables::sum;
use crate::world::QuotaKey;

/// Sums over one hour of one resource of one quota.
#[derive(Default)]
struct QuotaSums {
    min: Exact,
    max: Option<(Exact, Exact)>,
    in_quota: Exact,
    over_quota: Exact,
    peak: Exact,
    pool: Exact,
    guaranteed: Exact,
    borrowed: Exact,
    lent: Exact,
    /// Hours for which each pod is over-quota while the quota borrows more than it is guaranteed.
    preemptible: BTreeMap<PodUid, Exact>,
}

/// Returns the rows of `quota_usage`, in order of cluster, quota and resource.
pub fn quota_usage(view: &HourView, rows: &[CostRow]) -> Vec<QuotaUsageRow> {
    let mut keys: BTreeMap<(&QuotaKey, &Text), ()> = BTreeMap::new();
    for standing in view.slices.iter().flat_map(|slice| &slice.quotas) {
        keys.extend(standing.resources.iter().map(|of| ((&standing.key, &of.resource), ())));
    }
    keys.into_keys().filter_map(|(key, resource)| row(view, rows, key, resource)).collect()
}

/// Returns all slices in which the quota counts.
fn standings<'a>(view: &'a HourView, key: &QuotaKey) -> Vec<(&'a Slice, &'a Standing)> {
    let mut found = Vec::new();
    for slice in view.slices {
        found.extend(
            slice.quotas.iter().filter(|standing| standing.key == *key).map(|standing| (slice, standing)),
        );
    }
    found
}

/// Returns the sums of one resource.
fn sums(standings: &[(&Slice, &Standing)], resource: &Text) -> QuotaSums {
    let mut sums = QuotaSums::default();
    for (slice, standing) in standings {
        let time = hours(slice.to - slice.from);
        let Some(of) = standing.resources.iter().find(|of| of.resource == *resource) else { continue };
        let ResourceStanding { min, max, in_quota, over_quota, pool, guaranteed, borrowed, lent, .. } = of;
        sums.min += min * &time;
        if let Some(max) = max {
            let (sum, over) = sums.max.get_or_insert_with(|| (zero(), zero()));
            *sum += max * &time;
            *over += &time;
        }
        sums.in_quota += in_quota * &time;
        sums.over_quota += over_quota * &time;
        sums.peak = larger(sums.peak, of.used());
        sums.pool += pool * &time;
        sums.guaranteed += guaranteed * &time;
        sums.borrowed += borrowed * &time;
        sums.lent += lent * &time;
        if borrowed > guaranteed {
            for uid in over_quota_pods(standing) {
                *sums.preemptible.entry(uid.clone()).or_default() += &time;
            }
        }
    }
    sums
}

/// Returns the pods over quota.
fn over_quota_pods(standing: &Standing) -> impl Iterator<Item = &PodUid> {
    standing.pods.iter().filter(|(_, state)| *state == QuotaState::OverQuota).map(|(uid, _)| uid)
}

fn row(view: &HourView, rows: &[CostRow], key: &QuotaKey, resource: &Text) -> Option<QuotaUsageRow> {
    let standings = standings(view, key);
    let (_, last) = standings.last()?;
    let sums = sums(&standings, resource);
    let mine = |state: QuotaState| {
        rows.iter().filter(move |row| {
            row.cluster_id.as_ref() == Some(&key.0)
                && row.quota_id.as_ref() == Some(&key.1)
                && row.quota_state == Some(state)
        })
    };
    let mut preemptible = zero();
    for (uid, hours_while) in &sums.preemptible {
        let cost = sum(mine(QuotaState::OverQuota).filter(|row| row.pod_uid.as_ref() == Some(uid)), |row| {
            row.effective_cost
        });
        let over: Exact = standings
            .iter()
            .filter(|(_, standing)| over_quota_pods(standing).any(|pod| pod == uid))
            .map(|(slice, _)| hours(slice.to - slice.from))
            .sum();
        preemptible += exact(cost) * fraction(hours_while, &over);
    }
    let with_resource = |standing: &Standing| standing.resources.iter().any(|of| of.resource == *resource);
    let states = standings.iter().map(|(_, standing)| standing).filter(|standing| with_resource(standing));
    let peak_pods = states.map(|standing| over_quota_pods(standing).count()).max().unwrap_or(0);
    Some(QuotaUsageRow {
        cluster_id: key.0.clone(),
        quota_id: key.1.clone(),
        kind: last.set.kind,
        namespaces: last.set.namespaces.clone(),
        resource: resource.clone(),
        min: half_even(&sums.min),
        max: sums.max.filter(|(_, over)| !over.is_zero()).map(|(sum, over)| half_even(&(sum / over))),
        used_mean: half_even(&(&sums.in_quota + &sums.over_quota)),
        used_peak: half_even(&sums.peak),
        in_quota_amount_hours: half_even(&sums.in_quota),
        over_quota_amount_hours: half_even(&sums.over_quota),
        in_quota_cost: sum(mine(QuotaState::InQuota), |row| row.effective_cost),
        over_quota_cost: sum(mine(QuotaState::OverQuota), |row| row.effective_cost),
        over_quota_pool: half_even(&sums.pool),
        guaranteed_over_quota: half_even(&sums.guaranteed),
        borrowed_hours: half_even(&sums.borrowed),
        lent_hours: half_even(&sums.lent),
        preemptible_cost: half_even(&preemptible),
        over_quota_pods_peak: peak_pods as i64,
    })
}
