//! Serverless pods that hold no unit of a reservation (RULES.md, section 2). They are in the order in which
//! free units are offered to them: oldest start first, then uid.
//!
//! They wait by class and shape. A unit that becomes free is offered to its own class. If it does not serve a
//! pod, it serves no pod of the same shape, so the number of waiting pods does not matter.

use std::collections::{BTreeMap, BTreeSet};

use prorata_schemas::Text;
use prorata_schemas::event::names;
use prorata_schemas::ids::PodUid;
use prorata_schemas::time::Timestamp;

use crate::model::spec::PodSpec;

/// Returns whether a quality of service is a spelling of `BestEffort`. No unit serves pods of this quality of
/// service.
pub(crate) fn is_best_effort(qos: &str) -> bool {
    ["best-effort", "besteffort"].iter().any(|spelling| qos.eq_ignore_ascii_case(spelling))
}

/// The class within which pods and units can match. It is the region and GPU model, as canonical names
/// (RULES.md, section 12), and the number of GPUs in thousandths.
pub(crate) type UnitClass = (Text, Text, u128);

/// The other properties of a pod that decide which units serve it: zone, thousandths of a vCPU, bytes of
/// memory.
type PodShape = (Option<Text>, u128, u128);

/// Pods by start, then uid.
type ByStart = BTreeSet<(Timestamp, PodUid)>;

/// All pods that wait for a unit.
#[derive(Debug, Default)]
pub(crate) struct WaitingPods(BTreeMap<UnitClass, BTreeMap<PodShape, ByStart>>);

impl WaitingPods {
    /// Adds a waiting pod and returns its class. `None` if no unit ever serves it.
    pub(crate) fn add(&mut self, uid: &PodUid, spec: &PodSpec, start: Timestamp) -> Option<UnitClass> {
        let class = class(spec)?;
        let shapes = self.0.entry(class.clone()).or_default();
        shapes.entry(shape(spec)).or_default().insert((start, uid.clone()));
        Some(class)
    }

    /// Removes a pod that no longer waits.
    pub(crate) fn remove(&mut self, uid: &PodUid, spec: &PodSpec, start: Timestamp) {
        let Some(shapes) = class(spec).and_then(|class| self.0.get_mut(&class)) else { return };
        let shape = shape(spec);
        if let Some(pods) = shapes.get_mut(&shape) {
            pods.remove(&(start, uid.clone()));
            if pods.is_empty() {
                shapes.remove(&shape);
            }
        }
    }

    /// Returns the classes in which pods wait or have waited.
    pub(crate) fn classes(&self) -> BTreeSet<UnitClass> {
        self.0.keys().cloned().collect()
    }

    /// Returns, for each shape in a class, the pod to which a unit is offered first.
    pub(crate) fn oldest_of_each_shape(
        &self,
        class: &UnitClass,
    ) -> impl Iterator<Item = &(Timestamp, PodUid)> {
        self.0.get(class).into_iter().flat_map(BTreeMap::values).filter_map(BTreeSet::first)
    }
}

/// Returns the class of units that may serve a pod. `None` if the pod names no region or no GPU model, holds
/// a part of a GPU, or is best-effort.
pub(crate) fn class(spec: &PodSpec) -> Option<UnitClass> {
    let pod = &spec.description;
    if is_best_effort(&pod.qos) {
        return None;
    }
    Some(unit_class(pod.region.as_ref()?, pod.gpu_model.as_ref()?, spec.unit_gpus?))
}

/// Returns the class of a region, a GPU model and a number of GPUs in thousandths.
pub(crate) fn unit_class(region: &Text, gpu_model: &Text, gpus: u128) -> UnitClass {
    (names::shared(region, names::place), names::shared(gpu_model, names::gpu_model), gpus)
}

fn shape(spec: &PodSpec) -> PodShape {
    let zone = spec.description.zone.as_ref().map(|zone| names::shared(zone, names::place));
    (zone, spec.requests.cpu, spec.requests.memory)
}
