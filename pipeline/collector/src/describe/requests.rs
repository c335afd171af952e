//! Effective requests and limits of a pod, by the rules of the scheduler.
//!
//! The rules match `PodRequests` and `PodLimits` in Kubernetes' component-helpers:
//! 1. A container needs the largest of three quantities while a resize is under way: its spec, the kubelet's
//!    allocation and the runtime's setting. A resize that the node can never grant does not count.
//! 2. Containers and sidecars (init containers that always restart) run together: their needs are added.
//! 3. An init container runs with the sidecars before it: their needs are added.
//! 4. The pod needs the larger of both sums, for each resource.
//! 5. CPU and memory that are set for the pod as a whole replace these amounts.
//! 6. The overhead of the runtime class is added: always to requests, and to limits that exist.

use std::collections::BTreeMap;

use prorata_schemas::event::Quantities;
use prorata_schemas::quantity::{CPU, MEMORY, QuantityError};

use crate::object::quantities::{add, add_one, parse, raise};
use crate::object::{Container, ContainerStatus, PodObject, ResourceList, Resources};

/// Returns the effective requests and limits of a pod, in this order.
///
/// # Errors
/// If a quantity does not parse.
pub fn effective(pod: &PodObject) -> Result<(Quantities, Quantities), QuantityError> {
    let requests = folded(pod, &Side { of: |resources| &resources.requests, allocated: true })?;
    let limits = folded(pod, &Side { of: |resources| &resources.limits, allocated: false })?;
    let overhead = parse(&pod.spec.overhead)?;
    let mut all_requests = requests;
    add(&mut all_requests, &overhead);
    let mut all_limits = limits;
    for (name, quantity) in
        overhead.iter().filter(|(name, _)| all_limits.contains_key(*name)).collect::<Vec<_>>()
    {
        add_one(&mut all_limits, name, quantity);
    }
    Ok((all_requests, all_limits))
}

/// Selects requests or limits.
struct Side {
    of: fn(&Resources) -> &ResourceList,
    /// Whether the kubelet's allocation counts.
    allocated: bool,
}

fn folded(pod: &PodObject, side: &Side) -> Result<Quantities, QuantityError> {
    let resize = Resize::of(pod);
    let mut together = Quantities::new();
    for container in &pod.spec.containers {
        add(&mut together, &resize.needed(container, side)?);
    }
    let mut sidecars = Quantities::new();
    let mut at_start = Quantities::new();
    for container in &pod.spec.init_containers {
        let needed = resize.needed(container, side)?;
        if container.restart_policy.as_deref() == Some("Always") {
            add(&mut together, &needed);
            add(&mut sidecars, &needed);
            raise(&mut at_start, &sidecars);
        } else {
            let mut with_sidecars = needed;
            add(&mut with_sidecars, &sidecars);
            raise(&mut at_start, &with_sidecars);
        }
    }
    raise(&mut together, &at_start);
    if let Some(resources) = &pod.spec.resources {
        let whole = parse((side.of)(resources))?;
        together.extend(whole.into_iter().filter(|(name, _)| matches!(&**name, CPU | MEMORY)));
    }
    Ok(together)
}

/// The state of resizes, from the statuses.
struct Resize<'a> {
    statuses: BTreeMap<&'a str, &'a ContainerStatus>,
    infeasible: bool,
}

impl<'a> Resize<'a> {
    fn of(pod: &'a PodObject) -> Self {
        let all = pod.status.container_statuses.iter().chain(&pod.status.init_container_statuses);
        let infeasible = pod.status.conditions.iter().any(|condition| {
            condition.r#type == "PodResizePending" && condition.reason.as_deref() == Some("Infeasible")
        });
        Self { statuses: all.map(|status| (status.name.as_str(), status)).collect(), infeasible }
    }

    /// Returns the quantities that a container needs. An init container that ends is never resized.
    fn needed(&self, container: &Container, side: &Side) -> Result<Quantities, QuantityError> {
        let spec = parse((side.of)(&container.resources))?;
        let status = self.statuses.get(container.name.as_str());
        let Some((status, actual)) = status.and_then(|status| Some((status, status.resources.as_ref()?)))
        else {
            return Ok(spec);
        };
        let mut needed = parse((side.of)(actual))?;
        if side.allocated {
            raise(&mut needed, &parse(&status.allocated_resources)?);
        }
        if !self.infeasible {
            raise(&mut needed, &spec);
        }
        Ok(needed)
    }
}
