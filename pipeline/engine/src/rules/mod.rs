//! The accounting rules: what is matched, covered, labelled, charged and split. Each file is a section of
//! RULES.md, and opens with what it decides, in which order of precedence, on which intervals and how it
//! rounds.

pub(crate) mod commitment;
pub(crate) mod coverage;
pub(crate) mod pool;
pub(crate) mod quota;
pub(crate) mod quota_labels;
pub(crate) mod quota_ledger;
pub(crate) mod reservation;
pub(crate) mod split;
pub(crate) mod walk;
