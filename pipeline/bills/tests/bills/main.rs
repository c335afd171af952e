//! Imports of documents of every format, with figures computed by hand, and laws for random documents.

#![expect(clippy::unwrap_used, clippy::panic, reason = "helpers of tests")]

mod azure;
mod columnar;
mod cur;
mod faults;
mod focus;
mod gcp;
mod rig;
mod sets;
mod sums;
