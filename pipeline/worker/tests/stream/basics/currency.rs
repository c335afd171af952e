//! Rules that change an organization's currency while prices are in force.

use std::time::Duration;

use prorata_samples::trace::{START, node, pod, trace};
use prorata_schemas::event::{Event, EventRecord, Payload};
use prorata_schemas::rules::Rules;
use prorata_testkit::fakes::Faults;

use crate::world::World;
use crate::world::member::Member;

fn euros() -> Rules {
    Rules { version: "2".into(), currency: "EUR".into(), ..Rules::default() }
}

/// Returns the event of a node with its price in euros.
fn in_euros(record: EventRecord) -> EventRecord {
    let Payload::NodeStarted(mut node) = record.event.payload else { panic!("no price") };
    node.currency = "EUR".into();
    EventRecord::new(Event { payload: Payload::NodeStarted(node), ..record.event })
}

/// Starts a worker whose rules use euros from the hour after the trace.
async fn renewed(world: &World) -> Member {
    let mut member = world.member("a");
    member.settle(world).await.unwrap();
    member.drain().await;
    let mut member = world.start("b", Faults::default(), |options| options.rules = euros());
    member.settle(world).await.unwrap();
    member
}

fn letters(world: &World) -> Vec<String> {
    world.dead_letters.letters().iter().map(|letter| letter.rejected.reject.to_string()).collect()
}

#[tokio::test]
async fn an_event_is_judged_by_the_rules_of_its_own_hour() {
    let world = World::default();
    world.produce(&trace());
    let mut member = renewed(&world).await;
    // The first event is late and belongs to an hour in dollars. The second event is current and belongs to
    // an hour in euros.
    world.set_minutes(9 * 60);
    world.produce(&[node("acme", 90, 4), in_euros(node("hooli", 8 * 60 + 50, 6))]);
    member.settle(&world).await.unwrap();
    assert_eq!(letters(&world), [""; 0]);
    world.produce(&[in_euros(node("acme", 91, 4)), node("hooli", 8 * 60 + 51, 6)]);
    member.settle(&world).await.unwrap();
    world.pass(Duration::from_secs(60));
    let letters = letters(&world);
    assert!(letters.len() == 2 && letters.iter().all(|letter| letter.starts_with("currency_mismatch")));
}

#[tokio::test]
async fn a_price_of_the_old_currency_does_not_count_in_the_new_one() {
    let world = World::default();
    world.produce(&trace());
    world.produce(&[node("acme", 5, 10), pod("acme", 6, "on", 1)]);
    let mut member = renewed(&world).await;
    for minute in [8 * 60 + 5, 10 * 60 + 5] {
        world.set_minutes(minute);
        world.produce(&[pod("acme", minute, &format!("p{minute}"), 1)]);
        member.settle(&world).await.unwrap();
    }
    member.drain().await;
    let latest = world.audit.latest();
    let shard = world.shard_of("acme");
    let checkpoint = &latest[&shard];
    assert!(checkpoint.closed_through.unwrap().0 > START + 8, "{:?}", checkpoint.closed_through);
    let renewed_from = checkpoint.rules.last().unwrap().from;
    let content = world.lake.content();
    let of = |hour: i64| {
        let hours = content.iter().filter(|((table, at, of), _)| {
            *table == prorata_schemas::tables::Table::CostAllocation && at.0 == hour && *of == shard
        });
        hours.map(|(_, text)| text.clone()).collect::<String>()
    };
    assert!(of(renewed_from.0).contains("OtherCurrency"));
    assert!(!of(renewed_from.0 - 1).contains("OtherCurrency"));
    crate::world::oracle::check(
        &world,
        &Default::default(),
        |_, hour| if hour >= renewed_from { euros() } else { Rules::default() },
        "",
    );
}
