//! Everything that crosses prorata's borders: input events, the rules that validate and price them, output
//! rows, and their units.
//!
//! Nothing here does I/O. The Avro schemas in `events/` are the source of truth for what producers send.
//! [`body`] reads and writes exactly those records, and every value is checked once, on input.
//!
//! Read in this order:
//! 1. Input: [`event`] and its Avro schemas, [`body`] (to and from bytes), [`reject`] (reasons).
//! 2. Configuration and limits: [`rules`] and [`rules::bounds`].
//! 3. Output: [`rows`] and [`tables`].
//! 4. Units: [`ids`], [`time`], [`quantity`] and [`size`], [`money`] and [`decimal`].

pub mod body;
pub mod event;
pub mod ids;
pub mod money;
pub mod quantity;
pub mod reject;
pub mod rows;
pub mod rules;
pub mod sharing;
pub mod size;
pub mod tables;
pub mod time;

pub use event::avsc::{self, avsc};
pub use money::decimal;

/// Shared immutable text: identifiers and names that many rows repeat.
pub type Text = std::sync::Arc<str>;
