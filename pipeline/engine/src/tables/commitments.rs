//! `commitment_utilization`: the amounts that each commitment covered and could cover (RULES.md, section 3).
//!
//! Utilization over the hour is covered resource-time divided by committed resource-time, with the weights
//! that `rules/commitment.rs` gives the money of a commitment. Raw utilization counts all matching
//! provisioned capacity instead of covered capacity, so over-use shows as a value above 1. Planned
//! utilization counts the capacity that the commitment would cover if the provider followed `enabled` and
//! `allowed_utilization`.

use std::collections::BTreeMap;
use std::sync::Arc;

use dashu_int::UBig;
use dashu_ratio::RBig;
use prorata_schemas::decimal::Decimal12;
use prorata_schemas::event::CommitmentKind;
use prorata_schemas::ids::{ClusterId, CommitmentId};
use prorata_schemas::rows::{
    ClusterCover, CommitmentState, CommitmentUtilizationRow, CostRow, PlanSpend, ResourceHours, RowKind,
};
use prorata_schemas::time::Hour;

use crate::currency;
use crate::error::EngineError;
use crate::exact::{Fraction, HOUR_MICROS, atoms, round, round_estimate, signed, sum};
use crate::model::per_resource::{PARTS_PER_UNIT, PerResource};
use crate::model::slices::{COVERAGE_SCALE, CommitmentHour, CommitmentSlice, Slices};
use crate::rules::commitment::{committed, quotient, scaled, utilization_parts};
use crate::tables::{of_kind, sum_by};

/// Amounts in the scale of coverage, times microseconds.
type Integrals = PerResource<RBig>;

/// The rows of `cost_allocation` that one commitment pays for.
#[derive(Debug, Default)]
struct CommitmentRows<'a> {
    used: Vec<&'a CostRow>,
    unused: Vec<&'a CostRow>,
}

/// Returns the rows in order of commitment id. A commitment has a row if it existed for more than 0 µs of the
/// hour and had not expired before the hour.
///
/// # Errors
/// If an amount does not fit its column.
pub(crate) fn commitment_utilization(
    slices: &Slices,
    rows: &[Box<CostRow>],
    hour: Hour,
) -> Result<Vec<CommitmentUtilizationRow>, EngineError> {
    if slices.commitments.is_empty() {
        return Ok(Vec::new());
    }
    let rows = rows_by_commitment(rows);
    let mut covered = covered_by_cluster(slices);
    let shown = slices.commitments.iter().filter(|(_, seen)| seen.existed_micros > 0 && seen.unexpired);
    let none = CommitmentRows::default();
    shown
        .map(|(id, seen)| {
            let rows = rows.get(id).unwrap_or(&none);
            row(id, seen, covered.remove(id).unwrap_or_default(), rows, hour)
        })
        .collect()
}

fn rows_by_commitment(rows: &[Box<CostRow>]) -> BTreeMap<&CommitmentId, CommitmentRows<'_>> {
    let mut by_commitment: BTreeMap<&CommitmentId, CommitmentRows<'_>> = BTreeMap::new();
    let kinds = [
        RowKind::PodNode,
        RowKind::NodeIdle,
        RowKind::PodServerless,
        RowKind::ReservationUnused,
        RowKind::CommitmentUnused,
        RowKind::SharedCharge,
    ];
    for kind in kinds {
        for row in of_kind(rows, kind) {
            let Some(id) = &row.commitment_id else { continue };
            let entry = by_commitment.entry(id).or_default();
            if kind == RowKind::CommitmentUnused { entry.unused.push(row) } else { entry.used.push(row) }
        }
    }
    by_commitment
}

fn covered_by_cluster(slices: &Slices) -> BTreeMap<&CommitmentId, BTreeMap<&ClusterId, Integrals>> {
    let mut covered: BTreeMap<&CommitmentId, BTreeMap<&ClusterId, Integrals>> = BTreeMap::new();
    for ((cluster, _), node_slices) in &slices.nodes {
        for slice in node_slices {
            for coverage in slice.coverage.iter() {
                let clusters = covered.entry(&coverage.commitment.commitment_id).or_default();
                add(clusters.entry(cluster).or_default(), &coverage.amounts, slice.span.micros());
            }
        }
    }
    covered
}

fn row(
    id: &CommitmentId,
    seen: &CommitmentHour,
    covered_by_cluster: BTreeMap<&ClusterId, Integrals>,
    rows: &CommitmentRows<'_>,
    hour: Hour,
) -> Result<CommitmentUtilizationRow, EngineError> {
    let mut total = Integrals::default();
    let mut covered = Integrals::default();
    let mut planned = Integrals::default();
    let mut provisioned = Integrals::default();
    let mut spend = SpendIntegrals::default();
    for slice in &seen.slices {
        let micros = slice.span.micros();
        add(&mut total, &committed(&slice.description).map(RBig::from), micros);
        add(&mut covered, &slice.covered, micros);
        add(&mut planned, &slice.planned, micros);
        add(&mut provisioned, &scaled(slice.provisioned).map(RBig::from), micros);
        spend.add(slice);
    }
    let spend = (seen.description.kind == CommitmentKind::SavingsPlan).then_some(spend);
    let utilization = |used: &Integrals, used_spend: fn(&SpendIntegrals) -> &RBig| match &spend {
        Some(spend) => quotient(used_spend(spend), &spend.committed),
        None => utilization_parts(&total, used).sum(),
    };
    let mut description = Arc::clone(&seen.description);
    let is_priced = !currency::is_other(&description.currency);
    currency::unmark_commitment(&mut description);
    Ok(CommitmentUtilizationRow {
        commitment_id: id.clone(),
        hourly_cost: is_priced.then_some(description.hourly_cost),
        description,
        committed: hours(&total)?,
        covered: hours(&covered)?,
        planned: hours(&planned)?,
        provisioned: hours(&provisioned)?,
        utilization: match billed_utilization(rows)? {
            Some(utilization) => utilization,
            None => round(&utilization(&covered, |spend| &spend.covered))?,
        },
        planned_utilization: round(&utilization(&planned, |spend| &spend.planned))?,
        raw_utilization: round_estimate(&utilization(&provisioned, |spend| &spend.provisioned)),
        spend: spend.as_ref().map(SpendIntegrals::rounded).transpose()?,
        used_cost: sum(rows.used.iter().map(|row| row.effective_cost))?,
        unused_cost: sum(rows.unused.iter().map(|row| row.effective_cost))?,
        list_cost_avoided: sum(rows.used.iter().map(|row| row.list_cost))?,
        clusters: clusters(covered_by_cluster, &rows.used)?,
        state: state(seen, hour),
    })
}

/// Returns the used part of the cost of a billed commitment; zero if the cost is not above zero. `None` if
/// the commitment is not billed.
fn billed_utilization(rows: &CommitmentRows<'_>) -> Result<Option<Decimal12>, EngineError> {
    let mut all = rows.used.iter().chain(&rows.unused);
    if all.all(|row| row.lines.is_empty()) {
        return Ok(None);
    }
    let [used, unused] =
        [&rows.used, &rows.unused].map(|rows| sum(rows.iter().map(|row| row.effective_cost)));
    let (used, unused) = (used?, unused?);
    let whole = sum([used, unused])?;
    let whole = if whole.is_negative() { RBig::ZERO } else { signed(whole) };
    Ok(Some(round_estimate(&quotient(&signed(used), &whole))))
}

/// Spend of a savings plan in atoms, times microseconds.
#[derive(Debug, Default)]
struct SpendIntegrals {
    committed: RBig,
    covered: RBig,
    planned: RBig,
    provisioned: RBig,
}

impl SpendIntegrals {
    fn add(&mut self, slice: &CommitmentSlice) {
        let micros = UBig::from(slice.span.micros());
        self.committed +=
            RBig::from(slice.description.hourly_commitment.map(atoms).unwrap_or_default() * &micros);
        self.covered += &slice.spend.covered * &micros;
        self.planned += &slice.spend.planned * &micros;
        self.provisioned += &slice.spend.provisioned * micros;
    }

    fn rounded(&self) -> Result<PlanSpend, EngineError> {
        let spend = |atoms: &RBig| Fraction::of(&(atoms / UBig::from(HOUR_MICROS))).round_atoms();
        Ok(PlanSpend {
            committed: spend(&self.committed)?,
            covered: spend(&self.covered)?,
            planned: spend(&self.planned)?,
            provisioned: spend(&self.provisioned)?,
        })
    }
}

fn add(sums: &mut Integrals, amounts: &PerResource<RBig>, micros: u128) {
    *sums += amounts.as_ref().map(|amount| amount * UBig::from(micros));
}

fn hours(amounts: &Integrals) -> Result<ResourceHours, EngineError> {
    let hours = amounts.as_ref().zip(PARTS_PER_UNIT).try_map(|(amount, parts)| {
        round(&(amount / (UBig::from(parts) * UBig::from(HOUR_MICROS) * COVERAGE_SCALE)))
    })?;
    Ok(ResourceHours { cpu_core_hours: hours.cpu, memory_gib_hours: hours.memory, gpu_hours: hours.gpu })
}

fn clusters(
    covered: BTreeMap<&ClusterId, Integrals>,
    used: &[&CostRow],
) -> Result<BTreeMap<ClusterId, ClusterCover>, EngineError> {
    let costs = used.iter().filter_map(|row| Some((row.cluster_id.as_ref()?, row.effective_cost)));
    let costs = sum_by(costs)?;
    let mut clusters = BTreeMap::new();
    let mut covered = covered;
    // A savings plan may cover usage in clusters in which it covers no capacity.
    for cluster in costs.keys() {
        covered.entry(cluster).or_default();
    }
    for (cluster, amounts) in covered {
        let hours = hours(&amounts)?;
        let cover = ClusterCover {
            vcpu_hours: hours.cpu_core_hours,
            gib_hours: hours.memory_gib_hours,
            cost: costs.get(cluster).copied().unwrap_or_default(),
        };
        clusters.insert(cluster.clone(), cover);
    }
    Ok(clusters)
}

/// Returns the first state that applies at the hour's end.
fn state(seen: &CommitmentHour, hour: Hour) -> CommitmentState {
    let commitment = &seen.description;
    let end = hour.end();
    if seen.deleted {
        CommitmentState::Deleted
    } else if commitment.ends_at.is_some_and(|at| at <= end) {
        CommitmentState::Expired
    } else if commitment.starts_at > end {
        CommitmentState::Pending
    } else if !commitment.enabled {
        CommitmentState::Disabled
    } else {
        CommitmentState::Active
    }
}
