//! `commitment_utilization`: what each commitment covered, and what there was to cover.
//!
//! Utilization over a span is half covered by committed vCPU-time and half covered by committed GiB-time; a zero total
//! on one side leaves the other alone, two zeros leave GPU-time, three zeros give 0. Raw utilization has all matching
//! provisioned capacity in place of covered.

use std::collections::BTreeMap;

use dashu_int::UBig;
use dashu_ratio::RBig;
use prorata_schemas::ids::{ClusterId, CommitmentId};
use prorata_schemas::rows::{
    ClusterCover, CommitmentState, CommitmentUtilizationRow, CostRow, ResourceHours, RowKind,
};
use prorata_schemas::time::Hour;

use crate::error::EngineError;
use crate::exact::{HOUR_MICROS, one, ratio, round};
use crate::rows::draft::sum;
use crate::rules::commitment::{History, committed, fine};
use crate::rules::split::RESOURCES;
use crate::timeline::slices::NodeSlice;
use crate::timeline::state::NodeKey;

/// Amounts times microseconds, in units of 10^-24.
type Wide = [UBig; RESOURCES];

/// Rows by commitment id: those that existed for more than 0 µs of the hour and had not expired before it.
pub(crate) fn commitment_utilization(
    histories: &BTreeMap<CommitmentId, History>,
    nodes: &BTreeMap<NodeKey, Vec<NodeSlice>>,
    rows: &[CostRow],
    hour: Hour,
) -> Result<Vec<CommitmentUtilizationRow>, EngineError> {
    let shown = histories.iter().filter(|(_, history)| history.existed_micros > 0 && history.unexpired);
    shown.map(|(id, history)| row(id, history, nodes, rows, hour)).collect()
}

fn row(
    id: &CommitmentId,
    history: &History,
    nodes: &BTreeMap<NodeKey, Vec<NodeSlice>>,
    rows: &[CostRow],
    hour: Hour,
) -> Result<CommitmentUtilizationRow, EngineError> {
    let mut total: Wide = Default::default();
    let mut covered: Wide = Default::default();
    let mut provisioned: Wide = Default::default();
    for slice in &history.slices {
        let micros = UBig::from(slice.span.micros());
        add(&mut total, &committed(&slice.description), &micros);
        add(&mut covered, &slice.covered, &micros);
        add(&mut provisioned, &slice.provisioned.map(fine), &micros);
    }
    let of = |kind: RowKind| {
        rows.iter().filter(move |row| row.kind == kind && row.commitment_id.as_ref() == Some(id))
    };
    let used = || of(RowKind::PodNode).chain(of(RowKind::NodeIdle));
    Ok(CommitmentUtilizationRow {
        commitment_id: id.clone(),
        name: history.description.name.clone(),
        committed: hours(&total)?,
        covered: hours(&covered)?,
        provisioned: hours(&provisioned)?,
        utilization: round(&utilization(&covered, &total))?,
        raw_utilization: round(&utilization(&provisioned, &total))?,
        used_cost: sum(used().map(|row| row.effective_cost))?,
        unused_cost: sum(of(RowKind::CommitmentUnused).map(|row| row.effective_cost))?,
        list_cost_avoided: sum(used().map(|row| row.list_cost))?,
        clusters: clusters(id, nodes, used().collect())?,
        state: state(history, hour),
    })
}

fn add(sums: &mut Wide, amounts: &Wide, micros: &UBig) {
    for (sum, amount) in sums.iter_mut().zip(amounts) {
        *sum += amount * micros;
    }
}

fn hours(amounts: &Wide) -> Result<ResourceHours, EngineError> {
    let scaled = |amount: &UBig, per_unit: u64| {
        round(&ratio(amount.clone(), UBig::from(per_unit) * UBig::from(HOUR_MICROS) * one() * one()))
    };
    let [cpu, memory, gpu] = amounts;
    Ok(ResourceHours {
        cpu_core_hours: scaled(cpu, 1000)?,
        memory_gib_hours: scaled(memory, 1 << 30)?,
        gpu_hours: scaled(gpu, 1000)?,
    })
}

fn utilization(amounts: &Wide, total: &Wide) -> RBig {
    let [cpu, memory, gpu] =
        [0, 1, 2].map(|index: usize| ratio(amounts[index].clone(), total[index].clone()));
    let [no_cpu, no_memory, _] = [0, 1, 2].map(|index: usize| total[index] == UBig::ZERO);
    match (no_cpu, no_memory) {
        (false, false) => (cpu + memory) / RBig::from(UBig::from(2u8)),
        (false, true) => cpu,
        (true, false) => memory,
        (true, true) => gpu,
    }
}

fn clusters(
    id: &CommitmentId,
    nodes: &BTreeMap<NodeKey, Vec<NodeSlice>>,
    used: Vec<&CostRow>,
) -> Result<BTreeMap<ClusterId, ClusterCover>, EngineError> {
    let mut covered: BTreeMap<&ClusterId, Wide> = BTreeMap::new();
    for ((cluster, _), slices) in nodes {
        for slice in slices {
            for cover in slice.cover.iter().filter(|cover| cover.commitment.commitment_id == *id) {
                add(covered.entry(cluster).or_default(), &cover.fine, &UBig::from(slice.span.micros()));
            }
        }
    }
    let mut clusters = BTreeMap::new();
    for (cluster, amounts) in covered {
        let hours = hours(&amounts)?;
        let own = used.iter().filter(|row| row.cluster_id.as_ref() == Some(cluster));
        let cover = ClusterCover {
            vcpu_hours: hours.cpu_core_hours,
            gib_hours: hours.memory_gib_hours,
            cost: sum(own.map(|row| row.effective_cost))?,
        };
        clusters.insert(cluster.clone(), cover);
    }
    Ok(clusters)
}

/// The first that holds at the hour's end.
fn state(history: &History, hour: Hour) -> CommitmentState {
    let commitment = &history.description;
    let end = hour.end();
    if history.deleted {
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
