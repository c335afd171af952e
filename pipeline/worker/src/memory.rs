//! In-memory twins of the ports, for simulation and for embedding: the same promises as the real things, plus faults
//! on demand.

mod codec;
mod faults;
mod store;
mod tables;

pub use codec::{MemoryArchive, MemoryEncoder, MemoryInput, StoppedClock};
pub use faults::{Fault, Faults};
pub use store::MemoryStore;
pub use tables::MemoryTables;
