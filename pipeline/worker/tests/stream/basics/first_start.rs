//! The first start on a root that does not exist yet.

use prorata_samples::trace::trace;
use prorata_testkit::fakes::Faults;
use prorata_worker::names;
use prorata_worker::ports::ObjectStore;

use crate::world::World;

#[tokio::test]
async fn a_wrong_number_of_shards_can_be_fixed_in_the_configuration() {
    // The topics have two partitions.
    let world = World::default();
    let mut member = world.start("a", Faults::default(), |options| options.shards = Some(16));
    let error = member.settle(&world).await.unwrap_err();
    assert_eq!(error.exit_code(), 2);
    assert!(error.to_string().contains("has 2 partitions"), "{error}");
    assert!(world.lake.store.get(names::ROOT).await.unwrap().is_none(), "the root is spoilt by that start");
    world.broker.expire("a");
    let mut member = world.start("b", Faults::default(), |options| options.shards = Some(2));
    member.settle(&world).await.unwrap();
}

#[tokio::test]
async fn without_a_number_of_shards_a_new_root_takes_that_of_the_topics() {
    let world = World::default();
    world.produce(&trace());
    let mut member = world.start("a", Faults::default(), |options| options.shards = None);
    member.settle(&world).await.unwrap();
    world.audit.look();
    assert_eq!(world.audit.latest().keys().copied().collect::<Vec<_>>(), [0, 1]);
}
