//! The folders that a claim lists: only the folders of its own shard, and none if its archive is empty.

use std::time::Duration;

use prorata_samples::trace::pod;
use prorata_testkit::fakes::FakeBroker;
use prorata_worker::names;

use super::watched::{WatchedStore, worker};
use crate::world::World;

/// Creates a world of two shards with all events on one of them. Returns the world and that shard.
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

/// Returns the archive folders that a new owner of all shards lists, with the number of objects returned.
async fn lists_of_a_claim(world: &World, name: &str) -> Vec<(String, usize)> {
    let store = WatchedStore::of(world);
    let (mut worker, _) = worker(world, &store, name, |_| {}).await;
    for _ in 0..3 {
        worker.step(Duration::ZERO).await.unwrap();
        world.pass(Duration::from_secs(61));
    }
    worker.drain().await;
    let lists = store.take().lists.into_iter();
    lists.filter(|(folder, _)| folder.starts_with(names::EVENTS)).collect()
}

#[tokio::test]
async fn taking_a_shard_that_nobody_uses_lists_nothing_of_others() {
    let (world, used) = world_of_60_hours().await;
    let lists = lists_of_a_claim(&world, "b").await;
    let own = names::archive_folder(used);
    let whole = lists.iter().filter(|(folder, _)| *folder == names::EVENTS).count();
    assert_eq!(whole, 0, "the whole archive of all shards is listed to take a shard without an event");
    assert!(lists.iter().all(|(folder, _)| folder.starts_with(&own)), "not only its own: {lists:?}");
    let objects: usize = lists.iter().map(|(_, objects)| objects).sum();
    assert!(lists.len() <= 3 && objects <= 48, "more than the dates of open hours: {lists:?}");
}
