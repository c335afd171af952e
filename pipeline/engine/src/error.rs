//! Reasons why an hour could not be closed. They make no event invalid. Each reason is an amount that does
//! not fit its column, more work than an hour may take, or a broken assumption of the engine.

/// A reason why an hour could not be closed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EngineError {
    /// An amount, in atoms of 10^-12, does not fit a column of 38 digits, 12 of them decimals.
    #[error("amount of {0} x 10^-12 does not fit decimal(38,12)")]
    Range(String),
    /// The requests of one quota's pods do not fit 128 bits, in thousandths or bytes.
    #[error("quota '{quota}': its pods request more {resource} than 2^128 thousandths or bytes")]
    Quota {
        /// The quota.
        quota: String,
        /// Name of the resource.
        resource: String,
    },
    /// The hour takes more work than one hour may take.
    #[error("the hour has more than {max} {of}, the most that one organization may have")]
    Work {
        /// The name of the work.
        of: &'static str,
        /// Maximum amount of this work that an hour may take.
        max: u64,
    },
    /// Costs did not add up to the supply.
    #[error("costs do not add up: {0}")]
    Conservation(String),
}
