//! Agreements of a file that people keep: reservations, commitments, rates and pools, each with its times.
//!
//! An entry is one version of an object, from an instant until another. Several entries of one id are its
//! versions, which may follow each other but not overlap. A file is the whole truth: what was sent of earlier
//! files is corrected, so that sending the last one gives what it alone would give.

mod check;
mod entries;
mod sent;

use std::fmt;

use prorata_schemas::Text;
use prorata_schemas::event::{
    CommitmentSet, Event, Payload, PoolDeleted, RateSet, Recording, ReservationSet, names,
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
    /// When people learned of the file's content; `None` if that is when it is sent.
    pub recorded_at: Option<Day>,
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
    /// Events of everything that has begun and was not sent before, and retractions of what has left the
    /// file, in the order of their times.
    pub events: Vec<Event>,
    /// Objects whose description changes.
    pub changes: Vec<ChangedObject>,
    /// Entries that begin later: the file is to be sent again then.
    pub later: Vec<(EntryPlace, Timestamp)>,
}

/// An object whose description differs from the description that was sent before.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChangedObject {
    /// Its name for people, such as `commitment a`.
    pub object: String,
    /// The first instant at which the descriptions differ.
    pub from: Timestamp,
    /// The end of the last such span, exclusive; at most the time of the run.
    pub to: Timestamp,
}

impl fmt::Display for ChangedObject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let last = Timestamp(self.to.0.saturating_sub(1)).hour();
        write!(f, "{} changes in the hours {} to {last}", self.object, self.from.hour())
    }
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
    /// What the file corrects was recorded at the same time, or later.
    #[error(
        "what the file corrects was recorded at {before}, which is not before {recorded_at}; set a later \
         'recorded_at' at the top of the file, or leave it out"
    )]
    NotLater {
        /// The time of what was sent.
        before: Timestamp,
        /// The time of this file.
        recorded_at: Timestamp,
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
    /// The event that ends it; `None` if the description has its end, and for a rate, which the next one
    /// replaces.
    deleted: Option<Payload>,
}

impl Agreements {
    /// The events to send, after `sent`: all events that were sent of earlier files of the organization. What
    /// begins after `now` is left out, because a worker refuses events of the future.
    ///
    /// # Errors
    /// At the first entry that is wrong, and if what is corrected was not recorded before this file.
    pub fn events(&self, now: Timestamp, sent: &[Event]) -> Result<AgreementEvents, AgreementsError> {
        let versions = self.versions()?;
        check::versions(&versions)?;
        let (mut wanted, mut later) = (Vec::new(), Vec::new());
        for version in &versions {
            if version.from > now {
                later.push((version.place.clone(), version.from));
                continue;
            }
            wanted.push(self.event(version, version.from, version.set.clone())?);
            if let (Some(to), Some(deleted)) = (version.to.filter(|to| *to <= now), &version.deleted) {
                // An earlier file may have ended here what continues. Its deletion would win over the set.
                let retraction = Recording::new(None, goes_on(version, &versions));
                wanted.push(self.event(version, to, deleted.clone())?.recorded(retraction));
            }
        }
        let recorded_at = self.recorded_at.map_or(now, |day| day.0);
        Ok(AgreementEvents { later, ..sent::to_send(&wanted, sent, (recorded_at, now))? })
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
        Ok(version(place, entry.from, entry.to, set, None))
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
        version(place, entry.from, entry.to, set, None)
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
        let of_rate =
            version(EntryPlace { section: "rates", number: index + 1, id }, entry.from, None, set, None);
        // Spellings of one name are one rate.
        let (region, model) = (names::place(&entry.region), entry.gpu_model.as_deref().map(names::gpu_model));
        Version { key: format!("rates/{region:?}/{model:?}/{}", entry.qos), ..of_rate }
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
