//! Volumes of pods, by their keys in the provider's bill.
//!
//! A pod names claims, and a volume names the claim that it is bound to. So no claim needs to be known.

use std::collections::BTreeMap;
use std::time::Duration;

use prorata_schemas::Text;
use prorata_schemas::event::resource_key::{aws, azure, google_disk, last_part};
use prorata_schemas::time::Timestamp;

use crate::object::{ObjectMeta, PersistentVolumeObject};

/// Time for which a volume that is gone still counts. It goes after its pods, but the last changes of the
/// pods may arrive later.
const KEPT: Duration = Duration::from_secs(300);

/// Labels that name the zone of a volume.
const ZONE: [&str; 2] = ["topology.kubernetes.io/zone", "failure-domain.beta.kubernetes.io/zone"];

/// Labels that name the region of a volume.
const REGION: [&str; 2] = ["topology.kubernetes.io/region", "failure-domain.beta.kubernetes.io/region"];

/// The known volumes that are bound to claims.
#[derive(Clone, Debug, Default)]
pub struct Volumes {
    /// Volumes by their claim, `namespace/name`.
    bound: BTreeMap<Text, BoundVolume>,
    /// Claims by the name of their volume.
    claims: BTreeMap<Text, Text>,
}

#[derive(Clone, Debug)]
struct BoundVolume {
    name: Text,
    /// The key in the provider's bill; `None` if bills do not name such volumes.
    key: Option<Text>,
    changed: Option<Timestamp>,
    gone: Option<Timestamp>,
}

/// The volumes that a pod mounts.
#[derive(Debug, Default)]
pub struct Mounted {
    /// Keys in the provider's bill, sorted and distinct.
    pub keys: Vec<Text>,
    /// Time at which one of these volumes last changed.
    pub changed: Option<Timestamp>,
    /// Whether a claim has no known volume.
    pub lacks_any: bool,
}

impl Volumes {
    /// Stores a volume. Returns its claim, `namespace/name`, if the claim had no volume or another one. A
    /// volume that has lost its claim stays with it until the volume is bound again.
    pub fn set(&mut self, volume: &PersistentVolumeObject) -> Option<Text> {
        let claim = volume.spec.claim_ref.as_ref().filter(|_| volume.status.phase == "Bound")?;
        let claim = Text::from(format!("{}/{}", claim.namespace, claim.name));
        let name = Text::from(volume.metadata.name.as_str());
        let (key, changed) = (key(volume), volume.metadata.changed());
        let earlier = self.claims.insert(name.clone(), claim.clone());
        if let Some(earlier) = earlier.filter(|earlier| *earlier != claim)
            && self.bound.get(&earlier).is_some_and(|known| known.name == name)
        {
            self.bound.remove(&earlier);
        }
        let is_known = self.bound.get(&claim).is_some_and(|known| known.name == name && known.key == key);
        self.bound.insert(claim.clone(), BoundVolume { name, key, changed, gone: None });
        (!is_known).then_some(claim)
    }

    /// Notes that a volume is gone.
    pub fn drop_volume(&mut self, name: &str, now: Timestamp) {
        let Some(claim) = self.claims.remove(name) else { return };
        if let Some(known) = self.bound.get_mut(&claim).filter(|known| *known.name == *name) {
            known.gone = Some(now);
        }
    }

    /// Notes that the volumes that a complete list lacks are gone.
    pub fn retain(&mut self, is_seen: impl Fn(&Text) -> bool, now: Timestamp) {
        let gone = self.claims.keys().filter(|name| !is_seen(name)).cloned();
        for name in gone.collect::<Vec<_>>() {
            self.drop_volume(&name, now);
        }
    }

    /// Forgets the volumes that have been gone for some minutes.
    pub fn forget_gone(&mut self, now: Timestamp) {
        let until = now.before(KEPT);
        self.bound.retain(|_, known| known.gone.is_none_or(|gone| gone > until));
    }

    /// Returns the volumes that these claims give a pod.
    pub fn mounted(&self, claims: &[Text]) -> Mounted {
        let mut mounted = Mounted::default();
        for claim in claims {
            let Some(volume) = self.bound.get(claim) else {
                mounted.lacks_any = true;
                continue;
            };
            if let Some(key) = &volume.key {
                mounted.keys.push(key.clone());
                mounted.changed = mounted.changed.max(volume.changed);
            }
        }
        mounted.keys.sort();
        mounted.keys.dedup();
        mounted
    }
}

/// Returns the key of a volume in the provider's bill; `None` if the bill cannot name it.
fn key(volume: &PersistentVolumeObject) -> Option<Text> {
    let spec = &volume.spec;
    let key: Text = if let Some(csi) = &spec.csi {
        of_driver(&csi.driver, &csi.volume_handle)?
    } else if let Some(disk) = &spec.aws_elastic_block_store {
        last_part(&disk.volume_id).into()
    } else if let Some(disk) = &spec.azure_disk {
        azure(&disk.disk_uri).into()
    } else {
        let disk = spec.gce_persistent_disk.as_ref()?;
        google_disk(place(&volume.metadata)?, &disk.pd_name).into()
    };
    (!key.is_empty()).then_some(key)
}

/// Returns the key of a volume from its driver and its handle; `None` for other drivers.
fn of_driver(driver: &str, handle: &str) -> Option<Text> {
    match driver {
        "ebs.csi.aws.com" | "ebs.csi.eks.amazonaws.com" => Some(aws(handle).into()),
        // A path or an access point may follow the file system. A bill has the file system alone.
        "efs.csi.aws.com" | "fsx.csi.aws.com" => handle.split(':').next().map(Into::into),
        "disk.csi.azure.com" => Some(azure(handle).into()),
        "pd.csi.storage.gke.io" => match handle.split('/').collect::<Vec<_>>().as_slice() {
            ["projects", _, "zones" | "regions", place, "disks", name] => {
                Some(google_disk(place, name).into())
            }
            _ => None,
        },
        _ => None,
    }
}

/// Returns the zone of a volume, or its region if it is in several zones.
fn place(meta: &ObjectMeta) -> Option<&str> {
    let label = |names: [&str; 2]| names.iter().find_map(|name| meta.labels.get(*name));
    // The label of a disk in two zones names both: `a__b`.
    let zone = label(ZONE).filter(|zone| !zone.contains("__"));
    zone.or_else(|| label(REGION)).map(|place| &**place)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn key_of(spec: &Value, labels: &Value) -> Option<String> {
        let object = json!({ "metadata": { "labels": labels }, "spec": spec });
        key(&serde_json::from_value(object).unwrap()).map(|key| key.to_string())
    }

    #[test]
    fn a_volume_has_the_key_of_its_lines_in_a_bill() {
        let csi = |driver: &str, handle: &str| {
            let csi = json!({ "driver": driver, "volumeHandle": handle });
            key_of(&json!({ "csi": csi, "awsElasticBlockStore": null }), &json!({}))
        };
        let some = |key: &str| Some(key.to_owned());
        assert_eq!(csi("ebs.csi.aws.com", "vol-0a"), some("vol-0a"));
        assert_eq!(csi("ebs.csi.eks.amazonaws.com", "vol-0a"), some("vol-0a"));
        assert_eq!(csi("efs.csi.aws.com", "fs-0a::fsap-0b"), some("fs-0a"));
        assert_eq!(csi("efs.csi.aws.com", "fs-0a:/data"), some("fs-0a"));
        assert_eq!(csi("fsx.csi.aws.com", "fs-0b"), some("fs-0b"));
        let disk = "/subscriptions/A/resourceGroups/MC/providers/Microsoft.Compute/disks/pvc-1";
        assert_eq!(csi("disk.csi.azure.com", disk), Some(disk.to_lowercase()));
        assert_eq!(csi("pd.csi.storage.gke.io", "projects/p/zones/z-a/disks/pvc-1"), some("z-a/disks/pvc-1"));
        assert_eq!(csi("pd.csi.storage.gke.io", "projects/p/regions/z/disks/pvc-1"), some("z/disks/pvc-1"));
        for (driver, handle) in [
            ("pd.csi.storage.gke.io", "projects/p/zones/z-a/pvc-1"),
            ("nfs.csi.k8s.io", "server/share"),
            ("ebs.csi.aws.com", ""),
        ] {
            assert_eq!(csi(driver, handle), None, "{driver} {handle}");
        }
    }

    #[test]
    fn volumes_without_a_driver_have_keys_too() {
        let some = |key: &str| Some(key.to_owned());
        let none = json!({});
        for id in ["aws://us-east-1a/vol-0a", "vol-0a"] {
            assert_eq!(key_of(&json!({ "awsElasticBlockStore": { "volumeID": id } }), &none), some("vol-0a"));
        }
        let disk = json!({ "azureDisk": { "diskName": "d", "diskURI": "/subscriptions/A/disks/D" } });
        assert_eq!(key_of(&disk, &none), some("/subscriptions/a/disks/d"));
        let disk = json!({ "gcePersistentDisk": { "pdName": "pvc-1" } });
        assert_eq!(key_of(&disk, &none), None);
        let zone = json!({ "failure-domain.beta.kubernetes.io/zone": "z-a" });
        assert_eq!(key_of(&disk, &zone), some("z-a/disks/pvc-1"));
        let zones =
            json!({ "topology.kubernetes.io/zone": "z-a__z-b", "topology.kubernetes.io/region": "z" });
        assert_eq!(key_of(&disk, &zones), some("z/disks/pvc-1"));
        assert_eq!(key_of(&json!({ "nfs": { "server": "s" } }), &none), None);
    }
}
