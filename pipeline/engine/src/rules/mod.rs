//! The accounting rules: what is matched, covered, labelled, charged and split. Each file is a section of
//! RULES.md or a part of one, and opens with what it decides; a section's with the order of precedence, the
//! ends of intervals and the rounding, too.

pub(crate) mod commitment;
pub(crate) mod free_units;
pub(crate) mod pool;
pub(crate) mod quota;
pub(crate) mod quota_labels;
pub(crate) mod quota_ledger;
pub(crate) mod quota_lending;
pub(crate) mod reservation;
pub(crate) mod split;
pub(crate) mod waiting;
