//! Effective requests and limits of a pod, as the scheduler counts them.
//!
//! The rule is that of `PodRequests` and `PodLimits` in Kubernetes' component-helpers:
//! 1. a container needs the largest of what its spec asks, what the kubelet has set aside and what the
//!    runtime has set, while a resize is under way; a resize that its node can never grant does not count;
//! 2. containers and sidecars (init containers that restart always) run together: their sum;
//! 3. an init container runs with the sidecars before it: their sum;
//! 4. the pod needs the larger of both, for each resource;
//! 5. cpu and memory that are set for the pod as a whole replace that;
//! 6. the overhead of its runtime class is added: to requests always, to limits where there is one.

use std::collections::BTreeMap;

use prorata_schemas::event::Quantities;
use prorata_schemas::quantity::{CPU, MEMORY, QuantityError};

use super::quantities::{add, add_one, parse, raise};
use crate::object::{Container, ContainerStatus, PodObject, ResourceList, Resources};

/// Effective requests and limits of a pod, in this order.
///
/// # Errors
/// When a quantity does not parse.
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

/// Requests, or limits.
struct Side {
    of: fn(&Resources) -> &ResourceList,
    /// Whether what the kubelet has set aside counts.
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

/// What the statuses say of resizes.
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

    /// What a container needs. An init container that ends is never resized.
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
