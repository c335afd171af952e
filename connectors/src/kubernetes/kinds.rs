//! Where each kind is, and how its objects are decoded.

use prorata_collector::object::{KubeObject, NodeObject, ObjectKind, PodObject};
use serde::de::DeserializeOwned;
use serde_json::Value;

/// The path of a kind's collection.
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
    }
}

/// The kind as permissions name it: resource and API group.
pub(super) fn resource(kind: ObjectKind) -> (&'static str, &'static str) {
    let mut parts = path(kind).rsplit('/');
    let resource = parts.next().unwrap_or_default();
    let group = parts.nth(1).unwrap_or_default();
    (resource, if group == "api" { "" } else { group })
}

/// The path of the kind's API group and version; `None` if it is of the core group, which is always there.
pub(super) fn group(kind: ObjectKind) -> Option<&'static str> {
    path(kind).rsplit_once('/').map(|(group, _)| group).filter(|group| group.starts_with("/apis/"))
}

/// Which objects of a kind are asked for. A pod without a node costs nothing yet.
pub(super) const fn field_selector(kind: ObjectKind) -> Option<&'static str> {
    match kind {
        ObjectKind::Pod => Some("spec.nodeName!="),
        _ => None,
    }
}

/// An object as it is read from a list or a watch.
pub(super) trait WireObject: DeserializeOwned + Clone + Send + 'static {
    /// The object.
    ///
    /// # Errors
    /// A field has another shape than the API documents.
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

/// Kinds of which there are few. Custom resources may have fields of any shape: one that cannot be read must
/// not hide the others.
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
        };
        object.map_err(|error| format!("{name}: {error}"))
    }
}
