//! The path of each kind, and the decoding of its objects.

use prorata_collector::object::{KubeObject, NodeObject, ObjectKind, PersistentVolumeObject, PodObject};
use serde::de::DeserializeOwned;
use serde_json::Value;

/// Returns the path of a kind's collection.
pub(super) const fn path(kind: ObjectKind) -> &'static str {
    match kind {
        ObjectKind::Node => "/api/v1/nodes",
        ObjectKind::Pod => "/api/v1/pods",
        ObjectKind::ElasticQuota => "/apis/nos.nebuly.com/v1alpha1/elasticquotas",
        ObjectKind::CompositeElasticQuota => "/apis/nos.nebuly.com/v1alpha1/compositeelasticquotas",
        ObjectKind::GpuPool => "/apis/tensor-fusion.ai/v1/gpupools",
        ObjectKind::GpuNode => "/apis/tensor-fusion.ai/v1/gpunodes",
        ObjectKind::ResourceClaim => "/apis/resource.k8s.io/v1/resourceclaims",
        ObjectKind::ResourceSlice => "/apis/resource.k8s.io/v1/resourceslices",
        ObjectKind::DeviceClass => "/apis/resource.k8s.io/v1/deviceclasses",
        ObjectKind::PersistentVolume => "/api/v1/persistentvolumes",
    }
}

/// Returns the kind as permissions name it: resource and API group.
pub(super) fn resource(kind: ObjectKind) -> (&'static str, &'static str) {
    let mut parts = path(kind).rsplit('/');
    let resource = parts.next().unwrap_or_default();
    let group = parts.nth(1).unwrap_or_default();
    (resource, if group == "api" { "" } else { group })
}

/// Returns the path of the kind's API group and version; `None` for the core group, which always exists.
pub(super) fn group(kind: ObjectKind) -> Option<&'static str> {
    path(kind).rsplit_once('/').map(|(group, _)| group).filter(|group| group.starts_with("/apis/"))
}

/// Returns the field selector for the objects of a kind; `None` for all objects. Pods without a node are left
/// out, because they cost nothing yet.
pub(super) const fn field_selector(kind: ObjectKind) -> Option<&'static str> {
    match kind {
        ObjectKind::Pod => Some("spec.nodeName!="),
        _ => None,
    }
}

/// An object as read from a list or a watch.
pub(super) trait WireObject: DeserializeOwned + Clone + Send + 'static {
    /// Returns the object.
    ///
    /// # Errors
    /// If a field does not have the shape that the API documents.
    fn object(self, kind: ObjectKind) -> Result<KubeObject, String>;
}

impl WireObject for PodObject {
    fn object(self, _: ObjectKind) -> Result<KubeObject, String> {
        Ok(KubeObject::Pod(Box::new(self)))
    }
}

impl WireObject for NodeObject {
    fn object(self, _: ObjectKind) -> Result<KubeObject, String> {
        Ok(KubeObject::Node(Box::new(self)))
    }
}

impl WireObject for PersistentVolumeObject {
    fn object(self, _: ObjectKind) -> Result<KubeObject, String> {
        Ok(KubeObject::PersistentVolume(Box::new(self)))
    }
}

/// Decodes the kinds with few objects. Custom resources may have fields of any shape, so an unreadable object
/// must not hide other objects.
impl WireObject for Value {
    fn object(self, kind: ObjectKind) -> Result<KubeObject, String> {
        let name = self.pointer("/metadata/name").and_then(Self::as_str).unwrap_or_default().to_owned();
        let object = match kind {
            ObjectKind::Node => serde_json::from_value(self).map(KubeObject::Node),
            ObjectKind::Pod => serde_json::from_value(self).map(KubeObject::Pod),
            ObjectKind::ElasticQuota => serde_json::from_value(self).map(KubeObject::ElasticQuota),
            ObjectKind::CompositeElasticQuota => {
                serde_json::from_value(self).map(KubeObject::CompositeElasticQuota)
            }
            ObjectKind::GpuPool => serde_json::from_value(self).map(KubeObject::GpuPool),
            ObjectKind::GpuNode => serde_json::from_value(self).map(KubeObject::GpuNode),
            ObjectKind::ResourceClaim => serde_json::from_value(self).map(KubeObject::ResourceClaim),
            ObjectKind::ResourceSlice => serde_json::from_value(self).map(KubeObject::ResourceSlice),
            ObjectKind::DeviceClass => serde_json::from_value(self).map(KubeObject::DeviceClass),
            ObjectKind::PersistentVolume => serde_json::from_value(self).map(KubeObject::PersistentVolume),
        };
        object.map_err(|error| format!("{name}: {error}"))
    }
}
