//! Lines of providers' bills: what they replace, and the part of a line that each hour has (RULES.md, section
//! 13).

use std::collections::BTreeMap;
use std::sync::Arc;

use prorata_schemas::event::{BillLine, BillSet, ChargeCategory, NodeStarted, UseStatus};
use prorata_schemas::ids::{CommitmentId, ReservationId};
use prorata_schemas::rows::{BilledLine, RowKind};
use prorata_schemas::time::{HOUR_MICROS, Hour, Timestamp};

use crate::hour::{LineAmounts, LineKey, LinePart, Slice, line_key};
use crate::names;
use crate::rounding::{Exact, exact, half_even, hours, largest_remainder, ratio, smaller, zero};
use crate::world::{BillKey, World};

/// Returns the lines that cover an instant.
fn lines(world: &World, at: i64) -> Vec<BilledLine> {
    let mut lines = Vec::new();
    for bill in world.bills.iter().filter(|bill| bill.counts) {
        for (index, line) in bill.set.lines.iter().enumerate() {
            if at < line.period_end.0 {
                let (set, begins_at) = (Arc::clone(&bill.set), Timestamp(bill.start));
                lines.push(BilledLine { set, begins_at, index });
            }
        }
    }
    lines
}

/// Returns whether a line at this instant names the commitment.
pub fn bills_commitment(world: &World, at: i64, id: &CommitmentId) -> bool {
    lines(world, at).iter().any(|line| line.line().commitment_id.as_ref() == Some(id))
}

/// Returns whether a line at this instant names the reservation.
pub fn bills_reservation(world: &World, at: i64, id: &ReservationId) -> bool {
    lines(world, at).iter().any(|line| line.line().reservation_id.as_ref() == Some(id))
}

/// Returns the key under which the node is billed at this instant; `None` if the node is not billed.
pub fn billed_key(world: &World, at: i64, node: &NodeStarted) -> Option<BillKey> {
    let key = key_of_node(node)?;
    let mut lines = lines(world, at).into_iter();
    let is_billed = lines
        .any(|line| kind_of_its_own(line.line()).is_none() && key_of_set(&line.set).as_ref() == Some(&key));
    is_billed.then_some(key)
}

/// Returns the key that a node names; `None` if the node names none.
fn key_of_node(node: &NodeStarted) -> Option<BillKey> {
    let key = node.resource_key.as_ref().filter(|key| !key.is_empty())?;
    Some((names::provider(&node.provider), key.clone()))
}

/// Returns the key of the lines of a set; `None` if they are charges of no resource.
pub fn key_of_set(set: &BillSet) -> Option<BillKey> {
    (!set.resource_key.is_empty()).then(|| (names::provider(&set.provider), set.resource_key.clone()))
}

/// Returns the kind of the line's row if no node can have the line; `None` if nodes under its key have it.
fn kind_of_its_own(line: &BillLine) -> Option<RowKind> {
    if line.commitment_status == Some(UseStatus::Unused) {
        Some(RowKind::CommitmentUnused)
    } else if line.category == ChargeCategory::Purchase && line.commitment_id.is_some() {
        Some(RowKind::CommitmentPurchase)
    } else if line.reservation_status == Some(UseStatus::Unused) {
        Some(RowKind::ReservationUnused)
    } else {
        None
    }
}

/// Returns the parts that each hour has of the lines that cover it, in the order of the lines.
pub fn parts(slices: &[Slice]) -> BTreeMap<Hour, Vec<LinePart>> {
    let mut left: BTreeMap<LineKey, LineAmounts> = BTreeMap::new();
    let mut parts: BTreeMap<Hour, Vec<LinePart>> = BTreeMap::new();
    for slices in slices.chunk_by(|one, next| one.from / HOUR_MICROS == next.from / HOUR_MICROS) {
        let Some(first) = slices.first() else { continue };
        let (hour, times) = (Timestamp(first.from).hour(), times(slices));
        let mut lines = lines(&first.world, first.from);
        lines.sort_by(|one, next| one.key().cmp(&next.key()));
        for line in lines {
            let time = key_of_set(&line.set).and_then(|key| times.get(&key));
            let rest = left.entry(line_key(&line)).or_insert_with(|| amounts(line.line()));
            let amounts = take(rest, &line, hour, time.unwrap_or(&zero()));
            let shared = if time.is_some() { None } else { Some(RowKind::SharedCharge) };
            let kind = kind_of_its_own(line.line()).or(shared);
            parts.entry(hour).or_default().push(LinePart { line, kind, amounts });
        }
    }
    parts
}

/// Returns the time of all nodes under each key, in hours.
fn times(slices: &[Slice]) -> BTreeMap<BillKey, Exact> {
    let mut times: BTreeMap<BillKey, Exact> = BTreeMap::new();
    for slice in slices {
        for key in slice.world.nodes.values().filter_map(|node| key_of_node(&node.set)) {
            *times.entry(key).or_default() += hours(slice.to - slice.from);
        }
    }
    times
}

/// Returns all amounts of a line.
fn amounts(line: &BillLine) -> LineAmounts {
    let hours = line.hours.map_or_else(zero, exact);
    [exact(line.billed_cost), exact(line.effective_cost), exact(line.list_cost), hours]
}

/// Takes the part of an hour from the amounts that earlier hours left of a line. Nodes under the line's key
/// ran for this time in the hour.
fn take(left: &mut LineAmounts, line: &BilledLine, hour: Hour, time: &Exact) -> LineAmounts {
    let end = line.line().period_end;
    if end <= hour.end() {
        return std::mem::take(left);
    }
    let all = amounts(line.line());
    let hours = &all[3];
    let part = if *hours > zero() && kind_of_its_own(line.line()).is_none() {
        smaller(time.clone(), left[3].clone()) / hours
    } else {
        ratio(HOUR_MICROS, end.0 - line.begins_at.0)
    };
    let taken = all.map(|amount| exact(half_even(&(amount * &part))));
    for (left, taken) in left.iter_mut().zip(&taken) {
        *left -= taken;
    }
    taken
}

/// Divides each amount over nodes or pods by their weights, by largest remainder.
pub fn by_weight(amounts: &LineAmounts, weights: &[Exact]) -> Vec<LineAmounts> {
    let all: Exact = weights.iter().sum();
    let mut divided = vec![LineAmounts::default(); weights.len()];
    for (index, amount) in amounts.iter().enumerate() {
        let parts: Vec<Exact> = weights.iter().map(|weight| amount * weight / &all).collect();
        for (of_one, part) in divided.iter_mut().zip(largest_remainder(half_even(amount), &parts)) {
            of_one[index] = exact(part);
        }
    }
    divided
}
