//! Senders: the client library's producer (`sender`), and senders of events ([`KafkaProducer`]), dead letters
//! ([`KafkaDeadLetters`]) and exceeded budgets ([`KafkaBudgets`]).

mod budgets;
mod dead_letters;
mod producer;
mod sender;

pub use budgets::KafkaBudgets;
pub use dead_letters::KafkaDeadLetters;
pub use producer::KafkaProducer;

use std::time::Duration;

/// The wait before a message is offered again to a full queue.
const QUEUE_FULL_WAIT: Duration = Duration::from_millis(5);
