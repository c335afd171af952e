//! Correct and faulty producers: reordering, duplicates, late events, clocks in the future, and messages that
//! are not events.

use prorata_samples::trace::{START, node, node_priced, node_stop, pod, pod_stop};
use prorata_schemas::event::{EventRecord, Payload};
use prorata_schemas::money::UnitPrice;
use prorata_schemas::reject::Reason;
use prorata_testkit::fakes::FakeMessages;
use prorata_worker::names::Shard;

use super::dice::Dice;
use super::plan::Plan;
use crate::world::{SCHEMA, What, World, greed};

/// A schema that is registered at the end, and a schema that is never registered.
pub const LATER: u32 = 7;
const NEVER: u32 = 9;

/// A little less than the horizon, in minutes.
const DAYS_34: i64 = 34 * 24 * 60;

/// All producers of a world.
pub struct Producer {
    organizations: Vec<String>,
    /// Events on their way, with the round in which they are sent.
    held: Vec<(i64, EventRecord)>,
    sent: Vec<EventRecord>,
}

impl Producer {
    pub fn new(plan: &Plan) -> Self {
        let organizations = (0..plan.organizations).map(|number| format!("org-{number}")).collect();
        Self { organizations, held: Vec::new(), sent: Vec::new() }
    }

    /// Sends the messages of one round.
    pub fn produce(&mut self, world: &World, plan: &Plan, dice: &mut Dice, round: i64) {
        let now = world.now().0 / 60_000_000 - START * 60;
        for _ in 0..dice.below(plan.events + 1) {
            let organization = self.organizations[dice.below(self.organizations.len())].clone();
            let event = self.event(&organization, now, plan, dice);
            match dice.below(100) {
                0..15 => self.held.push((round + dice.between(1, 4), event)),
                15..20 => {
                    self.held.push((round + dice.between(0, 30), event.clone()));
                    self.send(world, &event);
                }
                20..23 if !self.sent.is_empty() => {
                    let again = self.sent[dice.below(self.sent.len())].clone();
                    self.send(world, &again);
                    self.send(world, &event);
                }
                23..27 => bad(world, &event, plan, dice),
                _ => self.send(world, &event),
            }
        }
        let greed = plan.chances.greed;
        if greed > 0 && dice.happens(greed) {
            let organization = self.organizations[dice.below(self.organizations.len())].clone();
            let minutes = now - dice.between(0, plan.lateness.min(300));
            let events = match dice.below(3) {
                0 => greed::greedy(&organization, minutes, 20, 9),
                1 => greed::greedy(&organization, minutes, 1_000, 1),
                _ => greed::stops(&organization, minutes),
            };
            events.iter().for_each(|event| self.send(world, event));
        }
        self.send_due(world, round);
    }

    /// Sends all events that are still on their way.
    pub fn finish(&mut self, world: &World) {
        self.send_due(world, i64::MAX);
    }

    fn send_due(&mut self, world: &World, round: i64) {
        let (due, held) = std::mem::take(&mut self.held).into_iter().partition(|(due, _)| *due <= round);
        self.held = held;
        let due: Vec<(i64, EventRecord)> = due;
        due.into_iter().for_each(|(_, event)| self.send(world, &event));
    }

    fn send(&mut self, world: &World, event: &EventRecord) {
        world.produce(std::slice::from_ref(event));
        self.sent.push(event.clone());
    }

    /// Returns an event that happens now, happened long ago, or lies in the future.
    fn event(&self, organization: &str, now: i64, plan: &Plan, dice: &mut Dice) -> EventRecord {
        let minutes = match dice.below(100) {
            0..3 if plan.lateness > DAYS_34 => now - dice.between(DAYS_34, plan.lateness),
            0..8 => now - dice.between(0, plan.lateness),
            8..10 => now + dice.between(5, 300),
            _ => now - dice.between(0, 3),
        };
        something(organization, minutes, dice)
    }
}

/// Returns an event of an organization.
pub fn something(organization: &str, minutes: i64, dice: &mut Dice) -> EventRecord {
    let uid = format!("p{}", dice.below(6));
    match dice.below(10) {
        0..3 => node(organization, minutes, dice.between(1, 30)),
        3 => node_stop(organization, minutes),
        4..8 => pod(organization, minutes, &uid, u32::try_from(dice.between(1, 5)).unwrap()),
        _ => pod_stop(organization, minutes, &uid),
    }
}

/// Sends a message that is not an event, or an event that may not count.
fn bad(world: &World, event: &EventRecord, plan: &Plan, dice: &mut Dice) {
    let organization = event.event.organization_id.to_string();
    let value = FakeMessages::encode(SCHEMA, event);
    let bad = |value: Vec<u8>, reason| world.send_event(event, value, What::Bad(reason));
    let minutes = event.event.event_time.0 / 60_000_000 - START * 60;
    match dice.below(9) {
        0 => bad(vec![1, 2, 3], Reason::Malformed),
        1 => {
            let (topic, key) = (crate::world::topic_of(event), organization.into_bytes());
            let shard = world.shard_of(&event.event.organization_id);
            world.send(topic, shard, Some(key), None, What::Bad(Reason::Malformed));
        }
        2 => bad(FakeMessages::encode(NEVER, event), Reason::UnknownSchema),
        3 => {
            let mut value = value;
            value[4] = 200;
            bad(value, Reason::UnknownEvent);
        }
        4 => {
            let negative = node_priced(&organization, minutes, UnitPrice::from(-1));
            bad(FakeMessages::encode(SCHEMA, &negative), Reason::InvalidField);
        }
        5 => {
            let topic = crate::world::topic_of(event);
            let shard = world.shard_of(&event.event.organization_id);
            world.send(topic, shard, Some(b"another".to_vec()), Some(value), What::Bad(Reason::KeyMismatch));
        }
        6 if plan.shards > 1 => {
            let topic = crate::world::topic_of(event);
            let wrong: Shard = (world.shard_of(&event.event.organization_id) + 1) % plan.shards;
            let key = Some(organization.into_bytes());
            world.send(topic, wrong, key, Some(value), What::Bad(Reason::KeyMismatch));
        }
        7 => {
            let mut priced = node(&organization, minutes, 5).event;
            if let Payload::NodeStarted(node) = &mut priced.payload {
                node.currency = "EUR".into();
            }
            let euros = EventRecord::new(priced);
            bad(FakeMessages::encode(SCHEMA, &euros), Reason::CurrencyMismatch);
        }
        _ => {
            let value = FakeMessages::encode(LATER, event);
            world.send_event(event, value, What::Unregistered(event.clone()));
        }
    }
}
