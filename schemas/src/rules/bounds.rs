//! Bounds of prices, amounts and texts.
//!
//! The bounds of prices and amounts are far above the values of real clusters. They are low enough that no
//! amount overflows its column of 38 digits, whatever events one organization within [`OBJECTS_MAX`] sends.
//!
//! Bounds are checked once, when an event is accepted, and not when the archive is read. Whatever the archive
//! holds counts, whichever release accepted it. `EVENTS.md`, "Bounds", lists the bounds for readers.
//!
//! The table gives the largest sums of an hour, with [`OBJECTS_MAX`] objects of each kind at a time. The
//! columns end at 10^26:
//!
//! | sum | at most |
//! |---|---|
//! | node cost since the start of a quarter | 10^9 x 10^6 nodes x 2,208 h = 2.2 x 10^18 |
//! | serverless cost | 10^9 x (10^6 vCPU + 10^6 GiB + 10^6 GPU) x 10^6 pods = 3 x 10^21 |
//! | unused reservations | 10^9 x 2^31 units x 10^6 reservations = 2.2 x 10^24 |
//! | pool charges | 10^9 x (10^8 TFLOPs + 10^6 GiB) x 10 x 10 (protection) x 10^6 pods = 1.1 x 10^25 |
//! | virtual VRAM of a pool in bytes | 1,000 x (10^16 disk + 10^15 memory) x 10^6 nodes = 1.1 x 10^25 |
//! | a quota's amounts | 10^18 x 10^6 pods or quotas = 10^24 |
//! | costs of lines of bills in an hour | 10^12 x 4,096 lines x 768 sets x 10^6 resources = 3.1 x 10^24 |
//! | the same since the start of a quarter | 10^12 x 4,096 lines x 2,976 sets x 10^6 = 1.2 x 10^25 |
//! | raw utilization of a commitment of 10^-12 vCPU | 10^6 vCPU x 10^6 nodes x 10^12 = 10^24 |

mod texts;

use std::fmt;

use crate::body::PodUsageRef;
use crate::decimal::Decimal12;
use crate::event::{BillLine, DiscountedPrice, Event, EventKind, Payload, PodStarted, PoolSet, Quantities};
use crate::money::{Amount, Money, Ratio, UnitPrice};
use crate::quantity::{AmountUnit, CPU, EPHEMERAL_STORAGE, MEMORY, NVIDIA_GPU, Quantity, TFLOPS, VRAM};
use crate::reject::{Reject, excerpt};
use crate::rules::Rules;
use crate::size::{MIG_PREFIX, Size, amount, replicas};

pub use texts::{LIST_MAX, NAMES_MAX, TEXT_BYTES_MAX};

/// Number of objects of a kind that one organization may have at a time: nodes, pods, reservations,
/// commitments, quotas, pools, resources in bills. More objects are accepted too, but then a sum of the
/// largest values could overflow its column.
pub const OBJECTS_MAX: u32 = 1_000_000;

/// Largest price per hour of a node, a reserved unit, a commitment, a vCPU, a GiB, a GPU or a TFLOP, in the
/// organization's currency.
pub const PRICE_MAX: i64 = 1_000_000_000;

/// Largest part of a price that applies between request and limit.
pub const LIMITS_OVER_REQUESTS_MAX: i32 = 10;

/// Largest percentage of a pool: 1,000 times the capacity of its nodes.
pub const POOL_PERCENT_MAX: i32 = 100_000;

/// Largest number of vCPUs or GPUs of one node, pod or reserved unit.
pub const DEVICES_MAX: u128 = 1_000_000;

/// Largest memory or VRAM of one node, pod or reserved unit: 1 PB.
pub const MEMORY_BYTES_MAX: u128 = 1_000_000_000_000_000;

/// Largest local disk: 10 PB.
pub const DISK_BYTES_MAX: u128 = 10_000_000_000_000_000;

/// Largest number of TFLOPs of one node, or of all GPUs of one pod.
pub const TFLOPS_MAX: u128 = 100_000_000;

/// Largest amount of any other resource, and of any resource in a quota or a capacity of a pool.
pub const AMOUNT_MAX: u128 = 1_000_000_000_000_000_000;

/// Largest cost of a line of a bill, and largest credit, in the organization's currency.
pub const BILL_COST_MAX: i64 = 1_000_000_000_000;

/// Largest number of hours that a line of a bill has, of all machines together.
pub const BILL_HOURS_MAX: i32 = 1_000_000_000;

/// Rejects values that are well-formed but that no cluster has. `rules` names the resources that are GPUs.
///
/// # Errors
/// `invalid_field` that names the field, the value and the bound.
pub fn check_bounds(event: &Event, rules: &Rules) -> Result<(), Reject> {
    let judge = Judge { record: event.payload.kind().name(), rules };
    judge.all_texts(event)?;
    match &event.payload {
        Payload::NodeStarted(node) => {
            judge.price("hourly_cost", node.hourly_cost)?;
            judge.size("capacity", &node.capacity)?;
            judge.gpus(node.gpus.as_ref())
        }
        Payload::PodStarted(pod) => judge.pod(pod),
        Payload::PodUsage(usage) => judge.usage(usage.into()),
        Payload::ReservationSet(reservation) => {
            judge.price("unit_hourly_price", reservation.unit_hourly_price)?;
            judge.size("capacity", &reservation.capacity)
        }
        Payload::CommitmentSet(commitment) => {
            judge.price("hourly_cost", commitment.hourly_cost)?;
            commitment.hourly_commitment.map_or(Ok(()), |spend| judge.price("hourly_commitment", spend))?;
            commitment.discounts.iter().try_for_each(|discount| match discount.price {
                DiscountedPrice::Saving(_) => Ok(()),
                DiscountedPrice::Rate(rate) => judge.price("discounts.rate", rate),
            })
        }
        Payload::QuotaSet(quota) => {
            judge.quantities("min", &quota.min, |_| AMOUNT_MAX)?;
            quota.max.iter().try_for_each(|max| judge.quantities("max", max, |_| AMOUNT_MAX))
        }
        Payload::PoolSet(pool) => judge.pool(pool),
        Payload::RateSet(rate) => {
            judge.price("per_vcpu_hour", rate.per_vcpu_hour)?;
            judge.price("per_gib_hour", rate.per_gib_hour)?;
            judge.price("per_gpu_hour", rate.per_gpu_hour)
        }
        Payload::BillSet(bill) => bill.lines.iter().try_for_each(|line| judge.bill_line(line)),
        Payload::NodeStopped(_)
        | Payload::PodStopped(_)
        | Payload::ReservationReleased(_)
        | Payload::CommitmentDeleted(_)
        | Payload::QuotaDeleted(_)
        | Payload::PoolDeleted(_)
        | Payload::BillingPeriodClosed(_) => Ok(()),
    }
}

/// Checks the bounds of a usage sample whose texts may be borrowed.
///
/// # Errors
/// Returns the errors of [`check_bounds`].
pub fn check_usage_bounds(organization: &str, usage: PodUsageRef<'_>, rules: &Rules) -> Result<(), Reject> {
    let judge = Judge { record: EventKind::PodUsage.name(), rules };
    judge.text("organization_id", organization)?;
    judge.text("pod_uid", usage.pod_uid)?;
    judge.usage(usage)
}

/// Returns the bound of a resource of a node, a pod or a reserved unit, in the resource's own unit.
fn bound_of(resource: &str) -> u128 {
    match resource {
        CPU | NVIDIA_GPU => DEVICES_MAX,
        MEMORY | VRAM => MEMORY_BYTES_MAX,
        EPHEMERAL_STORAGE => DISK_BYTES_MAX,
        TFLOPS => TFLOPS_MAX,
        _ if resource.starts_with(MIG_PREFIX) => DEVICES_MAX,
        _ => AMOUNT_MAX,
    }
}

/// Checks the fields of one record.
struct Judge<'a> {
    record: &'static str,
    rules: &'a Rules,
}

impl Judge<'_> {
    fn above(&self, field: &str, value: impl fmt::Display, bound: impl fmt::Display) -> Result<(), Reject> {
        Err(Reject::invalid(self.record, field, format_args!("{value} is above the limit of {bound}")))
    }

    fn price(&self, field: &str, price: UnitPrice) -> Result<(), Reject> {
        let bound = UnitPrice::from_nanos(PRICE_MAX * 1_000_000_000);
        if price > bound { self.above(field, price, bound) } else { Ok(()) }
    }

    /// Checks a cost, which may be below zero.
    fn cost(&self, field: &str, cost: Money) -> Result<(), Reject> {
        let bound = Decimal12::from_int(BILL_COST_MAX);
        if cost.atoms().unsigned_abs() > bound.atoms().unsigned_abs() {
            return self.above(field, format_args!("the magnitude of {cost}"), bound);
        }
        Ok(())
    }

    fn bill_line(&self, line: &BillLine) -> Result<(), Reject> {
        let bound = Amount::from(BILL_HOURS_MAX);
        if let Some(hours) = line.hours.filter(|hours| *hours > bound) {
            return self.above("lines.hours", hours, bound);
        }
        line.list_unit_price.map_or(Ok(()), |price| self.price("lines.list_unit_price", price))?;
        self.cost("lines.billed_cost", line.billed_cost)?;
        self.cost("lines.effective_cost", line.effective_cost)?;
        self.cost("lines.list_cost", line.list_cost)
    }

    fn quantities(
        &self,
        field: &str,
        quantities: &Quantities,
        bound_of: impl Fn(&str) -> u128,
    ) -> Result<(), Reject> {
        let above = quantities.iter().find(|(resource, quantity)| {
            quantity.amount > bound_of(resource) * u128::from(AmountUnit::of(resource).per_one())
        });
        match above {
            Some((resource, quantity)) => {
                let value = format_args!("{} '{}'", excerpt(resource), excerpt(&quantity.text)).to_string();
                self.above(field, value, bound_of(resource))
            }
            None => Ok(()),
        }
    }

    /// Checks the quantities of a node, a pod or a reserved unit.
    fn size(&self, field: &str, quantities: &Quantities) -> Result<(), Reject> {
        self.quantities(field, quantities, bound_of)?;
        let gpu_resources = &self.rules.gpu_resources;
        let gpu_millis = Size::of(quantities, gpu_resources).gpu_millis + replicas(quantities, gpu_resources);
        if gpu_millis > DEVICES_MAX * 1000 {
            let value = format!("{} GPUs in total over all resources", gpu_millis / 1000);
            return self.above(field, value, DEVICES_MAX);
        }
        Ok(())
    }

    fn gpus(&self, gpus: Option<&Quantity>) -> Result<(), Reject> {
        match gpus {
            Some(gpus) if gpus.amount > DEVICES_MAX * 1000 => {
                self.above("gpus", excerpt(&gpus.text), DEVICES_MAX)
            }
            _ => Ok(()),
        }
    }

    fn pod(&self, pod: &PodStarted) -> Result<(), Reject> {
        self.gpus(pod.gpus.as_ref())?;
        let gpus = amount(&pod.requests, NVIDIA_GPU);
        for (field, quantities) in [("requests", &pod.requests), ("limits", &pod.limits)] {
            self.size(field, quantities)?;
            // In a pool, both resources are per GPU.
            for (resource, bound) in [(TFLOPS, TFLOPS_MAX), (VRAM, MEMORY_BYTES_MAX)] {
                let per_one = u128::from(AmountUnit::of(resource).per_one());
                let all = amount(quantities, resource) * gpus / 1000 / per_one;
                if all > bound {
                    let value = format!("{resource} {all} in total over its GPUs");
                    return self.above(field, value, bound);
                }
            }
        }
        Ok(())
    }

    fn usage(&self, usage: PodUsageRef<'_>) -> Result<(), Reject> {
        let figures = [
            ("cpu_millis", usage.cpu_millis, DEVICES_MAX * 1000),
            ("memory_bytes", usage.memory_bytes, MEMORY_BYTES_MAX),
            ("gpu_millis", usage.gpu_millis, DEVICES_MAX * 1000),
            ("gpu_memory_bytes", usage.gpu_memory_bytes.unwrap_or_default(), MEMORY_BYTES_MAX),
        ];
        let above = figures.into_iter().find(|(_, value, bound)| i128::from(*value) > *bound as i128);
        above.map_or(Ok(()), |(field, value, bound)| self.above(field, value, bound))
    }

    fn pool(&self, pool: &PoolSet) -> Result<(), Reject> {
        for price in &pool.qos_pricing {
            self.price("qos_pricing.per_fp16_tflop_hour", price.per_fp16_tflop_hour)?;
            self.price("qos_pricing.per_vram_gib_hour", price.per_vram_gib_hour)?;
            let bound = Ratio::from(LIMITS_OVER_REQUESTS_MAX);
            if price.limits_over_requests > bound {
                return self.above("qos_pricing.limits_over_requests", price.limits_over_requests, bound);
            }
        }
        let capacities = [
            ("max_capacity", &pool.max_capacity),
            ("min_capacity", &pool.min_capacity),
            ("warm_capacity", &pool.warm_capacity),
        ];
        capacities.iter().try_for_each(|(field, amounts)| self.quantities(field, amounts, |_| AMOUNT_MAX))?;
        let percentages = [
            ("tflops_oversell_percent", pool.tflops_oversell_percent),
            ("vram_expand_to_host_disk_percent", pool.vram_expand_to_host_disk_percent),
            ("vram_expand_to_host_mem_percent", pool.vram_expand_to_host_mem_percent),
        ];
        let above = percentages.into_iter().find(|(_, percent)| *percent > POOL_PERCENT_MAX);
        above.map_or(Ok(()), |(field, percent)| self.above(field, percent, POOL_PERCENT_MAX))
    }
}
