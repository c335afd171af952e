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

/// Part of a path at Google that precedes the zone.
const ZONES: &str = "/zones/";

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
        let is_instance = self.id.contains(INSTANCES) || self.name.contains(INSTANCES);
        let zone = match self.zone {
            "" => self.id.split_once(ZONES).and_then(|(_, rest)| rest.split('/').next()).unwrap_or_default(),
            zone => zone,
        };
        if !is_compute || !is_instance || zone.is_empty() {
            return (Cow::Borrowed(if self.id.is_empty() { self.name } else { self.id }), false);
        }
        // The id ends in a number that no node knows.
        let path = if self.name.is_empty() { self.id } else { self.name };
        (Cow::Owned(resource_key::google(zone, resource_key::last_part(path))), true)
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
    fn keys_are_as_nodes_have_them() {
        let machine = |key: &str| (key.to_owned(), true);
        let other = |key: &str| (key.to_owned(), false);
        assert_eq!(key("aws", "arn:aws:ec2:eu-west-1:1:instance/i-0a", "", ""), machine("i-0a"));
        assert_eq!(key("aws", "i-0a", "", ""), machine("i-0a"));
        assert_eq!(key("aws", "arn:aws:s3:::bucket", "", ""), other("arn:aws:s3:::bucket"));
        let set = "/subscriptions/a/resourcegroups/g/providers/microsoft.compute/virtualmachinescalesets/p";
        assert_eq!(key("azure", &format!("{}/virtualMachines/3", set.to_uppercase()), "", ""), machine(set));
        assert_eq!(key("azure", "/Disks/D", "", ""), other("/disks/d"));
        let global = "//compute.googleapis.com/projects/1/zones/us-east1-b/instances/123";
        assert_eq!(key("gcp", global, "projects/1/instances/gke-1", ""), machine("us-east1-b/gke-1"));
        assert_eq!(key("gcp", global, "gke-1", "us-east1-c"), machine("us-east1-c/gke-1"));
        assert_eq!(key("gcp", "", "projects/1/instances/gke-1", "us-east1-c"), machine("us-east1-c/gke-1"));
        let sql = "//sqladmin.googleapis.com/projects/1/instances/db";
        assert_eq!(key("gcp", sql, "db", "us-east1-c"), other(sql));
        assert_eq!(key("oracle", "oci://ocid1.instance.oc1.x", "", ""), other("ocid1.instance.oc1.x"));
        assert_eq!(key("aws", "", "", ""), other(""));
        assert_eq!(agreement_id("arn:aws:savingsplans::1:savingsplan/5c"), "5c");
    }
}
