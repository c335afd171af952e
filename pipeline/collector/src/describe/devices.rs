//! Devices of dynamic resource allocation, as quantities by resource name.

use std::collections::{BTreeMap, BTreeSet};

use prorata_schemas::Text;
use prorata_schemas::event::Quantities;
use prorata_schemas::quantity::{MEMORY, Quantity};
use prorata_schemas::size::Size;
use prorata_schemas::time::Timestamp;

use crate::object::quantities;
use crate::object::{
    AllocatedDevice, DeviceClassObject, DeviceValue, ObjectKind, ResourceClaimObject, ResourceSliceObject,
    SliceDevice,
};
use crate::options::CollectorOptions;
use crate::sharing::{Ratio, gpus, is_gpu};

/// Annotation of a claim that backs an extended resource: the pod's requests already count it.
const BY_RESOURCE_NAME: &str = "resource.kubernetes.io/extended-resource-claim";

/// The known claims, slices and classes.
#[derive(Clone, Debug, Default)]
pub struct Devices {
    claims: BTreeMap<Text, ClaimFacts>,
    slices: BTreeMap<Text, SliceFacts>,
    classes: BTreeMap<Text, Text>,
}

#[derive(Clone, Debug)]
struct SliceFacts {
    /// Name of the node; empty if there is not exactly one.
    node_name: Text,
    driver: Text,
    pool: Text,
    /// Devices by name.
    devices: BTreeMap<Text, DeviceFacts>,
    /// Bytes of memory of each set of shared counters.
    counters: BTreeMap<Text, u128>,
}

#[derive(Clone, Debug)]
struct DeviceFacts {
    /// MIG profile.
    profile: Option<Text>,
    /// Bytes of memory.
    memory: Option<u128>,
    /// Set of counters, and the bytes of memory that the device takes from it.
    takes: Option<(Text, u128)>,
    /// The card that the device is, or is a part of.
    card: Text,
}

#[derive(Clone, Debug)]
struct ClaimFacts {
    /// The devices and their classes. `None` if the claim is not allocated yet.
    devices: Option<Vec<(AllocatedDevice, Option<Text>)>>,
    /// Number of pods that share the claim.
    sharers: u128,
    changed: Option<Timestamp>,
}

/// The quantities that claims give a pod.
pub struct Claimed {
    /// Quantities to add to requests and limits.
    pub quantities: Quantities,
    /// Time at which a claim last changed.
    pub changed: Option<Timestamp>,
    /// Devices without a known resource name.
    pub unmapped: Vec<String>,
    /// Physical GPUs, if a device is shared or is a part of a card. `None` if `quantities` count them.
    pub gpus: Option<Ratio>,
}

/// Returns the name of a claim: `namespace/name`.
pub fn claim_name(claim: &ResourceClaimObject) -> Text {
    format!("{}/{}", claim.metadata.namespace, claim.metadata.name).into()
}

impl Devices {
    /// Stores a claim.
    pub fn set_claim(&mut self, claim: &ResourceClaimObject) {
        let by_name =
            claim.metadata.annotations.get(BY_RESOURCE_NAME).is_some_and(|value| **value == *"true");
        let results = claim.status.allocation.as_ref().map(|allocation| {
            let used = allocation.devices.results.iter().filter(|device| device.admin_access != Some(true));
            used.filter(|_| !by_name).map(|device| (device.clone(), class_of(claim, device))).collect()
        });
        let facts = ClaimFacts {
            devices: results,
            sharers: claim.status.reserved_for.len().max(1) as u128,
            changed: claim.metadata.changed(),
        };
        self.claims.insert(claim_name(claim), facts);
    }

    /// Forgets a claim.
    pub fn drop_claim(&mut self, name: &str) {
        self.claims.remove(name);
    }

    /// Stores a slice.
    pub fn set_slice(&mut self, slice: &ResourceSliceObject) {
        let spec = &slice.spec;
        let counters = spec.shared_counters.iter();
        let facts = SliceFacts {
            node_name: spec.node_name.clone(),
            driver: spec.driver.clone(),
            pool: spec.pool.name.clone(),
            devices: spec.devices.iter().map(|device| (device.name.clone(), device_facts(device))).collect(),
            counters: counters.filter_map(|set| Some((set.name.clone(), memory(&set.counters)?))).collect(),
        };
        self.slices.insert(slice.metadata.name.as_str().into(), facts);
    }

    /// Forgets a slice.
    pub fn drop_slice(&mut self, name: &str) {
        self.slices.remove(name);
    }

    /// Stores a class.
    pub fn set_class(&mut self, class: &DeviceClassObject) {
        let name = Text::from(class.metadata.name.as_str());
        match &class.spec.extended_resource_name {
            Some(resource) => drop(self.classes.insert(name, resource.clone())),
            None => drop(self.classes.remove(&name)),
        }
    }

    /// Forgets a class.
    pub fn drop_class(&mut self, name: &str) {
        self.classes.remove(name);
    }

    /// Forgets the objects that a complete list lacks.
    pub fn retain(&mut self, kind: ObjectKind, is_seen: impl Fn(&Text) -> bool) {
        match kind {
            ObjectKind::ResourceClaim => self.claims.retain(|name, _| is_seen(name)),
            ObjectKind::ResourceSlice => self.slices.retain(|name, _| is_seen(name)),
            _ => self.classes.retain(|name, _| is_seen(name)),
        }
    }

    /// Returns the quantities that these claims give a pod, or `None` if a claim is not known or not
    /// allocated.
    pub fn claimed(&self, claims: &[Option<Text>], options: &CollectorOptions) -> Option<Claimed> {
        let mut claimed =
            Claimed { quantities: Quantities::new(), changed: None, unmapped: Vec::new(), gpus: None };
        let (mut gpus, mut is_part) = (Some(Ratio::ZERO), false);
        for name in claims {
            let claim = self.claims.get(name.as_ref()?)?;
            let mut whole: BTreeMap<Text, u128> = BTreeMap::new();
            for (device, class) in claim.devices.as_ref()? {
                let resource = self.resource(device, class.as_ref(), options);
                if let Some((part, of_card)) = self.part(device, resource.as_ref(), options) {
                    let part = part.divided(Ratio::whole(claim.sharers));
                    gpus = gpus.zip(part).and_then(|(sum, part)| sum.plus(part));
                    is_part |= of_card || claim.sharers > 1 || resource.is_none();
                }
                match resource {
                    Some(resource) => *whole.entry(resource).or_default() += 1000,
                    None => claimed.unmapped.push(format!("{}/{}", device.driver, device.device)),
                }
            }
            for (resource, millis) in whole {
                let part = quantities::of_amount(&resource, millis.div_ceil(claim.sharers));
                quantities::add_one(&mut claimed.quantities, &resource, &part);
            }
            claimed.changed = claimed.changed.max(claim.changed);
        }
        claimed.gpus = gpus.filter(|_| is_part);
        Some(claimed)
    }

    /// Returns the physical GPUs of a node: the cards of its slices. `None` if it has none.
    pub fn cards(&self, node_name: &str, options: &CollectorOptions) -> Option<Quantity> {
        let of_node = self.slices.values().filter(|slice| {
            *slice.node_name == *node_name && !node_name.is_empty() && is_gpu(&slice.driver, options.gpus())
        });
        let cards: BTreeSet<_> = of_node
            .flat_map(|slice| slice.devices.values().map(|device| (&slice.driver, &slice.pool, &device.card)))
            .collect();
        (!cards.is_empty()).then(|| gpus(cards.len() as u128 * 1000))
    }

    /// Returns how large a part of a card a device is, and whether its memory shows that it is not a whole
    /// card. Returns `None` if the device is not a GPU.
    fn part(
        &self,
        device: &AllocatedDevice,
        resource: Option<&Text>,
        options: &CollectorOptions,
    ) -> Option<(Ratio, bool)> {
        let of_pool = || {
            self.slices.values().filter(|slice| slice.driver == device.driver && slice.pool == device.pool)
        };
        let named = resource.map_or(0, |resource| {
            let one = [(resource.clone(), quantities::of_amount(resource, 1000))].into();
            Size::of(&one, &options.gpu_resources).gpu_millis
        });
        if named == 0 && !is_gpu(&device.driver, options.gpus()) {
            return None;
        }
        let facts = of_pool().find_map(|slice| slice.devices.get(&device.device));
        let consumed = device.consumed_capacity.iter().find(|(name, _)| is_memory(name));
        let consumed = consumed.and_then(|(_, value)| Quantity::amount_of(MEMORY, &value.0).ok());
        let by_capacity = || Ratio::new(consumed?, facts?.memory?);
        let by_counters = || {
            let (set, taken) = facts?.takes.as_ref()?;
            Ratio::new(*taken, of_pool().find_map(|slice| slice.counters.get(set)).copied()?)
        };
        let part = by_capacity().or_else(by_counters).filter(|part| part.exceeds(Ratio::ONE) == Some(false));
        let counted = Ratio::new(if named == 0 { 1000 } else { named }, 1000)?;
        Some(part.map_or((counted, false), |part| (part, part != Ratio::ONE)))
    }

    /// Returns the resource name of a device: from its class, else from its MIG profile, else from the
    /// configuration of the class. Returns `None` if none of them gives a name.
    fn resource(
        &self,
        device: &AllocatedDevice,
        class: Option<&Text>,
        options: &CollectorOptions,
    ) -> Option<Text> {
        let of_pool = |slice: &&SliceFacts| slice.driver == device.driver && slice.pool == device.pool;
        let mut slices = self.slices.values().filter(of_pool);
        let mut profile = || slices.find_map(|slice| slice.devices.get(&device.device)?.profile.as_ref());
        let said = class.and_then(|class| self.classes.get(class)).cloned();
        let mig =
            || profile().map(|profile| Text::from(format!("nvidia.com/mig-{}", profile.replace('+', "."))));
        let configured = || class.and_then(|class| options.device_classes.get(class)).cloned();
        said.or_else(mig).or_else(configured)
    }
}

fn device_facts(device: &SliceDevice) -> DeviceFacts {
    let text = |name: &str| device.attributes.get(name).and_then(|attribute| attribute.string.clone());
    let taken = device.consumes_counters.iter();
    let takes = taken.filter_map(|set| Some((set.counter_set.clone(), memory(&set.counters)?))).next();
    let of_set = || takes.as_ref().map(|(set, _)| set.clone());
    let card = of_set().or_else(|| text("parentUUID")).or_else(|| text("uuid"));
    let card = card.unwrap_or_else(|| device.name.clone());
    DeviceFacts { profile: text("profile"), memory: memory(&device.capacity), takes, card }
}

/// Returns the memory among these values, in bytes; `None` if there is no valid one.
fn memory(values: &BTreeMap<Text, DeviceValue>) -> Option<u128> {
    let (_, found) = values.iter().find(|(name, _)| is_memory(name))?;
    Quantity::amount_of(MEMORY, &found.value.0).ok()
}

/// Returns whether a capacity or counter is memory, with or without the domain of its driver.
fn is_memory(name: &str) -> bool {
    name.rsplit('/').next() == Some("memory")
}

/// Returns the class of the request that a device satisfies; `None` if the claim has no such request. A
/// device names its request as `request` or `request/alternative`.
fn class_of(claim: &ResourceClaimObject, device: &AllocatedDevice) -> Option<Text> {
    let (name, alternative) =
        device.request.split_once('/').map_or((device.request.as_str(), None), |(a, b)| (a, Some(b)));
    let request = claim.spec.devices.requests.iter().find(|request| request.name == name)?;
    let found = match alternative {
        Some(alternative) => request.first_available.iter().find(|sub| sub.name == alternative),
        None => request.exactly.as_ref(),
    };
    found.map(|sub| sub.device_class_name.clone())
}
