//! Archive files of a closed hour are merged into one, and a crash in between loses no event.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use prorata_samples::trace::{node, pod};
use prorata_schemas::body::EventRecordRef;
use prorata_schemas::time::Hour;
use prorata_testkit::fakes::{FakeArchive, FakeBroker, Fault, Faults};
use prorata_worker::backfill::BackfillOptions;
use prorata_worker::names::ArchivePath;
use prorata_worker::ports::Archive;

use crate::harness::rules;
use crate::sim::foreign;
use crate::world::World;
use crate::world::member::Member;
use crate::world::oracle::{self, Also};

/// Returns the archive files that the latest checkpoints name, by hour.
fn files(world: &World) -> BTreeMap<Hour, BTreeSet<String>> {
    world.audit.look();
    let mut files: BTreeMap<Hour, BTreeSet<String>> = BTreeMap::new();
    for path in world.audit.named() {
        if let Some(parsed) = ArchivePath::parse(&path) {
            files.entry(parsed.hour).or_default().insert(path);
        }
    }
    files
}

/// Returns the maximum number of files of a closed hour, except the last closed hour.
fn most(world: &World) -> usize {
    let files = files(world);
    let closed = world.audit.latest()[&0].closed_through.unwrap_or(Hour(i64::MIN));
    files.iter().filter(|(hour, _)| **hour < closed).map(|(_, files)| files.len()).max().unwrap_or(0)
}

/// Returns whether the archive holds events twice: in a merged file and in the files that it replaces.
fn holds_twice(world: &World) -> bool {
    let (mut all, mut once) = (0, BTreeSet::new());
    for path in world.lake.objects().into_iter().filter(|path| ArchivePath::parse(path).is_some()) {
        let bytes = world.lake.store.objects()[&path].clone();
        let each = &mut |_, record: Result<EventRecordRef<'_>, _>| {
            all += 1;
            once.insert(record.unwrap().body);
        };
        FakeArchive.read(&mut &bytes[..], each).unwrap();
    }
    all > once.len()
}

/// Sends events every ten minutes, each time with a checkpoint.
async fn minutes(world: &World, member: &mut Member, minutes: std::ops::Range<i64>) {
    for minute in minutes.step_by(10) {
        world.set_minutes(minute + 5);
        world.produce(&[pod("acme", minute, &format!("p{minute}"), 1), node("acme", minute + 1, 4)]);
        for _ in 0..3 {
            if !member.is_gone() {
                member.step().await;
            }
            world.pass(Duration::from_secs(61));
        }
    }
}

fn check(world: &World, context: &str) {
    oracle::check(world, &Also::default(), |_, hour| rules(hour), context);
}

async fn settle(world: &World, member: &mut Member) {
    for _ in 0..6 {
        member.settle(world).await.unwrap();
        world.pass(Duration::from_secs(1_801));
    }
}

#[tokio::test]
async fn a_closed_hour_is_merged_into_one_archive_file() {
    let world = World::on(FakeBroker::default(), 1);
    let mut member = world.start("a", Faults::default(), |_| {});
    minutes(&world, &mut member, 60..600).await;
    let open = files(&world).into_iter().next_back().unwrap().1.len();
    assert!(open > 2, "open hours have many: {open}");
    assert_eq!(most(&world), 1, "{:#?}", files(&world));
    // Late events add files, but never more than a few.
    for late in 0..40 {
        world.produce(&[pod("acme", 130, &format!("late {late}"), 1)]);
        minutes(&world, &mut member, 600 + late * 10..610 + late * 10).await;
        assert!(most(&world) <= 18, "{late}: {}", most(&world));
    }
    settle(&world, &mut member).await;
    check(&world, "merged");
    member.drain().await;
    // Everything can be folded again from the remaining files.
    let mut options = BackfillOptions::new("backfill".into());
    options.threads = 1;
    foreign::run(&world, &[], Faults::default(), options).await.unwrap();
    check(&world, "folded again");
}

#[tokio::test]
async fn a_crash_at_any_effect_while_merging_loses_nothing() {
    let mut left_over = 0;
    for effect in 0.. {
        let context = format!("after effect {effect}");
        let world = World::on(FakeBroker::default(), 1);
        let mut first = world.start("a", Faults::default(), |_| {});
        minutes(&world, &mut first, 60..110).await;
        first.drain().await;
        let mut dying = world.start("dying", Faults::with(Fault::CrashAfter(effect)), |_| {});
        minutes(&world, &mut dying, 110..290).await;
        let survived = !dying.is_gone();
        left_over += usize::from(holds_twice(&world));
        world.broker.expire("dying");
        let mut next = world.start("next", Faults::default(), |_| {});
        minutes(&world, &mut next, 290..330).await;
        settle(&world, &mut next).await;
        check(&world, &context);
        assert_eq!(most(&world), 1, "{context}");
        if survived {
            break;
        }
    }
    assert!(left_over > 4, "some died between a merged file and the deletion of the others: {left_over}");
}
