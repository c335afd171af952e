//! In-memory twins of the ports, for simulation and for embedding: the same promises as the real things, plus faults
//! on demand.

mod broker;
mod clock;
mod codec;
mod dead_letters;
mod fault;
mod faults;
mod group;
mod messages;
mod random;
mod source;
mod store;
mod tables;

pub use broker::{Ends, MemoryBroker, Record};
pub use clock::SteppedClock;
pub use codec::{MemoryArchive, MemoryEncoder, MemoryInput, StoppedClock};
pub use dead_letters::MemoryDeadLetterTopic;
pub use fault::{Effect, Fault, Rates, Resume};
pub use faults::Faults;
pub use messages::{MemoryMessages, MemoryRegistry};
pub use source::MemorySource;
pub use store::MemoryStore;
pub use tables::MemoryTables;

#[cfg(test)]
mod tests;
