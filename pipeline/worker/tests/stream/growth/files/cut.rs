//! An hour's table in several files. A late event rewrites only the files with rows of its organization, and
//! the result equals the files of a backfill of everything.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use prorata_samples::trace::{START, node, pod, pod_stop};
use prorata_schemas::event::EventRecord;
use prorata_schemas::tables::Table;
use prorata_schemas::time::Hour;
use prorata_testkit::fakes::{FakeBroker, Fault, Faults};
use prorata_worker::names::TableFile;

use crate::harness::*;
use crate::world::World;
use crate::world::member::Member;
use crate::world::oracle::{self, Also};

/// Number of rows after which a file ends. Each organization has one cost row per hour, for its pod.
const FILE_ROWS: u64 = 5;

const ORGANIZATIONS: usize = 24;
const HOURS: i64 = 6;

/// The hour of the late events, which has five cost files.
const LATE: i64 = 2;

fn world() -> World {
    let mut world = World::on(FakeBroker::default(), 1);
    world.lake.file_rows = Some(FILE_ROWS);
    world.set_minutes(HOURS * 60 + 21);
    world
}

fn history() -> Vec<EventRecord> {
    let running = |n| {
        let organization = format!("org-{n:02}");
        [node(&organization, 0, 10), pod(&organization, 5, "first", 1)]
    };
    let mut events: Vec<EventRecord> = (0..ORGANIZATIONS).flat_map(running).collect();
    events.push(pod("org-00", HOURS * 60 + 20, "now", 1));
    events
}

/// Returns pods that run only within the late hour.
fn late(organization: &str, pods: std::ops::Range<usize>) -> Vec<EventRecord> {
    let one = |n| {
        let name = format!("late {n}");
        [pod(organization, LATE * 60 + 5, &name, 1), pod_stop(organization, LATE * 60 + 35, &name)]
    };
    pods.flat_map(one).collect()
}

fn start(world: &World, name: &str, faults: Faults) -> Member {
    world.start(name, faults, |options| options.max_restate_delay = Duration::ZERO)
}

async fn settle(world: &World, member: &mut Member) {
    for _ in 0..4 {
        member.settle(world).await.unwrap();
        world.pass(Duration::from_secs(61));
    }
}

fn check(world: &World, context: &str) {
    oracle::check(world, &Also::default(), |_, hour| rules(hour), context);
}

/// Returns the live files by table and hour.
fn live(lake: &Lake) -> BTreeMap<(Table, Hour), BTreeSet<String>> {
    let mut live: BTreeMap<_, BTreeSet<String>> = BTreeMap::new();
    for (table, paths) in lake.files() {
        for path in paths {
            live.entry((table, TableFile::parse(&path).unwrap().hour)).or_default().insert(path);
        }
    }
    live
}

/// Returns the number of cost files and the number of totals files of the late hour that were replaced.
fn replaced(before: &Lake, files: &BTreeMap<(Table, Hour), BTreeSet<String>>) -> [usize; 2] {
    let after = live(before);
    [Table::CostAllocation, Table::Hours].map(|table| {
        let key = (table, Hour(START + LATE));
        files[&key].difference(&after[&key]).count()
    })
}

#[tokio::test]
async fn a_late_event_writes_the_file_with_its_organization() {
    let world = world();
    world.produce(&history());
    let mut member = start(&world, "a", Faults::default());
    settle(&world, &mut member).await;
    let before = live(&world.lake);
    assert_eq!(before[&(Table::CostAllocation, Hour(START + LATE))].len(), 5);
    assert_eq!(before[&(Table::Hours, Hour(START + LATE))].len(), 1);
    let (mut all, mut files) = (history(), before);
    // Each case has the late events and the number of rewritten cost files. The second case moves the end of
    // its file, and so the ends of all later files. The organization of the third case is after all others.
    // The organization of the last case is before all others. The last case moves the end of its file, but
    // not the end of the next file.
    let cases = [("org-09", 0..1, 1), ("org-07", 1..3, 4), ("zebra", 3..4, 1), ("aaa", 4..5, 2)];
    for (organization, pods, written) in cases {
        let late = late(organization, pods);
        world.produce(&late);
        settle(&world, &mut member).await;
        assert_eq!(member.status.lock().counts.full_restatements, 0, "{organization}");
        check(&world, organization);
        assert_eq!(replaced(&world.lake, &files), [written, 1], "{organization}: files of cost and of hours");
        all.extend(late);
        files = live(&world.lake);
    }
    member.drain().await;
    let closed = world.audit.latest()[&0].closed_through;
    let fresh = Lake { file_rows: Some(FILE_ROWS), ..Lake::default() };
    let run = Run::new("fresh").with(|options| (options.shards, options.to) = (Some(1), closed));
    fresh.run(&self::files(&[&all]), run).await.unwrap();
    let digests = |lake: &Lake| -> BTreeMap<(Table, Hour), BTreeSet<String>> {
        let digest = |path: &String| TableFile::parse(path).unwrap().digest;
        let digests = live(lake).into_iter();
        digests.map(|(key, paths)| (key, paths.iter().map(digest).collect())).collect()
    };
    assert_eq!(digests(&world.lake), digests(&fresh), "file for file");
}

#[tokio::test]
async fn a_crash_at_any_effect_while_files_are_cut_loses_nothing() {
    for effect in 0.. {
        let context = format!("after effect {effect}");
        let world = world();
        world.produce(&history());
        let mut first = start(&world, "a", Faults::default());
        settle(&world, &mut first).await;
        first.drain().await;
        world.produce(&late("org-07", 0..3));
        let mut dying = start(&world, "dying", Faults::with(Fault::CrashAfter(effect)));
        for _ in 0..40 {
            if !dying.is_gone() {
                dying.step().await;
            }
            world.pass(Duration::from_secs(10));
        }
        let survived = !dying.is_gone();
        world.broker.expire("dying");
        let mut next = start(&world, "next", Faults::default());
        settle(&world, &mut next).await;
        check(&world, &context);
        if survived {
            assert!(effect > 10, "{effect} effects");
            break;
        }
    }
}
