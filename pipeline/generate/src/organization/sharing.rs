//! Sharing inside an organization: elastic quotas with borrowing, GPU pools with prices and budgets, and
//! their changes during the run.

use prorata_schemas::Text;
use prorata_schemas::event::{
    BudgetExceedStrategy, Payload, PoolDeleted, PoolSet, QosPrice, Quantities, QuotaDeleted, QuotaKind,
    QuotaSet,
};

use super::agreements::{Run, Scripted};
use crate::clusters::catalogue::{percent, usd};
use crate::clusters::{CLUSTERS, POOL_L4, POOL_L40S};
use crate::quantities::put_millis;
use prorata_schemas::money::{Money, Ratio, UnitPrice};

const GPU_MEMORY: &str = "nos.nebuly.com/gpu-memory";
/// Price of a pool's TFLOP for an hour at QoS `medium`.
const PER_TFLOP_HOUR: UnitPrice = usd("0.0069228");
/// Price of a GiB of a pool's VRAM for an hour at QoS `medium`.
const PER_GIB_HOUR: UnitPrice = usd("0.01548");
/// Price of the first node of every pool of L40S GPUs.
const FIRST_POOL_NODE_HOUR: UnitPrice = usd("10.49264");

/// Returns every scripted event of quotas and pools.
pub fn script(run: &Run) -> Vec<Scripted> {
    let mut events = Vec::new();
    quotas(run, &mut events);
    pools(run, &mut events);
    events
}

/// Returns amounts in whole units.
fn amounts(units: &[(&str, u64)]) -> Quantities {
    let mut amounts = Quantities::new();
    for &(resource, units) in units {
        put_millis(&mut amounts, resource, units * 1000);
    }
    amounts
}

fn quota(cluster: usize, id: &str, kind: QuotaKind, namespaces: &[&str], min: Quantities) -> Payload {
    Payload::QuotaSet(Box::new(QuotaSet {
        cluster_id: CLUSTERS.get(cluster).map_or("", |cluster| cluster.id).into(),
        quota_id: id.into(),
        kind,
        namespaces: namespaces.iter().map(|&namespace| Text::from(namespace)).collect(),
        min,
        max: None,
    }))
}

/// Adds quotas. In `dev-aws` one quota lends and two borrow. In `train-gcp` a composite quota takes over
/// namespaces. The other quotas have no minimum, no namespaces, or only namespaces that another quota also
/// has.
fn quotas(run: &Run, events: &mut Vec<Scripted>) {
    let (elastic, composite) = (QuotaKind::ElasticQuota, QuotaKind::CompositeElasticQuota);
    let (dev, gcp) = (1, 2);
    let gpu = "nvidia.com/gpu";
    let team_a =
        amounts(&[("cpu", run.sized(60, 2)), (gpu, run.sized(15, 1)), (GPU_MEMORY, 32 * run.sized(15, 1))]);
    let team_b = amounts(&[("cpu", run.sized(300, 8)), (gpu, run.sized(80, 8))]);
    events.push((
        run.start,
        with_max(quota(dev, "team-a", elastic, &["team-a"], team_a), &[("cpu", run.sized(900, 32))]),
    ));
    events.push((run.start, quota(dev, "team-b", elastic, &["team-b"], team_b.clone())));
    events.push((run.start, quota(dev, "etl", elastic, &["etl"], amounts(&[("cpu", 1)]))));
    let deleted = QuotaDeleted {
        cluster_id: CLUSTERS.get(dev).map_or("", |cluster| cluster.id).into(),
        quota_id: "team-b".into(),
    };
    events.push((run.at(700), Payload::QuotaDeleted(deleted)));
    events.push((run.at(850), quota(dev, "team-b", elastic, &["team-b"], team_b)));

    let lab = |cpu: u64, gpus: u64| amounts(&[("cpu", cpu), (gpu, gpus), (GPU_MEMORY, 40 * gpus)]);
    let notebooks = amounts(&[("cpu", run.sized(50, 4)), ("nvidia.com/mig-1g.10gb", run.sized(30, 2))]);
    events.push((run.start, quota(gcp, "notebooks", elastic, &["notebooks"], notebooks)));
    events.push((run.start, quota(gcp, "open", elastic, &["etl", "team-a", "team-b"], Quantities::new())));
    events.push((run.start, quota(gcp, "empty", elastic, &[], amounts(&[("cpu", 10)]))));
    let both = ["research", "notebooks"];
    events.push((
        run.at(200),
        quota(gcp, "lab", composite, &both, lab(run.sized(900, 64), run.sized(250, 16))),
    ));
    events.push((run.at(450), quota(gcp, "lab", composite, &both, lab(run.sized(60, 4), run.sized(20, 1)))));
}

fn with_max(payload: Payload, max: &[(&str, u64)]) -> Payload {
    match payload {
        Payload::QuotaSet(quota) => {
            Payload::QuotaSet(Box::new(QuotaSet { max: Some(amounts(max)), ..*quota }))
        }
        other => other,
    }
}

fn qos_price(qos: &str, share: i128, limits_over_requests: Ratio) -> QosPrice {
    QosPrice {
        qos: qos.into(),
        per_fp16_tflop_hour: percent(PER_TFLOP_HOUR, share),
        per_vram_gib_hour: percent(PER_GIB_HOUR, share),
        limits_over_requests,
    }
}

/// Returns a pool with its prices; `share` is in percent of the usual prices.
fn pool(cluster: usize, id: &str, share: i128) -> PoolSet {
    let cluster = CLUSTERS.get(cluster);
    let half = Ratio::from_nanos(500_000_000);
    PoolSet {
        pool_id: id.into(),
        cluster_id: cluster.map_or("", |cluster| cluster.id).into(),
        provider: cluster.map_or("", |cluster| cluster.provider).into(),
        default_qos: "medium".into(),
        qos_pricing: vec![
            qos_price("low", share / 2, half),
            qos_price("medium", share, half),
            qos_price("high", share * 3 / 2, Ratio::from_nanos(800_000_000)),
            qos_price("critical", share * 2, Ratio::from(1)),
        ],
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

/// Adds two pools. The cost of the first node of one pool exceeds its budgets within a day. The prices of the
/// other pool fall, and it is deleted.
fn pools(run: &Run, events: &mut Vec<Scripted>) {
    let a_day = FIRST_POOL_NODE_HOUR.atoms() * 24;
    let budget = |share| Money::from_atoms(a_day * share / 100);
    let budgeted = PoolSet {
        budget_per_day: budget(35),
        budget_per_month: budget(60),
        budget_per_quarter: budget(85),
        ..pool(0, POOL_L40S, 100)
    };
    events.push((run.start, Payload::PoolSet(Box::new(budgeted))));
    events.push((run.start, Payload::PoolSet(Box::new(pool(2, POOL_L4, 90)))));
    events.push((run.at(500), Payload::PoolSet(Box::new(pool(2, POOL_L4, 60)))));
    events.push((run.at(880), Payload::PoolDeleted(PoolDeleted { pool_id: POOL_L4.into() })));
}
