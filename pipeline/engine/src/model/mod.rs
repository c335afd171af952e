//! The data that the rules and the sweep share. It consists of an organization at an hour's edge, the
//! properties that the rules read from descriptions, measured usage, and the slices of an hour. This module
//! imports no rule. So the rules are above it, and the sweep (`timeline/`) is above the rules.

pub(crate) mod named_nodes;
pub(crate) mod per_resource;
pub(crate) mod pool_price;
pub(crate) mod samples;
pub(crate) mod slices;
pub(crate) mod span;
pub(crate) mod spec;
pub(crate) mod state;
pub(crate) mod usage;
