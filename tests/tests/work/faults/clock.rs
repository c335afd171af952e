//! A worker with a wrong machine clock closes no hour too early, rejects nothing, and reports the wrong
//! clock.

use std::path::Path;
use std::process::Command;

use prorata_testkit::wait::eventually;

use crate::world::worker::Worker;
use crate::world::worker::assert_refused;
use crate::world::{Load, World};

const DAY: i64 = 86_400;

/// Builds the library that moves the clock of workers, and loads it into them.
fn move_clocks(world: &mut World) {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/work/faults/clock.c");
    let library = world.folder.path().join("clock.so");
    let mut compiler = Command::new("cc");
    compiler.args(["-shared", "-fPIC", "-O1", "-o"]).arg(&library).arg(source).arg("-ldl");
    assert!(compiler.status().unwrap().success(), "cc builds the library");
    world.environment("LD_PRELOAD", library.to_str().unwrap());
    let file = world.folder.path().join("offset");
    world.environment("CLOCK_OFFSET_FILE", file.to_str().unwrap());
    set_clock(world, 0);
}

/// Sets the number of seconds by which the workers' clock is ahead.
fn set_clock(world: &World, seconds: i64) {
    // The file is replaced as a whole, so a reader sees the old number or the new one.
    let (file, new) = (world.folder.path().join("offset"), world.folder.path().join("offset.new"));
    std::fs::write(&new, seconds.to_string()).unwrap();
    std::fs::rename(new, file).unwrap();
}

fn says(worker: &mut Worker, words: &str) {
    eventually("the worker says that the clock is wrong", || match worker.get("/readyz") {
        Some((503, body)) if body.contains(words) => Ok(()),
        other => Err(format!("it says {other:?}{}", worker.program.tail())),
    });
}

fn takes(worker: &mut Worker, messages: i64) {
    let messages = u64::try_from(messages).unwrap();
    eventually("the events are taken", || match worker.counter("events") {
        taken if taken >= messages => Ok(()),
        taken => Err(format!("{taken} of {messages}{}", worker.program.tail())),
    });
}

#[test]
fn a_wall_clock_two_days_ahead_or_a_day_behind_closes_and_rejects_nothing() {
    let mut world = World::new("clock");
    move_clocks(&mut world);
    let loads = [31, 32, 33].map(Load::small);
    let [first, second, third] = loads;
    let mut worker = world.worker();
    let mut messages = world.send(first);
    world.drained(std::slice::from_mut(&mut worker), messages);
    worker.ready();

    set_clock(&world, 2 * DAY);
    says(&mut worker, "ahead of");
    messages += world.send(second);
    takes(&mut worker, messages);
    let closed = world.lake().checkpoints().into_values().filter_map(|checkpoint| checkpoint.closed_through);
    let last = closed.max().unwrap();
    assert!(last <= world.through().next(), "{last} is closed ahead of the hour {}", world.now);
    set_clock(&world, 0);
    worker.ready();
    world.drained(std::slice::from_mut(&mut worker), messages);

    set_clock(&world, -DAY);
    says(&mut worker, "behind");
    messages += world.send(third);
    set_clock(&world, 0);
    worker.ready();
    world.drained(std::slice::from_mut(&mut worker), messages);
    assert_eq!(worker.counter("dead_letters"), 0);
    worker.stop();
    world.assert_law(&loads);
}

#[test]
fn a_worker_does_not_start_with_a_wrong_clock() {
    let mut world = World::new("wrong-clock");
    move_clocks(&mut world);
    set_clock(&world, 2 * DAY);
    assert_refused(world.worker().program.wait(), 2, &["the clock of this machine", "correct the clock"]);
    let files = world.lake().tables().into_iter().filter(|path| path.ends_with(".parquet"));
    assert_eq!(files.collect::<Vec<_>>(), Vec::<String>::new());
    set_clock(&world, 0);
    let mut worker = world.worker();
    worker.ready();
    worker.stop();
}
