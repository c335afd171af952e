//! Divided charges (RULES.md, section 13): which shared charges of bills go to pods, and to which pods.
//!
//! **Decides** whether a volume or an entry of the configuration divides a line, which lines are one charge,
//! and which pods may bear it. Entries divide by figures of the other rows, so their weights are in
//! `rows/shared.rs`.
//!
//! **Precedence**: volumes first, then the first entry that matches. Charges sort by volume or entry, and
//! then by their names. Pods sort by cluster, namespace and uid. **Interval ends**: a pod has a volume while
//! the description that names it holds. **Rounding**: none.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use prorata_schemas::Text;
use prorata_schemas::event::{ChargeCategory, PodStarted, names};
use prorata_schemas::ids::{ClusterId, CommitmentId, OrganizationId, PodUid};
use prorata_schemas::rows::RowKind;
use prorata_schemas::rules::Rules;

use crate::model::slices::PodSlice;
use crate::rules::bill::{HourBills, LinePart};

/// The thing whose pods bear a charge.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Divisor {
    /// The volume with this resource key.
    Volume(Text),
    /// The entry of the configuration with this index.
    Entry(usize),
}

/// The values that all lines of a charge share. Charges sort by them.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ChargeNames {
    pub(crate) divisor: Divisor,
    /// The canonical name of the provider.
    pub(crate) provider: Text,
    pub(crate) billing_account_id: Text,
    pub(crate) service: Text,
    category: ChargeCategory,
    is_correction: bool,
    account_id: Option<Text>,
    invoice_id: Option<Text>,
    pub(crate) commitment_id: Option<CommitmentId>,
}

impl ChargeNames {
    fn of(divisor: Divisor, part: &LinePart) -> Self {
        let (set, line) = (&part.line.set, part.line.line());
        Self {
            divisor,
            provider: names::shared(&set.provider, names::provider),
            billing_account_id: set.billing_account_id.clone(),
            service: line.service.clone(),
            category: line.category,
            is_correction: line.is_correction,
            account_id: line.account_id.clone(),
            invoice_id: line.invoice_id.clone(),
            commitment_id: line.commitment_id.clone(),
        }
    }
}

/// A pod that ran in the hour.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HourPod<'a> {
    pub(crate) uid: &'a PodUid,
    /// The place of the pod among all pods of the hour, by uid.
    pub(crate) place: usize,
    /// The last description in the hour.
    pub(crate) description: &'a Arc<PodStarted>,
    /// The slices, in order of time.
    slices: &'a [PodSlice],
}

impl<'a> HourPod<'a> {
    /// Returns the running time in microseconds.
    pub(crate) fn micros(&self) -> u128 {
        micros(self.slices)
    }

    /// Returns the key by which pods sort.
    fn order(&self) -> (&'a ClusterId, &'a Text, &'a PodUid) {
        (&self.description.cluster_id, &self.description.namespace, self.uid)
    }
}

fn micros(slices: &[PodSlice]) -> u128 {
    slices.iter().map(|slice| slice.span.micros()).sum()
}

/// The pods of each volume by resource key: each pod with its time with the volume in microseconds.
pub(crate) type VolumePods<'a> = BTreeMap<&'a Text, Vec<(HourPod<'a>, u128)>>;

/// The shared charges of an hour, with the pods that may bear them.
#[derive(Debug, Default)]
pub(crate) struct SharedCharges<'a> {
    /// The charges that a volume or an entry divides, each with its parts of lines in order of their keys.
    pub(crate) divided: BTreeMap<ChargeNames, Vec<&'a LinePart>>,
    /// All other parts of lines.
    pub(crate) alone: Vec<&'a LinePart>,
    /// The pods that ran in the hour, in order. Empty if no charge is divided.
    pub(crate) pods: Vec<HourPod<'a>>,
    /// The volumes that lines name.
    pub(crate) volumes: VolumePods<'a>,
}

impl<'a> SharedCharges<'a> {
    /// Finds the charges of an organization's hour. `pods` has the slices of each pod, by uid.
    pub(crate) fn new(
        bills: &'a HourBills,
        pods: &'a [(PodUid, Vec<PodSlice>)],
        organization_id: &OrganizationId,
        rules: &Rules,
    ) -> Self {
        let parts = bills.rows.iter().filter(|(kind, _)| *kind == RowKind::SharedCharge);
        let alone: Vec<&LinePart> = parts.map(|(_, part)| part).collect();
        let keys = alone.iter().map(|part| &part.line.set.resource_key).filter(|key| !key.is_empty());
        let keys: BTreeSet<&Text> = keys.collect();
        let has_volumes = !keys.is_empty() && pods.iter().any(|(_, slices)| names_volumes(slices));
        let may_divide = has_volumes || !rules.shared_charges.is_empty();
        if alone.is_empty() || !may_divide {
            return Self { alone, ..Self::default() };
        }
        let pods = hour_pods(pods);
        let volumes = volume_pods(&pods, &keys);
        let mut charges = Self { pods, volumes, ..Self::default() };
        for part in alone {
            match charges.divisor(part, organization_id, rules) {
                Some(divisor) => {
                    charges.divided.entry(ChargeNames::of(divisor, part)).or_default().push(part);
                }
                None => charges.alone.push(part),
            }
        }
        let sort = |parts: &mut Vec<&LinePart>| parts.sort_by(|a, b| a.line.key().cmp(&b.line.key()));
        charges.divided.values_mut().for_each(sort);
        charges
    }

    fn divisor(&self, part: &LinePart, organization_id: &str, rules: &Rules) -> Option<Divisor> {
        let set = &part.line.set;
        if self.volumes.contains_key(&set.resource_key) {
            return Some(Divisor::Volume(set.resource_key.clone()));
        }
        let mut entries = rules.shared_charges.iter();
        entries.position(|entry| entry.matches(organization_id, set, part.line.line())).map(Divisor::Entry)
    }
}

fn names_volumes(slices: &[PodSlice]) -> bool {
    slices.iter().any(|slice| !slice.spec.description.volume_keys.is_empty())
}

/// Returns the pods of the hour in order.
fn hour_pods(pods: &[(PodUid, Vec<PodSlice>)]) -> Vec<HourPod<'_>> {
    let pods = pods.iter().enumerate().filter_map(|(place, (uid, slices))| {
        let description = &slices.last()?.spec.description;
        Some(HourPod { uid, place, description, slices })
    });
    let mut pods: Vec<HourPod<'_>> = pods.collect();
    pods.sort_by(|a, b| a.order().cmp(&b.order()));
    pods
}

/// Returns the pods of the volumes with these keys, in the order of the pods.
fn volume_pods<'a>(pods: &[HourPod<'a>], keys: &BTreeSet<&Text>) -> VolumePods<'a> {
    let mut volumes = VolumePods::new();
    for pod in pods.iter().filter(|pod| names_volumes(pod.slices)) {
        let mut times: BTreeMap<&'a Text, u128> = BTreeMap::new();
        for run in pod.slices.chunk_by(|a, b| Arc::ptr_eq(&a.spec, &b.spec)) {
            let Some(first) = run.first() else { continue };
            // A description may name a volume twice, and a pod has it only once.
            let named = first.spec.description.volume_keys.iter().filter(|key| keys.contains(*key));
            let named: BTreeSet<&'a Text> = named.collect();
            for key in named {
                *times.entry(key).or_default() += micros(run);
            }
        }
        for (key, time) in times {
            volumes.entry(key).or_default().push((*pod, time));
        }
    }
    volumes
}
