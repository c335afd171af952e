//! The pure accounting rules: the events of an hour and the state at its start determine the hour's rows and
//! the state at its end. RULES.md explains the rules; the comments cite its sections.
//!
//! ```text
//! events ─ order ─► timeline ──► slices ──► rows ─────► drafts ──► rounded rows ─► tables
//!                   (matching,   (spans in  (split,     (exact     (largest        (usage and
//!                    coverage,    which      charges)    costs)     remainder)      totals)
//!                    labels)      nothing
//!                                 changes)
//! ```
//! Read `close_hour` first, then `timeline/mod.rs`, `model/slices.rs`, a file of `rules/` and its section,
//! and `rows/mod.rs`.
//!
//! The data (`model/`) is below the rules (`rules/`), and the rules are below the sweep (`timeline/`) that
//! applies the events. Rows read the slices of the sweep.
//!
//! There is no clock, no I/O, no randomness, no floats, and no order that depends on hashing. Pods and nodes
//! of a large organization are processed on all cores, and their results are taken in order. So the rows do
//! not depend on the number of cores. Arrival order never matters. A run that stops after any hour and
//! continues from the state gives the same rows.

#![deny(
    clippy::float_arithmetic,
    clippy::wildcard_enum_match_arm,
    clippy::iter_over_hash_type,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss
)]

mod currency;
mod error;
mod exact;
mod hour_events;
mod model;
mod rows;
mod rules;
mod tables;
mod timeline;
pub mod trace;
mod work;

use std::sync::Arc;

use prorata_schemas::rows::HourTables;
use prorata_schemas::rules::Rules;

use crate::rows::draft::RoundedRows;
use crate::rows::slice_steps;
use crate::rules::bill::Bills;
use crate::trace::{Focus, Trace};

pub use error::EngineError;
pub use hour_events::HourEvents;
pub use model::per_resource::PerResource;
pub use model::state::{NodeKey, QuotaKey, State};
pub use timeline::order::OrderedEvents;
pub use work::{ROWS_MAX, WORK_MAX};

/// Version of these rules (RULES.md, section 7). Hours folded under another version are comparable only after
/// they are folded again.
pub const RULES_ENGINE_VERSION: u32 = 1;

/// Returns whether an organization has this hour. `state` is the organization's state at the hour's start,
/// and `events` are its events in the hour. If the organization does not have the hour, the tables leave it
/// out, and the state is dropped (RULES.md, section 7).
pub fn has_hour(state: &State, events: &HourEvents) -> bool {
    !events.is_empty() || !state.is_empty()
}

/// Closes one hour of one organization. Returns the state at the hour's end, and the tables of the hour.
/// `events` are all valid events of the organization with an event time in the hour, in any order, duplicates
/// included. Hours follow one another without gaps, from the hour of the organization's first event
/// (RULES.md, section 7).
///
/// # Errors
/// If an amount does not fit its column, the hour takes too much work, or costs do not add up: see
/// [`EngineError`].
pub fn close_hour(
    state: State,
    events: impl Into<OrderedEvents>,
    rules: &Rules,
) -> Result<(State, HourTables), EngineError> {
    let (state, tables, _) = close(state, events.into(), rules, None)?;
    Ok((state, tables))
}

/// Closes one hour like [`close_hour`], and also returns the steps to the rows in focus.
///
/// # Errors
/// Returns the errors of [`close_hour`].
pub fn close_hour_traced(
    state: State,
    events: impl Into<OrderedEvents>,
    rules: &Rules,
    focus: Focus,
) -> Result<(State, HourTables, Trace), EngineError> {
    close(state, events.into(), rules, Some(&Arc::new(focus)))
}

fn close(
    state: State,
    events: OrderedEvents,
    rules: &Rules,
    focus: Option<&Arc<Focus>>,
) -> Result<(State, HourTables, Trace), EngineError> {
    let organization_id = state.organization_id().clone();
    let currency = rules.currency_of(&organization_id).clone();
    let OrderedEvents { hour, mut events, samples, counts } = events;
    let mut state = state;
    let bills = Bills::open(&mut state, &mut events, hour, &currency);
    let is_final = bills.is_final();
    let has_other_currency = self::currency::mark(&mut state, &mut events, &currency);
    let mut timeline = timeline::run(state, hour, events, samples, &bills, rules, focus)?;
    let mut spend = std::mem::take(&mut timeline.state.spend);
    let mut bill_steps = trace::Recorder::new(focus);
    let mut bills = bills.settle(&mut timeline.slices, &mut bill_steps)?;
    timeline.state.bills = std::mem::take(&mut bills.saved);
    timeline.state.closed = std::mem::take(&mut bills.closed);
    timeline.state.end_month(hour);
    let mut plan_steps = trace::Recorder::new(focus);
    rules::plan::cover(&mut timeline.slices, rules, &mut plan_steps)?;
    let (rounded, nodes, steps) = rows::rows(&timeline, &bills, rules, focus)?;
    let RoundedRows { rows: mut cost_allocation, node_cost, commitment_cost, bill } = rounded;

    if has_other_currency {
        self::currency::unmark_rows(&mut cost_allocation);
    }
    let slices = &timeline.slices;
    let (nodes, rows) = (&nodes, cost_allocation.as_slice());
    let pool_hour = tables::PoolHour { slices, samples: &timeline.samples, nodes, rows, hour };
    let tables = HourTables {
        currency,
        organization_id,
        rules_version: rules.version.clone(),
        gpu_resources: rules.gpu_resources.clone(),
        hour,
        reservation_usage: tables::reservation_usage(slices, &cost_allocation)?,
        commitment_utilization: tables::commitment_utilization(slices, &cost_allocation, hour)?,
        quota_usage: tables::quota_usage(&timeline.quota_ledgers, &slices.pods, &cost_allocation)?,
        pool_usage: tables::pool_usage(&pool_hour, &mut spend)?,
        totals: tables::totals(&cost_allocation, [node_cost, commitment_cost], bill, counts, is_final)?,
        cost_allocation,
    };
    let mut trace = Trace {
        nodes: steps.nodes,
        rows: steps.rows,
        plans: plan_steps.finish(),
        bills: bill_steps.finish(),
        divisions: steps.divisions,
        ..timeline.trace
    };
    if let Some(focus) = focus {
        trace.pods = slice_steps::pods(slices, focus, rules);
        trace.reservations = slice_steps::reservations(slices, focus);
        trace.commitments = slice_steps::commitments(slices, focus);
    }
    let mut state = State { spend, ..timeline.state };
    if has_other_currency {
        self::currency::unmark(&mut state);
    }
    Ok((state, tables, trace))
}
