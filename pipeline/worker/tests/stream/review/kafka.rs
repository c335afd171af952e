//! Kafka in ways that the simulation's fake has not.

use std::sync::Arc;
use std::time::Duration;

use super::rig::Leaderless;
use crate::world::TOPICS;
use crate::world::script::read;

#[tokio::test]
async fn a_partition_without_a_leader_for_a_day_grows_no_checkpoint() {
    let world = read().await;
    let before = world.audit.latest()[&0].clone();
    let fails = Arc::default();
    let source = Leaderless { inner: world.broker.source("b", &TOPICS), fails: Arc::clone(&fails) };
    let (mut worker, status) = world.worker_on(source, Arc::new(world.lake.store.clone()), "b", |_| {}).await;
    for _ in 0..24 * 60 * 6 {
        worker.step(Duration::ZERO).await.unwrap();
        world.pass(Duration::from_secs(10));
    }
    assert!(!status.lock().ready, "a shard that is not read");
    assert!(status.lock().waits_for().unwrap().contains("leader not available"));
    world.audit.look();
    let after = world.audit.latest()[&0].clone();
    let claims = after.owners.len() - before.owners.len();
    let checkpoints = after.seq - before.seq;
    println!("{claims} claims of shard 0 in a day, {checkpoints} checkpoints, {fails:?} starts");
    assert!(claims < 10, "{claims} owners more, for ever, in every checkpoint");
    assert!(checkpoints < 10, "{checkpoints} checkpoints of a shard without news");
}
