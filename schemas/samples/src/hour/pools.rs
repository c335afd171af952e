//! The GPU pool of the hour, and its row.

use std::sync::Arc;

use prorata_schemas::event::{BudgetExceedStrategy, PoolSet, Quantities};
use prorata_schemas::quantity::{Quantity, TFLOPS};
use prorata_schemas::rows::PoolUsageRow;

use super::dec;

/// Returns the pool, without capacities.
pub(super) fn pool() -> PoolSet {
    PoolSet {
        pool_id: "shared".into(),
        cluster_id: "prod".into(),
        provider: "aws".into(),
        default_qos: "default".into(),
        qos_pricing: Vec::new(),
        tflops_oversell_percent: 500,
        vram_expand_to_host_disk_percent: 70,
        vram_expand_to_host_mem_percent: 50,
        max_capacity: Quantities::new(),
        min_capacity: Quantities::new(),
        warm_capacity: Quantities::new(),
        budget_per_day: None,
        budget_per_month: None,
        budget_per_quarter: None,
        budget_exceed_strategy: BudgetExceedStrategy::AlertOnly,
        currency: "USD".into(),
    }
}

/// Returns the pool's row of `pool_usage`.
pub(super) fn pool_usage() -> PoolUsageRow {
    PoolUsageRow {
        pool_id: "shared".into(),
        cluster_id: "prod".into(),
        description: Arc::new(PoolSet {
            max_capacity: [(TFLOPS.into(), Quantity::parse(TFLOPS, "2k").unwrap())].into(),
            warm_capacity: [(TFLOPS.into(), Quantity::parse(TFLOPS, "100500m").unwrap())].into(),
            ..pool()
        }),
        nodes: dec("1"),
        gpus: dec("8"),
        tflops_total: dec("1000"),
        vram_bytes_total: dec("206158430208"),
        tflops_virtual: dec("5000"),
        vram_bytes_virtual: dec("206158430208"),
        tflops_requested: dec("150"),
        vram_bytes_requested: dec("16106127360"),
        tflops_limited: dec("300"),
        vram_bytes_limited: dec("32212254720"),
        tflops_idle_warm: dec("100.5"),
        vram_bytes_idle_warm: dec("0"),
        tflops_idle_other: dec("749.5"),
        vram_bytes_idle_other: dec("190052302848"),
        allocated_tflops_percent: dec("15"),
        allocated_vram_percent: dec("7.8125"),
        utilized_tflops_percent: Some(dec("3.5")),
        utilized_vram_percent: None,
        charges: dec("2.54124"),
        node_cost: dec("1"),
        margin: dec("1.54124"),
        spend_day: dec("1"),
        spend_month: dec("1"),
        spend_quarter: dec("1"),
        budget_day: Some(dec("24")),
        budget_month: None,
        budget_quarter: None,
        budget_exceeded: None,
        saved_costs_per_month: dec("-657"),
        potential_savings_per_month: dec("620.5"),
    }
}
