//! Devices of dynamic resource allocation, as quantities by resource name.

use std::collections::BTreeMap;

use prorata_schemas::Text;
use prorata_schemas::event::Quantities;
use prorata_schemas::time::Timestamp;

use super::quantities;
use crate::object::{
    AllocatedDevice, DeviceClassObject, ObjectKind, ResourceClaimObject, ResourceSliceObject,
};
use crate::options::CollectorOptions;

/// Annotation of a claim that a pod requested by an extended resource: the pod's requests already count it.
const BY_RESOURCE_NAME: &str = "resource.kubernetes.io/extended-resource-claim";

/// The known claims, slices and classes.
#[derive(Clone, Debug, Default)]
pub struct Devices {
    claims: BTreeMap<Text, ClaimFacts>,
    /// MIG devices and their profiles, by slice.
    profiles: BTreeMap<Text, BTreeMap<(Text, Text, Text), Text>>,
    classes: BTreeMap<Text, Text>,
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
        let profiles = spec.devices.iter().filter_map(|device| {
            let profile = device.attributes.get("profile")?.string.clone()?;
            Some(((spec.driver.clone(), spec.pool.name.clone(), device.name.clone()), profile))
        });
        self.profiles.insert(slice.metadata.name.as_str().into(), profiles.collect());
    }

    /// Forgets a slice.
    pub fn drop_slice(&mut self, name: &str) {
        self.profiles.remove(name);
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
            ObjectKind::ResourceSlice => self.profiles.retain(|name, _| is_seen(name)),
            _ => self.classes.retain(|name, _| is_seen(name)),
        }
    }

    /// Returns the quantities that these claims give a pod, or `None` if one is not known or not allocated.
    pub fn claimed(&self, claims: &[Option<Text>], options: &CollectorOptions) -> Option<Claimed> {
        let mut claimed = Claimed { quantities: Quantities::new(), changed: None, unmapped: Vec::new() };
        for name in claims {
            let claim = self.claims.get(name.as_ref()?)?;
            let mut whole: BTreeMap<Text, u128> = BTreeMap::new();
            for (device, class) in claim.devices.as_ref()? {
                match self.resource(device, class.as_ref(), options) {
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
        Some(claimed)
    }

    /// Returns the resource name of a device: from its class, from the configuration of the class, or from
    /// its MIG profile.
    fn resource(
        &self,
        device: &AllocatedDevice,
        class: Option<&Text>,
        options: &CollectorOptions,
    ) -> Option<Text> {
        let place = (device.driver.clone(), device.pool.clone(), device.device.clone());
        let profile = || self.profiles.values().find_map(|profiles| profiles.get(&place));
        let said = class.and_then(|class| self.classes.get(class)).cloned();
        let mig =
            || profile().map(|profile| Text::from(format!("nvidia.com/mig-{}", profile.replace('+', "."))));
        let configured = || class.and_then(|class| options.device_classes.get(class)).cloned();
        said.or_else(mig).or_else(configured)
    }
}

/// Returns the class of the request that a device satisfies: `request`, or `request/alternative`.
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
