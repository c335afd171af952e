//! Turns the changes of a Kubernetes cluster into events.
//!
//! Read in this order:
//! 1. `object`: Kubernetes objects, with the fields that affect events and no others;
//! 2. `describe`: the description of one object: a pod's effective requests and times, a node's price and
//!    family;
//! 3. `sharing`: parts of GPUs, by schemes that are data;
//! 4. [`Collector`] in `core`: takes changes of objects, returns events and the state to store;
//! 5. [`CollectorState`]: the state that must survive a restart, and the order in which to store it;
//! 6. [`prices`]: the price list, the price documents that it is made from, and configured rates;
//! 7. [`agreements`]: reservations, commitments, rates and pools from a file that people maintain;
//! 8. [`usage`]: measured usage of pods, as intervals that cover time without gaps or overlaps.
//!
//! Nothing here does I/O or reads a clock: the caller passes the API server's time with every input. So the
//! same inputs and state give the same events, byte for byte. `COLLECTOR.md` lists which change becomes which
//! event, and which changes a gap in the watch can lose.

pub mod agreements;
mod core;
mod describe;
mod instant;
pub mod object;
mod options;
pub mod prices;
mod sharing;
mod state;
pub mod usage;

pub use crate::core::{Batch, Change, Collector, Notice};
pub use describe::requests::effective;
pub use instant::{Instant, parse_instant};
pub use options::{CollectorOptions, MissedStop, StartAt};
pub use sharing::{Condition, Expression, ExpressionError, FaultReason, GpuScheme, ShareFault};
pub use state::{Announced, CollectorState, IntendedStart, Key, Phase, PodsVersion};
