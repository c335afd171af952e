//! Runs backfills and workers on one root, and on each other's archive.

use std::collections::BTreeMap;

use prorata_schemas::time::Hour;
use prorata_tests::lake::StoredLake;
use prorata_tests::program::Ended;
use prorata_worker::names::TableFile;
use serde_json::{Value, json};

use super::world::{Load, World};

/// Runs a backfill of these loads into a lake.
fn backfill(world: &World, loads: &[Load], lake: &str, more: &[&str]) -> Ended {
    let events = tempfile::tempdir_in(world.folder.path()).unwrap();
    for (index, load) in loads.iter().enumerate() {
        world.write(*load, &events.path().join(index.to_string()));
    }
    let config = world.config();
    let mut arguments = vec!["backfill", "--json", "--lake", lake, "--config", config.to_str().unwrap()];
    arguments.extend(["--events", events.path().to_str().unwrap()]);
    arguments.extend(more);
    world.run(&arguments)
}

fn summary(ended: Ended) -> Value {
    serde_json::from_str(&ended.succeeded()).unwrap()
}

/// Returns the paths of live files by table, shard and hour.
fn paths(world: &World) -> BTreeMap<String, String> {
    let files = world.lake().files(Hour(i64::MAX)).into_iter();
    let paths = |files: Vec<TableFile>| files.iter().map(TableFile::path).collect::<Vec<_>>().join(" ");
    files.map(|((table, shard, hour), files)| (format!("{table:?} {shard} {hour}"), paths(files))).collect()
}

#[test]
fn a_backfill_of_the_workers_archive_makes_the_same_tables() {
    let world = World::new("archive");
    let mut worker = world.worker();
    let messages = world.send(Load::small(31));
    world.drained(std::slice::from_mut(&mut worker), messages);
    worker.stop();
    let other = world.backfill(&format!("{}/events", world.root), "other");
    world.lake().assert_equals(&other, world.through());
    world.assert_law(&[Load::small(31)]);
}

#[test]
fn a_backfill_is_refused_while_a_worker_holds_the_root_and_changes_nothing_after() {
    let world = World::new("refused");
    let load = Load::small(32);
    let mut worker = world.worker();
    let messages = world.send(load);
    world.drained(std::slice::from_mut(&mut worker), messages);
    let refused = backfill(&world, &[load], &world.root, &[]);
    assert_eq!(refused.code, Some(2), "{}", refused.log);
    assert!(
        refused.log.contains("--take-over") && refused.log.contains("is held by worker"),
        "{}",
        refused.log
    );
    assert_eq!(worker.counter("conflicts"), 0);
    worker.stop();
    let before = paths(&world);
    let done = summary(backfill(&world, &[load], &world.root, &[]));
    assert_eq!((&done["table_files"], &done["table_commits"]), (&json!(0), &json!(0)), "{done}");
    assert_eq!(paths(&world), before);
    world.assert_law(&[load]);
}

#[test]
fn a_worker_continues_after_a_backfill_has_taken_its_shards_over() {
    let world = World::new("take-over");
    let [first, foreign, last] = [33, 34, 35].map(Load::small);
    let mut worker = world.worker();
    let messages = world.send(first);
    world.drained(std::slice::from_mut(&mut worker), messages);
    let done = summary(backfill(&world, &[foreign], &world.root, &["--take-over"]));
    assert_ne!(done["table_files"], json!(0), "{done}");
    let all = messages + world.send(last);
    world.drained(std::slice::from_mut(&mut worker), all);
    assert!(worker.counter("conflicts") > 0, "the worker did not notice");
    worker.stop();
    world.assert_law(&[first, foreign, last]);
}

#[test]
fn a_worker_starts_on_a_root_that_a_backfill_has_made() {
    let world = World::new("after");
    let [first, second] = [36, 37].map(Load::small);
    summary(backfill(&world, &[first], &world.root, &[]));
    let mut worker = world.worker();
    let messages = world.send(second);
    world.drained(std::slice::from_mut(&mut worker), messages);
    worker.stop();
    world.assert_law(&[first, second]);
}

#[test]
fn rules_that_a_backfill_puts_in_force_hold_for_the_worker_too() {
    let mut world = World::new("rules");
    let [first, second] = [38, 39].map(Load::small);
    let mut worker = world.worker();
    let messages = world.send(first);
    world.drained(std::slice::from_mut(&mut worker), messages);
    worker.stop();
    let expected = world.folder.path().join("expected").to_str().unwrap().to_owned();
    summary(backfill(&world, &[first], &expected, &["--to", &world.through().to_string()]));

    world.set("rules.version", json!("2"));
    world.set("rules.weights", json!({ "gpu": "5", "cpu": "0.5", "memory": "0.2" }));
    let before = paths(&world);
    let from = Hour(world.now.0 - 3).to_string();
    for lake in [&world.root, &expected] {
        let done = summary(backfill(&world, &[first], lake, &["--from", &from]));
        assert_ne!(done["table_files"], json!(0), "{done}");
    }
    assert_ne!(paths(&world), before);

    let mut worker = world.worker();
    let all = messages + world.send(second);
    world.drained(std::slice::from_mut(&mut worker), all);
    worker.stop();
    summary(backfill(&world, &[second], &expected, &["--from", &from]));
    let expected = StoredLake::open(&expected, std::sync::Arc::clone(&world.runtime));
    world.lake().assert_equals(&expected, world.through());
}
