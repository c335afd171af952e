//! Matches of pods with units of reservations (RULES.md, section 2).

use std::cmp::Reverse;

use prorata_schemas::event::{PodStarted, ReservationSet};
use prorata_schemas::ids::{PodUid, ReservationId};
use prorata_schemas::quantity::{CPU, MEMORY};
use prorata_schemas::rules::Rules;

use crate::names;
use crate::resources::{amount, milli_gpus};
use crate::world::{Match, World};

/// Brings the matches in line with the world after one step at `now`.
pub fn settle(world: &mut World, now: i64, rules: &Rules) {
    end_broken_matches(world, rules);
    end_matches_above_quantity(world);
    offer_free_units(world, now, rules);
}

/// Ends the matches that no longer satisfy the conditions.
fn end_broken_matches(world: &mut World, rules: &Rules) {
    let World { matches, pods, reservations, .. } = world;
    matches.retain(|uid, held| match (pods.get(uid), reservations.get(&held.reservation_id)) {
        (Some(pod), Some(reservation)) => reservation.effective && fits(&pod.set, &reservation.set, rules),
        _ => false,
    });
}

/// Ends matches above a lowered quantity. The pods with the latest match, then start, then uid lose their
/// matches.
fn end_matches_above_quantity(world: &mut World) {
    for (id, reservation) in &world.reservations {
        let mut holders: Vec<(i64, i64, PodUid)> = Vec::new();
        for (uid, held) in world.matches.iter().filter(|(_, held)| held.reservation_id == *id) {
            let start = world.pods.get(uid).map_or(0, |pod| pod.start);
            holders.push((held.since, start, uid.clone()));
        }
        holders.sort_by_key(|holder| Reverse(holder.clone()));
        let excess = holders.len().saturating_sub(reservation.set.quantity.max(0) as usize);
        for (_, _, uid) in holders.into_iter().take(excess) {
            world.matches.remove(&uid);
        }
    }
}

/// Offers free units to running unmatched pods, oldest start first, then uid. Each takes the smallest unit
/// that fits, by (cpu, memory), then created_at, then id.
fn offer_free_units(world: &mut World, now: i64, rules: &Rules) {
    let mut pods: Vec<(i64, PodUid)> = world.pods.iter().map(|(uid, pod)| (pod.start, uid.clone())).collect();
    pods.sort();
    for (_, uid) in pods {
        let Some(pod) = world.pods.get(&uid) else { continue };
        if world.matches.contains_key(&uid) {
            continue;
        }
        let smallest = world
            .reservations
            .iter()
            .filter(|(id, reservation)| reservation.effective && free_units(world, id, &reservation.set) > 0)
            .filter(|(_, reservation)| fits(&pod.set, &reservation.set, rules))
            .min_by_key(|(id, reservation)| {
                let set = &reservation.set;
                (amount(&set.capacity, CPU), amount(&set.capacity, MEMORY), set.created_at, (*id).clone())
            });
        if let Some((id, _)) = smallest {
            let held = Match { reservation_id: id.clone(), since: now };
            world.matches.insert(uid, held);
        }
    }
}

/// Returns the number of units that no pod holds.
pub fn free_units(world: &World, id: &ReservationId, set: &ReservationSet) -> i64 {
    i64::from(set.quantity) - world.matches.values().filter(|held| held.reservation_id == *id).count() as i64
}

/// Returns whether one unit of the reservation can serve the pod.
fn fits(pod: &PodStarted, unit: &ReservationSet, rules: &Rules) -> bool {
    let serverless = pod.node_id.is_none() && pod.pool_id.is_none();
    let whole = pod.gpus.as_ref().is_none_or(|gpus| gpus.amount % 1000 == 0);
    serverless
        && whole
        && pod.region.as_ref().is_some_and(|region| names::place(region) == names::place(&unit.region))
        && unit.zone.as_ref().is_none_or(|zone| {
            pod.zone.as_ref().is_some_and(|of_pod| names::place(of_pod) == names::place(zone))
        })
        && names::optional_gpu_model(pod.gpu_model.as_ref()) == Some(names::gpu_model(&unit.gpu_model))
        && milli_gpus(&pod.requests, rules) == milli_gpus(&unit.capacity, rules)
        && amount(&pod.requests, CPU) <= amount(&unit.capacity, CPU)
        && amount(&pod.requests, MEMORY) <= amount(&unit.capacity, MEMORY)
        && !matches!(pod.qos.to_ascii_lowercase().as_str(), "besteffort" | "best-effort")
}
