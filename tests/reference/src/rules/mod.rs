//! The accounting rules, each at one instant or over one stretch of time. A file is a section of RULES.md.

pub mod bill;
pub mod commitment;
pub mod plan;
pub mod pool;
pub mod quota;
pub mod reservation;
pub mod split;
