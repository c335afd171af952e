//! Governing quotas of pods, and the pods' labels (RULES.md, section 4).

use prorata_schemas::Text;
use prorata_schemas::event::{PodStarted, QuotaKind};
use prorata_schemas::ids::{ClusterId, PodUid, QuotaId};
use prorata_schemas::quantity::{CPU, MEMORY, NVIDIA_GPU};
use prorata_schemas::rows::QuotaState;
use prorata_schemas::rules::Rules;

use crate::hour::{ResourceStanding, Standing};
use crate::resources::{amount, gpu_memory, requested, units};
use crate::rounding::{Exact, fraction, larger, smaller, whole, zero};
use crate::world::{Quota, QuotaKey, World};

/// Returns the label of a pod: the quota that governs it, and its state under this quota. `None` if no quota
/// that counts governs the pod.
pub fn label(standings: &[Standing], cluster_id: &str, pod_uid: &str) -> Option<(QuotaId, QuotaState)> {
    for standing in standings.iter().filter(|standing| *standing.key.0 == *cluster_id) {
        for (uid, state) in &standing.pods {
            if **uid == *pod_uid {
                return Some((standing.key.1.clone(), *state));
            }
        }
    }
    None
}

/// Returns all quotas that count, with their pods and amounts.
pub fn standings(world: &World, rules: &Rules) -> Vec<Standing> {
    let mut standings = Vec::new();
    for (key, quota) in world.quotas.iter().filter(|(key, quota)| counts(world, key, quota)) {
        standings.push(standing(world, key, quota, rules));
    }
    share_pools(&mut standings);
    standings
}

/// Returns whether a quota counts. An elastic quota does not count if others govern all its namespaces. A
/// quota without namespaces does not count either.
fn counts(world: &World, key: &QuotaKey, quota: &Quota) -> bool {
    let governs_one =
        quota.set.namespaces.iter().any(|namespace| governing(world, &key.0, namespace) == Some(key));
    match quota.set.kind {
        QuotaKind::ElasticQuota => governs_one,
        QuotaKind::CompositeElasticQuota => !quota.set.namespaces.is_empty(),
    }
}

/// Returns the quota that governs a namespace; `None` if no quota names it. A composite quota comes before
/// elastic quotas, then comes the quota that was set first, then the lowest id.
fn governing<'a>(world: &'a World, cluster_id: &ClusterId, namespace: &Text) -> Option<&'a QuotaKey> {
    let claims = world
        .quotas
        .iter()
        .filter(|(key, quota)| key.0 == *cluster_id && quota.set.namespaces.contains(namespace));
    let first = claims.min_by_key(|(key, quota)| {
        (quota.set.kind != QuotaKind::CompositeElasticQuota, quota.first_set, key.1.clone())
    });
    first.map(|(key, _)| key)
}

/// Labels the pods of one quota.
fn standing(world: &World, key: &QuotaKey, quota: &Quota, rules: &Rules) -> Standing {
    let governed =
        |pod: &PodStarted| pod.cluster_id == key.0 && governing(world, &key.0, &pod.namespace) == Some(key);
    let mut pods: Vec<&PodStarted> =
        world.pods.values().map(|pod| &*pod.set).filter(|pod| governed(pod)).collect();
    pods.sort_by_key(|pod| order(pod, rules));
    let min = &quota.set.min;
    let mut resources: Vec<ResourceStanding> = min
        .iter()
        .map(|(resource, amount)| ResourceStanding {
            resource: resource.clone(),
            min: units(amount.amount, resource),
            max: quota
                .set
                .max
                .as_ref()
                .and_then(|max| max.get(resource))
                .map(|max| units(max.amount, resource)),
            in_quota: zero(),
            over_quota: zero(),
            pool: zero(),
            guaranteed: zero(),
            borrowed: zero(),
            lent: zero(),
        })
        .collect();
    let mut labelled = Vec::new();
    for pod in pods {
        let requests: Vec<Exact> =
            resources.iter().map(|of| requested(&pod.requests, &of.resource, rules)).collect();
        let within = resources.iter().zip(&requests).all(|(of, request)| of.used() + request <= of.min);
        for (of, request) in resources.iter_mut().zip(requests) {
            if within {
                of.in_quota += request;
            } else {
                of.over_quota += request;
            }
        }
        let state = if within { QuotaState::InQuota } else { QuotaState::OverQuota };
        labelled.push((pod.pod_uid.clone(), state));
    }
    Standing { key: key.clone(), set: quota.set.clone(), pods: labelled, resources }
}

/// Creation in whole seconds, priority, requests, names.
type PodOrder = (i64, i32, Exact, u128, u128, u128, Text, Text, PodUid);

/// Returns the place of a pod in the order in which a quota's pods are counted.
fn order(pod: &PodStarted, rules: &Rules) -> PodOrder {
    (
        pod.created_at.seconds(),
        pod.priority,
        gpu_memory(&pod.requests, rules),
        amount(&pod.requests, NVIDIA_GPU),
        amount(&pod.requests, CPU),
        amount(&pod.requests, MEMORY),
        pod.namespace.clone(),
        pod.pod_name.clone(),
        pod.pod_uid.clone(),
    )
}

/// Computes the pool of unused minima of each cluster and resource, and each quota's part in borrowing and
/// lending.
fn share_pools(standings: &mut [Standing]) {
    let mut pools: Vec<(ClusterId, Text)> = Vec::new();
    for standing in standings.iter() {
        pools.extend(standing.resources.iter().map(|of| (standing.key.0.clone(), of.resource.clone())));
    }
    pools.sort();
    pools.dedup();
    for (cluster_id, resource) in pools {
        let mut members: Vec<&mut ResourceStanding> = standings
            .iter_mut()
            .filter(|standing| standing.key.0 == cluster_id)
            .flat_map(|standing| standing.resources.iter_mut())
            .filter(|of| of.resource == resource)
            .collect();
        let pool: Exact = members.iter().map(|of| of.free()).sum();
        let minima: Exact = members.iter().map(|of| of.min.clone()).sum();
        let borrowed: Exact = members.iter().map(|of| larger(of.used() - &of.min, zero())).sum();
        for of in &mut members {
            of.guaranteed = floor(&(&pool * fraction(&of.min, &minima)), &resource);
            of.borrowed = larger(of.used() - &of.min, zero());
            let others = &borrowed - &of.borrowed;
            of.lent = smaller(others, pool.clone()) * fraction(&of.free(), &pool);
            of.pool = pool.clone();
        }
    }
}

/// Rounds down to the millicore, byte, or whole unit of any other resource.
fn floor(amount: &Exact, resource: &str) -> Exact {
    if resource == CPU { (amount * whole(1000)).floor() / whole(1000) } else { amount.floor() }
}
