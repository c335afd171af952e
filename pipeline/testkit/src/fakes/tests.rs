//! Behavior that simulations rely on beyond the contracts of the ports.

use std::collections::BTreeMap;
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use prorata_schemas::body::EventRecordRef;
use prorata_schemas::event::{Event, EventRecord, NodeStopped, Payload};
use prorata_schemas::reject::{Reason, Reject};
use prorata_schemas::tables::Table;
use prorata_schemas::time::{Hour, WallTime};
use prorata_worker::ports::{
    Clock, CommitOutcome, DeadLetter, ObjectStore, Origin, PutOutcome, Rejected, TableCommit, TableCommitter,
};
use prorata_worker::source::{
    DeadLetterTopic, DecodeFailure, MessageDecoder, Source, SourceError, SourceEvent, Start,
};

use super::*;

/// Polls a source once.
async fn poll(source: &mut FakeSource) -> Vec<SourceEvent> {
    source.poll(Duration::ZERO).await.unwrap()
}

/// Starts a shard of the topic `t` at its earliest message.
async fn start(source: &mut FakeSource, shard: u16) {
    source.start(shard, BTreeMap::from([("t".into(), Start::Earliest)])).await.unwrap();
}

/// Creates a topic `t` of four partitions with one message each.
fn broker() -> FakeBroker {
    let broker = FakeBroker::default();
    broker.set_partitions("t", 4);
    for partition in 0..4 {
        broker.produce("t", partition, Record::default()).unwrap();
    }
    broker
}

fn offsets(signals: &[SourceEvent]) -> Vec<(u16, i64)> {
    let messages = signals.iter().filter_map(|signal| match signal {
        SourceEvent::Messages(messages) => Some(messages),
        _ => None,
    });
    messages.flatten().map(|message| (message.partition, message.offset)).collect()
}

fn ends(signals: &[SourceEvent]) -> usize {
    signals.iter().filter(|signal| matches!(signal, SourceEvent::End { .. })).count()
}

#[tokio::test]
async fn two_members_share_shards_and_hand_them_over() {
    let broker = broker();
    let (mut one, mut two) = (broker.source("w-0", &["t"]), broker.source("w-1", &["t"]));
    assert_eq!(poll(&mut one).await, [SourceEvent::Assigned(vec![0, 1, 2, 3])]);
    for shard in 0..4 {
        start(&mut one, shard).await;
    }
    assert_eq!(offsets(&poll(&mut one).await), [(0, 0), (1, 0), (2, 0), (3, 0)]);

    assert_eq!(poll(&mut two).await, [SourceEvent::Assigned(vec![])], "nothing yet");
    assert_eq!(poll(&mut one).await.first(), Some(&SourceEvent::Revoked(vec![2, 3])));
    assert_eq!(broker.awaited().into_keys().collect::<Vec<_>>(), [2, 3]);
    assert_eq!(poll(&mut two).await, []);
    one.release(&[2, 3]).await;
    assert_eq!(poll(&mut two).await, [SourceEvent::Assigned(vec![2, 3])]);
    start(&mut two, 2).await;
    assert_eq!(offsets(&poll(&mut two).await), [(2, 0)]);
}

#[tokio::test]
async fn a_revocation_that_is_not_released_runs_out() {
    let broker = broker();
    let (mut one, mut two) = (broker.source("w-0", &["t"]), broker.source("w-1", &["t"]));
    poll(&mut one).await;
    poll(&mut two).await;
    broker.run_out("w-0");
    assert_eq!(poll(&mut two).await, [], "a member that was not asked cannot be late");
    poll(&mut one).await;
    broker.run_out("w-0");
    assert_eq!(poll(&mut two).await, [SourceEvent::Assigned(vec![2, 3])]);
    one.release(&[2, 3]).await;
    assert_eq!(two.assigned(2).await, Ok(true));
}

#[tokio::test]
async fn a_member_cut_off_keeps_reading_while_another_has_its_shards() {
    let broker = broker();
    let (mut one, mut two) = (broker.source("w-0", &["t"]), broker.source("w-1", &["t"]));
    poll(&mut one).await;
    start(&mut one, 0).await;
    broker.isolate("w-0", true);
    poll(&mut two).await;
    broker.expire("w-0");
    assert_eq!(poll(&mut two).await, [SourceEvent::Assigned(vec![0, 1, 2, 3])]);
    start(&mut two, 0).await;
    assert_eq!(offsets(&poll(&mut two).await), [(0, 0)]);
    assert_eq!(offsets(&poll(&mut one).await), [(0, 0)]);
    assert!(matches!(one.assigned(0).await, Err(SourceError::Unavailable(_))));
    broker.isolate("w-0", false);
    assert_eq!(one.assigned(0).await, Ok(false));
    assert_eq!(poll(&mut one).await, [SourceEvent::Lost(vec![0, 1, 2, 3]), SourceEvent::Assigned(vec![])]);
}

#[tokio::test]
async fn a_member_whose_client_gives_up_hears_of_it_while_it_is_cut_off() {
    let broker = broker();
    let mut one = broker.source("w-0", &["t"]);
    poll(&mut one).await;
    broker.isolate("w-0", true);
    broker.lapse("w-0");
    assert_eq!(poll(&mut one).await, [SourceEvent::Lost(vec![0, 1, 2, 3])]);
    assert_eq!(poll(&mut one).await, []);
    broker.isolate("w-0", false);
    assert_eq!(poll(&mut one).await, [SourceEvent::Assigned(vec![0, 1, 2, 3])]);
}

#[tokio::test]
async fn a_process_that_died_comes_back_to_its_shards_and_disturbs_nobody() {
    let broker = broker();
    let (mut one, mut two) = (broker.source("w-0", &["t"]), broker.source("w-1", &["t"]));
    poll(&mut one).await;
    poll(&mut two).await;
    poll(&mut one).await;
    one.release(&[2, 3]).await;
    poll(&mut two).await;
    let faults = Faults::default();
    let mut dead = one.with_faults(faults.clone());
    faults.kill();
    dead.close().await;
    assert!(matches!(dead.poll(Duration::ZERO).await, Err(SourceError::Unavailable(_))));
    assert_eq!(broker.owners()[&0], "w-0".into(), "a dead process does not leave");
    let mut back = broker.source("w-0", &["t"]);
    assert_eq!(poll(&mut back).await, [SourceEvent::Assigned(vec![0, 1])]);
    assert_eq!(poll(&mut two).await, []);
}

#[tokio::test]
async fn an_eager_group_takes_everything_before_it_gives_anything() {
    let broker = broker();
    broker.set_eager(true);
    let (mut one, mut two) = (broker.source("w-0", &["t"]), broker.source("w-1", &["t"]));
    poll(&mut one).await;
    poll(&mut two).await;
    assert_eq!(poll(&mut one).await, [SourceEvent::Revoked(vec![0, 1, 2, 3])]);
    one.release(&[0, 1, 2]).await;
    assert_eq!((poll(&mut one).await, poll(&mut two).await), (vec![], vec![]));
    one.release(&[3]).await;
    assert_eq!(poll(&mut one).await, [SourceEvent::Assigned(vec![0, 1])]);
    assert_eq!(poll(&mut two).await, [SourceEvent::Assigned(vec![2, 3])]);
}

#[tokio::test]
async fn an_unreachable_partition_has_neither_messages_nor_an_end() {
    let broker = broker();
    let mut one = broker.source("w-0", &["t"]);
    poll(&mut one).await;
    start(&mut one, 0).await;
    start(&mut one, 1).await;
    broker.set_partition_down("t", 0, true);
    let signals = poll(&mut one).await;
    assert_eq!((offsets(&signals), ends(&signals)), (vec![(1, 0)], 1));
    broker.set_down(true);
    assert!(matches!(one.poll(Duration::ZERO).await, Err(SourceError::Unavailable(_))));
    broker.set_down(false);
    broker.set_partition_down("t", 0, false);
    assert_eq!(offsets(&poll(&mut one).await), [(0, 0)]);
}

#[tokio::test]
async fn ends_are_reported_when_asked_for() {
    let broker = broker();
    broker.set_ends(Ends::WhenAsked);
    let mut one = broker.source("w-0", &["t"]);
    poll(&mut one).await;
    start(&mut one, 0).await;
    assert_eq!(ends(&poll(&mut one).await), 0);
    broker.confirm_ends();
    assert_eq!(ends(&poll(&mut one).await), 1);
    assert_eq!(ends(&poll(&mut one).await), 0);
}

#[tokio::test]
async fn lost_messages_are_reported_only_to_a_member_that_has_read_them() {
    let broker = broker();
    for _ in 0..4 {
        broker.produce("t", 0, Record::default()).unwrap();
    }
    let mut one = broker.source("w-0", &["t"]);
    poll(&mut one).await;
    start(&mut one, 0).await;
    poll(&mut one).await;
    broker.truncate("t", 0, 2).unwrap();
    for _ in 0..9 {
        broker.produce("t", 0, Record::default()).unwrap();
    }
    assert!(matches!(poll(&mut one).await[..], [SourceEvent::OffsetsLost { .. }]));
    one.start(0, BTreeMap::from([("t".into(), Start::At(5))])).await.unwrap();
    assert_eq!(offsets(&poll(&mut one).await).first(), Some(&(0, 5)));
    broker.recreate("t");
    assert!(matches!(poll(&mut one).await[..], [SourceEvent::OffsetsLost { .. }]));
}

#[tokio::test]
async fn offsets_have_holes_and_the_end_comes_after_them() {
    let broker = broker();
    broker.skip_offsets("t", 0, 3).unwrap();
    broker.produce("t", 0, Record::default()).unwrap();
    broker.produce("t", 0, Record::default()).unwrap();
    broker.compact("t", 0, 4).unwrap();
    broker.skip_offsets("t", 0, 2).unwrap();
    let mut one = broker.source("w-0", &["t"]);
    poll(&mut one).await;
    start(&mut one, 0).await;
    let signals = poll(&mut one).await;
    assert_eq!(offsets(&signals), [(0, 0), (0, 5)]);
    assert_eq!(signals.last(), Some(&SourceEvent::End { topic: "t".into(), partition: 0, offset: 8 }));
}

#[tokio::test]
async fn the_same_seed_makes_the_same_polls() {
    let mut runs = Vec::new();
    for _ in 0..2 {
        let broker = FakeBroker::seeded(7);
        broker.set_partitions("t", 3);
        for number in 0..60 {
            broker.produce("t", number % 3, Record::default()).unwrap();
        }
        let mut one = broker.source("w-0", &["t"]);
        let mut signals = poll(&mut one).await;
        for shard in 0..3 {
            start(&mut one, shard).await;
        }
        for _ in 0..30 {
            signals.extend(poll(&mut one).await);
        }
        assert_eq!(offsets(&signals).len(), 60);
        runs.push(signals);
    }
    assert_eq!(runs[0], runs[1]);
}

/// Polls a future once, and returns the result.
fn once<T>(future: std::pin::Pin<&mut impl Future<Output = T>>) -> Poll<T> {
    future.poll(&mut Context::from_waker(Waker::noop()))
}

#[tokio::test]
async fn a_write_that_waits_is_resumed_or_fails_on_request() {
    let cases = [
        (Resume::Happen, Ok(PutOutcome::Created), true),
        (Resume::HappenUnanswered, Err("the answer was lost"), true),
        (Resume::Fail, Err("service unavailable"), false),
    ];
    for (how, answer, there) in cases {
        let (lake, faults) = (FakeStore::default(), Faults::with(Fault::Pause(0)));
        let store = lake.with_faults(faults.clone());
        let mut put = pin!(store.put_if_absent("a", Bytes::from_static(b"x")));
        assert!(once(put.as_mut()).is_pending());
        assert_eq!((faults.paused(), lake.objects().len()), (vec![0], 0));
        assert!(faults.resume(0, how) && !faults.resume(0, how));
        let result = put.await.map_err(|error| error.source.to_string());
        assert_eq!(result, answer.map_err(str::to_owned));
        assert_eq!(lake.objects().contains_key("a"), there, "{how:?}");
    }
}

#[tokio::test]
async fn a_write_of_a_dead_process_may_still_happen_and_loses_to_who_was_first() {
    let (lake, faults) = (FakeStore::default(), Faults::schedule([Fault::Pause(0), Fault::Pause(1)]));
    let store = lake.with_faults(faults.clone());
    {
        let mut given_up = pin!(store.put_if_absent("a", Bytes::from_static(b"dead")));
        assert!(once(given_up.as_mut()).is_pending());
    }
    let mut waiting = pin!(store.put_if_absent("b", Bytes::from_static(b"dead")));
    assert!(once(waiting.as_mut()).is_pending());
    faults.kill();
    assert_eq!(waiting.await.unwrap_err().source.to_string(), "the process is dead");
    assert!(store.get("a").await.is_err() && lake.objects().is_empty());
    lake.put_if_absent("b", Bytes::from_static(b"alive")).await.unwrap();
    assert!(faults.resume(0, Resume::Happen) && faults.resume(1, Resume::Happen));
    assert_eq!(lake.objects()["a"], "dead");
    assert_eq!(lake.objects()["b"], "alive");
}

#[tokio::test]
async fn a_retry_inside_the_client_answers_as_if_another_had_been_first() {
    let store = FakeStore::default().with_faults(Faults::with(Fault::Retry(0)));
    assert_eq!(store.put_if_absent("a", Bytes::from_static(b"x")).await.unwrap(), PutOutcome::Exists);
    assert_eq!(store.get("a").await.unwrap().unwrap(), "x");

    let tables = FakeTables::default().with_faults(Faults::with(Fault::Retry(0)));
    let commit = TableCommit { transactions: [("x".into(), 1)].into(), ..TableCommit::default() };
    assert_eq!(tables.commit(Table::Hours, 0, &commit).await.unwrap(), CommitOutcome::Conflict);
    assert_eq!(tables.tables()[&Table::Hours].transactions["x"], 1);
}

#[tokio::test]
async fn reads_fail_once_each_in_its_way() {
    let lake = FakeStore::default();
    let whole = Bytes::from(vec![0_u8; 100]);
    lake.put_if_absent("a", whole.clone()).await.unwrap();
    let faults =
        Faults::schedule([Fault::Truncated(0), Fault::Flipped(1), Fault::Missing(2), Fault::ReadFails(3)]);
    let store = lake.with_faults(faults.clone());
    assert!(store.get("a").await.unwrap().unwrap().len() < 100);
    let flipped = store.get("a").await.unwrap().unwrap();
    assert_eq!(flipped.iter().map(|byte| byte.count_ones()).sum::<u32>(), 1);
    assert_eq!(store.get("a").await.unwrap(), None);
    assert!(store.list("").await.is_err());
    assert_eq!(store.get("a").await.unwrap(), Some(whole));
    assert_eq!(faults.counts().values().sum::<u64>(), 4);
    assert_eq!(faults.reads(), 5);
}

#[tokio::test]
async fn an_empty_object_is_read_as_empty_and_cannot_be_damaged() {
    let store = FakeStore::default().with_faults(Faults::with(Fault::Truncated(0)));
    store.put_if_absent("a", Bytes::new()).await.unwrap();
    assert_eq!(store.get("a").await.unwrap(), Some(Bytes::new()));
}

#[tokio::test]
async fn random_faults_are_the_same_for_the_same_seed_and_end_on_request() {
    let rates = Rates { lose_answer: 100_000, refuse: 100_000, read_fails: 200_000, ..Rates::default() };
    let mut runs = Vec::new();
    for seed in [1, 1, 2] {
        let faults = Faults::random(seed, rates);
        let store = FakeStore::default().with_faults(faults.clone());
        let mut answers = Vec::new();
        for number in 0..200 {
            answers.push(store.put_if_absent(&format!("{number}"), Bytes::new()).await.is_ok());
            answers.push(store.get(&format!("{number}")).await.is_ok());
        }
        assert_eq!(
            faults.counts().keys().copied().collect::<Vec<_>>(),
            ["lose_answer", "read_fails", "refuse"]
        );
        assert_eq!(faults.effects(), 200);
        assert_eq!(faults.trail()[7], (Effect::Write, "7".into()));
        faults.calm();
        for number in 200..300 {
            store.put_if_absent(&format!("{number}"), Bytes::new()).await.unwrap();
        }
        runs.push(answers);
    }
    assert!(runs[0] == runs[1] && runs[0] != runs[2]);
}

fn event() -> EventRecord {
    let stop = NodeStopped { cluster_id: "c".into(), node_id: "n".into() };
    let event_time = Hour(500_000).start();
    EventRecord::new(Event::new("acme".into(), event_time, Payload::NodeStopped(stop)))
}

#[tokio::test]
async fn messages_wait_for_their_schema_and_are_rejected_without_one() {
    let registry = FakeRegistry::with([7]);
    let messages = registry.decoder();
    let (known, unknown) = (FakeMessages::encode(7, &event()), FakeMessages::encode(8, &event()));
    assert_eq!(messages.decode(&known), Err(DecodeFailure::NeedsSchema(7)));
    registry.set_down(true);
    assert!(messages.fetch(7).await.is_err());
    assert_eq!(messages.decode(&known), Err(DecodeFailure::NeedsSchema(7)));
    registry.set_down(false);
    messages.fetch(7).await.unwrap();
    messages.fetch(8).await.unwrap();
    assert_eq!(messages.decode(&known).map(EventRecordRef::into_owned), Ok(event()));
    let rejected = |value: &[u8]| match messages.decode(value) {
        Err(DecodeFailure::Reject(reject)) => Some(reject.reason),
        _ => None,
    };
    assert_eq!(rejected(&unknown), Some(Reason::UnknownSchema));
    assert_eq!(rejected(b"x"), Some(Reason::Malformed));
    assert_eq!(rejected(&known[..known.len() - 1]), Some(Reason::Malformed));
    assert_eq!(rejected(&[0, 0, 0, 7, 99]), Some(Reason::UnknownEvent));
    assert_eq!(registry.fetches(), 3);
    assert_eq!(registry.decoder().decode(&known), Err(DecodeFailure::NeedsSchema(7)));
}

#[tokio::test]
async fn dead_letters_arrive_in_part_twice_or_without_an_answer() {
    let letter = |offset| DeadLetter {
        origin: Origin::Message {
            topic: "t".into(),
            partition: 0,
            offset,
            timestamp_millis: -1,
            key: None,
            headers: Vec::new(),
        },
        rejected: Rejected { reject: Reject::malformed("no"), bytes: Vec::new() },
    };
    let topic = FakeDeadLetterTopic::default();
    topic.set_room(Some(1));
    assert!(topic.send(&[letter(0), letter(1)]).await.is_err());
    assert_eq!(topic.letters(), [letter(0)]);
    topic.set_room(None);
    let faults = Faults::schedule([Fault::LoseAnswer(0), Fault::Retry(1), Fault::Refuse(2)]);
    let process = topic.with_faults(faults);
    assert!(process.send(&[letter(2)]).await.is_err());
    assert!(process.send(&[letter(3)]).await.is_ok());
    assert!(process.send(&[letter(4)]).await.is_err());
    assert_eq!(topic.letters(), [letter(0), letter(2), letter(3), letter(3)]);
}

#[tokio::test]
async fn a_stepped_clock_moves_on_request() {
    let clock = SteppedClock::new(WallTime(0));
    clock.pause(Duration::from_secs(5)).await;
    assert_eq!((clock.now(), clock.take_pauses()), (WallTime(0), vec![Duration::from_secs(5)]));
    clock.advance(Duration::from_secs(1));
    assert_eq!((clock.now(), clock.take_pauses()), (WallTime(1_000_000), vec![]));
    let clock = SteppedClock::moved_by_pauses(WallTime(0));
    clock.pause(Duration::from_secs(5)).await;
    assert_eq!(clock.now(), WallTime(5_000_000));
}
