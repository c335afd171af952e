//! GPUs are counted in one place: a SKU has the same count as the cost split, whatever resources the rules
//! name.

use prorata_engine::{HourEvents, State, close_hour};
use prorata_schemas::event::{Event, Payload};
use prorata_schemas::quantity::Quantity;
use prorata_schemas::rules::Rules;
use prorata_schemas::tables::Table;

use crate::read::{HOUR, assert_values, file, read, texts};
use prorata_samples::hour::pod;

#[test]
fn configured_gpu_resources_are_counted_alike_in_hours_and_in_sku_details() {
    let mut pod = pod("a", None, None);
    let quantity = |amount| Quantity { text: "as delivered".into(), amount };
    pod.requests = [
        ("cpu".into(), quantity(1_000)),
        ("example.com/npu".into(), quantity(2_000)),
        ("nvidia.com/gpu".into(), quantity(4_000)),
        ("nvidia.com/mig-1g.10gb".into(), quantity(3_000)),
        // Not a MIG profile.
        ("nvidia.com/mig-1g.gb".into(), quantity(1_000)),
    ]
    .into();
    let started = Event::new("acme".into(), HOUR.start(), Payload::PodStarted(Box::new(pod)));
    let rules = Rules { gpu_resources: vec!["example.com/npu".into()], ..Rules::default() };
    let state = State::new("acme".into());
    let (_, hour) = close_hour(state, HourEvents::of(HOUR, [started]), &rules).unwrap();
    let encoded = file(Table::CostAllocation, &[hour]);
    assert_eq!(encoded.rows, 1);
    assert_values(
        &texts(&read(&encoded.bytes), 0),
        &[
            ("x_GpuHours", "2.429"),
            ("x_RequestedGpuHours", "2.429"),
            (
                "SkuPriceDetails",
                r#"{"CoreCount":1,"GpuCount":2.429,"MemorySize":0,"x_GpuModel":"P16EN","x_Qos":"default"}"#,
            ),
            ("SkuPriceId", "unknown/cn-hangzhou/serverless-pod/P16EN/default/1vcpu-0gib-2.429gpu"),
        ],
    );
}
