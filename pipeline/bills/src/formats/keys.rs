//! Keys of resources and ids of agreements, in the form that events have.

use std::borrow::Cow;

use prorata_schemas::event::resource_key;

use crate::line::bounded;

/// Parts of the key of a machine, or of a scale set, at Azure.
const AZURE_MACHINES: [&str; 2] = [
    "/providers/microsoft.compute/virtualmachines/",
    "/providers/microsoft.compute/virtualmachinescalesets/",
];

/// Part of a path of a machine at Google.
const INSTANCES: &str = "/instances/";

/// Parts of a path of a disk at Google.
const DISKS: [&str; 2] = ["/disks/", "/disk/"];

/// Parts of a path at Google that precede the zone, or the region of a disk in several zones.
const PLACES: [&str; 2] = ["/zones/", "/regions/"];

/// A resource as a bill names it.
#[derive(Clone, Copy, Debug, Default)]
pub struct NamedResource<'r> {
    /// The id.
    pub id: &'r str,
    /// The name that its owner gave it; may be empty.
    pub name: &'r str,
    /// The zone; may be empty.
    pub zone: &'r str,
}

impl<'r> NamedResource<'r> {
    /// Returns the resource's key, and whether the key has the form of a machine's key. `provider` is a
    /// canonical name.
    pub fn key(self, provider: &str) -> (Cow<'r, str>, bool) {
        let (key, is_machine) = match provider {
            "aws" => {
                let key = resource_key::aws(self.id);
                (Cow::Borrowed(key), key.starts_with("i-"))
            }
            "azure" => {
                let key = resource_key::azure(self.id);
                let is_machine = AZURE_MACHINES.iter().any(|part| key.contains(part));
                (key, is_machine)
            }
            "gcp" => self.google_key(),
            // As in `spec.providerID` of such nodes.
            _ => (Cow::Borrowed(resource_key::last_part(self.id)), false),
        };
        (bounded(key), is_machine)
    }

    fn google_key(self) -> (Cow<'r, str>, bool) {
        let is_compute = self.id.is_empty() || self.id.contains("compute.googleapis.com");
        let has = |part: &str| self.id.contains(part) || self.name.contains(part);
        let (is_instance, is_disk) = (has(INSTANCES), DISKS.into_iter().any(has));
        let place = match self.zone {
            "" => {
                let of_id = |part: &&str| self.id.split_once(*part)?.1.split('/').next();
                PLACES.iter().find_map(of_id).unwrap_or_default()
            }
            zone => zone,
        };
        if !is_compute || !(is_instance || is_disk) || place.is_empty() {
            return (Cow::Borrowed(if self.id.is_empty() { self.name } else { self.id }), false);
        }
        // The id ends in a number that neither nodes nor volumes know.
        let name = resource_key::last_part(if self.name.is_empty() { self.id } else { self.name });
        let key = match is_instance {
            true => resource_key::google(place, name),
            false => resource_key::google_disk(place, name),
        };
        (Cow::Owned(key), is_instance)
    }
}

/// Returns the id of a commitment or a reservation: the last part of an ARN or a path, as the commands of the
/// providers and `prorata agreements import` name them.
pub fn agreement_id(id: &str) -> Cow<'_, str> {
    bounded(Cow::Borrowed(resource_key::last_part(id)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(provider: &str, id: &str, name: &str, zone: &str) -> (String, bool) {
        let (key, is_machine) = NamedResource { id, name, zone }.key(provider);
        (key.into_owned(), is_machine)
    }

    #[test]
    fn keys_are_as_nodes_and_volumes_have_them() {
        let machine = |key: &str| (key.to_owned(), true);
        let other = |key: &str| (key.to_owned(), false);
        assert_eq!(key("aws", "arn:aws:ec2:eu-west-1:1:instance/i-0a", "", ""), machine("i-0a"));
        assert_eq!(key("aws", "i-0a", "", ""), machine("i-0a"));
        assert_eq!(key("aws", "arn:aws:s3:::bucket", "", ""), other("arn:aws:s3:::bucket"));
        assert_eq!(key("aws", "arn:aws:ec2:eu-west-1:1:volume/vol-0a", "", ""), other("vol-0a"));
        let files = "arn:aws:elasticfilesystem:eu-west-1:1:file-system/fs-0a";
        assert_eq!(key("aws", files, "", ""), other("fs-0a"));
        let set = "/subscriptions/a/resourcegroups/g/providers/microsoft.compute/virtualmachinescalesets/p";
        assert_eq!(key("azure", &format!("{}/virtualMachines/3", set.to_uppercase()), "", ""), machine(set));
        assert_eq!(key("azure", "/Disks/D", "", ""), other("/disks/d"));
        let global = "//compute.googleapis.com/projects/1/zones/us-east1-b/instances/123";
        assert_eq!(key("gcp", global, "projects/1/instances/gke-1", ""), machine("us-east1-b/gke-1"));
        assert_eq!(key("gcp", global, "gke-1", "us-east1-c"), machine("us-east1-c/gke-1"));
        assert_eq!(key("gcp", "", "projects/1/instances/gke-1", "us-east1-c"), machine("us-east1-c/gke-1"));
        let disk = "//compute.googleapis.com/projects/1/zones/us-east1-b/disk/5";
        assert_eq!(key("gcp", disk, "gke-1", ""), other("us-east1-b/disks/gke-1"));
        let regional = "//compute.googleapis.com/projects/1/regions/us-east1/disks/5";
        assert_eq!(key("gcp", regional, "pvc-1", ""), other("us-east1/disks/pvc-1"));
        let sql = "//sqladmin.googleapis.com/projects/1/instances/db";
        assert_eq!(key("gcp", sql, "db", "us-east1-c"), other(sql));
        assert_eq!(key("oracle", "oci://ocid1.instance.oc1.x", "", ""), other("ocid1.instance.oc1.x"));
        assert_eq!(key("aws", "", "", ""), other(""));
        assert_eq!(agreement_id("arn:aws:savingsplans::1:savingsplan/5c"), "5c");
    }
}
