//! The stream worker as it is run: processes of `prorata work` on a real Kafka and a real registry, with real
//! load, on local files and S3. Whatever happens to them, their tables are those of a backfill of the same
//! events.
//!
//! The servers are started by `tests/python/servers.py --kafka 3 --kafka-sasl --registry --s3`, so these
//! tests stand behind the feature `servers`. `PRORATA_CHAOS_ROUNDS` makes the loops of faults longer,
//! `PRORATA_CHAOS_SEED` repeats one that failed, `PRORATA_BURST_EVENTS` makes the burst larger.

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
