//! Benchmark of the Parquet writer: rows of `cost_allocation` per second, including columns and statistics.

use std::sync::Arc;

use divan::counter::ItemsCount;
use prorata_samples::hour::{self, full_hour, pod};
use prorata_schemas::rows::{HourTables, RowKind};
use prorata_schemas::tables::Table;
use prorata_schemas::time::Hour;
use prorata_tables::encode;

fn main() {
    divan::main();
}

/// Returns an hour in which `pods` pods share nodes, eight pods to a node.
fn shared_nodes(pods: usize) -> HourTables {
    let mut tables = full_hour("acme", Hour(498_661));
    let Some(share) =
        tables.cost_allocation.iter().find(|row| row.kind == RowKind::PodNode && row.node.is_some())
    else {
        return tables;
    };
    let share = share.clone();
    tables.cost_allocation = (0..pods)
        .map(|index| {
            let mut row = share.clone();
            let uid = format!("9f1c2d3e-0000-4000-8000-{index:012}");
            let node = format!("i-{:017}", index / 8);
            row.node =
                Some(Arc::new(hour::node(&node, &node, prorata_schemas::event::CapacityType::OnDemand, "8")));
            row.pod = Some(Arc::new(pod(&uid, Some(&node), None)));
            row.pod_uid = Some(uid.into());
            row.resource_id = node.into();
            row
        })
        .collect();
    tables
}

#[divan::bench(args = [100, 10_000, 100_000], sample_count = 10)]
fn cost_allocation(bencher: divan::Bencher<'_, '_>, pods: usize) {
    let hours = [shared_nodes(pods)];
    bencher.counter(ItemsCount::new(pods)).bench_local(|| encode(Table::CostAllocation, &hours, &[]));
}
