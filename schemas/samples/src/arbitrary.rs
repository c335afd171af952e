//! Arbitrary valid events, for property tests.

mod bills;

use std::fmt::Debug;
use std::str::FromStr;

use proptest::prelude::*;
use proptest::strategy::ValueTree;
use prorata_schemas::Text;
use prorata_schemas::decimal::Decimal12;
use prorata_schemas::event::{
    Assignment, BudgetExceedStrategy, CapacityType, CommitmentDeleted, CommitmentKind, CommitmentSet,
    DiscountTarget, DiscountedPrice, Event, EventKind, EventRecord, NodeStarted, NodeStopped, Payload,
    PlanDiscount, PodStarted, PodStopped, PodUsage, PoolDeleted, PoolSet, QosPrice, Quantities, QuotaDeleted,
    QuotaKind, QuotaSet, RateSet, Recording, ReservationReleased, ReservationSet,
};
use prorata_schemas::money::{DecimalError, Ratio, UnitPrice};
use prorata_schemas::quantity::Quantity;
use prorata_schemas::time::Timestamp;

/// The last instant of the year 9999.
pub const TIME_LAST: i64 = 253_402_300_799_999_999;

/// Generates a non-empty text for an id or for another part of a natural key.
pub fn key<K: From<String> + Debug>() -> impl Strategy<Value = K> {
    prop_oneof![4 => "[a-z0-9.-]{1,12}", 1 => "\\PC{1,6}"].prop_map(K::from)
}

/// Generates a text, usually of the kind that a cluster sends.
pub fn text() -> impl Strategy<Value = Text> {
    prop_oneof![4 => "[a-z0-9./-]{0,16}", 1 => "\\PC{0,6}"].prop_map(Text::from)
}

/// Generates an instant up to the year 9999, mostly from 2023 to 2026.
pub fn time() -> impl Strategy<Value = Timestamp> {
    prop_oneof![
        8 => 1_700_000_000_000_000..1_800_000_000_000_000i64,
        1 => 0..=TIME_LAST,
        1 => Just(0),
        1 => Just(TIME_LAST)
    ]
    .prop_map(Timestamp)
}

/// Generates a price, amount or ratio of any size: zero or more, at most 28 digits.
pub fn decimal<D: FromStr<Err = DecimalError> + Debug>() -> impl Strategy<Value = D> {
    const LAST: i128 = 10i128.pow(28) - 1;
    prop_oneof![
        4 => 0..1_000_000_000_000_000i128,
        2 => 0..=LAST,
        1 => Just(LAST),
        1 => Just(0)
    ]
    .prop_map(|atoms| Decimal12::from_atoms(atoms).to_string().parse().unwrap())
}

/// Generates amounts by resource name, in any notation.
pub fn quantities() -> impl Strategy<Value = Quantities> {
    let name = prop_oneof![
        Just("cpu".to_owned()),
        Just("memory".to_owned()),
        Just("nvidia.com/gpu".to_owned()),
        Just("tensor-fusion.ai/vram".to_owned()),
        "[a-z]{1,6}\\.io/[a-z]{1,6}",
    ];
    let amount = prop_oneof![
        "[1-9][0-9]{0,5}(m|k|Mi|Gi|M|G)?",
        "[0-9]{1,4}\\.[0-9]{0,4}",
        "[+]?[0-9]{1,3}[eE][+]?[0-9]",
        Just("-0".to_owned()),
    ];
    proptest::collection::btree_map(name, amount, 0..5).prop_map(|map| {
        let parse = |name: String, text: String| (Text::from(&*name), Quantity::parse(&name, &text).unwrap());
        map.into_iter().map(|(name, text)| parse(name, text)).collect()
    })
}

/// Generates a number of GPUs, in any notation.
fn gpus() -> impl Strategy<Value = Quantity> {
    prop_oneof!["[1-9][0-9]{0,3}m?", "[0-9]{1,2}\\.[0-9]{1,4}", Just("-0".to_owned())]
        .prop_map(|text| Quantity::parse("nvidia.com/gpu", &text).unwrap())
}

fn maybe<S: Strategy>(strategy: S) -> impl Strategy<Value = Option<S::Value>>
where
    S::Value: Clone,
{
    proptest::option::of(strategy)
}

/// Generates a valid event of `kind` without `recorded_at`.
pub fn event_of(kind: EventKind) -> impl Strategy<Value = Event> {
    (key(), time(), payload(kind)).prop_map(|(organization_id, mut event_time, mut payload)| {
        match &mut payload {
            Payload::PodUsage(usage) => {
                let end = event_time.0 + usage.interval_end.0.rem_euclid(3_600_000_001);
                usage.interval_end = Timestamp(end.min(TIME_LAST));
            }
            Payload::BillSet(bill) => event_time = bills::move_to(bill, event_time),
            Payload::BillingPeriodClosed(_) => {
                event_time = event_time.hour().date().month_start().start();
            }
            _ => {}
        }
        Event::new(organization_id, event_time, payload)
    })
}

/// Generates a valid event of any kind. It may have a `recorded_at`, and may be a retraction.
pub fn event() -> impl Strategy<Value = Event> {
    let event = proptest::sample::select(&EventKind::ALL[..]).prop_flat_map(event_of);
    (event, maybe(time()), any::<bool>()).prop_map(|(event, recorded_at, is_retraction)| {
        event.recorded(Recording::new(recorded_at, is_retraction))
    })
}

fn payload(kind: EventKind) -> BoxedStrategy<Payload> {
    match kind {
        EventKind::NodeStarted => node_started().boxed(),
        EventKind::NodeStopped => (key(), key())
            .prop_map(|(cluster_id, node_id)| Payload::NodeStopped(NodeStopped { cluster_id, node_id }))
            .boxed(),
        EventKind::PodStarted => pod_started().boxed(),
        EventKind::PodStopped => (key(), text(), key(), maybe(text()))
            .prop_map(|(cluster_id, namespace, pod_uid, reason)| {
                Payload::PodStopped(PodStopped { cluster_id, namespace, pod_uid, reason })
            })
            .boxed(),
        EventKind::PodUsage => pod_usage().boxed(),
        EventKind::ReservationSet => reservation_set().boxed(),
        EventKind::ReservationReleased => key()
            .prop_map(|reservation_id| Payload::ReservationReleased(ReservationReleased { reservation_id }))
            .boxed(),
        EventKind::CommitmentSet => commitment_set().boxed(),
        EventKind::CommitmentDeleted => key()
            .prop_map(|commitment_id| Payload::CommitmentDeleted(CommitmentDeleted { commitment_id }))
            .boxed(),
        EventKind::QuotaSet => quota_set().boxed(),
        EventKind::QuotaDeleted => (key(), key())
            .prop_map(|(cluster_id, quota_id)| Payload::QuotaDeleted(QuotaDeleted { cluster_id, quota_id }))
            .boxed(),
        EventKind::PoolSet => pool_set().boxed(),
        EventKind::PoolDeleted => {
            key().prop_map(|pool_id| Payload::PoolDeleted(PoolDeleted { pool_id })).boxed()
        }
        EventKind::RateSet => rate_set().boxed(),
        EventKind::BillSet => bills::bill_set().boxed(),
        EventKind::BillingPeriodClosed => bills::billing_period_closed().boxed(),
    }
}

fn node_started() -> impl Strategy<Value = Payload> {
    let names = (key(), key(), text(), text(), text(), maybe(text()), text(), text());
    let rest = (any::<bool>(), quantities(), maybe(text()), decimal(), text(), maybe(key()), maybe(gpus()));
    let billed = (maybe(key()), maybe(key()));
    (names, rest, billed).prop_map(|(names, rest, (resource_key, account_id))| {
        let (spot, capacity, gpu_model, hourly_cost, currency, pool_id, gpus) = rest;
        let (cluster_id, node_id, node_name, provider, region, zone, instance_type, instance_family) = names;
        Payload::NodeStarted(Box::new(NodeStarted {
            cluster_id,
            node_id,
            node_name,
            provider,
            region,
            zone,
            instance_type,
            instance_family,
            capacity_type: if spot { CapacityType::Spot } else { CapacityType::OnDemand },
            capacity,
            gpu_model,
            hourly_cost,
            currency,
            pool_id,
            gpus,
            resource_key,
            account_id,
        }))
    })
}

fn pod_usage() -> impl Strategy<Value = Payload> {
    let figure = || 0..=i64::MAX;
    (key(), time(), figure(), figure(), figure(), maybe(figure())).prop_map(
        |(pod_uid, interval_end, cpu_millis, memory_bytes, gpu_millis, gpu_memory_bytes)| {
            Payload::PodUsage(PodUsage {
                pod_uid,
                interval_end,
                cpu_millis,
                memory_bytes,
                gpu_millis,
                gpu_memory_bytes,
            })
        },
    )
}

fn pod_started() -> impl Strategy<Value = Payload> {
    let names = (key(), key(), text(), key(), time(), any::<i32>());
    let place = (maybe(key()), maybe(text()), maybe(text()), maybe(key()), text(), maybe(text()));
    let labels = proptest::collection::btree_map(text(), text(), 0..6);
    let rest = (quantities(), quantities(), maybe(text()), maybe(text()), labels, maybe(time()));
    let shares = (maybe(gpus()), maybe(key()));
    let volumes = proptest::collection::vec(key(), 0..4);
    (names, place, rest, shares, volumes).prop_map(|(names, place, rest, shares, volume_keys)| {
        let (cluster_id, namespace, pod_name, pod_uid, created_at, priority) = names;
        let (node_id, region, zone, pool_id, qos, gpu_model) = place;
        let (requests, limits, workload_kind, workload_name, labels, eviction_protected_until) = rest;
        let (gpus, gpu_sharing) = shares;
        Payload::PodStarted(Box::new(PodStarted {
            cluster_id,
            namespace,
            pod_name,
            pod_uid,
            created_at,
            priority,
            node_id,
            region,
            zone,
            pool_id,
            qos,
            gpu_model,
            requests,
            limits,
            workload_kind,
            workload_name,
            labels: labels.into_iter().collect(),
            eviction_protected_until,
            gpus,
            gpu_sharing,
            volume_keys,
        }))
    })
}

/// Generates two instants in order. The second may be `None`.
fn span() -> impl Strategy<Value = (Timestamp, Option<Timestamp>)> {
    (time(), maybe(time())).prop_map(|(one, other)| match other {
        Some(other) => (one.min(other), Some(one.max(other))),
        None => (one, None),
    })
}

fn reservation_set() -> impl Strategy<Value = Payload> {
    let names = (key(), text(), text(), text(), maybe(text()), text());
    let rest = (quantities(), 0..=i32::MAX, decimal(), text(), time(), span());
    (names, rest).prop_map(|(names, rest)| {
        let (reservation_id, name, provider, region, zone, gpu_model) = names;
        let (capacity, quantity, unit_hourly_price, currency, created_at, (starts_at, ends_at)) = rest;
        Payload::ReservationSet(Box::new(ReservationSet {
            reservation_id,
            name,
            provider,
            region,
            zone,
            gpu_model,
            capacity,
            quantity,
            unit_hourly_price,
            currency,
            created_at,
            starts_at,
            ends_at,
        }))
    })
}

fn commitment_set() -> impl Strategy<Value = Payload> {
    let names = (key(), text(), text(), any::<bool>(), text(), text());
    let sizes = (decimal(), decimal(), 0..=i32::MAX, maybe(text()), decimal(), text());
    let fraction = maybe((0..=1_000_000_000_000i128).prop_map(|atoms| Ratio::from_atoms(atoms).unwrap()));
    let assignment = (key(), maybe(1..=i32::MAX));
    let assignments = proptest::collection::vec(
        assignment.prop_map(|(cluster_id, priority)| Assignment { cluster_id, priority }),
        0..4,
    );
    let rest = (span(), any::<bool>(), fraction, assignments);
    let spend = maybe((price(), proptest::collection::vec(plan_discount(), 1..4)));
    (names, sizes, rest, spend).prop_map(|(names, sizes, rest, spend)| {
        let (commitment_id, name, provider, reserved, region, instance_family) = names;
        let (vcpu, memory_gib, gpu, gpu_model, hourly_cost, currency) = sizes;
        let ((starts_at, ends_at), enabled, allowed_utilization, assignments) = rest;
        Payload::CommitmentSet(Box::new(CommitmentSet {
            commitment_id,
            name,
            provider,
            kind: match (&spend, reserved) {
                (Some(_), _) => CommitmentKind::SavingsPlan,
                (None, true) => CommitmentKind::ReservedInstance,
                (None, false) => CommitmentKind::CommittedUseDiscount,
            },
            region,
            instance_family,
            vcpu,
            memory_gib,
            gpu,
            gpu_model,
            hourly_cost,
            currency,
            starts_at,
            ends_at,
            enabled,
            allowed_utilization,
            assignments,
            hourly_commitment: spend.as_ref().map(|(spend, _)| *spend),
            discounts: spend.map(|(_, discounts)| discounts).unwrap_or_default(),
        }))
    })
}

/// Generates a price above zero.
fn price() -> impl Strategy<Value = UnitPrice> {
    decimal().prop_map(|price| if price == UnitPrice::ZERO { UnitPrice::MAX } else { price })
}

fn plan_discount() -> impl Strategy<Value = PlanDiscount> {
    let saving = (0..1_000_000_000_000i128).prop_map(|atoms| Ratio::from_atoms(atoms).unwrap());
    let target =
        prop_oneof![Just(DiscountTarget::Node), Just(DiscountTarget::Pod), Just(DiscountTarget::Reservation)];
    let names = (maybe(text()), maybe(text()), maybe(text()), maybe(text()));
    (target, names, saving, maybe(price())).prop_map(|(applies_to, names, saving, rate)| {
        let (region, instance_family, instance_type, gpu_model) = names;
        let of_nodes = applies_to == DiscountTarget::Node;
        PlanDiscount {
            applies_to,
            region,
            instance_family: instance_family.filter(|_| of_nodes),
            instance_type: instance_type.filter(|_| of_nodes),
            gpu_model,
            price: match rate.filter(|_| applies_to != DiscountTarget::Pod) {
                Some(rate) => DiscountedPrice::Rate(rate),
                None => DiscountedPrice::Saving(saving),
            },
        }
    })
}

fn quota_set() -> impl Strategy<Value = Payload> {
    let namespaces = proptest::collection::vec(text(), 0..4);
    (key(), key(), any::<bool>(), namespaces, quantities(), maybe(quantities())).prop_map(
        |(cluster_id, quota_id, elastic, namespaces, min, max)| {
            let kind = if elastic { QuotaKind::ElasticQuota } else { QuotaKind::CompositeElasticQuota };
            Payload::QuotaSet(Box::new(QuotaSet { cluster_id, quota_id, kind, namespaces, min, max }))
        },
    )
}

fn pool_set() -> impl Strategy<Value = Payload> {
    let price = (text(), decimal(), decimal(), decimal()).prop_map(
        |(qos, per_fp16_tflop_hour, per_vram_gib_hour, limits_over_requests)| QosPrice {
            qos,
            per_fp16_tflop_hour,
            per_vram_gib_hour,
            limits_over_requests,
        },
    );
    let names = (key(), key(), text(), text(), proptest::collection::vec(price, 0..4));
    let percents = (0..=i32::MAX, 0..=i32::MAX, 0..=i32::MAX);
    let budgets = (maybe(decimal()), maybe(decimal()), maybe(decimal()), text());
    let strategy =
        prop_oneof![Just(BudgetExceedStrategy::AlertOnly), Just(BudgetExceedStrategy::AlertAndTerminateVm)];
    let capacity = (quantities(), any::<[bool; 3]>());
    (names, percents, budgets, strategy, capacity).prop_map(
        |(names, percents, budgets, strategy, capacity)| {
            // No capacity is above the maximum.
            let capacity =
                capacity.1.map(|is_set| if is_set { capacity.0.clone() } else { Quantities::new() });
            let [max_capacity, min_capacity, warm_capacity] = capacity;
            let (pool_id, cluster_id, provider, default_qos, qos_pricing) = names;
            let (budget_per_day, budget_per_month, budget_per_quarter, currency) = budgets;
            Payload::PoolSet(Box::new(PoolSet {
                pool_id,
                cluster_id,
                provider,
                default_qos,
                qos_pricing,
                tflops_oversell_percent: percents.0,
                vram_expand_to_host_disk_percent: percents.1,
                vram_expand_to_host_mem_percent: percents.2,
                max_capacity,
                min_capacity,
                warm_capacity,
                budget_per_day,
                budget_per_month,
                budget_per_quarter,
                budget_exceed_strategy: strategy,
                currency,
            }))
        },
    )
}

fn rate_set() -> impl Strategy<Value = Payload> {
    (text(), key(), maybe(key()), key(), decimal(), decimal(), decimal(), text()).prop_map(
        |(provider, region, gpu_model, qos, per_vcpu_hour, per_gib_hour, per_gpu_hour, currency)| {
            Payload::RateSet(Box::new(RateSet {
                provider,
                region,
                gpu_model,
                qos,
                per_vcpu_hour,
                per_gib_hour,
                per_gpu_hour,
                currency,
            }))
        },
    )
}

/// Returns one valid event of each kind. Every call returns the same events.
pub fn samples() -> Vec<Event> {
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let mut sample = |kind| event_of(kind).new_tree(&mut runner).unwrap().current();
    EventKind::ALL.into_iter().map(&mut sample).collect()
}

/// Returns the events of [`samples`] with their bodies.
pub fn records() -> Vec<EventRecord> {
    samples().into_iter().map(EventRecord::new).collect()
}
