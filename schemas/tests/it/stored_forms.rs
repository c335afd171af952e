//! Stored forms stay readable: bytes and texts of format 1. They are events in canonical Avro (the archive),
//! in postcard (snapshots) and in JSON, and the rules.

use prorata_samples::bill::bill_line;
use prorata_schemas::body::{decode, encode};
use prorata_schemas::event::{
    Assignment, BillLine, BillSet, BudgetExceedStrategy, CapacityType, ChargeCategory, CommitmentKind,
    CommitmentSet, DiscountTarget, DiscountedPrice, Event, NodeStarted, Payload, PlanDiscount, PoolSet,
    QosPrice, Quantities, RateSet, ReservationSet, UseStatus,
};
use prorata_schemas::quantity::Quantity;
use prorata_schemas::rules::Rules;
use prorata_schemas::time::{HOUR_MICROS, Timestamp};

/// The largest price: 28 digits, twelve of them decimals.
const LARGEST: &str = "9999999999999999.999999999999";

/// The smallest price above zero.
const SMALLEST: &str = "0.000000000001";

/// The time of all events, in microseconds: a full hour.
const TIME: i64 = 1_763_643_600_000_000;

fn event(payload: Payload) -> Event {
    Event::new("acme".into(), Timestamp(TIME), payload)
}

fn node() -> Event {
    event(Payload::NodeStarted(Box::new(NodeStarted {
        cluster_id: "c".into(),
        node_id: "n".into(),
        node_name: "one".into(),
        provider: "aws".into(),
        region: "r".into(),
        zone: None,
        instance_type: "f.1".into(),
        instance_family: "f".into(),
        capacity_type: CapacityType::Spot,
        capacity: [("cpu".into(), Quantity::parse("cpu", "1500m").unwrap())].into(),
        gpu_model: None,
        hourly_cost: "98.32".parse().unwrap(),
        currency: "USD".into(),
        pool_id: Some("p".into()),
        gpus: Some(Quantity::parse("nvidia.com/gpu", "250m").unwrap()),
        resource_key: Some("i-0123456789abcdef0".into()),
        account_id: Some("111122223333".into()),
    })))
}

fn reservation() -> Event {
    event(Payload::ReservationSet(Box::new(ReservationSet {
        reservation_id: "r1".into(),
        name: "one".into(),
        provider: "aws".into(),
        region: "r".into(),
        zone: Some("z".into()),
        gpu_model: "m".into(),
        capacity: [("memory".into(), Quantity::parse("memory", "100Gi").unwrap())].into(),
        quantity: 3,
        unit_hourly_price: LARGEST.parse().unwrap(),
        currency: "USD".into(),
        created_at: Timestamp(1),
        starts_at: Timestamp(2),
        ends_at: Some(Timestamp(3)),
    })))
}

fn commitment() -> Event {
    event(Payload::CommitmentSet(Box::new(CommitmentSet {
        commitment_id: "c1".into(),
        name: "one".into(),
        provider: "gcp".into(),
        kind: CommitmentKind::SavingsPlan,
        region: "r".into(),
        instance_family: "f".into(),
        vcpu: "96".parse().unwrap(),
        memory_gib: "0.5".parse().unwrap(),
        gpu: 8,
        gpu_model: None,
        hourly_cost: SMALLEST.parse().unwrap(),
        currency: "EUR".into(),
        starts_at: Timestamp(2),
        ends_at: None,
        enabled: true,
        allowed_utilization: Some("1.000000000000".parse().unwrap()),
        assignments: vec![Assignment { cluster_id: "c".into(), priority: Some(1) }],
        hourly_commitment: Some("2.5".parse().unwrap()),
        discounts: vec![
            PlanDiscount {
                applies_to: DiscountTarget::Node,
                region: Some("r".into()),
                instance_family: Some("f".into()),
                instance_type: None,
                gpu_model: None,
                price: DiscountedPrice::Rate("1.28".parse().unwrap()),
            },
            PlanDiscount {
                applies_to: DiscountTarget::Pod,
                region: None,
                instance_family: None,
                instance_type: None,
                gpu_model: Some("m".into()),
                price: DiscountedPrice::Saving("0.5".parse().unwrap()),
            },
        ],
    })))
}

fn pool() -> Event {
    event(Payload::PoolSet(Box::new(PoolSet {
        pool_id: "p1".into(),
        cluster_id: "c".into(),
        provider: "aws".into(),
        default_qos: "medium".into(),
        qos_pricing: vec![QosPrice {
            qos: "medium".into(),
            per_fp16_tflop_hour: "0".parse().unwrap(),
            per_vram_gib_hour: "0.010".parse().unwrap(),
            limits_over_requests: "0.128".parse().unwrap(),
        }],
        tflops_oversell_percent: 500,
        vram_expand_to_host_disk_percent: 70,
        vram_expand_to_host_mem_percent: 50,
        max_capacity: Quantities::new(),
        min_capacity: Quantities::new(),
        warm_capacity: Quantities::new(),
        budget_per_day: Some("1.28".parse().unwrap()),
        budget_per_month: None,
        budget_per_quarter: Some("1000000".parse().unwrap()),
        budget_exceed_strategy: BudgetExceedStrategy::AlertOnly,
        currency: "USD".into(),
    })))
}

fn rate() -> Event {
    event(Payload::RateSet(Box::new(RateSet {
        provider: "acs".into(),
        region: "r".into(),
        gpu_model: Some("m".into()),
        qos: "default".into(),
        per_vcpu_hour: "12345678.123456789012".parse().unwrap(),
        per_gib_hour: "0.000000000255".parse().unwrap(),
        per_gpu_hour: "0.000000000256".parse().unwrap(),
        currency: "USD".into(),
    })))
}

fn bill() -> Event {
    let full = BillLine {
        line_id: "l1".into(),
        period_end: Timestamp(TIME + HOUR_MICROS),
        category: ChargeCategory::Usage,
        is_correction: false,
        service: "ec2".into(),
        sku_id: Some("s".into()),
        description: Some("d".into()),
        account_id: Some("a".into()),
        invoice_id: Some("i".into()),
        commitment_id: Some("c1".into()),
        commitment_status: Some(UseStatus::Used),
        reservation_id: Some("r1".into()),
        reservation_status: Some(UseStatus::Unused),
        hours: Some("1.5".parse().unwrap()),
        list_unit_price: Some("98.32".parse().unwrap()),
        billed_cost: "0".parse().unwrap(),
        effective_cost: SMALLEST.parse().unwrap(),
        list_cost: LARGEST.parse().unwrap(),
    };
    let empty = BillLine {
        category: ChargeCategory::Adjustment,
        is_correction: true,
        service: "".into(),
        billed_cost: format!("-{SMALLEST}").parse().unwrap(),
        effective_cost: format!("-{LARGEST}").parse().unwrap(),
        ..bill_line("l2", Timestamp(TIME + 24 * HOUR_MICROS), "-1.28")
    };
    event(Payload::BillSet(Box::new(BillSet {
        provider: "aws".into(),
        billing_account_id: "b".into(),
        resource_key: "i-0123456789abcdef0".into(),
        currency: "USD".into(),
        lines: vec![full, empty],
    })))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Asserts the event's canonical body and its payload in postcard and JSON. Asserts that each form reads back
/// as the same event.
fn assert_forms(event: &Event, body: &str, postcard: &str, json: &str) {
    assert_eq!(hex(&encode(event)), body);
    let payload = &event.payload;
    assert_eq!(hex(&postcard::to_stdvec(payload).unwrap()), postcard);
    assert_eq!(serde_json::to_string(payload).unwrap(), json);
    assert_eq!(decode(payload.kind(), &encode(event)).as_ref(), Ok(event));
    assert_eq!(postcard::from_bytes::<Payload>(&postcard::to_stdvec(payload).unwrap()).as_ref(), Ok(payload));
    assert_eq!(serde_json::from_str::<Payload>(json).unwrap(), *payload);
}

#[test]
fn the_forms_of_a_node_never_change() {
    assert_forms(
        &node(),
        "0861636d6580d0cee4c881a2060263026e066f6e650661777302720006662e3102660202066370750a313530306d00000c\
         596be8aca0000655534402027002083235306d0226692d30313233343536373839616263646566300218313131313232\
         3232333333330000",
        "000163016e036f6e650361777301720003662e31016601010363707505313530306ddc0b\
         008080e58afdda2c0355534401017001043235306dfa010113692d3031323334353637383961626364656630\
         010c313131313232323233333333",
        concat!(
            r#"{"NodeStarted":{"cluster_id":"c","node_id":"n","node_name":"one","#,
            r#""provider":"aws","region":"r","zone":null,"instance_type":"f.1","instance_family":"f","#,
            r#""capacity_type":"Spot","capacity":{"cpu":{"text":"1500m","amount":1500}},"#,
            r#""gpu_model":null,"hourly_cost":"98.32","currency":"USD","pool_id":"p","#,
            r#""gpus":{"text":"250m","amount":250},"#,
            r#""resource_key":"i-0123456789abcdef0","account_id":"111122223333"}}"#,
        ),
    );
}

#[test]
fn the_forms_of_a_reservation_never_change() {
    assert_forms(
        &reservation(),
        "0861636d6580d0cee4c881a206047231066f6e6506617773027202027a026d020c6d656d6f72790a313030476900061820\
         4fce5e3e2502610fffffff06555344020402060000",
        "05027231036f6e6503617773017201017a016d01066d656d6f7279053130304769808080\
         80900306feffffffa19881a5fcf8f2fc89080355534402040106",
        concat!(
            r#"{"ReservationSet":{"reservation_id":"r1","name":"one","provider":"aws","#,
            r#""region":"r","zone":"z","gpu_model":"m","capacity":{"memory":{"text":"100Gi","#,
            r#""amount":107374182400}},"quantity":3,"#,
            r#""unit_hourly_price":"9999999999999999.999999999999","currency":"USD","created_at":1,"#,
            r#""starts_at":2,"ends_at":3}}"#,
        ),
    );
}

#[test]
fn the_forms_of_a_commitment_never_change() {
    assert_forms(
        &commitment(),
        "0861636d6580d0cee4c881a206046331066f6e650667637004027202660c574fbde600000a746a52880010000201064555\
         52040001020c00e8d4a51000020263020200020c0246139ca8000400020272020266000000020c012a05f2000002000000\
         02026d020a746a52880000000000",
        "07026331036f6e650367637002017201668080b0def7d32b80a094a58d1d100002034555520400010180c0a8ca9a3a0101\
         6301020180a0e5b9c291010200010172010166000001808090dfc04a0100000001016d0080a094a58d1d",
        concat!(
            r#"{"CommitmentSet":{"commitment_id":"c1","name":"one","provider":"gcp","#,
            r#""kind":"SavingsPlan","region":"r","instance_family":"f","vcpu":"96","#,
            r#""memory_gib":"0.5","gpu":8,"gpu_model":null,"hourly_cost":"0.000000000001","#,
            r#""currency":"EUR","starts_at":2,"ends_at":null,"enabled":true,"allowed_utilization":"1","#,
            r#""assignments":[{"cluster_id":"c","priority":1}],"hourly_commitment":"2.5","#,
            r#""discounts":[{"applies_to":"Node","region":"r","instance_family":"f","instance_type":null,"#,
            r#""gpu_model":null,"price":{"Rate":"1.28"}},{"applies_to":"Pod","region":null,"#,
            r#""instance_family":null,"instance_type":null,"gpu_model":"m","price":{"Saving":"0.5"}}]}}"#,
        ),
    );
}

#[test]
fn the_forms_of_a_pool_never_change() {
    assert_forms(
        &pool(),
        "0861636d6580d0cee4c881a2060470310263066177730c6d656469756d020c6d656469756d02000a02540be4000a1dcd65\
         000000e8078c0164000000020c012a05f200000002100de0b6b3a764000000065553440000",
        "0b027031016303617773066d656469756d01066d656469756d008090dfc04a8080a8d6b9\
         07e8078c016400000001808090dfc04a00018080a0f6f4acdbe01b0003555344",
        concat!(
            r#"{"PoolSet":{"pool_id":"p1","cluster_id":"c","provider":"aws","#,
            r#""default_qos":"medium","qos_pricing":[{"qos":"medium","per_fp16_tflop_hour":"0","#,
            r#""per_vram_gib_hour":"0.01","limits_over_requests":"0.128"}],"#,
            r#""tflops_oversell_percent":500,"vram_expand_to_host_disk_percent":70,"#,
            r#""vram_expand_to_host_mem_percent":50,"max_capacity":{},"min_capacity":{},"warm_capacity":{},"#,
            r#""budget_per_day":"1.28","budget_per_month":null,"budget_per_quarter":"1000000","#,
            r#""budget_exceed_strategy":"AlertOnly","currency":"USD"}}"#,
        ),
    );
}

#[test]
fn the_forms_of_a_rate_never_change() {
    assert_forms(
        &rate(),
        "0861636d6580d0cee4c881a20606616373027202026d0e64656661756c741200ab54a8d7d3f3fa140400ff040100065553\
         440000",
        "0d03616373017201016d0764656661756c74a8e89fbffab5d4d4d602fe03800403555344",
        concat!(
            r#"{"RateSet":{"provider":"acs","region":"r","gpu_model":"m","qos":"default","#,
            r#""per_vcpu_hour":"12345678.123456789012","per_gib_hour":"0.000000000255","#,
            r#""per_gpu_hour":"0.000000000256","currency":"USD"}}"#,
        ),
    );
}

#[test]
fn the_forms_of_a_bill_never_change() {
    assert_forms(
        &bill(),
        "0861636d6580d0cee4c881a20606617773026226692d30313233343536373839616263646566300655534404046c3180\
         e0ebcde381a206000006656332020273020264020261020269020463310200020472310202020c015d3ef79800020c59\
         6be8aca0000200020118204fce5e3e2502610fffffff046c3280d089c2cc86a2060801000000000000000000000002ff\
         18dfb031a1c1dafd9ef00000010cfed5fa0e0000000000",
        "0e03617773016213692d30313233343536373839616263646566300355534402026c3180e0ebcde381a2060000036563\
         320101730101640101610101690102633101000102723101010180e0bcefa757018080e58afdda2c0002feffffffa198\
         81a5fcf8f2fc8908026c3280d089c2cc86a2060401000000000000000000000001fdffffffa19881a5fcf8f2fc8908ff\
         ff8fdfc04a",
        concat!(
            r#"{"BillSet":{"provider":"aws","billing_account_id":"b","#,
            r#""resource_key":"i-0123456789abcdef0","currency":"USD","lines":["#,
            r#"{"line_id":"l1","period_end":1763647200000000,"category":"Usage","is_correction":false,"#,
            r#""service":"ec2","sku_id":"s","description":"d","account_id":"a","invoice_id":"i","#,
            r#""commitment_id":"c1","commitment_status":"Used","reservation_id":"r1","#,
            r#""reservation_status":"Unused","hours":"1.5","list_unit_price":"98.32","billed_cost":"0","#,
            r#""effective_cost":"0.000000000001","list_cost":"9999999999999999.999999999999"},"#,
            r#"{"line_id":"l2","period_end":1763730000000000,"category":"Adjustment","is_correction":true,"#,
            r#""service":"","sku_id":null,"description":null,"account_id":null,"invoice_id":null,"#,
            r#""commitment_id":null,"commitment_status":null,"reservation_id":null,"#,
            r#""reservation_status":null,"hours":null,"list_unit_price":null,"#,
            r#""billed_cost":"-0.000000000001","effective_cost":"-9999999999999999.999999999999","#,
            r#""list_cost":"-1.28"}]}}"#,
        ),
    );
}

#[test]
fn the_forms_of_the_rules_never_change() {
    let json = concat!(
        r#"{"version":"1","weights":{"gpu":"9","cpu":"0.9","memory":"0.1"},"allocation":"max","#,
        r#""gpu_resources":["nvidia.com/gpu","amd.com/gpu","aws.amazon.com/neuron","google.com/tpu"],"#,
        r#""gpu_memory_gb":32,"eviction_protection_ratio":"1.2","currency":"USD","currencies":{},"#,
        r#""shared_charges":[]}"#,
    );
    assert_eq!(serde_json::to_string(&Rules::default()).unwrap(), json);
    assert_eq!(serde_json::from_str::<Rules>(json).unwrap(), Rules::default());
    let postcard = "013180c0ec9cef8b0480a0f1c2b13480a0b787e90500040e6e76696469612e636f6d2f6770750b616d642e63\
     6f6d2f677075156177732e616d617a6f6e2e636f6d2f6e6575726f6e0e676f6f676c652e636f6d2f74707520\
     808097d9ec45035553440000";
    assert_eq!(hex(&postcard::to_stdvec(&Rules::default()).unwrap()), postcard);
}

#[test]
fn rules_take_decimals_in_quotes_and_whole_numbers_but_never_floats() {
    let weights = |gpu: &str| serde_json::from_str::<Rules>(&format!(r#"{{"weights":{{"gpu":{gpu}}}}}"#));
    assert_eq!(weights("9").unwrap(), Rules::default());
    assert_eq!(weights(r#""9.00""#).unwrap(), Rules::default());
    for (gpu, why) in [
        ("9.5", "a decimal in quotes"),
        (r#""0.1234567890123""#, "more than 12 decimals"),
        (r#""12345678901234567""#, "more than 28 digits"),
        ("18446744073709551615", "more than 28 digits"),
        (r#""many""#, "not a decimal such as 0.1"),
    ] {
        let error = weights(gpu).unwrap_err().to_string();
        assert!(error.contains(why), "{gpu}: {error}");
    }
}
