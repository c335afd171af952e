//! In-memory fakes of the ports, for simulation: the promises of the real things, plus faults on demand.

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

pub use broker::{Ends, FakeBroker, Record};
pub use clock::SteppedClock;
pub use codec::{FakeArchive, FakeEncoder, StoppedClock};
pub use dead_letters::FakeDeadLetterTopic;
pub use fault::{Effect, Fault, Rates, Resume};
pub use faults::Faults;
pub use messages::{FakeMessages, FakeRegistry};
pub use source::FakeSource;
pub use store::FakeStore;
pub use tables::FakeTables;

#[cfg(test)]
mod tests;
