//! One worker without faults, its configuration, and backfills of foreign events into its root.

mod budgets;
mod currency;
mod first_start;
mod versions;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use async_trait::async_trait;
use prorata_samples::trace::{START, TRACE_END, node, pod, pod_stop, trace};
use prorata_schemas::body::EventRecordRef;
use prorata_schemas::event::EventRecord;
use prorata_schemas::reject::Reason;
use prorata_schemas::tables::Table;
use prorata_schemas::time::Hour;
use prorata_testkit::fakes::{FakeMessages, Faults};
use prorata_testkit::wait::PATIENCE;
use prorata_worker::backfill::BackfillOptions;
use prorata_worker::names::TableFile;
use prorata_worker::root::organizations::{AllowedOrganizations, TopicOrganizations};
use prorata_worker::source::{DecodeFailure, MessageDecoder, RegistryError};
use prorata_worker::status::Status;
use prorata_worker::stream::{Worker, WorkerOptions};

use crate::harness::*;
use crate::sim::foreign;
use crate::world::script::read;
use crate::world::{SCHEMA, TOPICS, What, World};

/// Asserts that the lake is equal to a plain fold of these events through the trace's end.
fn assert_folded(world: &World, events: &[EventRecord], context: &str) {
    assert_content(&world.lake, &expected(events, TRACE_END, shard_of, rules), context);
}

#[tokio::test]
async fn a_worker_writes_the_same_tables_as_a_plain_fold() {
    let world = World::default();
    world.produce(&trace());
    let mut member = world.member("a");
    member.settle(&world).await.unwrap();
    assert_folded(&world, &trace(), "");
    let status = member.status.lock().clone();
    assert!(status.ready);
    assert_eq!(status.counts.events.values().sum::<u64>(), 10);
    assert_eq!(status.shards[&0].closed_through, Some(Hour(START + 5)));
}

#[tokio::test]
async fn a_late_event_corrects_the_hours_that_it_touches() {
    let world = World::default();
    world.produce(&trace());
    let mut member = world.member("a");
    member.settle(&world).await.unwrap();
    let late = [pod("acme", 70, "late", 1), pod_stop("acme", 170, "late"), node("hooli", 200, 8)];
    world.produce(&late);
    member.settle(&world).await.unwrap();
    assert_folded(&world, &[trace(), late.to_vec()].concat(), "");
    assert_eq!(member.status.lock().counts.late_events, 3);
    world.produce(&late);
    let before = world.lake.files();
    member.settle(&world).await.unwrap();
    assert_eq!(world.lake.files(), before, "an event that the archive holds changes nothing");
    let counts = member.status.lock().counts.clone();
    assert_eq!((counts.late_events, counts.late_duplicates), (3, 3));
}

#[tokio::test]
async fn a_second_worker_continues_where_the_first_stopped() {
    let world = World::default();
    let (first, second) = (&trace()[..5], &trace()[5..]);
    world.produce(first);
    let mut member = world.member("a");
    member.settle(&world).await.unwrap();
    member.drain().await;
    drop(member);
    world.produce(second);
    let mut member = world.member("b");
    member.settle(&world).await.unwrap();
    assert_folded(&world, &trace(), "");
    assert_eq!(member.status.lock().counts.events.values().sum::<u64>(), 5);
}

#[tokio::test]
async fn the_first_event_of_a_shard_cannot_have_half_a_century_closed() {
    let world = World::default();
    let ancient = |hours: i64| pod("acme", -60 * hours, "ancient", 1);
    // Seven hours have passed since the start of the trace.
    world.produce(&[ancient(94), ancient(93)]);
    world.produce(&trace());
    let mut member = world.start("a", Faults::default(), |options| options.max_history_hours = 100);
    member.settle(&world).await.unwrap();
    let letters = world.dead_letters.letters();
    let [letter] = &letters[..] else { panic!("{letters:?}") };
    assert_eq!(letter.rejected.reject.reason, Reason::TooLate);
    let message = &letter.rejected.reject.message;
    assert!(
        message.contains("101 hours ago") && message.contains("work.max_history_hours: 100"),
        "{message}"
    );
    assert_folded(&world, &[vec![ancient(93)], trace()].concat(), "");
}

#[tokio::test]
async fn a_dead_letter_that_is_too_large_for_its_topic_stays_in_the_file_and_holds_up_no_other() {
    let world = World::default();
    world.dead_letters.set_largest(Some(100));
    let event = node("acme", 10, 1);
    for length in [101, 100] {
        world.send_event(&event, vec![255; length], What::Bad(Reason::UnknownSchema));
    }
    world.produce(&trace());
    let mut member = world.member("a");
    member.settle(&world).await.unwrap();
    let lengths =
        || world.dead_letters.letters().iter().map(|letter| letter.rejected.bytes.len()).collect::<Vec<_>>();
    assert_eq!(lengths(), [100]);
    world.send_event(&event, vec![255; 99], What::Bad(Reason::UnknownSchema));
    member.settle(&world).await.unwrap();
    assert_eq!(lengths(), [100, 99]);
    let waiting =
        world.audit.latest().values().map(|checkpoint| checkpoint.unsent_dead_letters.len()).sum::<usize>();
    assert_eq!(waiting, 0);
}

#[tokio::test]
async fn a_topic_brings_the_organizations_that_it_may_and_no_others() {
    let world = World::default();
    let organizations = |patterns: &[&str]| {
        AllowedOrganizations::new(&patterns.iter().map(|&pattern| pattern.to_owned()).collect::<Vec<_>>())
            .unwrap()
    };
    let of_topics = BTreeMap::from([
        ("nodes".into(), organizations(&["acme", "hooli", "gamma"])),
        ("pods".into(), organizations(&["acme", "h*", "gam*"])),
    ]);
    world.produce(&trace());
    let foreign = node("hermes", 20, 1);
    let value = FakeMessages::encode(SCHEMA, &foreign);
    world.send_event(&foreign, value, What::Bad(Reason::ForeignOrganization));
    // The pattern `h*` allows the organization. The pattern `acme` does not match longer names.
    let own = pod("hermes", 20, "own", 1);
    world.produce(std::slice::from_ref(&own));
    let longer = pod("acme-eu", 20, "longer", 1);
    let value = FakeMessages::encode(SCHEMA, &longer);
    world.send_event(&longer, value, What::Bad(Reason::ForeignOrganization));
    let mut member = world.start("a", Faults::default(), move |options| {
        options.organizations = TopicOrganizations(of_topics);
    });
    member.settle(&world).await.unwrap();
    let letters = world.dead_letters.letters();
    let rejects: Vec<String> = letters.iter().map(|letter| letter.rejected.reject.to_string()).collect();
    assert_eq!(rejects.len(), 2, "{rejects:?}");
    for place in ["topic nodes may not bring events of organization 'hermes'", "organization 'acme-eu'"] {
        let is_one = |reject: &String| reject.starts_with("foreign_organization: ") && reject.contains(place);
        assert!(rejects.iter().any(is_one), "{place}: {rejects:?}");
    }
    assert_folded(&world, &[trace(), vec![own]].concat(), "");
}

fn options(owner: &str, world: &World) -> BackfillOptions {
    let mut options = BackfillOptions::new(owner.into());
    options.shards = Some(world.shards);
    options.threads = 1;
    options
}

/// Returns the number of hours in the tables that the wall clock has not reached.
fn published_ahead(world: &World) -> usize {
    let now = world.now().hour();
    let files = world.lake.files();
    let hours = files.get(&Table::Hours).into_iter().flatten().filter_map(|path| TableFile::parse(path));
    hours.filter(|file| file.hour > now).count()
}

#[tokio::test]
async fn one_foreign_event_with_a_clock_ahead_does_not_keep_live_events_from_counting() {
    let world = read().await;
    let closed: Vec<Option<Hour>> =
        world.audit.latest().values().map(|latest| latest.closed_through).collect();
    // A file with one record of a producer whose clock is 60 days ahead is folded into the worker's root.
    let future = [pod("acme", 60 * 24 * 60, "clock", 1)];
    let outcome =
        foreign::run(&world, &future, Faults::default(), options("backfill", &world)).await.unwrap();
    assert_eq!(outcome.dead_letters.get(&Reason::InTheFuture), Some(&1));
    let after: Vec<Option<Hour>> =
        world.audit.latest().values().map(|latest| latest.closed_through).collect();
    assert_eq!(after, closed, "a backfill closes hours that are the worker's to close");
    let mut member = world.member("b");
    member.settle(&world).await.unwrap();
    world.set_minutes(8 * 60);
    world.produce(&[pod("acme", 475, "live", 1), pod("hooli", 476, "live", 1), node("gamma", 477, 3)]);
    member.settle(&world).await.unwrap();
    let letters = world.dead_letters.letters();
    assert!(letters.is_empty(), "live events are dead letters: {letters:?}");
    assert_eq!(published_ahead(&world), 0);
}

#[tokio::test]
async fn foreign_events_of_hours_that_a_worker_has_left_open_are_its_to_close() {
    let world = read().await;
    let open = [pod("acme", 6 * 60 + 1, "open", 1)];
    let outcome = foreign::run(&world, &open, Faults::default(), options("backfill", &world)).await.unwrap();
    assert_eq!(outcome.events_new, 1);
    assert!(outcome.ahead.is_some_and(|ahead| ahead.worker_closes && ahead.last == Hour(START + 6)));
    let mut member = world.member("b");
    member.settle(&world).await.unwrap();
    world.set_minutes(9 * 60);
    let live =
        [pod("acme", 8 * 60 + 30, "live", 1), node("hooli", 8 * 60 + 31, 3), node("gamma", 8 * 60 + 31, 3)];
    world.produce(&live);
    member.settle(&world).await.unwrap();
    let all = [trace(), open.to_vec(), live.to_vec()].concat();
    let latest = world.audit.latest();
    let shard = world.shard_of("acme");
    let closed = latest[&shard].closed_through.unwrap();
    assert!(closed >= Hour(START + 6), "{closed}");
    let content = expected(&all, closed, shard_of, rules);
    let of_shard = |content: Content| -> Content {
        content.into_iter().filter(|((_, hour, of), _)| *of == shard && *hour <= closed).collect()
    };
    assert!(of_shard(world.lake.content()) == of_shard(content), "the worker closes it without the event");
}

#[tokio::test]
async fn an_end_in_the_future_is_refused_in_a_workers_root() {
    let world = read().await;
    let mut options = options("backfill", &world);
    options.to = Some(Hour(world.now().hour().0 + 1));
    let error = foreign::run(&world, &trace(), Faults::default(), options).await.unwrap_err();
    assert_eq!(error.exit_code(), 2);
    assert!(error.to_string().contains("is in the future"), "{error}");
}

/// A decoder that also reads the status from another thread while it decodes, as a probe does.
struct Probed {
    messages: FakeMessages,
    status: Arc<Status>,
    answers: Arc<AtomicU64>,
}

#[async_trait]
impl MessageDecoder for Probed {
    fn decode<'a>(&self, value: &'a [u8]) -> Result<EventRecordRef<'a>, DecodeFailure> {
        let (sender, receiver) = mpsc::channel();
        let status = Arc::clone(&self.status);
        std::thread::spawn(move || sender.send(status.lock().heartbeat));
        receiver.recv_timeout(PATIENCE).expect("the status is not reported while a message is decoded");
        self.answers.fetch_add(1, Ordering::Relaxed);
        self.messages.decode(value)
    }

    async fn fetch(&self, schema_id: u32) -> Result<(), RegistryError> {
        self.messages.fetch(schema_id).await
    }
}

#[tokio::test]
async fn a_probe_does_not_wait_for_a_message_that_is_decoded() {
    let world = World::default();
    world.produce(&trace());
    let mut ports = world.ports_on(Arc::new(world.lake.store.clone()), Arc::new(world.lake.tables.clone()));
    let (status, answers) = (Arc::clone(&ports.status), Arc::<AtomicU64>::default());
    ports.decoder = Arc::new(Probed {
        messages: world.registry.decoder(),
        status: Arc::clone(&status),
        answers: Arc::clone(&answers),
    });
    let mut options = WorkerOptions::new("a".into());
    options.shards = Some(world.shards);
    let mut worker = Worker::open(world.broker.source("a", &TOPICS), ports, options).await.unwrap();
    let events = || status.lock().counts.events.values().sum::<u64>();
    while events() < trace().len() as u64 {
        worker.step(Duration::ZERO).await.unwrap();
    }
    assert!(answers.load(Ordering::Relaxed) >= events());
}
