//! The accounting rules, pure.

use prorata_schemas::event::EventRecord;
use prorata_schemas::rows::HourTables;
use prorata_schemas::rules::Rules;
use prorata_schemas::time::Hour;
use prorata_schemas::Text;
use serde::{Deserialize, Serialize};

/// One organization at an hour's edge.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct State {
    /// The organization.
    pub organization_id: Text,
}

impl State {
    /// An organization before its first event.
    pub fn new(organization_id: Text) -> Self {
        Self { organization_id }
    }
}

/// What stops a fold: never input, only a broken assumption.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    /// An amount passed the range of its column.
    #[error("amount out of range: {0}")]
    Range(String),
}

/// Folds one hour of one organization.
///
/// # Errors
/// See [`EngineError`].
pub fn close_hour(
    _state: State,
    _hour: Hour,
    _events: Vec<EventRecord>,
    _rules: &Rules,
) -> Result<(State, HourTables), EngineError> {
    Err(EngineError::Range("not yet".into()))
}
