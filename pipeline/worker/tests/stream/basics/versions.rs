//! A configuration that is rolled back and then forward again.

use prorata_samples::trace::{pod, trace};
use prorata_schemas::rules::Rules;
use prorata_testkit::fakes::Faults;

use crate::world::World;

fn version(version: &str) -> Rules {
    Rules { version: version.into(), ..Rules::default() }
}

/// Shards that began before the rollback stay on the latest version, and their status shows it.
#[tokio::test]
async fn the_version_in_force_is_in_the_status_of_every_shard() {
    let world = World::default();
    world.produce(&trace());
    for (n, (name, in_force)) in [("new", "new"), ("old", "old"), ("new", "old")].into_iter().enumerate() {
        let mut member =
            world.start(&format!("w{n}"), Faults::default(), move |options| options.rules = version(name));
        let hour = 8 + 4 * i64::try_from(n).unwrap();
        world.set_minutes(hour * 60 + 10);
        let live = format!("live {n}");
        world.produce(&[pod("acme", hour * 60 - 5, &live, 1), pod("hooli", hour * 60 - 5, &live, 1)]);
        member.settle(&world).await.unwrap();
        let shards = member.status.lock().shards.clone();
        let shown: Vec<_> = shards.values().map(|shard| shard.rules_version.as_deref()).collect();
        assert_eq!(shown, vec![Some(in_force); shards.len()], "configured {name}");
        member.drain().await;
    }
}
