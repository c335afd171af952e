//! Runs the engine over a whole history, hour by hour.

use prorata_engine::{HourEvents, State, close_hour, has_hour};
use prorata_reference::text::ORGANIZATION;
use prorata_schemas::event::EventRecord;
use prorata_schemas::rows::HourTables;
use prorata_schemas::rules::Rules;
use prorata_schemas::time::Hour;

/// Returns the hours from the hour of the first event through `through`, each with its events in arrival
/// order.
pub fn by_hour(records: &[EventRecord], through: Hour) -> Vec<(Hour, Vec<EventRecord>)> {
    let Some(first) = records.iter().map(|record| record.event.event_time.hour()).min() else {
        return Vec::new();
    };
    let events = |hour: i64| {
        let here = records.iter().filter(|record| record.event.event_time.hour() == Hour(hour));
        (Hour(hour), here.cloned().collect())
    };
    (first.0..=through.0).map(events).collect()
}

/// Returns the engine's tables of every hour that the organization has, through `through`.
pub fn engine_tables(
    records: &[EventRecord],
    rules: &Rules,
    through: Hour,
) -> Result<Vec<HourTables>, String> {
    let mut state = State::new(ORGANIZATION.into());
    let mut tables = Vec::new();
    for (hour, events) in by_hour(records, through) {
        let events = HourEvents::of(hour, events);
        if !has_hour(&state, &events) {
            state = State::new(ORGANIZATION.into());
            continue;
        }
        let closed = close_hour(state, events, rules).map_err(|error| format!("{hour}: {error}"))?;
        state = closed.0;
        tables.push(closed.1);
    }
    Ok(tables)
}
