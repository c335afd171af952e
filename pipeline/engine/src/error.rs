//! What stops a fold. Never input: valid events cannot cause these, only a broken assumption can.

/// Why an hour could not be closed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EngineError {
    /// An amount does not fit a column of 38 digits, 12 of them decimals.
    #[error("amount of {0} units of 10^-12 does not fit decimal(38,12)")]
    Range(String),
    /// Costs did not add up to their supply.
    #[error("costs do not add up: {0}")]
    Conservation(String),
}
