//! The requests of a claim, whose number does not grow with the archive.

use std::time::Duration;

use prorata_samples::trace::{START, pod};
use prorata_schemas::time::Hour;
use prorata_testkit::fakes::FakeBroker;
use prorata_worker::checkpoint::ArchivedFile;
use prorata_worker::checkpoint::log::{self, Appended, Log};
use prorata_worker::names::{self, ObjectId};

use super::watched::{Asked, WatchedStore, worker};
use crate::world::World;

/// Creates a world of two shards with all events on one of them. Returns the world and the shard with the
/// events.
async fn world_of_60_hours() -> (World, u16) {
    let world = World::on(FakeBroker::default(), 2);
    let used = world.shard_of("acme");
    let mut member = world.member("a");
    for hour in 0..60 {
        world.set_minutes(7 * 60 + hour * 60);
        world.produce(&[pod("acme", 7 * 60 + hour * 60 - 5, &format!("p{hour}"), 1)]);
        member.settle(&world).await.unwrap();
    }
    member.drain().await;
    (world, used)
}

/// Runs a new owner of all shards until it has closed all hours that it can close, and returns its calls of
/// the store.
async fn calls_of_a_claim(world: &World, name: &str) -> Asked {
    let store = WatchedStore::of(world);
    let (mut worker, _) = worker(world, &store, name, |_| {}).await;
    for _ in 0..3 {
        worker.step(Duration::ZERO).await.unwrap();
        world.pass(Duration::from_secs(61));
    }
    worker.drain().await;
    store.take()
}

#[tokio::test]
async fn a_claim_lists_no_archive() {
    let (world, _) = world_of_60_hours().await;
    let lists = calls_of_a_claim(&world, "b").await.lists;
    let archive: Vec<_> = lists.iter().filter(|(folder, _)| folder.starts_with(names::EVENTS)).collect();
    assert!(archive.is_empty() && !lists.is_empty(), "{lists:?}");
}

/// Appends a checkpoint that names an archive file for each hour of the `months` months before the start of
/// the world.
async fn archive_of(world: &World, shard: u16, months: i64) {
    let mut log = Log::new(log::latest(&world.lake.store, shard).await.unwrap());
    let mut draft = log.decided().next_draft();
    for hour in START - months * 730..START {
        let object_id = ObjectId { seq: 1, owner: "before".into(), n: hour.unsigned_abs() };
        draft.name_archive_file(ArchivedFile { hour: Hour(hour), object_id, bytes: 9 });
    }
    log.seal(draft, world.now());
    assert_eq!(log.append(&world.lake.store).await.unwrap(), Appended::Ours);
}

#[tokio::test]
async fn a_claim_asks_for_as_much_after_ten_years_as_after_a_month() {
    let mut requests = Vec::new();
    for months in [1, 120] {
        let (world, used) = world_of_60_hours().await;
        archive_of(&world, used, months).await;
        let asked = calls_of_a_claim(&world, "b").await;
        let bytes: usize =
            asked.gets.iter().filter_map(|path| world.lake.store.object(path)).map(|b| b.len()).sum();
        println!("{months} months: {} lists, {} gets, {bytes} bytes", asked.lists.len(), asked.gets.len());
        requests.push(asked.lists.len() + asked.gets.len());
    }
    assert_eq!(requests[0], requests[1]);
}
