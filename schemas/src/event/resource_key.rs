//! The key of a resource, by which nodes and volumes find their lines of bills: the id of the resource in the
//! provider's bill, in one form.

use std::borrow::Cow;

/// Part of the path of a virtual machine at Azure that precedes the name of its scale set.
const SCALE_SETS: &str = "/virtualmachinescalesets/";

/// Services of AWS whose ids are unique among all resources: machines, volumes and file systems.
const WITH_UNIQUE_IDS: [&str; 3] = ["ec2", "elasticfilesystem", "fsx"];

/// Returns the last part of a path, such as `i-0123456789abcdef0`.
pub fn last_part(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or_default()
}

/// Returns the key of a resource of AWS: the last part of an ARN of EC2, EFS or FSx, or else the whole id.
/// Parts of other ARNs are names, which are unique in one service at most.
pub fn aws(id: &str) -> &str {
    let service = id.strip_prefix("arn:").and_then(|rest| rest.split(':').nth(1));
    if service.is_some_and(|service| WITH_UNIQUE_IDS.contains(&service)) { last_part(id) } else { id }
}

/// Returns the key of a resource of Azure: its path in lower case. A bill names the scale set instead of the
/// machines in it. Some exports leave out the first slash.
pub fn azure(id: &str) -> Cow<'_, str> {
    let mut key = Cow::Borrowed(id);
    if id.chars().any(char::is_uppercase) {
        key = Cow::Owned(id.to_lowercase());
    }
    if key.starts_with("subscriptions/") {
        key = Cow::Owned(format!("/{key}"));
    }
    let in_set = key
        .split_once(SCALE_SETS)
        .and_then(|(before, of_set)| Some(before.len() + SCALE_SETS.len() + of_set.find('/')?));
    match (key, in_set) {
        (Cow::Borrowed(key), Some(length)) => Cow::Borrowed(key.get(..length).unwrap_or(key)),
        (Cow::Owned(mut key), Some(length)) => {
            key.truncate(length);
            Cow::Owned(key)
        }
        (key, None) => key,
    }
}

/// Returns the key of a machine of Google: its zone and its name.
pub fn google(zone: &str, name: &str) -> String {
    format!("{zone}/{name}")
}

/// Returns the key of a disk of Google: its zone, or the region of a disk in several zones, and its name. A
/// machine may have the same zone and name.
pub fn google_disk(place: &str, name: &str) -> String {
    format!("{place}/disks/{name}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_arn_with_a_unique_id_is_its_last_part() {
        assert_eq!(aws("arn:aws:ec2:us-east-1:1:instance/i-0a"), "i-0a");
        assert_eq!(aws("arn:aws-cn:ec2:cn-north-1:1:volume/vol-0a"), "vol-0a");
        assert_eq!(aws("arn:aws:elasticfilesystem:us-east-1:1:file-system/fs-0a"), "fs-0a");
        assert_eq!(aws("arn:aws:fsx:us-east-1:1:file-system/fs-0b"), "fs-0b");
        for other in ["i-0a", "", "arn:aws:eks:us-east-1:1:cluster/i-0a", "bucket/i-0a"] {
            assert_eq!(aws(other), other);
        }
    }

    #[test]
    fn a_machine_of_a_scale_set_has_the_key_of_the_set() {
        let set = "/subscriptions/ab/resourcegroups/rg/providers/microsoft.compute/virtualmachinescalesets/é";
        for id in [set.to_owned(), format!("{set}/virtualMachines/7"), format!("{}/x", set.to_uppercase())] {
            assert_eq!(azure(&id), set, "{id}");
        }
        assert_eq!(azure("subscriptions/A/x"), "/subscriptions/a/x");
        assert_eq!(azure(""), "");
        assert_eq!(google("us-central1-a", "gke-1"), "us-central1-a/gke-1");
        assert_eq!(google_disk("us-central1", "gke-1"), "us-central1/disks/gke-1");
    }
}
