//! The maximum length of names.

use std::time::Duration;

use prorata_samples::trace::{node, pod, trace};
use prorata_schemas::reject::Reason;
use prorata_testkit::fakes::Faults;
use prorata_worker::names;

use crate::world::World;

/// Half of the default maximum message size of a broker.
const LENGTH: usize = 500_000;

#[tokio::test]
async fn a_checkpoint_stays_below_100_kb_for_any_name_of_a_late_organization() {
    let world = World::default();
    world.produce(&trace());
    let delay = Duration::from_secs(6 * 3_600);
    let mut member = world.start("a", Faults::default(), move |options| options.max_restate_delay = delay);
    member.settle(&world).await.unwrap();
    for length in [LENGTH, 1_000] {
        for n in 0..4 {
            let organization = format!("{n}{}", "x".repeat(length));
            world.produce(&[node(&organization, 70, 1), pod(&organization, 130, "p", 1)]);
        }
    }
    for _ in 0..40 {
        member.step().await;
        world.pass(Duration::from_secs(61));
    }
    let checkpoints =
        world.lake.store.objects().into_iter().filter(|(path, _)| names::parse_checkpoint(path).is_some());
    let largest = checkpoints.map(|(_, bytes)| bytes.len()).max().unwrap();
    assert!(largest < 100_000, "a checkpoint of {largest} bytes");
    let letters = world.dead_letters.letters();
    assert_eq!(letters.len(), 8, "those of the longest names");
    assert!(letters.iter().all(|letter| letter.rejected.reject.reason == Reason::InvalidField));
    let longest = letters.iter().map(|letter| letter.rejected.reject.message.len()).max();
    assert!(longest < Some(1_000), "messages do not repeat the names: {longest:?}");
}
