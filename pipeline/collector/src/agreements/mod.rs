//! Events of the agreements in a file that people maintain: reservations, commitments, rates and pools.
//!
//! An entry is one version of an object, from one instant to another. Several entries with the same id are
//! versions of one object; they must not overlap. The file is the whole truth, and events of earlier files
//! are corrected to match it. So sending the last file gives the same result as if it were the only file.

mod check;
mod entries;
mod import;
mod sent;
mod specs;

use std::fmt;

use prorata_schemas::Text;
use prorata_schemas::event::{
    CommitmentSet, Event, Payload, PoolDeleted, RateSet, Recording, ReservationSet, names,
};
use prorata_schemas::ids::OrganizationId;
use prorata_schemas::time::Timestamp;
use serde::Deserialize;

pub use entries::{
    AssignmentEntry, CommitmentEntry, Day, DiscountEntry, KindEntry, PoolEntry, QosEntry, RateEntry,
    ReservationEntry, StrategyEntry,
};
pub use import::{AgreementsImporter, MachineSize};

/// A file of agreements.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Agreements {
    /// Organization that owns the agreements.
    pub organization_id: OrganizationId,
    /// Currency of every price.
    pub currency: Text,
    /// Time at which people learned of the file's content. `None` if that is the time of sending.
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

/// The events of a file, and the changes that they make.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AgreementEvents {
    /// Events in time order. They describe everything that has begun and was not sent before, and retract
    /// everything that the file no longer has.
    pub events: Vec<Event>,
    /// Objects whose description changes.
    pub changes: Vec<ChangedObject>,
    /// Entries that begin after the time of the run, and the instants at which they begin. The file must be
    /// sent again at each of these instants.
    pub later: Vec<(EntryPlace, Timestamp)>,
}

/// An object whose description differs from the description that was sent before.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChangedObject {
    /// Name of the object for messages, such as `commitment a`.
    pub object: String,
    /// The first instant at which the descriptions differ.
    pub from: Timestamp,
    /// The end of the last span in which the descriptions differ, exclusive; at most the time of the run.
    pub to: Timestamp,
}

impl fmt::Display for ChangedObject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let last = Timestamp(self.to.0.saturating_sub(1)).hour();
        write!(f, "{} changes in the hours {} to {last}", self.object, self.from.hour())
    }
}

/// The place of an entry, for messages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EntryPlace {
    /// The section, such as `reservations`.
    pub section: &'static str,
    /// Position in the section, from 1.
    pub number: usize,
    /// Id of the entry, or the key of a rate.
    pub id: String,
}

impl fmt::Display for EntryPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "entry {} of {} ({})", self.number, self.section, self.id)
    }
}

/// An error that makes a file unusable.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AgreementsError {
    /// The organization or the currency is empty.
    #[error("{0} is empty; set it at the top of the file")]
    Empty(&'static str),
    /// An entry ends at or before its start.
    #[error("{place} ends at {to}, which is not after its start at {from}; correct 'from' or 'to'")]
    Reversed {
        /// The entry.
        place: EntryPlace,
        /// Start of the entry.
        from: Timestamp,
        /// End of the entry.
        to: Timestamp,
    },
    /// Two versions of one object overlap.
    #[error(
        "{later} begins at {from}, before {earlier} ends; end the earlier one with 'to: {from}' or before"
    )]
    Overlap {
        /// The version that starts first.
        earlier: EntryPlace,
        /// The version that starts later.
        later: EntryPlace,
        /// Start of the later version.
        from: Timestamp,
    },
    /// An event that the file corrects was not recorded before the file.
    #[error(
        "what the file corrects was recorded at {before}, which is not before {recorded_at}; set a later \
         'recorded_at' at the top of the file, or leave it out"
    )]
    NotLater {
        /// Recording time of the sent event.
        before: Timestamp,
        /// Recording time of this file.
        recorded_at: Timestamp,
    },
    /// A value is out of range.
    #[error("{place}: {fault}")]
    Value {
        /// The entry.
        place: EntryPlace,
        /// The error.
        fault: String,
    },
}

/// One version of an object: the events at its start and its end.
struct Version {
    place: EntryPlace,
    /// A key that all versions of one object share.
    key: String,
    from: Timestamp,
    to: Option<Timestamp>,
    set: Payload,
    /// The event that ends the version. `None` if the description has its own end, or is a rate, which the
    /// next rate replaces.
    deleted: Option<Payload>,
}

impl Agreements {
    /// Returns the events to send after `sent`, which holds every event of earlier files of the organization.
    /// Events after `now` are left out, because a worker refuses future events.
    ///
    /// # Errors
    /// The first error of an entry. Also an error if an event that must be corrected was not recorded before
    /// this file.
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
                // An earlier file may have ended a version here that now continues. Its deletion would win
                // over the set.
                let retraction = Recording::new(None, continues(version, &versions));
                wanted.push(self.event(version, to, deleted.clone())?.recorded(retraction));
            }
        }
        let recorded_at = self.recorded_at.map_or(now, |day| day.0);
        Ok(AgreementEvents { later, ..sent::to_send(&wanted, sent, recorded_at, now)? })
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
            versions.push(self.commitment(index, entry)?);
        }
        for (index, entry) in self.rates.iter().enumerate() {
            versions.push(self.rate(index, entry));
        }
        for (index, entry) in self.pools.iter().enumerate() {
            let place = EntryPlace { section: "pools", number: index + 1, id: entry.id.to_string() };
            let set = entry.payload(&self.currency);
            let set = set.map_err(|fault| AgreementsError::Value { place: place.clone(), fault })?;
            let set = Payload::PoolSet(Box::new(set));
            let deleted = Payload::PoolDeleted(PoolDeleted { pool_id: entry.id.clone() });
            versions.push(version(place, entry.from, entry.to, set, Some(deleted)));
        }
        Ok(versions)
    }

    fn reservation(&self, index: usize, entry: &ReservationEntry) -> Result<Version, AgreementsError> {
        let place = EntryPlace { section: "reservations", number: index + 1, id: entry.id.to_string() };
        let (gpu_model, capacity) =
            entry.unit().map_err(|fault| AgreementsError::Value { place: place.clone(), fault })?;
        let set = Payload::ReservationSet(Box::new(ReservationSet {
            reservation_id: entry.id.clone(),
            name: entry.name.clone(),
            provider: entry.provider.clone(),
            region: entry.region.clone(),
            zone: entry.zone.clone(),
            gpu_model,
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

    fn commitment(&self, index: usize, entry: &CommitmentEntry) -> Result<Version, AgreementsError> {
        let place = EntryPlace { section: "commitments", number: index + 1, id: entry.id.to_string() };
        let covers_nodes = !entry.region.is_empty() && !entry.instance_family.is_empty();
        if entry.kind != KindEntry::SavingsPlan && !covers_nodes {
            let fault = "region or instance_family is missing; only a savings plan has neither".to_owned();
            return Err(AgreementsError::Value { place, fault });
        }
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
            hourly_commitment: entry.hourly_commitment,
            discounts: entry.discounts.iter().map(DiscountEntry::payload).collect(),
        }));
        Ok(version(place, entry.from, entry.to, set, None))
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
        // Different spellings of a name are the same rate.
        let (region, model) = (names::place(&entry.region), entry.gpu_model.as_deref().map(names::gpu_model));
        Version { key: format!("rates/{region:?}/{model:?}/{}", entry.qos), ..of_rate }
    }
}

fn version(place: EntryPlace, from: Day, to: Option<Day>, set: Payload, deleted: Option<Payload>) -> Version {
    let key = format!("{}/{}", place.section, place.id);
    Version { place, key, from: from.0, to: to.map(|to| to.0), set, deleted }
}

/// Returns whether another version starts where this one ends. The other version then replaces this one,
/// which is not deleted.
fn continues(version: &Version, versions: &[Version]) -> bool {
    versions.iter().any(|other| other.key == version.key && Some(other.from) == version.to)
}
