//! Prices that are not in the hour's currency (RULES.md, section 11). If the rules change an organization's
//! currency, a price that stays in force has no amount in the new currency.
//!
//! **Decides** which descriptions have such a price. These descriptions price nothing. While an hour is
//! folded, their currency begins with a mark that no currency has, so every reader of a price sees it. The
//! state at the hour's end has no marks.

use std::sync::Arc;

use prorata_schemas::Text;
use prorata_schemas::event::{CommitmentSet, Event, Payload, PoolSet, ReservationSet};
use prorata_schemas::money::UnitPrice;
use prorata_schemas::rows::{CostRow, Unpriced};

use crate::model::state::State;

/// The mark before the currency of a price that is not in the hour's currency.
const MARK: char = '!';

/// Returns whether a price with this currency is not in the hour's currency.
pub(crate) fn is_other(currency: &str) -> bool {
    currency.starts_with(MARK)
}

/// Returns the reason that there is no price; `None` if the price is in the hour's currency.
pub(crate) fn reason(currency: &str) -> Option<Unpriced> {
    is_other(currency).then_some(Unpriced::OtherCurrency)
}

/// Returns a price as the hour counts it: zero if it is not in the hour's currency.
pub(crate) fn counted(price: UnitPrice, currency: &str) -> UnitPrice {
    if is_other(currency) { UnitPrice::ZERO } else { price }
}

/// Marks every price that is not in `ours`. Returns whether there is any such price.
pub(crate) fn mark(state: &mut State, events: &mut [Event], ours: &str) -> bool {
    let mut any = false;
    let mut mark = |currency: &mut Text| {
        *currency = format!("{MARK}{currency}").into();
        any = true;
    };
    for_each(state, |currency| currency != ours, &mut mark);
    for event in events {
        if let Some(currency) = currency_of(&mut event.payload).filter(|currency| &***currency != ours) {
            mark(currency);
        }
    }
    any
}

/// Removes all marks from a state.
pub(crate) fn unmark(state: &mut State) {
    for_each(state, is_other, &mut strip);
}

/// Removes all marks from rows.
pub(crate) fn unmark_rows(rows: &mut [Box<CostRow>]) {
    for row in rows {
        if let Some(node) = row.node.as_mut().filter(|node| is_other(&node.currency)) {
            strip(&mut Arc::make_mut(node).currency);
        }
        if let Some(set) = &mut row.reservation {
            unmark_reservation(set);
        }
        if let Some(set) = &mut row.commitment {
            unmark_commitment(set);
        }
    }
}

/// Removes the mark from a reservation, if it has one.
pub(crate) fn unmark_reservation(set: &mut Arc<ReservationSet>) {
    if is_other(&set.currency) {
        strip(&mut Arc::make_mut(set).currency);
    }
}

/// Removes the mark from a commitment, if it has one.
pub(crate) fn unmark_commitment(set: &mut Arc<CommitmentSet>) {
    if is_other(&set.currency) {
        strip(&mut Arc::make_mut(set).currency);
    }
}

/// Removes the mark from a pool, if it has one.
pub(crate) fn unmark_pool(set: &mut Arc<PoolSet>) {
    if is_other(&set.currency) {
        strip(&mut Arc::make_mut(set).currency);
    }
}

fn strip(currency: &mut Text) {
    *currency = currency.strip_prefix(MARK).unwrap_or(currency).into();
}

/// Calls `change` for every currency in a state for which `is_it` returns `true`.
fn for_each(state: &mut State, is_it: impl Fn(&str) -> bool, change: &mut impl FnMut(&mut Text)) {
    let nodes = state.nodes.iter_mut().map(|(_, node)| &mut node.description);
    nodes.filter(|node| is_it(&node.currency)).for_each(|node| change(&mut Arc::make_mut(node).currency));
    let rates = state.rates.iter_mut().map(|(_, rate)| rate);
    rates.filter(|rate| is_it(&rate.currency)).for_each(|rate| change(&mut Arc::make_mut(rate).currency));
    let pools = state.pools.values_mut();
    pools.filter(|pool| is_it(&pool.currency)).for_each(|pool| change(&mut Arc::make_mut(pool).currency));
    let commitments = state.commitments.values_mut().filter(|commitment| is_it(&commitment.currency));
    commitments.for_each(|commitment| change(&mut Arc::make_mut(commitment).currency));
    let reservations = state.reservations.values_mut().map(|reservation| &mut reservation.description);
    let reservations = reservations.filter(|reservation| is_it(&reservation.currency));
    reservations.for_each(|reservation| change(&mut Arc::make_mut(reservation).currency));
}

fn currency_of(payload: &mut Payload) -> Option<&mut Text> {
    match payload {
        Payload::NodeStarted(node) => Some(&mut node.currency),
        Payload::RateSet(rate) => Some(&mut rate.currency),
        Payload::PoolSet(pool) => Some(&mut pool.currency),
        Payload::CommitmentSet(commitment) => Some(&mut commitment.currency),
        Payload::ReservationSet(reservation) => Some(&mut reservation.currency),
        // Bills have been opened before, and count in their own currency only.
        Payload::BillSet(_)
        | Payload::NodeStopped(_)
        | Payload::PodStarted(_)
        | Payload::PodStopped(_)
        | Payload::PodUsage(_)
        | Payload::ReservationReleased(_)
        | Payload::CommitmentDeleted(_)
        | Payload::QuotaSet(_)
        | Payload::QuotaDeleted(_)
        | Payload::PoolDeleted(_)
        | Payload::BillingPeriodClosed(_) => None,
    }
}
