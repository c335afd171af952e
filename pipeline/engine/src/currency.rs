//! Prices in another currency than the hour's (RULES.md, section 11): a price that runs on while the rules
//! change an organization's currency has no number in the new one.
//!
//! **Decides** which descriptions those are, and that they price nothing. While an hour is folded, their
//! currency begins with a mark that no currency has, so that every reader of a price sees it; the state at
//! the hour's end has none.

use std::sync::Arc;

use prorata_schemas::Text;
use prorata_schemas::event::{Event, Payload};
use prorata_schemas::money::UnitPrice;
use prorata_schemas::rows::{CostRow, Unpriced};

use crate::timeline::state::State;

/// Stands before the currency of a price that is not in the hour's.
const MARK: char = '!';

/// Whether this is the currency of a price that is not in the hour's.
pub(crate) fn is_other(currency: &str) -> bool {
    currency.starts_with(MARK)
}

/// Why a price in this currency is none.
pub(crate) fn reason(currency: &str) -> Option<Unpriced> {
    is_other(currency).then_some(Unpriced::OtherCurrency)
}

/// A price as the hour counts it: zero in another currency.
pub(crate) fn counted(price: UnitPrice, currency: &str) -> UnitPrice {
    if is_other(currency) { UnitPrice::ZERO } else { price }
}

/// Marks every price that is not in `ours`. True if there is any.
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

/// Takes all marks away.
pub(crate) fn unmark(state: &mut State) {
    for_each(state, is_other, &mut strip);
}

/// Takes all marks away.
pub(crate) fn unmark_rows(rows: &mut [Box<CostRow>]) {
    for row in rows {
        if let Some(node) = row.node.as_mut().filter(|node| is_other(&node.currency)) {
            strip(&mut Arc::make_mut(node).currency);
        }
        if let Some(set) = row.reservation.as_mut().filter(|set| is_other(&set.currency)) {
            strip(&mut Arc::make_mut(set).currency);
        }
        if let Some(set) = row.commitment.as_mut().filter(|set| is_other(&set.currency)) {
            strip(&mut Arc::make_mut(set).currency);
        }
    }
}

fn strip(currency: &mut Text) {
    *currency = currency.strip_prefix(MARK).unwrap_or(currency).into();
}

/// Changes those currencies in a state that are to be changed.
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
        Payload::NodeStopped(_)
        | Payload::PodStarted(_)
        | Payload::PodStopped(_)
        | Payload::PodUsage(_)
        | Payload::ReservationReleased(_)
        | Payload::CommitmentDeleted(_)
        | Payload::QuotaSet(_)
        | Payload::QuotaDeleted(_)
        | Payload::PoolDeleted(_) => None,
    }
}
