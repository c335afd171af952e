//! Agreements of a file that people keep: reservations, commitments, rates and pools, each with its times.
//!
//! An entry is one version of an object, from an instant until another. Several entries of one id are its
//! versions, which may follow each other but not overlap. Each entry becomes the same events whenever the
//! file is sent, so that sending it again changes nothing.

mod check;
mod entries;

use std::fmt;

use prorata_schemas::Text;
use prorata_schemas::event::{
    CommitmentDeleted, CommitmentSet, Event, Payload, PoolDeleted, RateSet, ReservationReleased,
    ReservationSet,
};
use prorata_schemas::ids::OrganizationId;
use prorata_schemas::time::Timestamp;
use serde::Deserialize;

pub use entries::{AssignmentEntry, CommitmentEntry, Day, PoolEntry, QosEntry, RateEntry, ReservationEntry};

/// A file of agreements.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Agreements {
    /// Whose agreements they are.
    pub organization_id: OrganizationId,
    /// Currency of every price.
    pub currency: Text,
    /// Capacity reservations.
    #[serde(default)]
    pub reservations: Vec<ReservationEntry>,
    /// Commitments.
    #[serde(default)]
    pub commitments: Vec<CommitmentEntry>,
    /// The rate card.
    #[serde(default)]
    pub rates: Vec<RateEntry>,
    /// GPU pools.
    #[serde(default)]
    pub pools: Vec<PoolEntry>,
}

/// What a file becomes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AgreementEvents {
    /// Events of everything that has begun, in the order of their times.
    pub events: Vec<Event>,
    /// Entries that begin later: the file is to be sent again then.
    pub later: Vec<(EntryPlace, Timestamp)>,
}

/// Names an entry for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EntryPlace {
    /// The section, such as `reservations`.
    pub section: &'static str,
    /// The place in the section, from 1.
    pub number: usize,
    /// Its id, or what a rate is for.
    pub id: String,
}

impl fmt::Display for EntryPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "entry {} of {} ({})", self.number, self.section, self.id)
    }
}

/// Why a file cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AgreementsError {
    /// The organization or the currency is empty.
    #[error("{0} is empty; set it at the top of the file")]
    Empty(&'static str),
    /// An entry ends where it begins, or before.
    #[error("{place} ends at {to}, which is not after its start at {from}; correct 'from' or 'to'")]
    Reversed {
        /// The entry.
        place: EntryPlace,
        /// Its beginning.
        from: Timestamp,
        /// Its end.
        to: Timestamp,
    },
    /// Two versions of one object overlap.
    #[error(
        "{later} begins at {from}, before {earlier} ends; end the earlier one with 'to: {from}' or before"
    )]
    Overlap {
        /// The version that begins first.
        earlier: EntryPlace,
        /// The other.
        later: EntryPlace,
        /// The beginning of the other.
        from: Timestamp,
    },
    /// A value is out of its range.
    #[error("{place}: {fault}")]
    Value {
        /// The entry.
        place: EntryPlace,
        /// What is wrong.
        fault: String,
    },
}

/// One version of an object: its events at its beginning and its end.
struct Version {
    place: EntryPlace,
    /// What is the same for all versions of one object.
    key: String,
    from: Timestamp,
    to: Option<Timestamp>,
    set: Payload,
    /// None: a rate is never deleted.
    deleted: Option<Payload>,
}

impl Agreements {
    /// The events of the file. What begins after `now` is left out, because a worker refuses events of the
    /// future.
    ///
    /// # Errors
    /// At the first entry that is wrong.
    pub fn events(&self, now: Timestamp) -> Result<AgreementEvents, AgreementsError> {
        let versions = self.versions()?;
        check::versions(&versions)?;
        let mut all = AgreementEvents::default();
        for version in &versions {
            if version.from > now {
                all.later.push((version.place.clone(), version.from));
                continue;
            }
            all.events.push(self.event(version, version.from, version.set.clone())?);
            let ended = version.to.filter(|to| *to <= now && !goes_on(version, &versions));
            if let (Some(to), Some(deleted)) = (ended, &version.deleted) {
                all.events.push(self.event(version, to, deleted.clone())?);
            }
        }
        all.events.sort_by_key(|event| event.event_time);
        Ok(all)
    }

    fn event(&self, of: &Version, at: Timestamp, payload: Payload) -> Result<Event, AgreementsError> {
        let event = Event::new(self.organization_id.clone(), at, payload);
        check::event(&event).map_err(|fault| AgreementsError::Value { place: of.place.clone(), fault })?;
        Ok(event)
    }

    fn versions(&self) -> Result<Vec<Version>, AgreementsError> {
        if self.organization_id.is_empty() {
            return Err(AgreementsError::Empty("organization_id"));
        }
        if self.currency.is_empty() {
            return Err(AgreementsError::Empty("currency"));
        }
        let mut versions = Vec::new();
        for (index, entry) in self.reservations.iter().enumerate() {
            versions.push(self.reservation(index, entry)?);
        }
        for (index, entry) in self.commitments.iter().enumerate() {
            versions.push(self.commitment(index, entry));
        }
        for (index, entry) in self.rates.iter().enumerate() {
            versions.push(self.rate(index, entry));
        }
        for (index, entry) in self.pools.iter().enumerate() {
            let place = EntryPlace { section: "pools", number: index + 1, id: entry.id.to_string() };
            let set = Payload::PoolSet(Box::new(entry.payload(&self.currency)));
            let deleted = Payload::PoolDeleted(PoolDeleted { pool_id: entry.id.clone() });
            versions.push(version(place, entry.from, entry.to, set, Some(deleted)));
        }
        Ok(versions)
    }

    fn reservation(&self, index: usize, entry: &ReservationEntry) -> Result<Version, AgreementsError> {
        let place = EntryPlace { section: "reservations", number: index + 1, id: entry.id.to_string() };
        let capacity = entries::quantities(&entry.capacity)
            .map_err(|fault| AgreementsError::Value { place: place.clone(), fault })?;
        let set = Payload::ReservationSet(Box::new(ReservationSet {
            reservation_id: entry.id.clone(),
            name: entry.name.clone(),
            provider: entry.provider.clone(),
            region: entry.region.clone(),
            zone: entry.zone.clone(),
            gpu_model: entry.gpu_model.clone(),
            capacity,
            quantity: entry.quantity,
            unit_hourly_price: entry.unit_hourly_price,
            currency: self.currency.clone(),
            created_at: entry.created_at.unwrap_or(entry.from).0,
            starts_at: entry.from.0,
            ends_at: entry.to.map(|to| to.0),
        }));
        let released = ReservationReleased { reservation_id: entry.id.clone() };
        Ok(version(place, entry.from, entry.to, set, Some(Payload::ReservationReleased(released))))
    }

    fn commitment(&self, index: usize, entry: &CommitmentEntry) -> Version {
        let place = EntryPlace { section: "commitments", number: index + 1, id: entry.id.to_string() };
        let set = Payload::CommitmentSet(Box::new(CommitmentSet {
            commitment_id: entry.id.clone(),
            name: entry.name.clone(),
            provider: entry.provider.clone(),
            kind: entry.kind.into(),
            region: entry.region.clone(),
            instance_family: entry.instance_family.clone(),
            vcpu: entry.vcpu,
            memory_gib: entry.memory_gib,
            gpu: entry.gpu,
            gpu_model: entry.gpu_model.clone(),
            hourly_cost: entry.hourly_cost,
            currency: self.currency.clone(),
            starts_at: entry.from.0,
            ends_at: entry.to.map(|to| to.0),
            enabled: entry.enabled,
            allowed_utilization: entry.allowed_utilization,
            assignments: entry.assignments.iter().map(AssignmentEntry::payload).collect(),
        }));
        let deleted = CommitmentDeleted { commitment_id: entry.id.clone() };
        version(place, entry.from, entry.to, set, Some(Payload::CommitmentDeleted(deleted)))
    }

    fn rate(&self, index: usize, entry: &RateEntry) -> Version {
        let model = entry.gpu_model.as_deref().unwrap_or("no GPU");
        let id = format!("{}, {model}, {}", entry.region, entry.qos);
        let set = Payload::RateSet(Box::new(RateSet {
            provider: entry.provider.clone(),
            region: entry.region.clone(),
            gpu_model: entry.gpu_model.clone(),
            qos: entry.qos.clone(),
            per_vcpu_hour: entry.per_vcpu_hour,
            per_gib_hour: entry.per_gib_hour,
            per_gpu_hour: entry.per_gpu_hour,
            currency: self.currency.clone(),
        }));
        version(EntryPlace { section: "rates", number: index + 1, id }, entry.from, None, set, None)
    }
}

fn version(place: EntryPlace, from: Day, to: Option<Day>, set: Payload, deleted: Option<Payload>) -> Version {
    let key = format!("{}/{}", place.section, place.id);
    Version { place, key, from: from.0, to: to.map(|to| to.0), set, deleted }
}

/// Whether another version begins where this one ends: then it replaces this one, which is not deleted.
fn goes_on(version: &Version, versions: &[Version]) -> bool {
    versions.iter().any(|other| other.key == version.key && Some(other.from) == version.to)
}
