//! In-memory fakes of the ports, for simulation. They keep the promises of the real implementations, and add
//! faults on demand.

mod budgets;
mod clock;
mod codec;
mod dead_letters;
mod encoder;
mod faults;
mod kafka;
mod messages;
mod random;
mod store;
mod tables;

pub use budgets::FakeBudgetTopic;
pub use clock::{ProcessClock, SteppedClock};
pub use codec::{FakeArchive, StoppedClock};
pub use dead_letters::FakeDeadLetterTopic;
pub use encoder::{FakeEncoder, FileRows};
pub use faults::{Effect, Fault, Faults, Rates, Resume};
pub use kafka::{Ends, FakeBroker, FakeSource, Record};
pub use messages::{FakeMessages, FakeRegistry};
pub use store::FakeStore;
pub use tables::FakeTables;

#[cfg(test)]
mod tests;
