//! The stream worker in operation: processes of `prorata work` on a real Kafka and a real registry, with real
//! load, on local files and S3. Whatever happens to the workers, their tables equal a backfill of the same
//! events.
//!
//! `tests/python/servers.py --kafka 3 --kafka-sasl --registry --s3` starts the servers, so these tests need
//! the feature `servers`. `PRORATA_CHAOS_ROUNDS` sets the length of the fault loops, `PRORATA_CHAOS_SEED`
//! repeats a failed loop, and `PRORATA_BURST_EVENTS` sets the size of the burst.

#![expect(clippy::unwrap_used, clippy::panic, reason = "helpers of tests")]

mod backfills;
mod chaos;
mod dead_letters;
mod faults;
mod kafka;
mod memory;
mod plain;
mod refusals;
mod replays;
mod roots;
#[cfg(feature = "upgrade")]
mod upgrade;
mod world;
