//! Applies an hour's events in order and cuts the hour into slices.
//!
//! Matching of reservations takes effect at every step. Coverage and labels depend only on what is running,
//! and a state of no length costs nothing. So one decision at the end of each instant gives the same result
//! as a decision at every step.

pub(crate) mod order;
mod priced_pods;
mod running;
mod schedule;
mod steps;

use std::sync::Arc;

use prorata_schemas::event::{Event, Payload};
use prorata_schemas::ids::PodUid;
use prorata_schemas::rules::Rules;
use prorata_schemas::time::Hour;

use crate::error::EngineError;
use crate::model::state::State;
use crate::model::usage::PackedSamples;
use crate::rules::bill::Bills;
use crate::timeline::order::precedence;
use crate::timeline::running::Running;
use crate::timeline::steps::NeverRan;
use crate::trace::Focus;

pub(crate) use running::Timeline;

/// Applies the hour's events, which are in order, to the state at the hour's start. Samples count
/// independently of what runs, so they are added first. `bills` are the bills of the hour.
///
/// # Errors
/// If the amounts that pods of one quota request exceed 128 bits, or the hour takes too much work.
pub(crate) fn run(
    mut state: State,
    hour: Hour,
    events: Vec<Event>,
    samples: Vec<(PodUid, PackedSamples)>,
    bills: &Bills,
    rules: &Rules,
    focus: Option<&Arc<Focus>>,
) -> Result<Timeline, EngineError> {
    let organization_id = state.organization_id.clone();
    let spend = std::mem::take(&mut state.spend);
    let mut running = Running::restore(state, hour, bills, rules, focus);
    running.end_instant()?;
    running.measure(samples);
    let mut events = events.into_iter().peekable();
    loop {
        let next_event = events.peek().map(|event| event.event_time);
        let next = next_event.into_iter().chain(running.schedule.next()).min();
        let Some(now) = next.filter(|next| *next < hour.end()) else { break };
        running.now = now;
        let mut payloads = Vec::new();
        while let Some(event) = events.next_if(|event| event.event_time == now) {
            payloads.push(event.payload);
        }
        apply_instant(&mut running, payloads)?;
        running.end_instant()?;
    }
    running.now = hour.end();
    running.finish(organization_id, spend)
}

/// Applies all steps of one instant in the order of their places. A scheduled step comes before an event with
/// the same place.
fn apply_instant(running: &mut Running<'_>, payloads: Vec<Payload>) -> Result<(), EngineError> {
    let never_ran = NeverRan::among(&payloads, running);
    let mut payloads = payloads.into_iter().peekable();
    if running.schedule.take_cut(running.now) {
        running.commitments.edge(running.now);
    }
    for step in running.schedule.take_steps(running.now) {
        while let Some(payload) =
            payloads.next_if(|payload| (precedence(payload), payload.natural_key()) < step.place())
        {
            running.apply(payload, &never_ran)?;
        }
        running.apply_scheduled(&step);
    }
    for payload in payloads {
        running.apply(payload, &never_ran)?;
    }
    Ok(())
}
