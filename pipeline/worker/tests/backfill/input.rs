//! Bad input and wrong configuration in a backfill.

use bytes::Bytes;
use prorata_samples::trace::{START, TRACE_END, node_priced, pod, pod_stop, trace};
use prorata_schemas::event::EventRecord;
use prorata_schemas::money::UnitPrice;
use prorata_schemas::reject::Reason;
use prorata_schemas::rules::Rules;
use prorata_schemas::time::{Hour, WallTime};
use prorata_testkit::fakes::{FakeArchive, SteppedClock};
use prorata_worker::WorkerError;
use prorata_worker::ports::{Archive, ObjectStore};
use prorata_worker::root::organizations::AllowedOrganizations;

use crate::harness::*;

fn dead_letters(lake: &Lake) -> Vec<String> {
    lake.objects().into_iter().filter(|path| path.starts_with("dead-letter/")).collect()
}

#[tokio::test]
async fn a_bad_file_and_a_bad_record_are_dead_letters_written_once() {
    let lake = Lake::default();
    let bad = node_priced("acme", 5, UnitPrice::from(-1));
    let mut input = files(&[&trace(), &[bad]]);
    input.insert("garbage.avro".into(), Bytes::from_static(b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff"));
    input.insert("README.md".into(), Bytes::from_static(b"not events"));
    for owner in ["aa", "bb"] {
        let outcome = lake.run(&input, Run::new(owner)).await.unwrap();
        assert_eq!(outcome.dead_letters[&Reason::Malformed], 1);
        assert_eq!(outcome.dead_letters[&Reason::InvalidField], 1);
        assert_eq!(outcome.files_skipped, 1);
        assert!(
            outcome.dead_letter_examples.iter().any(|line| line.starts_with("garbage.avro: ")),
            "{outcome:?}"
        );
        let record = "part-1.avro, block 0 at byte 0, record 0: invalid_field: NodeStarted.hourly_cost";
        assert!(outcome.dead_letter_examples.iter().any(|line| line.starts_with(record)), "{outcome:?}");
        assert_eq!(dead_letters(&lake).len(), 2, "the same input leaves one copy");
    }
    assert_content(&lake, &expected(&trace(), TRACE_END, shard_of, rules), "");
}

/// Returns the text of every dead letter.
async fn messages(lake: &Lake) -> Vec<String> {
    let mut messages = Vec::new();
    for path in dead_letters(lake) {
        let letters = FakeArchive.read_dead_letters(&lake.store.get(&path).await.unwrap().unwrap()).unwrap();
        messages.extend(letters.into_iter().map(|letter| letter.rejected.reject.message));
    }
    messages
}

#[tokio::test]
async fn a_thousand_bad_records_of_a_block_are_dead_letters_and_one_covers_the_rest() {
    for (bad, letters, more) in [(1_000, 1_000, None), (1_001, 1_001, None), (5_000, 1_001, Some(3_999))] {
        let lake = Lake::default();
        let negative = || node_priced("acme", 5, UnitPrice::from(-1));
        let mut records: Vec<EventRecord> = (0..bad).map(|_| negative()).collect();
        records.push(node_priced("zeta", 5, UnitPrice::from(1)));
        records.extend(trace());
        let run = Run::new("aa").with(|options| {
            options.rules.currencies.insert("zeta".into(), "EUR".into());
        });
        let outcome = lake.run(&files(&[&records, &[negative()]]), run).await.unwrap();
        // The record of the other file and the record with the other reason have their own letters.
        assert_eq!(outcome.dead_letters[&Reason::InvalidField], letters + 1, "{bad}");
        assert_eq!(outcome.dead_letters[&Reason::CurrencyMismatch], 1, "{bad}");
        let text = "more records of this block are rejected for the same reason";
        let covering: Vec<String> =
            messages(&lake).await.into_iter().filter(|why| why.contains(text)).collect();
        match more {
            Some(more) => assert!(covering[0].contains(&format!("; {more} {text}")), "{covering:?}"),
            None => assert!(covering.is_empty(), "{covering:?}"),
        }
        assert_content(&lake, &expected(&trace(), TRACE_END, shard_of, rules), "");
    }
}

#[tokio::test]
async fn a_price_in_another_currency_is_a_dead_letter() {
    let lake = Lake::default();
    let run = Run::new("aa").with(|options| {
        options.rules.currencies.insert("hooli".into(), "EUR".into());
    });
    let outcome = lake.run(&files(&[&trace()]), run).await.unwrap();
    assert_eq!(outcome.dead_letters[&Reason::CurrencyMismatch], 1);
    assert!(
        outcome.dead_letter_examples[0].contains("'USD'")
            && outcome.dead_letter_examples[0].contains("'EUR'")
    );
}

#[tokio::test]
async fn files_bring_the_organizations_that_they_may_and_no_others() {
    let lake = Lake::default();
    let foreign = [pod("hermes", 5, "foreign", 1), pod("acme-eu", 5, "foreign", 1)];
    let run = Run::new("aa").with(|options| {
        let named = ["acme", "ho*", "gam*"].map(str::to_owned);
        options.organizations = Some(AllowedOrganizations::new(&named).unwrap());
    });
    let outcome = lake.run(&files(&[&trace(), &foreign]), run).await.unwrap();
    assert_eq!(outcome.dead_letters, [(Reason::ForeignOrganization, 2)].into());
    assert_content(&lake, &expected(&trace(), TRACE_END, shard_of, rules), "");
}

#[tokio::test]
async fn an_event_of_the_future_is_a_dead_letter_unless_its_hour_is_named() {
    let days = 50 * 24 * 60;
    let ahead = [pod("acme", days, "ahead", 1)];
    let hour = Hour(START + days / 60);
    let mut lake = Lake::default();
    lake.store = lake.store.with_clock(SteppedClock::new(WallTime(TRACE_END.end().0)));
    let outcome = lake.run(&files(&[&trace(), &ahead]), Run::new("aa")).await.unwrap();
    assert_eq!(outcome.closed_through, Some(TRACE_END));
    assert_eq!(outcome.dead_letters[&Reason::InTheFuture], 1);
    assert_eq!(outcome.events_new, 10);
    assert_content(&lake, &expected(&trace(), TRACE_END, shard_of, rules), "");
    let named = Run::new("bb").with(|options| options.to = Some(hour));
    let outcome = lake.run(&files(&[&trace(), &ahead]), named).await.unwrap();
    assert_eq!((outcome.events_new, outcome.closed_through), (1, Some(hour)));
}

#[tokio::test]
async fn more_hours_than_allowed_are_refused_before_any_is_folded() {
    let mut lake = Lake::default();
    lake.store = lake.store.with_clock(SteppedClock::new(WallTime(TRACE_END.end().0)));
    let run = Run::new("aa").with(|options| {
        (options.max_hours, options.to) = (1_000, Some(Hour(START + 10_000)));
    });
    let error = lake.run(&files(&[&trace()]), run).await.unwrap_err();
    assert_eq!(error.exit_code(), 2);
    assert!(error.to_string().contains("10001 hours to fold"), "{error}");
    assert!(error.to_string().contains("backfill.max_hours"), "{error}");
}

#[tokio::test]
async fn a_pod_on_an_unknown_node_is_accepted_and_counted() {
    let lake = Lake::default();
    let outcome = lake
        .run(&files(&[&[pod("acme", 0, "p", 1), pod_stop("acme", 90, "p")]]), Run::new("aa"))
        .await
        .unwrap();
    assert_eq!(outcome.totals["USD"].unpriced_pod_hours, 2);
    assert!(outcome.dead_letters.is_empty());
}

#[tokio::test]
async fn an_input_without_avro_files_is_a_wrong_argument() {
    let input = Files::from([("README.md".to_owned(), Bytes::from_static(b"x"))]);
    let lake = Lake::default();
    let error = lake.run(&input, Run::new("aa")).await.unwrap_err();
    assert_eq!(error.exit_code(), 2);
    assert!(error.to_string().contains(".avro"), "{error}");
    assert!(lake.objects().is_empty(), "nothing is written before the input is known");
}

#[tokio::test]
async fn another_number_of_shards_than_the_roots_is_refused() {
    let lake = Lake::default();
    lake.run(&files(&[&trace()]), Run::new("aa")).await.unwrap();
    let with = |shards| Run::new("bb").with(|options| options.shards = shards);
    let error = lake.run(&files(&[&trace()]), with(Some(3))).await.unwrap_err();
    assert!(matches!(error, WorkerError::Configuration(_)), "{error}");
    assert!(
        error.to_string().contains("made with 2 shards") && error.to_string().contains("root.shards: 3"),
        "{error}"
    );
    lake.run(&files(&[&trace()]), with(None)).await.unwrap();
    for shards in [0, 10_000] {
        assert_eq!(lake.run(&files(&[&trace()]), with(Some(shards))).await.unwrap_err().exit_code(), 2);
    }
}

#[tokio::test]
async fn a_version_of_rules_means_one_thing() {
    let lake = Lake::default();
    lake.run(&files(&[&trace()]), Run::new("aa")).await.unwrap();
    let run = |version: &str| {
        Run::new("bb").with(|options| {
            options.rules = Rules { version: version.into(), gpu_memory_gb: 16, ..Rules::default() };
            options.rewrite_rules = true;
        })
    };
    let error = lake.run(&files(&[&trace()]), run("1")).await.unwrap_err();
    assert_eq!(error.exit_code(), 2);
    assert!(error.to_string().contains("rules.version '1' is in the root with other rules"), "{error}");
    let error = lake.run(&files(&[&trace()]), run("../1")).await.unwrap_err();
    assert!(error.to_string().contains("cannot name a file"), "{error}");
    lake.run(&files(&[&trace()]), run("2")).await.unwrap();
}

#[tokio::test]
async fn a_damaged_archive_file_is_a_loud_stop() {
    let lake = Lake::default();
    lake.run(&files(&[&trace()]), Run::new("aa")).await.unwrap();
    let path = lake.objects().into_iter().find(|path| path.starts_with("events/")).unwrap();
    lake.store.overwrite(&path, Bytes::from_static(b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff"));
    let error = lake.run(&files(&[&[pod("acme", 1, "x", 1)]]), Run::new("bb")).await.unwrap_err();
    assert_eq!(error.exit_code(), 1);
    assert!(error.to_string().contains("is damaged"), "{error}");
}

#[tokio::test]
async fn from_after_to_is_refused() {
    let run = Run::new("aa").with(|options| {
        options.from = Some(Hour(START + 2));
        options.to = Some(Hour(START + 1));
    });
    assert_eq!(Lake::default().run(&files(&[&trace()]), run).await.unwrap_err().exit_code(), 2);
}
