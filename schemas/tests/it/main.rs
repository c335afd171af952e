//! Events, bodies and quantities, and the schemas of every release.

#![expect(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "helpers of tests")]

mod bills;
mod body;
mod bounds;
mod compatibility;
mod division;
mod quantity;
mod shared;
mod stored_forms;
