//! Reads that fail or return something other than the written bytes. After a bad read of a snapshot, the
//! worker falls back to an older snapshot. After any other bad read, the shard stops with an error. The shard
//! continues on its own once reads of the object succeed, and the tables are never wrong.

use prorata_testkit::fakes::{Fault, Faults};
use prorata_worker::{StopReason, WorkerError};

use crate::world::script::{LONG, SHORT, Story, check, live};

/// Runs the story once for each tried read, with the fault in that read alone. Returns the number of times
/// that a process or a shard stopped with an error, over all runs.
async fn survives(fault: impl Fn(u64) -> Fault, story: Story, first: u64) -> usize {
    let faults = Faults::default();
    live(faults.clone(), story, "untouched").await;
    let reads = faults.reads();
    assert!(reads > 60, "{reads} reads");
    let mut stops = 0;
    for read in story.numbers(reads, first) {
        let context = format!("{:?}", fault(read));
        let cluster = live(Faults::with(fault(read)), story, &context).await;
        for stop in &cluster.stops {
            let loud = matches!(stop, WorkerError::Damaged { .. } | WorkerError::Configuration(_));
            assert!(loud, "{context}: {stop}");
        }
        for stop in &cluster.shard_stops {
            assert_eq!(stop.reason, StopReason::Damaged, "{context}: {}", stop.message);
        }
        stops += cluster.stops.len() + cluster.shard_stops.len();
        check(&cluster.world, &context);
    }
    stops
}

#[tokio::test]
async fn a_read_that_fails_is_tried_again() {
    assert_eq!(survives(Fault::ReadFails, SHORT, 0).await, 0);
    assert_eq!(survives(Fault::ReadFails, LONG, 0).await, 0);
}

#[tokio::test]
async fn a_truncated_object_is_noticed() {
    assert!(survives(Fault::Truncated, SHORT, 0).await > 0);
    assert!(survives(Fault::Truncated, LONG, 1).await > 0);
}

#[tokio::test]
async fn a_flipped_bit_is_noticed() {
    assert!(survives(Fault::Flipped, SHORT, 0).await > 0);
    assert!(survives(Fault::Flipped, LONG, 2).await > 0);
}

#[tokio::test]
async fn an_object_that_is_gone_is_noticed() {
    assert!(survives(Fault::Missing, SHORT, 0).await > 0);
    assert!(survives(Fault::Missing, LONG, 3).await > 0);
}
