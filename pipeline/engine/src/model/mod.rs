//! The data that the rules and the sweep share: an organization at an hour's edge, what the rules read from
//! descriptions, measured usage, and the slices of an hour. It imports no rule, so the rules lie above it and
//! the sweep (`timeline/`) above the rules.

pub(crate) mod named_nodes;
pub(crate) mod per_resource;
pub(crate) mod pool_price;
pub(crate) mod samples;
pub(crate) mod slices;
pub(crate) mod span;
pub(crate) mod spec;
pub(crate) mod state;
pub(crate) mod usage;
