//! Dead letters: which letters count, how a replay treats each letter, and that no letter is replayed twice.

use std::sync::Mutex;
use std::time::Duration;

use async_trait::async_trait;
use prorata_samples::trace::{START, TRACE_END, node, pod, trace};
use prorata_schemas::Text;
use prorata_schemas::body::{self, EventRecordRef};
use prorata_schemas::event::{EventKind, EventRecord, Payload};
use prorata_schemas::reject::{Reason, Reject};
use prorata_schemas::rules::Rules;
use prorata_schemas::time::WallTime;
use prorata_testkit::fakes::{FakeArchive, FakeEncoder, StoppedClock};
use prorata_worker::RuleBook;
use prorata_worker::WorkerError;
use prorata_worker::backfill::input::InMemoryFiles;
use prorata_worker::checkpoint::OwnerKind;
use prorata_worker::checkpoint::log::{self, Appended, Log};
use prorata_worker::dead_letters::{
    DeadLetters, MessageSender, Outgoing, Replay, ReplayError, ReplayOptions, Replayed,
};
use prorata_worker::names::{self, ObjectId, Shard};
use prorata_worker::ports::{Archive, DeadLetter, ObjectStore, Origin, Position, Rejected, Silent};
use prorata_worker::root::organizations::TopicOrganizations;
use prorata_worker::source::{DecodeFailure, MessageDecoder, RegistryError, SourceError};

use crate::harness::*;

/// A decoder of values that consist of the number of a kind and a body. Values that begin with 255 also need
/// schema 7.
#[derive(Default)]
struct Decoder {
    fetched: Mutex<bool>,
    down: bool,
}

#[async_trait]
impl MessageDecoder for Decoder {
    fn decode<'a>(&self, value: &'a [u8]) -> Result<EventRecordRef<'a>, DecodeFailure> {
        let value = match value {
            [255, ..] if !*self.fetched.lock().unwrap() => return Err(DecodeFailure::NeedsSchema(7)),
            [255, rest @ ..] => rest,
            value => value,
        };
        let malformed = || DecodeFailure::Reject(Reject::malformed("no event"));
        let (kind, body) = value.split_first().ok_or_else(malformed)?;
        let kind = EventKind::ALL.get(usize::from(*kind)).ok_or_else(malformed)?;
        body::decode_ref(*kind, body).map(EventRecordRef::new).map_err(DecodeFailure::Reject)
    }

    async fn fetch(&self, schema_id: u32) -> Result<(), RegistryError> {
        assert_eq!(schema_id, 7);
        if self.down {
            return Err(RegistryError::transient("connection refused"));
        }
        *self.fetched.lock().unwrap() = true;
        Ok(())
    }
}

/// Topics that keep all messages they receive.
#[derive(Default)]
struct Sent {
    messages: Mutex<Vec<Outgoing>>,
    down: bool,
}

#[async_trait]
impl MessageSender for Sent {
    async fn send(&self, messages: Vec<Outgoing>) -> Result<(), SourceError> {
        if self.down {
            return Err(SourceError::Unavailable("no broker answers".to_owned()));
        }
        self.messages.lock().unwrap().extend(messages);
        Ok(())
    }
}

fn value(record: &EventRecord) -> Vec<u8> {
    let mut value = vec![record.event.payload.kind() as u8];
    value.extend_from_slice(&record.body);
    value
}

fn message(reason: Reason, key: &str, value: Vec<u8>) -> DeadLetter {
    let origin = Origin::Message {
        topic: "pods".to_owned(),
        partition: 1,
        offset: 42,
        timestamp_millis: 1_763_643_600_000,
        key: Some(key.as_bytes().to_vec()),
        headers: vec![("trace".to_owned(), Some(vec![1])), ("trace".to_owned(), None)],
    };
    DeadLetter { origin, rejected: Rejected { reject: Reject::new(reason, "why"), bytes: value } }
}

fn too_late(record: &EventRecord) -> DeadLetter {
    message(Reason::TooLate, &record.event.organization_id, value(record))
}

fn in_file(reject: Reject, bytes: &[u8]) -> DeadLetter {
    let position = Some(Position { block: 0, byte: 9, record: Some(3) });
    let origin = Origin::File { path: "events/a.avro".to_owned(), position };
    DeadLetter { origin, rejected: Rejected { reject, bytes: bytes.to_vec() } }
}

/// The environment of the replays under test.
struct World {
    lake: Lake,
    decoder: Decoder,
    sent: Sent,
    rules: Rules,
    rules_given: bool,
    reason: Option<Reason>,
    take_over: bool,
    topics: Vec<Text>,
}

impl World {
    /// Creates a world whose root holds the folded trace.
    async fn new() -> Self {
        let world = Self {
            lake: Lake::default(),
            decoder: Decoder::default(),
            sent: Sent::default(),
            rules: Rules::default(),
            rules_given: false,
            reason: None,
            take_over: false,
            topics: vec!["pods".into()],
        };
        world.lake.run(&files(&[&trace()]), Run::new("aa")).await.unwrap();
        world
    }

    fn store(&self) -> &dyn ObjectStore {
        &self.lake.store
    }

    /// Claims a shard for a worker that writes these letters. Returns the path of their file.
    async fn worker(&self, shard: Shard, released: bool, letters: &[DeadLetter]) -> String {
        let mut log = Log::new(log::latest(self.store(), shard).await.unwrap());
        let mut next = log.decided().next_draft();
        let owner: Text = format!("w{}", next.seq).into();
        next.set_owner(owner.clone(), OwnerKind::Worker);
        let path = self.put(shard, next.seq, &owner, letters).await;
        next.name_dead_letters(path.clone(), false);
        next.set_released(released);
        log.seal(next, WallTime(0));
        assert_eq!(log.append(self.store()).await.unwrap(), Appended::Ours);
        path
    }

    async fn put(&self, shard: Shard, seq: u64, owner: &str, letters: &[DeadLetter]) -> String {
        let bytes = FakeArchive.write_dead_letters(letters).unwrap();
        let path = names::dead_letters(shard, &ObjectId { seq, owner: owner.into(), n: 1 }, "d1");
        self.store().put_if_absent(&path, bytes.into()).await.unwrap();
        path
    }

    async fn replay(&self) -> (Result<(), ReplayError>, Replayed) {
        let run = Run::new("rr").with(|options| {
            options.rules = self.rules.clone();
            options.take_over = self.take_over;
        });
        let ports = prorata_worker::backfill::BackfillPorts {
            shared: prorata_worker::Ports {
                store: std::sync::Arc::new(self.lake.store.clone()),
                tables: std::sync::Arc::new(self.lake.tables.clone()),
                archive: std::sync::Arc::new(FakeArchive),
                encoder: std::sync::Arc::new(FakeEncoder),
                clock: std::sync::Arc::new(StoppedClock(self.lake.store.now())),
            },
            input: std::sync::Arc::new(InMemoryFiles::default()),
            progress: std::sync::Arc::new(Silent),
        };
        let options = ReplayOptions {
            organizations: TopicOrganizations::default(),
            reason: self.reason,
            topics: self.topics.clone(),
            max_clock_skew: Duration::from_secs(600),
            rules_given: self.rules_given,
            backfill: run.options,
        };
        let letters = DeadLetters::load(self.store()).await.unwrap();
        let mut done = Replayed::default();
        let replay = Replay { ports, decoder: &self.decoder, topics: &self.sent, options };
        (replay.run(&letters, &mut done).await, done)
    }

    async fn done(&self) -> Replayed {
        let (result, done) = self.replay().await;
        result.unwrap();
        done
    }

    fn messages(&self) -> Vec<Outgoing> {
        self.sent.messages.lock().unwrap().clone()
    }
}

/// Returns the reason that the only failing letter fails.
fn failure(done: &Replayed, reason: Reason) -> &str {
    assert_eq!(done.failing_all(), 1, "{done:?}");
    let (origin, why) = &done.failing[&reason].examples[0];
    assert!(
        origin == "topic pods, partition 1, offset 42" || origin.starts_with("events/a.avro, block 0"),
        "{origin}"
    );
    why
}

#[tokio::test]
async fn only_files_that_a_checkpoint_names_count() {
    let world = World::new().await;
    let letters = [message(Reason::Malformed, "acme", vec![])];
    let counts = world.worker(1, true, &letters).await;
    let seq = log::latest(world.store(), 1).await.unwrap().seq;
    world.put(1, seq, "zombie", &letters).await;
    world.put(1, seq + 1, "w9", &letters).await;
    world.put(7, 1, "nobody", &letters).await;
    world.store().put_if_absent("dead-letter/shard=0001/notes.txt", "x".into()).await.unwrap();
    let found = DeadLetters::load(world.store()).await.unwrap();
    assert_eq!(found.files.iter().map(|file| (file.shard, &file.path)).collect::<Vec<_>>(), [(1, &counts)]);
    let read = found.read(world.store(), &FakeArchive, &found.files[0]).await.unwrap();
    assert_eq!(read.len(), 1);
    assert_eq!((read[0].index, read[0].replayed, &read[0].letter), (0, false, &letters[0]));
}

#[tokio::test]
async fn an_event_that_came_too_late_is_folded_once() {
    let world = World::new().await;
    let late = pod("acme", 20, "late", 1);
    world.worker(shard_of("acme"), true, &[too_late(&late)]).await;
    let done = world.done().await;
    let folded = done.folded.unwrap();
    assert_eq!((folded.events, folded.new, done.failing.len()), (1, 1, 0));
    assert!(folded.hours_restated > 0);
    assert!(world.messages().is_empty(), "its topic would find it too late again");
    let mut events = trace();
    events.push(late);
    assert_content(&world.lake, &expected(&events, TRACE_END, shard_of, rules), "as if it had come in time");
    let objects = world.lake.objects();
    assert_eq!(world.done().await, Replayed::default());
    assert_eq!(world.lake.objects(), objects, "nothing is done again");
}

#[tokio::test]
async fn an_event_of_a_clock_that_was_never_set_fails_alone() {
    let world = World::new().await;
    let (late, never_set) = (pod("acme", 20, "late", 1), pod("acme", -60 * 110_000, "never set", 1));
    world.worker(shard_of("acme"), true, &[too_late(&never_set), too_late(&late)]).await;
    let done = world.done().await;
    assert!(failure(&done, Reason::TooLate).contains("more than backfill.max_hours: 100000"), "{done:?}");
    assert_eq!(done.folded.unwrap().new, 1);
}

#[tokio::test]
async fn a_message_that_decodes_now_goes_back_as_it_came() {
    let world = World::new().await;
    let event = pod("hooli", 150, "x", 1);
    let mut bytes = vec![255];
    bytes.extend(value(&event));
    let hopeless = message(Reason::Malformed, "hooli", vec![200]);
    world.worker(0, false, &[hopeless, message(Reason::UnknownSchema, "hooli", bytes.clone())]).await;
    let done = world.done().await;
    assert_eq!(done.sent.get("pods"), Some(&1), "no shard needs to be free for it");
    assert_eq!(failure(&done, Reason::Malformed), "malformed: no event");
    let [sent] = &world.messages()[..] else { panic!("one message") };
    let headers = vec![("trace".to_owned(), Some(vec![1])), ("trace".to_owned(), None)];
    assert_eq!(*sent, Outgoing { topic: "pods".into(), key: b"hooli".to_vec(), value: bytes, headers });
    let done = world.done().await;
    assert_eq!((done.sent.len(), done.failing_all()), (0, 1), "the one that fails is tried again, no other");
    assert_eq!(world.messages().len(), 1);
}

#[tokio::test]
async fn a_message_with_a_wrong_key_must_be_fixed_by_its_producer() {
    let world = World::new().await;
    let event = pod("acme", 150, "x", 1);
    world.worker(0, true, &[message(Reason::KeyMismatch, "hooli", value(&event))]).await;
    let done = world.done().await;
    assert!(failure(&done, Reason::KeyMismatch).contains("fix the producer"), "{done:?}");
    let world = World::new().await;
    world.worker(0, true, &[message(Reason::InvalidField, "hooli", value(&event))]).await;
    let done = world.done().await;
    assert!(
        failure(&done, Reason::InvalidField).contains("key is not its organization_id 'acme'"),
        "{done:?}"
    );
    assert!(world.messages().is_empty());
}

/// A topic has gained partitions. Messages went to another partition until the workers noticed.
#[tokio::test]
async fn a_message_with_its_own_key_on_a_wrong_partition_is_folded_though_nobody_reads_its_topic() {
    let mut world = World::new().await;
    world.topics = vec!["nodes".into()];
    let event = pod("acme", 150, "x", 1);
    world.worker(1 - shard_of("acme"), true, &[message(Reason::KeyMismatch, "acme", value(&event))]).await;
    let done = world.done().await;
    assert_eq!((done.failing_all(), done.sent.len()), (0, 0), "{done:?}");
    assert_eq!(done.folded.map(|folded| (folded.events, folded.new)), Some((1, 1)));
    let all = [trace(), vec![event]].concat();
    assert_content(&world.lake, &expected(&all, TRACE_END, shard_of, rules), "");
    assert_eq!(world.done().await, Replayed::default(), "once is enough");
}

#[tokio::test]
async fn a_topic_that_nobody_reads_gets_nothing() {
    let mut world = World::new().await;
    world.topics = vec!["nodes".into()];
    let event = pod("acme", 150, "x", 1);
    world.worker(0, true, &[message(Reason::Malformed, "acme", value(&event))]).await;
    let done = world.done().await;
    assert!(failure(&done, Reason::Malformed).contains("topic 'pods' is not in kafka.topics"), "{done:?}");
}

#[tokio::test]
async fn an_event_from_the_future_waits_until_its_time_and_closes_nothing_early() {
    let world = World::new().await;
    let now = world.lake.store.now();
    let minutes = |hour: i64| (hour - START) * 60;
    let early = pod("acme", minutes(now.hour().0) + 11, "early", 1);
    let come = pod("acme", minutes(now.hour().0) + 9, "come", 1);
    let letters = [&early, &come].map(|event| message(Reason::InTheFuture, "acme", value(event)));
    world.worker(shard_of("acme"), true, &letters).await;
    let done = world.done().await;
    assert_eq!(done.folded.as_ref().map(|folded| folded.new), Some(1));
    assert!(failure(&done, Reason::InTheFuture).contains("is still 660 s in the future"), "{done:?}");
    for shard in [0, 1] {
        let closed = log::latest(world.store(), shard).await.unwrap().closed_through;
        assert_eq!(closed, Some(TRACE_END), "open hours are the worker's to close");
    }
    assert!(
        world.lake.objects().iter().any(|path| path.starts_with("events/") && path.contains("/hour=08/")),
        "it waits in the archive"
    );
    assert_content(&world.lake, &expected(&trace(), TRACE_END, shard_of, rules), "no table has it yet");
}

fn in_euros(version: &str) -> Rules {
    let mut rules = Rules { version: version.into(), ..Rules::default() };
    rules.currencies.insert("acme".into(), "EUR".into());
    rules
}

/// A node priced in EUR, in the first open hour.
fn node_in_euros() -> EventRecord {
    let minute = (TRACE_END.next().0 - START) * 60 + 20;
    let mut event = node("acme", minute, 5).event;
    if let Payload::NodeStarted(node) = &mut event.payload {
        node.currency = "EUR".into();
        node.node_id = "m".into();
    }
    EventRecord::new(event)
}

#[tokio::test]
async fn a_message_in_another_currency_goes_back_once_the_rules_have_it() {
    let mut world = World::new().await;
    let letter = message(Reason::CurrencyMismatch, "acme", value(&node_in_euros()));
    world.worker(shard_of("acme"), true, &[letter]).await;
    world.rules = in_euros("1");
    let done = world.done().await;
    assert!(
        failure(&done, Reason::CurrencyMismatch).starts_with("currency_mismatch: "),
        "the root lists others"
    );
    world.rules = in_euros("2");
    assert_eq!(world.done().await.sent.len(), 0, "defaults are no decision");
    world.rules_given = true;
    assert_eq!(world.done().await.sent.get("pods"), Some(&1), "its workers take up the new version");
}

#[tokio::test]
async fn a_record_of_a_file_is_folded_once_the_listed_rules_have_its_currency() {
    let mut world = World::new().await;
    let event = node_in_euros();
    let shard = shard_of("acme");
    let reject = Rules::default().check_currency(&event.event).unwrap_err();
    let letter = in_file(reject, &event.body);
    world.worker(0, true, &[letter]).await;
    world.rules = in_euros("2");
    world.rules_given = true;
    let done = world.done().await;
    assert!(
        failure(&done, Reason::CurrencyMismatch).contains("'EUR' is not 'USD'"),
        "a backfill takes the listed"
    );
    let mut log = Log::new(log::latest(world.store(), shard).await.unwrap());
    let mut next = log.decided().next_draft();
    RuleBook::default().store(world.store(), &in_euros("2")).await.unwrap();
    next.list_rules(TRACE_END.next(), "2".into());
    log.seal(next, WallTime(0));
    log.append(world.store()).await.unwrap();
    let done = world.done().await;
    assert_eq!(done.folded.map(|folded| (folded.events, folded.new)), Some((1, 1)));
    assert_eq!(world.done().await, Replayed::default());
}

#[tokio::test]
async fn of_a_file_only_canonical_bodies_of_the_named_type_are_believed() {
    let event = pod("acme", 20, "file", 1);
    let invalid = |kind: &str| Reject::invalid(kind, "requests", "was refused by an older release");
    let branch = [&[2 * EventKind::PodStarted as u8][..], &event.body].concat();
    for (letter, folds) in [
        (in_file(invalid("PodStarted"), &event.body), true),
        (in_file(invalid("PodStarted"), &branch), true),
        (in_file(invalid("NodeStarted"), &event.body), false),
        (in_file(invalid("PodStarted"), &event.body[1..]), false),
        (in_file(Reject::malformed("a block is damaged"), &event.body), false),
    ] {
        let world = World::new().await;
        let message = letter.rejected.reject.message.clone();
        let reason = letter.rejected.reject.reason;
        world.worker(0, true, &[letter]).await;
        let done = world.done().await;
        assert_eq!(done.folded.is_some(), folds, "{message}: {done:?}");
        if !folds {
            let why = failure(&done, reason);
            assert!(
                why.contains("fix 'events/a.avro' at its source, and fold it again with 'prorata backfill"),
                "{why}"
            );
        }
    }
}

#[tokio::test]
async fn a_shard_that_a_worker_holds_is_not_taken_unasked() {
    let mut world = World::new().await;
    let (late, back) = (pod("acme", 20, "late", 1), pod("acme", 400, "back", 1));
    let letters = [too_late(&late), message(Reason::Malformed, "acme", value(&back))];
    world.worker(shard_of("acme"), false, &letters).await;
    let (result, done) = world.replay().await;
    let error = result.unwrap_err();
    assert!(matches!(error, ReplayError::Worker(WorkerError::Held { .. })), "{error}");
    assert_eq!(done.sent.get("pods"), Some(&1), "messages that were sent before are reported and noted");
    assert_eq!(world.messages().len(), 1);
    world.take_over = true;
    let done = world.done().await;
    assert_eq!((done.sent.len(), done.folded.map(|folded| folded.new)), (0, Some(1)));
}

#[tokio::test]
async fn a_message_that_could_not_be_sent_is_sent_by_the_next_run() {
    let mut world = World::new().await;
    let event = pod("acme", 150, "x", 1);
    let mut bytes = vec![255];
    bytes.extend(value(&event));
    world.worker(0, true, &[message(Reason::UnknownSchema, "acme", bytes)]).await;
    world.decoder.down = true;
    let error = world.replay().await.0.unwrap_err();
    assert_eq!(error.to_string(), "the schema registry is unavailable: connection refused");
    world.decoder.down = false;
    world.sent.down = true;
    let error = world.replay().await.0.unwrap_err();
    assert_eq!(error.to_string(), "messages cannot be sent: Kafka is unavailable: no broker answers");
    world.sent.down = false;
    assert_eq!(world.done().await.sent.get("pods"), Some(&1));
}

#[tokio::test]
async fn a_reason_selects_its_letters() {
    let mut world = World::new().await;
    let late = pod("acme", 20, "late", 1);
    let letters = [
        message(Reason::Malformed, "acme", vec![]),
        too_late(&late),
        message(Reason::KeyMismatch, "acme", vec![]),
    ];
    world.worker(shard_of("acme"), true, &letters).await;
    world.reason = Some(Reason::KeyMismatch);
    let done = world.done().await;
    assert_eq!(
        (done.folded.is_none(), done.failing.keys().copied().collect::<Vec<_>>()),
        (true, vec![Reason::KeyMismatch])
    );
    world.reason = Some(Reason::TooLate);
    let done = world.done().await;
    assert_eq!((done.folded.is_some(), done.failing_all()), (true, 0));
}

#[tokio::test]
async fn a_record_of_a_replay_of_a_newer_format_is_refused() {
    let world = World::new().await;
    let late = pod("acme", 20, "late", 1);
    world.worker(shard_of("acme"), true, &[too_late(&late)]).await;
    world.done().await;
    let path = world.lake.objects().into_iter().find(|path| path.starts_with(names::REPLAYED)).unwrap();
    let stored = world.lake.store.object(&path).unwrap();
    let newer = std::str::from_utf8(&stored).unwrap().replace("{\"format\":1,", "{\"format\":2,\"more\":0,");
    world.lake.store.overwrite(&path, newer.into());
    let error = DeadLetters::load(world.store()).await.unwrap_err();
    assert_eq!(error.exit_code(), 2, "{error}");
    let words = format!("'{path}' has format 2, this program knows 1; use the release that wrote it");
    assert!(error.to_string().contains(&words), "{error}");
}
