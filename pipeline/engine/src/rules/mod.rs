//! The accounting rules: what is matched, covered, labelled and charged. One file for each rule.

pub(crate) mod commitment;
pub(crate) mod pool;
pub(crate) mod quota;
pub(crate) mod quota_ledger;
pub(crate) mod reservation;
pub(crate) mod split;
