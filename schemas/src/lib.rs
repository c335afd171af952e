//! What crosses prorata's borders: the events that come in, the rules they are judged by, the rows that go
//! out, and the units they are written in.
//!
//! Nothing here does I/O. The Avro schemas in `events/` are the source of truth for what producers send;
//! [`body`] reads and writes exactly those records, and every value is checked once, on the way in.
//!
//! Read in this order:
//! 1. What comes in: [`event`] and its Avro schemas, [`body`] (bytes and back), [`reject`] (why not).
//! 2. What it is judged by: [`rules`] and [`event::bounds`].
//! 3. What goes out: [`rows`] and [`tables`].
//! 4. Units: [`ids`], [`time`], [`quantity`] and [`size`], [`money`] and [`decimal`].

pub mod body;
pub mod decimal;
pub mod event;
pub mod ids;
pub mod money;
pub mod quantity;
pub mod reject;
pub mod rows;
pub mod rules;
pub mod size;
pub mod tables;
pub mod time;

pub use event::avsc::{self, avsc};

/// Shared immutable text: identifiers and names that many rows repeat.
pub type Text = std::sync::Arc<str>;
