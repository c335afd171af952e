//! Bodies of our newest schemas: the round trip, the canonical form, and every field that can be invalid.

use std::str::FromStr;

use proptest::prelude::*;
use proptest::test_runner::RngSeed;
use prorata_samples::arbitrary::{TIME_LAST, event, samples};
use prorata_samples::dice::{dice, mutate};
use prorata_samples::layout::{layout_of, respell};
use prorata_schemas::body::wire::{put_bytes, put_decimal, put_long};
use prorata_schemas::body::{BODY_BYTES_MAX, decode, encode};
use prorata_schemas::event::{Event, EventKind, Payload, Quantities, Recording};
use prorata_schemas::money::{DecimalError, Ratio, UnitPrice};
use prorata_schemas::quantity::Quantity;
use prorata_schemas::reject::{Reason, Reject};
use prorata_schemas::time::{Date, HOUR_MICROS, Timestamp};

fn sample(kind: EventKind) -> Event {
    samples().into_iter().find(|event| event.payload.kind() == kind).unwrap()
}

/// Encodes and decodes the sample of `kind` after `change`.
macro_rules! changed {
    ($kind:ident, |$payload:ident| $change:expr) => {{
        let mut event = sample(EventKind::$kind);
        let Payload::$kind($payload) = &mut event.payload else { unreachable!() };
        $change;
        decode(EventKind::$kind, &encode(&event))
    }};
}

fn assert_invalid(field: &str, result: Result<Event, Reject>) {
    let reject = result.expect_err(field);
    assert_eq!(reject.reason, Reason::InvalidField, "{field}: {reject}");
    assert!(reject.message.contains(field), "{field}: {reject}");
}

fn text<T: for<'a> From<&'a str>>(text: &str) -> T {
    text.into()
}

fn negative<D: FromStr<Err = DecimalError>>() -> D {
    "-0.000000000001".parse().unwrap()
}

#[test]
fn an_empty_id_or_key_is_invalid() {
    for kind in EventKind::ALL {
        let mut event = sample(kind);
        event.organization_id = text("");
        assert_invalid(&format!("{}.organization_id", kind.name()), decode(kind, &encode(&event)));
    }
    assert_invalid("NodeStarted.cluster_id", changed!(NodeStarted, |node| node.cluster_id = text("")));
    assert_invalid("NodeStarted.node_id", changed!(NodeStarted, |node| node.node_id = text("")));
    assert_invalid("NodeStarted.pool_id", changed!(NodeStarted, |node| node.pool_id = Some(text(""))));
    assert_invalid("NodeStopped.cluster_id", changed!(NodeStopped, |node| node.cluster_id = text("")));
    assert_invalid("NodeStopped.node_id", changed!(NodeStopped, |node| node.node_id = text("")));
    assert_invalid("PodStarted.cluster_id", changed!(PodStarted, |pod| pod.cluster_id = text("")));
    assert_invalid("PodStarted.namespace", changed!(PodStarted, |pod| pod.namespace = text("")));
    assert_invalid("PodStarted.gpu_sharing", changed!(PodStarted, |pod| pod.gpu_sharing = Some(text(""))));
    let no_key = changed!(PodStarted, |pod| pod.volume_keys = vec![text("vol-1"), text("")]);
    assert_invalid("PodStarted.volume_keys", no_key);
    assert_invalid("PodStarted.pod_uid", changed!(PodStarted, |pod| pod.pod_uid = text("")));
    assert_invalid("PodStarted.node_id", changed!(PodStarted, |pod| pod.node_id = Some(text(""))));
    assert_invalid("PodStarted.pool_id", changed!(PodStarted, |pod| pod.pool_id = Some(text(""))));
    assert_invalid("PodStopped.cluster_id", changed!(PodStopped, |pod| pod.cluster_id = text("")));
    assert_invalid("PodStopped.pod_uid", changed!(PodStopped, |pod| pod.pod_uid = text("")));
    assert_invalid("PodUsage.pod_uid", changed!(PodUsage, |usage| usage.pod_uid = text("")));
    assert_invalid("reservation_id", changed!(ReservationSet, |set| set.reservation_id = text("")));
    assert_invalid("reservation_id", changed!(ReservationReleased, |set| set.reservation_id = text("")));
    assert_invalid("commitment_id", changed!(CommitmentSet, |set| set.commitment_id = text("")));
    assert_invalid("commitment_id", changed!(CommitmentDeleted, |set| set.commitment_id = text("")));
    assert_invalid("QuotaSet.cluster_id", changed!(QuotaSet, |set| set.cluster_id = text("")));
    assert_invalid("QuotaSet.quota_id", changed!(QuotaSet, |set| set.quota_id = text("")));
    assert_invalid("QuotaDeleted.cluster_id", changed!(QuotaDeleted, |set| set.cluster_id = text("")));
    assert_invalid("QuotaDeleted.quota_id", changed!(QuotaDeleted, |set| set.quota_id = text("")));
    assert_invalid("PoolSet.pool_id", changed!(PoolSet, |set| set.pool_id = text("")));
    assert_invalid("PoolSet.cluster_id", changed!(PoolSet, |set| set.cluster_id = text("")));
    assert_invalid("PoolDeleted.pool_id", changed!(PoolDeleted, |set| set.pool_id = text("")));
    assert_invalid("RateSet.region", changed!(RateSet, |rate| rate.region = text("")));
    assert_invalid("RateSet.gpu_model", changed!(RateSet, |rate| rate.gpu_model = Some(text(""))));
    assert_invalid("RateSet.qos", changed!(RateSet, |rate| rate.qos = text("")));
    let assigned = prorata_schemas::event::Assignment { cluster_id: text(""), priority: None };
    assert_invalid("assignments.cluster_id", changed!(CommitmentSet, |set| set.assignments = vec![assigned]));
    assert_invalid("BillSet.provider", changed!(BillSet, |bill| bill.provider = text("")));
    assert_invalid("billing_account_id", changed!(BillSet, |bill| bill.billing_account_id = text("")));
    assert_invalid("lines.line_id", changed!(BillSet, |bill| bill.lines[0].line_id = text("")));
    assert_invalid("lines.sku_id", changed!(BillSet, |bill| bill.lines[0].sku_id = Some(text(""))));
    assert_invalid("lines.account_id", changed!(BillSet, |bill| bill.lines[0].account_id = Some(text(""))));
    assert_invalid("lines.invoice_id", changed!(BillSet, |bill| bill.lines[0].invoice_id = Some(text(""))));
    let commitment = changed!(BillSet, |bill| bill.lines[0].commitment_id = Some(text("")));
    assert_invalid("lines.commitment_id", commitment);
    let reservation = changed!(BillSet, |bill| bill.lines[0].reservation_id = Some(text("")));
    assert_invalid("lines.reservation_id", reservation);
    assert!(changed!(BillSet, |bill| bill.resource_key = text("")).is_ok(), "charges of no resource");
    let no_provider = changed!(BillingPeriodClosed, |closed| closed.provider = text(""));
    assert_invalid("BillingPeriodClosed.provider", no_provider);
    let no_account = changed!(BillingPeriodClosed, |closed| closed.billing_account_id = text(""));
    assert_invalid("BillingPeriodClosed.billing_account_id", no_account);
    let no_invoice = changed!(BillingPeriodClosed, |closed| closed.invoice_id = Some(text("")));
    assert_invalid("BillingPeriodClosed.invoice_id", no_invoice);
}

#[test]
fn a_negative_price_quantity_count_budget_or_use_is_invalid() {
    assert_invalid("NodeStarted.hourly_cost", changed!(NodeStarted, |node| node.hourly_cost = negative()));
    assert_invalid("unit_hourly_price", changed!(ReservationSet, |set| set.unit_hourly_price = negative()));
    assert_invalid("ReservationSet.quantity", changed!(ReservationSet, |set| set.quantity = -1));
    assert_invalid("CommitmentSet.vcpu", changed!(CommitmentSet, |set| set.vcpu = negative()));
    assert_invalid("CommitmentSet.memory_gib", changed!(CommitmentSet, |set| set.memory_gib = negative()));
    assert_invalid("CommitmentSet.gpu", changed!(CommitmentSet, |set| set.gpu = -1));
    assert_invalid("CommitmentSet.hourly_cost", changed!(CommitmentSet, |set| set.hourly_cost = negative()));
    assert_invalid("budget_per_day", changed!(PoolSet, |set| set.budget_per_day = Some(negative())));
    assert_invalid("budget_per_month", changed!(PoolSet, |set| set.budget_per_month = Some(negative())));
    assert_invalid("budget_per_quarter", changed!(PoolSet, |set| set.budget_per_quarter = Some(negative())));
    assert_invalid("tflops_oversell_percent", changed!(PoolSet, |set| set.tflops_oversell_percent = -1));
    assert_invalid("host_disk_percent", changed!(PoolSet, |set| set.vram_expand_to_host_disk_percent = -1));
    assert_invalid("host_mem_percent", changed!(PoolSet, |set| set.vram_expand_to_host_mem_percent = -1));
    let warm = |warm: &str, max: &str| {
        let of = |text: &str| [("cpu".into(), Quantity::parse("cpu", text).unwrap())].into();
        changed!(PoolSet, |set| (set.max_capacity, set.warm_capacity, set.min_capacity) =
            (of(max), of(warm), Quantities::new()))
    };
    assert_invalid("warm_capacity: cpu '2' is above max_capacity, '1999m'", warm("2", "1999m"));
    assert_invalid("RateSet.per_vcpu_hour", changed!(RateSet, |rate| rate.per_vcpu_hour = negative()));
    assert_invalid("RateSet.per_gib_hour", changed!(RateSet, |rate| rate.per_gib_hour = negative()));
    assert_invalid("RateSet.per_gpu_hour", changed!(RateSet, |rate| rate.per_gpu_hour = negative()));
    assert_invalid("PodUsage.cpu_millis", changed!(PodUsage, |usage| usage.cpu_millis = -1));
    assert_invalid("PodUsage.memory_bytes", changed!(PodUsage, |usage| usage.memory_bytes = i64::MIN));
    assert_invalid("PodUsage.gpu_millis", changed!(PodUsage, |usage| usage.gpu_millis = -1));
    assert_invalid("gpu_memory_bytes", changed!(PodUsage, |usage| usage.gpu_memory_bytes = Some(-1)));
    assert_invalid("lines.hours", changed!(BillSet, |bill| bill.lines[0].hours = Some(negative())));
    let price = changed!(BillSet, |bill| bill.lines[0].list_unit_price = Some(negative()));
    assert_invalid("lines.list_unit_price", price);
    let price = prorata_schemas::event::QosPrice {
        qos: text("low"),
        per_fp16_tflop_hour: UnitPrice::ZERO,
        per_vram_gib_hour: UnitPrice::ZERO,
        limits_over_requests: Ratio::ZERO,
    };
    for (field, price) in [
        ("per_fp16_tflop_hour", {
            let mut p = price.clone();
            p.per_fp16_tflop_hour = negative();
            p
        }),
        ("per_vram_gib_hour", {
            let mut p = price.clone();
            p.per_vram_gib_hour = negative();
            p
        }),
        ("limits_over_requests", {
            let mut p = price.clone();
            p.limits_over_requests = negative();
            p
        }),
    ] {
        assert_invalid(field, changed!(PoolSet, |set| set.qos_pricing = vec![price]));
    }
}

#[test]
fn a_quantity_that_does_not_parse_is_invalid_in_every_map() {
    for bad in ["K", "", "1e", " ", "-1", "1e30", "ten"] {
        let gpus = || Some(Quantity { text: text(bad), amount: 0 });
        assert_invalid("NodeStarted.gpus", changed!(NodeStarted, |node| node.gpus = gpus()));
        assert_invalid("PodStarted.gpus", changed!(PodStarted, |pod| pod.gpus = gpus()));
        let map = || [(text("cpu"), Quantity { text: text(bad), amount: 0 })].into();
        assert_invalid("NodeStarted.capacity: cpu", changed!(NodeStarted, |node| node.capacity = map()));
        assert_invalid("PodStarted.requests: cpu", changed!(PodStarted, |pod| pod.requests = map()));
        assert_invalid("PodStarted.limits: cpu", changed!(PodStarted, |pod| pod.limits = map()));
        assert_invalid("ReservationSet.capacity: cpu", changed!(ReservationSet, |set| set.capacity = map()));
        assert_invalid("QuotaSet.min: cpu", changed!(QuotaSet, |set| set.min = map()));
        assert_invalid("QuotaSet.max: cpu", changed!(QuotaSet, |set| set.max = Some(map())));
    }
}

#[test]
fn spans_intervals_fractions_and_priorities_are_judged_at_their_edges() {
    let (early, late) = (Timestamp(1_000), Timestamp(1_001));
    let span = |starts_at, ends_at| {
        changed!(ReservationSet, |set| (set.starts_at, set.ends_at) = (starts_at, Some(ends_at)))
            .and(changed!(CommitmentSet, |set| (set.starts_at, set.ends_at) = (starts_at, Some(ends_at))))
    };
    assert_invalid("ends_at", span(late, early));
    assert!(span(early, early).is_ok());

    let fraction = |atoms| changed!(CommitmentSet, |set| set.allowed_utilization = Ratio::from_atoms(atoms));
    assert_invalid("allowed_utilization", fraction(-1));
    assert_invalid("allowed_utilization", fraction(1_000_000_000_001));
    assert!(fraction(0).and(fraction(1_000_000_000_000)).is_ok());

    let interval = |length: i64| {
        let mut event = sample(EventKind::PodUsage);
        event.event_time = Timestamp(1_700_000_000_000_000);
        let Payload::PodUsage(usage) = &mut event.payload else { unreachable!() };
        usage.interval_end = Timestamp(event.event_time.0 + length);
        decode(EventKind::PodUsage, &encode(&event))
    };
    assert_invalid("interval_end", interval(-1));
    assert_invalid("interval_end", interval(HOUR_MICROS + 1));
    assert!(interval(0).and(interval(HOUR_MICROS)).is_ok());

    let rank = |priority| {
        let cluster_id = text("c");
        let assignment = prorata_schemas::event::Assignment { cluster_id, priority: Some(priority) };
        changed!(CommitmentSet, |set| set.assignments = vec![assignment])
    };
    assert_invalid("assignments.priority", rank(0));
    assert!(rank(1).is_ok());
    assert!(changed!(PodStarted, |pod| pod.priority = i32::MIN).is_ok(), "a pod's priority may be negative");
}

#[test]
fn instants_lie_in_the_years_1970_to_9999() {
    for (micros, valid) in [(-1, false), (0, true), (TIME_LAST, true), (TIME_LAST + 1, false)] {
        let mut event = sample(EventKind::NodeStopped);
        event.event_time = Timestamp(micros);
        let result = decode(EventKind::NodeStopped, &encode(&event));
        assert_eq!(result.is_ok(), valid, "{micros}: {result:?}");
        assert_eq!(changed!(PodStarted, |pod| pod.created_at = Timestamp(micros)).is_ok(), valid);
        for kind in EventKind::ALL {
            let result = decode(kind, &recorded(kind, micros, 0));
            assert_eq!(result.is_ok(), valid, "{kind:?} recorded at {micros}: {result:?}");
        }
    }
    assert_invalid(
        "PodUsage.recorded_at",
        decode(EventKind::PodUsage, &recorded(EventKind::PodUsage, -1, 0)),
    );
    assert_invalid("RateSet.recorded_at", decode(EventKind::RateSet, &recorded(EventKind::RateSet, -1, 0)));
}

#[test]
fn a_closing_is_at_the_first_instant_of_a_month() {
    let closed = |date: (i64, u8, u8), later: i64| {
        let (year, month, day) = date;
        let mut event = sample(EventKind::BillingPeriodClosed);
        event.event_time = Timestamp(Date { year, month, day }.start().0 + later);
        decode(EventKind::BillingPeriodClosed, &encode(&event))
    };
    for begin in [(1970, 1, 1), (2026, 10, 1), (2027, 1, 1)] {
        assert!(closed(begin, 0).is_ok(), "{begin:?}");
        assert_invalid("BillingPeriodClosed.event_time", closed(begin, 1));
        assert_invalid("BillingPeriodClosed.event_time", closed(begin, HOUR_MICROS));
    }
    for other in [(2026, 10, 2), (2026, 9, 30)] {
        assert_invalid("BillingPeriodClosed.event_time", closed(other, 0));
    }
}

/// Returns the body of the sample of `kind`, recorded at `micros`, with `retracted` as its last byte.
fn recorded(kind: EventKind, micros: i64, retracted: u8) -> Vec<u8> {
    let mut body = encode(&sample(kind));
    body.truncate(body.len() - 2);
    put_long(&mut body, 1);
    put_long(&mut body, micros);
    body.push(retracted);
    body
}

#[test]
fn every_event_says_when_it_was_recorded_and_whether_it_is_a_retraction() {
    for kind in EventKind::ALL {
        let unknown = decode(kind, &encode(&sample(kind))).unwrap();
        assert_eq!(unknown.recording, Recording::NONE);
        for (byte, is_retraction) in [(0, false), (1, true)] {
            let event = decode(kind, &recorded(kind, 7, byte)).unwrap();
            assert_eq!(event.recording, Recording::new(Some(Timestamp(7)), is_retraction), "{kind:?}");
            assert_eq!(encode(&event), recorded(kind, 7, byte));
        }
        let [mut branch, mut boolean] = [recorded(kind, 7, 0), recorded(kind, 7, 2)];
        let at = branch.len() - 3;
        branch[at] = 4;
        for body in [&mut branch, &mut boolean] {
            assert_eq!(decode(kind, body).unwrap_err().reason, Reason::Malformed, "{kind:?}");
        }
    }
}

#[test]
fn a_decimal_has_at_most_28_digits() {
    let largest = 10i128.pow(28) - 1;
    let cost = |atoms: i128| {
        let mut event = sample(EventKind::NodeStarted);
        let Payload::NodeStarted(node) = &mut event.payload else { unreachable!() };
        node.hourly_cost = "1234567.890123456789".parse().unwrap();
        let bytes_of = |atoms: i128| {
            let mut bytes = Vec::new();
            put_decimal(&mut bytes, atoms);
            bytes
        };
        let old = bytes_of(node.hourly_cost.atoms());
        let mut body = encode(&event);
        let at = body.windows(old.len()).position(|window| window == old).unwrap();
        body.splice(at..at + old.len(), bytes_of(atoms));
        decode(EventKind::NodeStarted, &body)
    };
    assert!(cost(largest).is_ok());
    for atoms in [largest + 1, i128::MAX, i128::MIN, -largest - 1] {
        assert_invalid("hourly_cost", cost(atoms));
    }
}

#[test]
fn bytes_that_are_not_a_record_are_malformed() {
    for event in samples() {
        let kind = event.payload.kind();
        let body = encode(&event);
        for length in 0..body.len() {
            let reject = decode(kind, &body[..length]).unwrap_err();
            assert_eq!(reject.reason, Reason::Malformed, "{kind:?} cut to {length}: {reject}");
        }
        let longer = [&body[..], &[0]].concat();
        assert_eq!(
            decode(kind, &longer).unwrap_err().reason,
            Reason::Malformed,
            "{kind:?} with a byte after it"
        );
    }
    let not_utf8 = [2, 0xff, 0, 2, b'c', 2, b'n', 0, 0];
    assert_eq!(decode(EventKind::NodeStopped, &not_utf8).unwrap_err().reason, Reason::Malformed);
}

#[test]
fn malformed_wins_over_an_invalid_value_before_it() {
    let mut event = sample(EventKind::PodStopped);
    event.organization_id = text("");
    let mut body = encode(&event);
    assert_eq!(decode(EventKind::PodStopped, &body).unwrap_err().reason, Reason::InvalidField);
    body.pop();
    assert_eq!(decode(EventKind::PodStopped, &body).unwrap_err().reason, Reason::Malformed);
}

#[test]
fn of_two_entries_with_one_key_the_last_counts() {
    let mut body = Vec::new();
    for field in ["o", "c", "q"] {
        put_bytes(&mut body, field.as_bytes());
        if field == "o" {
            put_long(&mut body, 0);
        }
    }
    body.extend([0, 0]);
    put_long(&mut body, 2);
    for amount in ["1", "2"] {
        put_bytes(&mut body, b"cpu");
        put_bytes(&mut body, amount.as_bytes());
    }
    body.extend([0, 0, 0, 0]);
    let Payload::QuotaSet(quota) = decode(EventKind::QuotaSet, &body).unwrap().payload else {
        unreachable!()
    };
    assert_eq!(&*quota.min.get("cpu").unwrap().text, "2");
}

#[test]
fn a_body_past_the_limit_is_malformed_whatever_it_holds() {
    let mut event = sample(EventKind::PodStopped);
    let Payload::PodStopped(pod) = &mut event.payload else { unreachable!() };
    pod.reason = Some("x".repeat(BODY_BYTES_MAX).into());
    assert_eq!(decode(EventKind::PodStopped, &encode(&event)).unwrap_err().reason, Reason::Malformed);
}

#[test]
fn a_hundred_thousand_damaged_bodies_never_panic_and_stay_canonical() {
    let samples = samples();
    let mut dice = dice(2026);
    let mut events = 0;
    for round in 0..100_000 {
        let kind = samples[round % samples.len()].payload.kind();
        let mut body = encode(&samples[round % samples.len()]);
        mutate(&mut body, &mut dice);
        if let Ok(event) = decode(kind, &body) {
            let canonical = encode(&event);
            assert_eq!(decode(kind, &canonical).as_ref(), Ok(&event), "{kind:?} {body:?}");
            events += 1;
        }
    }
    assert!(
        events > 1_000,
        "only {events} damaged bodies were events: the damage is too coarse to test values"
    );
}

proptest! {
    #![proptest_config(ProptestConfig {
        rng_seed: RngSeed::Fixed(14),
        failure_persistence: None,
        ..ProptestConfig::with_cases(2_000)
    })]

    #[test]
    fn every_event_survives_the_round_trip(event in event()) {
        let body = encode(&event);
        prop_assert_eq!(decode(event.payload.kind(), &body), Ok(event));
    }

    #[test]
    fn every_spelling_of_a_body_has_one_canonical_form(event in event(), seed in any::<u64>()) {
        let kind = event.payload.kind();
        let canonical = encode(&event);
        let other = respell(&layout_of(kind), &canonical, &mut dice(seed));
        let decoded = decode(kind, &other).map_err(|reject| TestCaseError::fail(reject.to_string()))?;
        prop_assert_eq!(encode(&decoded), canonical);
        prop_assert_eq!(decoded, event);
    }
}
