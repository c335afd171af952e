//! `quota_usage`: a row for each resource that a quota's `min` names at any time in the hour (RULES.md,
//! section 4).
//!
//! Every mean is the integral over the hour divided by one hour. The mean of `max` is over the part of the
//! hour in which `max` was set.

use std::collections::BTreeMap;

use dashu_int::UBig;
use dashu_ratio::RBig;
use prorata_schemas::Text;
use prorata_schemas::decimal::Decimal12;
use prorata_schemas::ids::{ClusterId, PodUid, QuotaId};
use prorata_schemas::quantity::AmountUnit;
use prorata_schemas::rows::{CostRow, QuotaState, QuotaUsageRow};

use crate::error::EngineError;
use crate::exact::{ATOMS_IN_ONE, Fraction, HOUR_MICROS, ratio, round, round_sum, sum, sum_of};
use crate::model::slices::PodSlice;
use crate::model::span::Span;
use crate::model::state::QuotaKey;
use crate::rules::quota_ledger::{ClusterLedger, QuotaAccount, ResourceAccount};

/// The spans in which each pod is over its quota.
type OverSpans<'a> = BTreeMap<&'a QuotaKey, BTreeMap<&'a PodUid, Vec<Span>>>;

/// The costs of one quota's pods by label.
#[derive(Debug, Default)]
struct Costs<'a> {
    in_quota: Vec<Decimal12>,
    over_quota: BTreeMap<&'a PodUid, Vec<Decimal12>>,
}

/// Returns the rows in order of cluster, quota and resource.
///
/// # Errors
/// If an amount does not fit its column.
pub(crate) fn quota_usage(
    ledgers: &BTreeMap<ClusterId, ClusterLedger>,
    pods: &[(PodUid, Vec<PodSlice>)],
    rows: &[Box<CostRow>],
) -> Result<Vec<QuotaUsageRow>, EngineError> {
    if ledgers.values().all(|ledger| ledger.quotas.is_empty()) {
        return Ok(Vec::new());
    }
    let costs = costs(rows);
    let over_spans = over_spans(pods);
    let mut out = Vec::new();
    for (cluster_id, ledger) in ledgers {
        for (quota_id, quota) in &ledger.quotas {
            let key = (cluster_id.clone(), quota_id.clone());
            let none = Costs::default();
            let costs = costs.get(&(cluster_id, quota_id)).unwrap_or(&none);
            for (resource, account) in &quota.resources {
                let preemptible = preemptible(account, costs, over_spans.get(&key))?;
                out.push(row(&key, ledger, quota, resource, account, costs, preemptible)?);
            }
        }
    }
    Ok(out)
}

fn costs(rows: &[Box<CostRow>]) -> BTreeMap<(&ClusterId, &QuotaId), Costs<'_>> {
    let mut costs: BTreeMap<_, Costs<'_>> = BTreeMap::new();
    for row in rows {
        let (Some(cluster), Some(quota), Some(uid)) = (&row.cluster_id, &row.quota_id, &row.pod_uid) else {
            continue;
        };
        let entry = costs.entry((cluster, quota)).or_default();
        match row.quota_state {
            Some(QuotaState::InQuota) => entry.in_quota.push(row.effective_cost),
            Some(QuotaState::OverQuota) => entry.over_quota.entry(uid).or_default().push(row.effective_cost),
            None => {}
        }
    }
    costs
}

fn over_spans(pods: &[(PodUid, Vec<PodSlice>)]) -> OverSpans<'_> {
    let mut spans = OverSpans::new();
    for (uid, slices) in pods {
        for slice in slices {
            let Some(label) = &slice.status.label else { continue };
            if label.state == QuotaState::OverQuota {
                spans.entry(&*label.quota).or_default().entry(uid).or_default().push(slice.span);
            }
        }
    }
    spans
}

/// Returns the preemptible cost. It is the sum of the pods' over-quota costs, each multiplied by a part of
/// the pod's over-quota time. This is the part in which the quota borrowed more than it was guaranteed.
fn preemptible(
    account: &ResourceAccount,
    costs: &Costs<'_>,
    spans: Option<&BTreeMap<&PodUid, Vec<Span>>>,
) -> Result<Decimal12, EngineError> {
    let mut parts = Vec::new();
    let mut credits = Vec::new();
    for (uid, costs) in &costs.over_quota {
        let Some(spans) = spans.and_then(|spans| spans.get(*uid)) else { continue };
        let all: u128 = spans.iter().map(|span| span.micros()).sum();
        let above: u128 = spans.iter().map(|span| shared(*span, &account.above_guaranteed)).sum();
        let cost = sum(costs.iter().copied())?;
        let magnitude = UBig::from(cost.atoms().unsigned_abs());
        if all > 0 {
            let parts = if cost.is_negative() { &mut credits } else { &mut parts };
            parts.push(Fraction::new(magnitude * UBig::from(above), UBig::from(all)));
        }
    }
    if credits.is_empty() {
        return round_sum(&parts);
    }
    // Bills may have credits, so the exact sum decides the rounding.
    let sum = sum_of(&parts).reduced() - sum_of(&credits).reduced();
    round(&(sum / RBig::from(ATOMS_IN_ONE)))
}

/// Returns the microseconds that a span shares with sorted, disjoint spans.
fn shared(span: Span, others: &[Span]) -> u128 {
    let first = others.partition_point(|other| other.to <= span.from);
    let overlapping = others[first..].iter().take_while(|other| other.from < span.to);
    overlapping.filter_map(|other| other.overlap(span)).map(Span::micros).sum()
}

fn row(
    (cluster_id, quota_id): &QuotaKey,
    ledger: &ClusterLedger,
    quota: &QuotaAccount,
    resource: &Text,
    account: &ResourceAccount,
    costs: &Costs<'_>,
    preemptible_cost: Decimal12,
) -> Result<QuotaUsageRow, EngineError> {
    let scale = UBig::from(AmountUnit::of(resource).per_one());
    let over = |amount: &UBig, micros: &UBig| round(&ratio(amount.clone(), &scale * micros));
    let hour = UBig::from(HOUR_MICROS);
    let mean = |amount: &UBig| over(amount, &hour);
    let over_quota_cost = sum(costs.over_quota.values().flatten().copied())?;
    Ok(QuotaUsageRow {
        cluster_id: cluster_id.clone(),
        quota_id: quota_id.clone(),
        kind: quota.description.kind,
        namespaces: quota.description.namespaces.clone(),
        resource: resource.clone(),
        min: mean(&account.min)?,
        max: if account.max_micros.is_zero() { None } else { Some(over(&account.max, &account.max_micros)?) },
        used_mean: mean(&account.used)?,
        used_peak: over(&UBig::from(account.used_peak), &UBig::ONE)?,
        in_quota_amount_hours: mean(&account.in_quota)?,
        over_quota_amount_hours: mean(&account.over_quota)?,
        in_quota_cost: sum(costs.in_quota.iter().copied())?,
        over_quota_cost,
        over_quota_pool: mean(&account.pool)?,
        guaranteed_over_quota: mean(&account.guaranteed)?,
        borrowed_hours: mean(&account.borrowed)?,
        lent_hours: ledger.lent(resource, account, &(&scale * &hour))?,
        preemptible_cost,
        over_quota_pods_peak: i64::try_from(account.over_pods_peak).unwrap_or(i64::MAX),
    })
}
