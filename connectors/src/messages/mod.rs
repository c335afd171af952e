//! Values of Kafka messages: Confluent's wire format if a schema registry is configured, otherwise Avro
//! single-object encoding. The formats differ in their first bytes, so each decoder recognizes the other
//! format and names it in its error.

mod confluent;
mod encode;
mod single;

pub use confluent::{ConfluentMessages, Times};
pub use encode::MessageEncoder;
pub use single::SingleObjectMessages;

/// The first byte of Confluent's wire format. Four bytes of schema id follow, big-endian, then the body.
const MAGIC: u8 = 0;
/// The first two bytes of single-object encoding. Eight bytes of fingerprint follow, then the body.
const SINGLE_OBJECT: [u8; 2] = [0xc3, 0x01];
