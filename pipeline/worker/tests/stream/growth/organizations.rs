//! An organization without anything left disappears from the state and the tables.

use prorata_samples::trace::{pod, pod_stop};
use prorata_testkit::fakes::FakeBroker;

use crate::harness::{Lake, Run, assert_content, expected, files};
use crate::world::World;

#[tokio::test]
async fn an_organization_that_has_left_leaves_the_tables_too() {
    const DAYS: i64 = 40;
    let world = World::on(FakeBroker::default(), 1);
    world.set_minutes(7 * 60);
    // A producer sends one event for each of a thousand wrong organizations, once.
    let mut events: Vec<_> = (0..1_000).map(|n| pod_stop(&format!("typo-{n}"), 5, "p")).collect();
    world.produce(&events);
    let mut member = world.member("a");
    member.settle(&world).await.unwrap();
    world.set_minutes(DAYS * 24 * 60);
    let later = [
        pod("acme", DAYS * 24 * 60 - 10, "p", 1),
        // An organization that had left comes back.
        pod("typo-7", DAYS * 24 * 60 - 70, "p", 1),
        pod_stop("typo-7", DAYS * 24 * 60 - 65, "p"),
    ];
    world.produce(&later);
    events.extend(later);
    for _ in 0..40 {
        member.settle(&world).await.unwrap();
    }
    let organizations = member.status.lock().shards[&0].organizations;
    world.audit.look();
    let last = world.audit.latest()[&0].closed_through.unwrap();
    let rows = world.lake.clocks(last.0, 0).matches("revision").count();
    assert!(organizations <= 2 && rows <= 2, "{organizations} organizations and {rows} rows, for ever");
    // A backfill of the same events agrees.
    let content = expected(&events, last, |_| 0, crate::harness::rules);
    assert_content(&world.lake, &content, "stream");
    let lake = Lake::default();
    let mut run = Run::new("backfill");
    run.options.shards = Some(1);
    run.options.to = Some(last);
    lake.run(&files(&[&events]), run).await.unwrap();
    assert_content(&lake, &content, "backfill");
}
