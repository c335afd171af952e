//! The accounting rules for matching, coverage, labels, charges and splits. Each file is a section of
//! RULES.md or part of a section, and opens with its decisions. A file of a whole section also gives the
//! order of precedence, the ends of intervals and the rounding.

pub(crate) mod bill;
pub(crate) mod commitment;
pub(crate) mod division;
pub(crate) mod plan;
pub(crate) mod pool;
pub(crate) mod quota;
pub(crate) mod quota_labels;
pub(crate) mod quota_ledger;
pub(crate) mod quota_lending;
pub(crate) mod reservation;
pub(crate) mod split;
