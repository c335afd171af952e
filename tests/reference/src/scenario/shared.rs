//! Random volumes of pods with lines of bills, and random entries of the rules that divide shared charges.

use prorata_schemas::Text;
use prorata_schemas::event::{BillSet, ChargeCategory, Event, EventRecord, Payload, PodStarted};
use prorata_schemas::rules::division::{ChargeDivision, DivideOver};
use prorata_schemas::time::HOUR_MICROS;
use rand::Rng;

use super::bills::{insert, set};
use super::choices::{Choices, NAMESPACES};
use crate::text::ORGANIZATION;

/// Keys of volumes. Other bills have lines of the first key too.
const VOLUMES: [&str; 3] = ["disk", "vol-1", "vol-2"];

/// Gives pods volumes, and adds bills of volumes to the records. Some bills begin in each of these hours.
pub(super) fn add_volumes(world: &mut Choices, records: &mut Vec<EventRecord>, first: i64, hours: i64) {
    let often = world.pick(&[0.0, 0.2, 0.5, 0.9]);
    for record in records.iter_mut() {
        let Payload::PodStarted(pod) = &record.event.payload else { continue };
        let volumes = VOLUMES.into_iter().filter(|_| world.rng.random_bool(often));
        let volume_keys = volumes.map(Text::from).collect();
        let pod = PodStarted { volume_keys, ..(**pod).clone() };
        let payload = Payload::PodStarted(Box::new(pod));
        *record = EventRecord::new(Event { payload, ..record.event.clone() });
    }
    for _ in 0..world.rng.random_range(0..4) {
        let hour = first + world.rng.random_range(0..hours) - world.pick(&[0, 0, 1]);
        let bill = set(world, hour * HOUR_MICROS);
        let bill = BillSet { resource_key: world.text(&VOLUMES), ..bill };
        insert(world, records, bill, hour * HOUR_MICROS);
    }
}

/// Returns the entries of the rules; none in some histories.
pub(super) fn entries(world: &mut Choices) -> Vec<ChargeDivision> {
    let count = world.pick(&[0, 1, 1, 2]);
    (0..count).map(|_| entry(world)).collect()
}

fn entry(world: &mut Choices) -> ChargeDivision {
    let categories = [ChargeCategory::Usage, ChargeCategory::Usage, ChargeCategory::Credit];
    let category = world.pick(&categories);
    ChargeDivision {
        organization_id: world.maybe(0.1, &[ORGANIZATION, "o*", "other"]),
        provider: world.maybe(0.15, &["aws", "Amazon", "a*", "GCP"]),
        billing_account_id: world.maybe(0.15, &["a", "b", "*"]),
        account_id: world.maybe(0.1, &["project", "pro*", "*"]),
        service: world.maybe(0.15, &["compute", "com*", "*"]),
        category: Some(category).filter(|_| world.rng.random_bool(0.1)),
        resource_key: world.maybe(0.2, &["disk", "disk*", "vol-*", "vm*", "*"]),
        cluster_id: world.maybe(0.2, &["c", "c", "d"]),
        namespace: world.maybe(0.15, &NAMESPACES),
        over: match world.rng.random_range(0..5) {
            0 => DivideOver::Cost,
            1 => DivideOver::Cpu,
            2 => DivideOver::Memory,
            3 => DivideOver::Gpu,
            _ => DivideOver::Pods,
        },
    }
}
