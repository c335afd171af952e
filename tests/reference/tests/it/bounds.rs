//! Bounds of prices and amounts (EVENTS.md, "Bounds"): the accepted values, and a check that accepted values
//! fold.

use prorata_reference::tables;
use prorata_reference::text::{BASE_HOUR, parse};
use prorata_schemas::body::encode;
use prorata_schemas::decimal::Decimal12;
use prorata_schemas::event::EventRecord;
use prorata_schemas::money::Ratio;
use prorata_schemas::rows::HourTables;
use prorata_schemas::rules::Rules;
use prorata_schemas::rules::bounds::{LIST_MAX, OBJECTS_MAX};
use prorata_schemas::time::Hour;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::common::engine_tables;

/// The end of a column.
const COLUMN_END: i128 = 10_i128.pow(26);

fn record(line: &str) -> EventRecord {
    let event = parse(line).unwrap();
    EventRecord { body: encode(&event).into(), event }
}

/// Returns rules with the largest factor that a pod under eviction protection pays in this test.
fn rules() -> Rules {
    Rules { eviction_protection_ratio: Ratio::from(10), ..Rules::default() }
}

/// Events, each with the error that it causes; `None` if it is accepted.
const BOUNDS: &[(&str, Option<&str>)] = &[
    ("node n cost=1000000000", None),
    (
        "node n cost=1000000000.000000000001",
        Some("hourly_cost: 1000000000.000000000001 is above the limit of 1000000000"),
    ),
    ("node n cpu=1000000 memory=1P disk=10P gpu=1M tflops=100M vram=1P example.com/x=1E", None),
    ("node n cpu=1000000001m", Some("capacity: cpu '1000000001m' is above the limit of 1000000")),
    ("node n memory=1Pi", Some("capacity: memory '1Pi' is above the limit of 1000000000000000")),
    ("node n disk=10Pi", Some("capacity: ephemeral-storage '10Pi' is above the limit of 10000000000000000")),
    ("node n gpu=9E", Some("capacity: nvidia.com/gpu '9E' is above the limit of 1000000")),
    ("node n mig-1g.5gb=2M", Some("capacity: nvidia.com/mig-1g.5gb '2M' is above the limit of 1000000")),
    (
        "node n gpu=1M amd.com/gpu=1000",
        Some("capacity: 1001000 GPUs in total over all resources is above the limit of 1000000"),
    ),
    (
        "node n mig-999999g.5gb=1M",
        Some("capacity: 142857000000 GPUs in total over all resources is above the limit of 1000000"),
    ),
    (
        "node n example.com/x=2E",
        Some("capacity: example.com/x '2E' is above the limit of 1000000000000000000"),
    ),
    ("pod p cpu=1M memory=1P gpu=1000 tflops=100000 vram=1T limit.tflops=100k", None),
    (
        "pod p limit.vram=2P",
        Some("limits: tensor-fusion.ai/vram '2P' is above the limit of 1000000000000000"),
    ),
    (
        "pod p gpu=1000 tflops=100001",
        Some(
            "requests: tensor-fusion.ai/tflops 100001000 in total over its GPUs is above the limit of \
             100000000",
        ),
    ),
    (
        "pod p gpu=1001 limit.vram=1T",
        Some(
            "limits: tensor-fusion.ai/vram 1001000000000000 in total over its GPUs is above the limit of \
             1000000000000000",
        ),
    ),
    ("node n gpus=1M", None),
    ("node n gpus=1000001", Some("gpus: 1000001 is above the limit of 1000000")),
    ("pod p gpus=1000000001m", Some("gpus: 1000000001m is above the limit of 1000000")),
    ("use p to=01:00 cpu=1M memory=1P gpu=1M gpu-memory=1P", None),
    (
        "use p to=01:00 gpu-memory=1000000000000001",
        Some("gpu_memory_bytes: 1000000000000001 is above the limit of 1000000000000000"),
    ),
    ("use p to=01:00 cpu=1000000001m", Some("cpu_millis: 1000000001 is above the limit of 1000000000")),
    ("reservation r x=2147483647 price=1000000000 gpu=8", None),
    (
        "reservation r price=1000000001",
        Some("unit_hourly_price: 1000000001 is above the limit of 1000000000"),
    ),
    ("commitment k vcpu=9999999999999999 gib=9999999999999999 gpu=2147483647 cost=1000000000", None),
    ("commitment k cost=1000000001", Some("hourly_cost: 1000000001 is above the limit of 1000000000")),
    ("quota q ns=a min.memory=1E min.cpu=1E max.gpu=1E", None),
    ("quota q ns=a min.memory=1Ei", Some("min: memory '1Ei' is above the limit of 1000000000000000000")),
    ("quota q ns=a max.cpu=2E", Some("max: cpu '2E' is above the limit of 1000000000000000000")),
    ("pool g qos=a:1000000000:1000000000:10 oversell=100000 disk=100000 mem=100000", None),
    (
        "pool g qos=a:0:1000000001:1",
        Some("qos_pricing.per_vram_gib_hour: 1000000001 is above the limit of 1000000000"),
    ),
    ("pool g qos=a:1:1:10.1", Some("qos_pricing.limits_over_requests: 10.1 is above the limit of 10")),
    ("pool g max.cpu=1E warm.vram=1E min.tflops=1E", None),
    (
        "pool g warm.vram=1Ei",
        Some("warm_capacity: tensor-fusion.ai/vram '1Ei' is above the limit of 1000000000000000000"),
    ),
    ("pool g oversell=100001", Some("tflops_oversell_percent: 100001 is above the limit of 100000")),
    ("rate r cpu=1000000000 gib=1000000000 gpu=1000000000", None),
    ("rate r gpu=1000000001", Some("per_gpu_hour: 1000000001 is above the limit of 1000000000")),
    (
        "bill i lines=a:for=768h:hours=1000000000:price=1000000000:cost=1000000000000:billed=-1000000000000",
        None,
    ),
    (
        "bill i lines=a:hours=1000000000.000000000001",
        Some("lines.hours: 1000000000.000000000001 is above the limit of 1000000000"),
    ),
    (
        "bill i lines=a,b:price=1000000001",
        Some("lines.list_unit_price: 1000000001 is above the limit of 1000000000"),
    ),
    (
        "bill i lines=a:billed=-1000000000000.000000000001",
        Some(
            "lines.billed_cost: the magnitude of -1000000000000.000000000001 is above the limit of \
             1000000000000",
        ),
    ),
    (
        "bill i lines=a:cost=1000000000001:billed=0",
        Some("lines.effective_cost: the magnitude of 1000000000001 is above the limit of 1000000000000"),
    ),
    (
        "bill - lines=a:list=-1000000000001",
        Some("lines.list_cost: the magnitude of -1000000000001 is above the limit of 1000000000000"),
    ),
];

#[test]
fn each_value_is_taken_up_to_its_bound_and_rejected_above_it() {
    for (line, wrong) in BOUNDS {
        let event = parse(&format!("00:00 {line}")).unwrap();
        let wrong = wrong.map(|wrong| format!("invalid_field: {}.{wrong}", event.payload.kind().name()));
        assert_eq!(rules().check(&event).err().map(|reject| reject.to_string()), wrong, "{line}");
    }
}

/// Returns this many words of a line.
fn words(count: usize, word: impl Fn(usize) -> String, between: &str) -> String {
    (0..count).map(word).collect::<Vec<_>>().join(between)
}

/// A function that returns a line of text with a count of something.
type Line<'a> = Box<dyn Fn(usize) -> String + 'a>;

#[test]
fn lists_and_names_are_taken_up_to_their_bound_and_rejected_above_it() {
    let long = |bytes: usize| "n".repeat(bytes);
    let cases: [(&str, usize, Line); 12] = [
        ("PodStopped.pod_uid: a text of", 1_024, Box::new(|count| format!("stop-pod {}", long(count)))),
        ("PodStarted.namespace: a text of", 1_024, Box::new(|count| format!("pod p ns={}", long(count)))),
        ("PodStarted.labels: a text of", 1_024, Box::new(|count| format!("pod p label.a={}", long(count)))),
        ("PodUsage.pod_uid: a text of", 1_024, Box::new(|count| format!("use {} to=01:00", long(count)))),
        (
            "PodStarted.labels: a list of",
            512,
            Box::new(|count| format!("pod p {}", words(count, |n| format!("label.{n}=v"), " "))),
        ),
        (
            "PodStarted.requests: a list of",
            512,
            Box::new(|count| format!("pod p {}", words(count, |n| format!("e.com/{n}=1"), " "))),
        ),
        (
            "PodStarted.volume_keys: a list of",
            4_096,
            Box::new(|count| format!("pod p volumes={}", words(count, |n| n.to_string(), ","))),
        ),
        (
            "QuotaSet.namespaces: a list of",
            4_096,
            Box::new(|count| format!("quota q ns={}", words(count, |n| n.to_string(), ","))),
        ),
        (
            "CommitmentSet.assignments: a list of",
            4_096,
            Box::new(|count| format!("commitment k assign={}", words(count, |n| format!("c{n}"), ","))),
        ),
        (
            "PoolSet.qos_pricing: a list of",
            4_096,
            Box::new(|count| format!("pool g qos={}", words(count, |n| format!("{n}:1:1:1"), ","))),
        ),
        (
            "BillSet.lines.line_id: a text of",
            1_024,
            Box::new(|count| format!("bill i lines={}", long(count))),
        ),
        (
            "BillSet.lines: a list of",
            4_096,
            Box::new(|count| format!("bill i lines={}", words(count, |n| n.to_string(), ","))),
        ),
    ];
    for (what, bound, line) in cases {
        let judged = |count: usize| rules().check(&parse(&format!("00:00 {}", line(count))).unwrap());
        assert_eq!(judged(bound), Ok(()), "{what} {bound}");
        let wrong = judged(bound + 1).unwrap_err().to_string();
        assert!(wrong.starts_with(&format!("invalid_field: {what} {}", bound + 1)), "{wrong}");
    }
}

#[test]
fn which_resources_are_gpus_is_what_the_rules_say() {
    let event = parse("00:00 node n example.com/npu=2M").unwrap();
    assert_eq!(Rules::default().check(&event), Ok(()));
    let rules = Rules { gpu_resources: vec!["example.com/npu".into()], ..Rules::default() };
    assert!(rules.check(&event).is_err());
}

/// One object of each kind with the largest values, and the smallest divisors.
const LARGEST: [&str; 14] = [
    "pool g qos=medium:1000000000:1000000000:10 oversell=100000 disk=100000 mem=100000",
    "rate r cpu=1000000000 gib=1000000000 gpu=1000000000",
    "commitment k vcpu=0.000000000001 gib=0.000000000001 cost=1000000000",
    "reservation v x=2147483647 price=1000000000 gpu=1000000 model=other",
    "quota q ns=ns min.cpu=1E min.memory=1E min.gpu=1E max.cpu=1E",
    "node n pool=g cost=1000000000 cpu=1M memory=1P gpu=1M disk=10P tflops=100M vram=1P",
    "node least pool=g cost=1000000000 cpu=1m memory=1 gpu=1m tflops=1m vram=1",
    "pod charged pool=g until=90:00 gpu=1000 limit.tflops=100k limit.vram=1T cpu=1M memory=1P",
    "pod free region=r cpu=1M memory=1P gpu=1M",
    "pod shares node=least pool=g gpu=1M tflops=100 vram=1G",
    "use free to=01:00 cpu=1M memory=1P gpu=1M",
    "use shares to=01:00 cpu=1M memory=1P gpu=1M",
    "node billed resource=i cost=1000000000 cpu=1M memory=1P gpu=1M",
    "bill i lines=a:hours=1000000000:price=1000000000:cost=1000000000000:billed=-1000000000000",
];

/// Returns the figures that add up over objects.
fn sums(tables: &HourTables) -> Vec<Decimal12> {
    let totals = &tables.totals;
    let mut sums = vec![totals.supply_cost, totals.pool_cost, totals.reservation_unused_cost];
    sums.extend([totals.bill_cost, totals.bill_billed_cost]);
    for pool in &tables.pool_usage {
        sums.extend([pool.tflops_virtual, pool.vram_bytes_virtual, pool.charges, pool.spend_quarter]);
        sums.extend([pool.allocated_tflops_percent, pool.allocated_vram_percent]);
        sums.extend([pool.utilized_tflops_percent, pool.utilized_vram_percent].into_iter().flatten());
    }
    for quota in &tables.quota_usage {
        sums.extend([quota.min, quota.used_mean, quota.over_quota_pool, quota.borrowed_hours]);
    }
    sums.extend(tables.commitment_utilization.iter().map(|row| row.raw_utilization));
    for row in &tables.cost_allocation {
        sums.extend([row.list_cost, row.pricing_quantity]);
        sums.extend(row.used.map(|used| used.memory_gib_hours));
    }
    sums
}

#[test]
fn a_million_of_the_largest_objects_of_each_kind_stay_within_their_columns() {
    let mut records: Vec<EventRecord> = LARGEST.iter().map(|line| record(&format!("00:00 {line}"))).collect();
    let lines = words(LIST_MAX, |n| format!("{n}:cost=1000000000000"), ",");
    records.push(record(&format!("00:00 bill - lines={lines}")));
    records.iter().for_each(|record| rules().check(&record.event).unwrap());
    let hours = engine_tables(&records, &rules(), Hour(BASE_HOUR)).unwrap();
    let sums = sums(&hours[0]);
    let largest = sums.into_iter().map(|sum| sum.atoms() / 1_000_000_000_000).max().unwrap();
    println!("the largest figure of one object of each kind: {largest}");
    assert!(largest.checked_mul(OBJECTS_MAX.into()).is_some_and(|sum| sum < COLUMN_END), "{largest}");
}

/// Returns a line with values at their edges: zero, the minimum, and the maximum.
fn edges(rng: &mut ChaCha8Rng, line: &str) -> String {
    let words = line.split(' ').map(|word| match word.split_once('=') {
        Some((key, most))
            if !["pool", "node", "region", "qos", "ns", "model", "to", "until", "resource", "lines"]
                .contains(&key) =>
        {
            let least = if ["cost", "price", "vcpu", "gib"].contains(&key) { "0.000000000001" } else { "1" };
            let value = [most, most, "0", least][rng.random_range(0..4)];
            format!("{key}={value}")
        }
        _ => word.to_owned(),
    });
    words.collect::<Vec<_>>().join(" ")
}

#[test]
fn records_that_intake_accepts_fold_as_the_model_says() {
    for seed in 0..60 {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let mut records = Vec::new();
        for minute in 0..rng.random_range(1..20) {
            let line = LARGEST[rng.random_range(0..LARGEST.len())];
            let line = edges(&mut rng, line);
            let name = ["", "2"][rng.random_range(0..2)];
            let (kind, rest) = line.split_once(' ').unwrap();
            let (id, rest) = rest.split_once(' ').unwrap();
            // A charge period begins at a full hour.
            let minute = if kind == "bill" { 0 } else { minute };
            records.push(record(&format!("00:{minute:02} {kind} {id}{name} {rest}")));
        }
        records.iter().for_each(|record| rules().check(&record.event).unwrap());
        let through = Hour(BASE_HOUR + 1);
        let engine = engine_tables(&records, &rules(), through).unwrap();
        assert!(engine == tables(&records, &rules(), through), "seed {seed}");
    }
}
