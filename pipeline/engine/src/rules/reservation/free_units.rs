//! Reservations with units that no pod holds (RULES.md, section 2). They are in the order in which a pod
//! takes a unit: by the unit's cpu and memory, then by the reservation's creation and id.

use std::collections::{BTreeMap, BTreeSet};

use prorata_schemas::ids::ReservationId;
use prorata_schemas::time::Timestamp;

use crate::rules::reservation::waiting::UnitClass;

/// The place of a reservation within its class.
pub(crate) type UnitPlace = (u128, u128, Timestamp, ReservationId);

/// Reservations with free units, by class.
#[derive(Debug, Default)]
pub(crate) struct FreeUnits(BTreeMap<UnitClass, BTreeSet<UnitPlace>>);

impl FreeUnits {
    /// Notes that a reservation has free units.
    pub(crate) fn add(&mut self, class: UnitClass, place: UnitPlace) {
        self.0.entry(class).or_default().insert(place);
    }

    /// Removes a reservation that has no free units or is about to change.
    pub(crate) fn remove(&mut self, class: &UnitClass, place: &UnitPlace) {
        if let Some(places) = self.0.get_mut(class) {
            places.remove(place);
        }
    }

    /// Returns the reservations of a class whose units have at least this much cpu, in order.
    pub(crate) fn of(&self, class: &UnitClass, cpu: u128) -> impl Iterator<Item = &ReservationId> {
        let first = (cpu, 0, Timestamp(i64::MIN), ReservationId::from(""));
        self.0
            .get(class)
            .into_iter()
            .flat_map(move |places| places.range(first.clone()..))
            .map(|place| &place.3)
    }
}
