//! What a Kubernetes cluster's changes mean as events.
//!
//! Read in this order:
//! 1. `object`: Kubernetes objects, with the fields that decide and no others;
//! 2. `describe`: what one object says: a pod's effective requests, its times, a node's price and family;
//! 3. [`Collector`] in `core`: changes of objects in, events and the state to store out;
//! 4. [`CollectorState`]: what must survive a restart, and in which order it is stored;
//! 5. [`prices`]: the price list, the documents that it is made of, and configured rates;
//! 6. [`agreements`]: reservations, commitments, rates and pools of a file that people keep;
//! 7. [`usage`]: measured use of pods, as intervals that tile time.
//!
//! Nothing here does I/O or reads a clock: the caller passes the API server's time with every input. So the
//! same inputs and state give the same events, byte for byte. `COLLECTOR.md` says which change becomes which
//! event, and what a gap in the watch can lose.

pub mod agreements;
mod core;
mod describe;
mod instant;
pub mod object;
mod options;
pub mod prices;
mod state;
pub mod usage;

pub use crate::core::{Batch, Change, Collector, Notice};
pub use describe::requests::effective;
pub use instant::{Instant, parse_instant};
pub use options::{CollectorOptions, MissedStop, StartAt};
pub use state::{Announced, CollectorState, Key, Phase};
