//! Coverage of the rules by random histories: the number of histories that reach each case of the rules.

use std::collections::{BTreeMap, BTreeSet};

use prorata_reference::scenario::scenario;
use prorata_reference::text::{parse, print};
use prorata_schemas::decimal::{Decimal12, ONE};
use prorata_schemas::event::{CommitmentKind, Payload};
use prorata_schemas::rows::{CostRow, HourTables, RowKind, Unpriced};
use prorata_schemas::time::{HOUR_MICROS, Timestamp};

/// Returns, for each thing, the number of histories that contain it.
fn reached(seeds: u64) -> BTreeMap<&'static str, u32> {
    let mut reached = BTreeMap::new();
    for seed in 0..seeds {
        let scenario = scenario(seed);
        let tables = prorata_reference::tables(&scenario.records, &scenario.rules, scenario.through);
        for (thing, holds) in THINGS {
            *reached.entry(*thing).or_default() += u32::from(tables.iter().any(holds));
        }
    }
    reached
}

/// A fact about one hour's tables.
type Thing = (&'static str, fn(&HourTables) -> bool);

fn rows(tables: &HourTables, holds: fn(&CostRow) -> bool) -> bool {
    tables.cost_allocation.iter().any(|row| holds(row))
}

/// Returns whether a savings plan pays a part of a resource of this kind, and another payer pays another
/// part.
fn has_plan(hour: &HourTables, kind: RowKind) -> bool {
    hour.cost_allocation.windows(2).any(|pair| {
        let [left, right] = pair else { return false };
        let is_plan = |row: &CostRow| {
            row.commitment.as_ref().is_some_and(|set| set.kind == CommitmentKind::SavingsPlan)
        };
        left.kind == kind && left.resource_id == right.resource_id && is_plan(left) != is_plan(right)
    })
}

/// Returns whether two consecutive rows of the same pod and resource satisfy `differ`.
fn pairs(tables: &HourTables, differ: fn(&CostRow, &CostRow) -> bool) -> bool {
    tables.cost_allocation.windows(2).any(|pair| {
        let [left, right] = pair else { return false };
        left.pod_uid.is_some()
            && (&left.pod_uid, &left.resource_id, left.kind)
                == (&right.pod_uid, &right.resource_id, right.kind)
            && differ(left, right)
    })
}

/// Returns whether a node of several prices satisfies `holds`. The arguments are the number of the node's
/// pods at more than one price, and at only one price.
fn has_side(tables: &HourTables, holds: fn(usize, usize) -> bool) -> bool {
    let mut nodes: BTreeMap<_, BTreeSet<Decimal12>> = BTreeMap::new();
    let mut pods: BTreeMap<_, BTreeSet<Decimal12>> = BTreeMap::new();
    for row in tables.cost_allocation.iter().filter(|row| row.node.is_some()) {
        let node = (&row.cluster_id, &row.resource_id);
        nodes.entry(node).or_default().insert(row.list_unit_price);
        if let Some(uid) = &row.pod_uid {
            pods.entry((node, uid)).or_default().insert(row.list_unit_price);
        }
    }
    nodes.into_iter().filter(|(_, prices)| prices.len() > 1).any(|(node, _)| {
        let here = pods.iter().filter(|((on, _), _)| *on == node);
        let (across, sides): (Vec<_>, Vec<_>) = here.partition(|(_, prices)| prices.len() > 1);
        holds(across.len(), sides.len())
    })
}

const ZERO: Decimal12 = Decimal12::ZERO;

/// The things that the histories must reach.
const THINGS: &[Thing] = &[
    ("a pod on a node that costs", |hour| {
        rows(hour, |row| row.kind == RowKind::PodNode && row.effective_cost > ZERO)
    }),
    ("an idle part", |hour| rows(hour, |row| row.kind == RowKind::NodeIdle && row.effective_cost > ZERO)),
    ("a part of a physical GPU", |hour| {
        rows(hour, |row| {
            let gpus = row.pod.as_ref().and_then(|pod| pod.gpus.as_ref());
            row.kind == RowKind::PodNode
                && row.gpu_cost > Some(ZERO)
                && gpus.is_some_and(|gpus| gpus.amount % 1000 != 0)
        })
    }),
    ("parts above the physical GPUs of a node", |hour| {
        rows(hour, |row| {
            let allocated = row.allocated.map_or(ZERO, |hours| hours.gpu_hours);
            let gpus = row.node.as_ref().and_then(|node| node.gpus.as_ref());
            gpus.is_some_and(|gpus| gpus.amount == 250) && allocated > Decimal12::from_atoms(ONE / 4)
        })
    }),
    ("unused cost of a pod", |hour| rows(hour, |row| row.unused_cost > Some(ZERO))),
    ("a pod without any share", |hour| {
        rows(hour, |row| row.kind == RowKind::PodNode && row.node.is_some() && row.pricing_quantity == ZERO)
    }),
    ("two node prices for one pod", |hour| {
        pairs(hour, |left, right| {
            left.kind == RowKind::PodNode
                && left.node.is_some()
                && left.list_unit_price != right.list_unit_price
        })
    }),
    ("a pod on one side of a price change", |hour| has_side(hour, |_, sides| sides > 0)),
    ("a pod across a price change, and one on a side", |hour| {
        has_side(hour, |across, sides| across > 0 && sides > 0)
    }),
    ("two labels on one node", |hour| {
        pairs(hour, |left, right| left.kind == RowKind::PodNode && left.quota_state != right.quota_state)
    }),
    ("a committed pod", |hour| {
        rows(hour, |row| {
            row.kind == RowKind::PodNode && row.commitment_id.is_some() && row.effective_cost > ZERO
        })
    }),
    ("a committed pod under a quota", |hour| {
        rows(hour, |row| {
            row.kind == RowKind::PodNode && row.commitment_id.is_some() && row.quota_id.is_some()
        })
    }),
    ("a committed idle part", |hour| {
        rows(hour, |row| row.kind == RowKind::NodeIdle && row.commitment_id.is_some())
    }),
    ("two commitments on one node", |hour| {
        hour.cost_allocation.windows(2).any(|pair| {
            let [left, right] = pair else { return false };
            left.kind == RowKind::NodeIdle
                && left.resource_id == right.resource_id
                && left.commitment_id.is_some()
                && right.commitment_id > left.commitment_id
        })
    }),
    ("a discount and a reserved instance on one node", |hour| {
        pairs(hour, |left, right| {
            let kind = |row: &CostRow| row.commitment.as_ref().map(|commitment| commitment.kind);
            let kinds = BTreeSet::from([kind(left), kind(right)]);
            left.kind == RowKind::PodNode && !kinds.contains(&None) && kinds.len() == 2
        })
    }),
    ("a node that a plan pays in part", |hour| has_plan(hour, RowKind::NodeIdle)),
    ("a serverless pod that a plan pays in part", |hour| has_plan(hour, RowKind::PodServerless)),
    ("unused units that a plan pays in part", |hour| has_plan(hour, RowKind::ReservationUnused)),
    ("a plan after reserved capacity", |hour| {
        hour.cost_allocation.windows(2).any(|pair| {
            let [left, right] = pair else { return false };
            let is_plan =
                |row: &CostRow| row.commitment.as_ref().map(|set| set.kind == CommitmentKind::SavingsPlan);
            left.resource_id == right.resource_id
                && left.kind == RowKind::NodeIdle
                && BTreeSet::from([is_plan(left), is_plan(right)])
                    == BTreeSet::from([Some(false), Some(true)])
        })
    }),
    ("a plan with nothing left", |hour| {
        hour.commitment_utilization.iter().any(|row| {
            row.spend.is_some_and(|spend| spend.covered == spend.committed && spend.covered > ZERO)
        })
    }),
    ("a commitment partly used", |hour| {
        hour.commitment_utilization
            .iter()
            .any(|row| row.utilization > ZERO && row.utilization < Decimal12::ONE)
    }),
    ("a commitment over-used", |hour| {
        hour.commitment_utilization.iter().any(|row| row.raw_utilization > Decimal12::ONE)
    }),
    ("two prices of a commitment", |hour| {
        hour.cost_allocation.windows(2).any(|pair| {
            let [left, right] = pair else { return false };
            left.kind == RowKind::CommitmentPurchase && left.resource_id == right.resource_id
        })
    }),
    ("a matched pod that pays", |hour| {
        rows(hour, |row| {
            row.kind == RowKind::PodServerless && row.reservation_id.is_some() && row.effective_cost > ZERO
        })
    }),
    ("a pod matched for a part of its time", |hour| {
        pairs(hour, |left, right| left.reservation_id != right.reservation_id)
    }),
    ("two pods in one reservation", |hour| hour.reservation_usage.iter().any(|row| row.used_by.len() > 1)),
    ("a reservation partly used", |hour| {
        hour.reservation_usage.iter().any(|row| row.unused_cost > ZERO && row.used_unit_seconds > ZERO)
    }),
    ("a reservation without units", |hour| {
        hour.reservation_usage.iter().any(|row| row.utilization.is_none())
    }),
    ("an unknown node", |hour| rows(hour, |row| row.unpriced == Some(Unpriced::UnknownNode))),
    ("an unknown pool", |hour| rows(hour, |row| row.unpriced == Some(Unpriced::UnknownPool))),
    ("an unknown pool on a known node", |hour| {
        rows(hour, |row| row.unpriced == Some(Unpriced::UnknownPool) && row.node.is_some())
    }),
    ("no price for a quality of service", |hour| {
        rows(hour, |row| row.unpriced == Some(Unpriced::NoQosPrice))
    }),
    ("an unknown part of a GPU, and what else the pod costs", |hour| {
        rows(hour, |row| row.unpriced == Some(Unpriced::UnknownGpuShare) && row.effective_cost > ZERO)
    }),
    ("no rate", |hour| rows(hour, |row| row.unpriced == Some(Unpriced::NoRate))),
    ("a pool charge on a node", |hour| {
        rows(hour, |row| row.kind == RowKind::PodNode && row.pool_charge > Some(ZERO))
    }),
    ("two pool charges on one node", |hour| {
        pairs(hour, |left, right| {
            left.kind == RowKind::PodNode && left.pool_charge > Some(ZERO) && right.pool_charge > Some(ZERO)
        })
    }),
    ("a pool pod on no node that pays", |hour| {
        rows(hour, |row| row.kind == RowKind::PodPool && row.effective_cost > ZERO)
    }),
    ("use above the request", |hour| {
        rows(hour, |row| row.allocated.is_some() && row.used.is_some() && row.allocated != row.requested)
    }),
    ("over-quota cost", |hour| hour.quota_usage.iter().any(|row| row.over_quota_cost > ZERO)),
    ("preemptible cost", |hour| hour.quota_usage.iter().any(|row| row.preemptible_cost > ZERO)),
    ("preemptible for a part of the time", |hour| {
        hour.quota_usage
            .iter()
            .any(|row| row.preemptible_cost > ZERO && row.preemptible_cost < row.over_quota_cost)
    }),
    ("lent", |hour| hour.quota_usage.iter().any(|row| row.lent_hours > ZERO)),
    ("guaranteed", |hour| hour.quota_usage.iter().any(|row| row.guaranteed_over_quota > ZERO)),
    ("in quota next to over quota", |hour| {
        hour.quota_usage.iter().any(|row| row.in_quota_cost > ZERO && row.over_quota_cost > ZERO)
    }),
    ("a pool with charges and nodes", |hour| {
        hour.pool_usage.iter().any(|row| row.charges > ZERO && row.node_cost > ZERO)
    }),
    ("a budget exceeded", |hour| hour.pool_usage.iter().any(|row| row.budget_exceeded.is_some())),
    ("spend of more than an hour", |hour| hour.pool_usage.iter().any(|row| row.spend_day > row.node_cost)),
    ("spend of more than a month", |hour| {
        hour.pool_usage.iter().any(|row| row.spend_month < row.spend_quarter)
    }),
    ("warm and other idle of a pool", |hour| {
        hour.pool_usage.iter().any(|row| row.tflops_idle_warm > ZERO && row.tflops_idle_other > ZERO)
    }),
    ("use of a pool's nodes", |hour| {
        hour.pool_usage.iter().any(|row| row.utilized_tflops_percent > Some(ZERO))
    }),
    ("use of a pool's VRAM", |hour| hour.pool_usage.iter().any(|row| row.utilized_vram_percent > Some(ZERO))),
    ("saved", |hour| hour.pool_usage.iter().any(|row| row.saved_costs_per_month > ZERO)),
];

#[test]
fn a_printed_history_reads_back_as_itself() {
    for seed in 0..200 {
        for record in scenario(seed).records {
            let line = print(&record.event);
            assert_eq!(parse(&line).as_ref(), Ok(&record.event), "{line}");
        }
    }
}

#[test]
fn a_seed_is_always_the_same_history() {
    let events = |seed| scenario(seed).records.into_iter().map(|record| record.body).collect::<Vec<_>>();
    assert_eq!(events(7), events(7));
    assert_ne!(events(7), events(8));
}

#[test]
fn random_histories_reach_every_rule() {
    let seeds = 600;
    let reached = reached(seeds);
    let rare: Vec<_> = reached.iter().filter(|(_, often)| **often < 2).collect();
    assert!(rare.is_empty(), "of {seeds} histories too few hold {rare:?}; all: {reached:#?}");
}

#[test]
fn samples_of_one_pod_overlap_in_every_way() {
    let [mut shifted, mut nested, mut across_hours] = [0; 3];
    for seed in 0..400 {
        let records = scenario(seed).records;
        let samples: Vec<_> = records
            .iter()
            .filter_map(|record| match &record.event.payload {
                Payload::PodUsage(usage) => {
                    Some((&usage.pod_uid, record.event.event_time, usage.interval_end))
                }
                _ => None,
            })
            .collect();
        let pairs = || {
            let pairs = samples.iter().flat_map(|a| samples.iter().map(move |b| (a, b)));
            pairs.filter(|(a, b)| a.0 == b.0 && a.1 < b.1 && b.1 < a.2 && b.1 < b.2)
        };
        shifted += u32::from(pairs().any(|(a, b)| a.2 < b.2));
        nested += u32::from(pairs().any(|(a, b)| b.2 < a.2));
        let edge = |a: Timestamp| Timestamp(a.0 - a.0.rem_euclid(HOUR_MICROS) + HOUR_MICROS);
        across_hours += u32::from(pairs().any(|(a, b)| edge(a.1) > b.1 && edge(a.1) < a.2.min(b.2)));
    }
    assert!(shifted > 40 && nested > 40 && across_hours > 40, "{shifted} {nested} {across_hours}");
}
