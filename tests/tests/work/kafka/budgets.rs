//! Messages about exceeded budgets reach a real topic, whatever happens to topic and worker.

use std::collections::BTreeMap;

use prorata_schemas::tables::Table;
use prorata_testkit::wait::eventually;
use prorata_worker::ports::ExceededBudget;
use rdkafka::message::Message;
use serde_json::json;

use crate::world::topics::Admin;
use crate::world::{Load, SHARDS, World};

/// A load in which pools exceed their budgets within a day.
const LOAD: Load = Load { seed: 61, organizations: 3, pods: 4, hours: 26 };

/// Messages by key.
type Messages = BTreeMap<String, String>;

/// Returns the messages that the tables call for: the first hour of each period above its budget.
fn called_for(world: &World) -> Messages {
    let lake = world.lake();
    let mut messages = Messages::new();
    for ((table, _, hour), files) in lake.files(world.through()) {
        for file in files.iter().filter(|_| table == Table::PoolUsage) {
            let budgets = prorata_tables::budgets(&lake.object(&format!("pool_usage/{}", file.path())));
            for used in budgets.unwrap().into_iter().filter(|used| used.is_exceeded()) {
                let exceeded = ExceededBudget { used, hour, currency: "USD".into() };
                // Hours ascend within a shard.
                messages.entry(exceeded.key()).or_insert_with(|| exceeded.value());
            }
        }
    }
    messages
}

/// Returns the messages on the topic. A later message replaces an earlier message with the same key.
fn on_topic(world: &World, topic: &str) -> Messages {
    let mut found = Messages::new();
    Admin::new(world).read(&[topic.to_owned()], |message| {
        let text = |bytes: Option<&[u8]>| String::from_utf8(bytes.unwrap().to_vec()).unwrap();
        found.insert(text(message.key()), text(message.payload()));
    });
    found
}

#[test]
fn every_exceeded_budget_reaches_its_topic_even_if_the_topic_comes_late() {
    let mut world = World::new("budgets");
    let topic = format!("{}-exceeded", world.name);
    world.set("kafka.budget_topic", json!(topic));
    let mut worker = world.worker();
    let messages = world.send(LOAD);
    // A missing topic holds up neither hours nor tables.
    world.drained(std::slice::from_mut(&mut worker), messages);
    eventually("a failed attempt", || match worker.counter("budget_message_failures") {
        0 => Err(worker.program.tail()),
        _ => Ok(()),
    });
    let waiting = worker.status()["waiting_for"].to_string();
    assert!(waiting.contains(&topic) && waiting.contains("create it"), "{waiting}");
    assert_eq!(worker.counter("budget_messages"), 0);
    // The worker dies without having sent anything.
    worker.program.kill();
    world.create(std::slice::from_ref(&topic), SHARDS);
    let mut worker = world.worker();
    let expected = called_for(&world);
    for period in ["day", "month", "quarter"] {
        assert!(expected.keys().any(|key| key.contains(period)), "no {period}: {expected:?}");
    }
    eventually("the messages", || {
        let found = on_topic(&world, &topic);
        if found == expected { Ok(()) } else { Err(format!("{found:#?}, not {expected:#?}")) }
    });
    eventually("the metrics", || {
        let (_, text) = worker.get("/metrics").unwrap();
        let above = text.lines().filter(|line| line.starts_with("prorata_budget_used_ratio{"));
        let above = above.filter(|line| line.rsplit_once(' ').unwrap().1.parse::<f64>().unwrap() > 1.0);
        let costs = text.lines().filter(|line| line.starts_with("prorata_day_cost{"));
        match (above.count(), costs.count()) {
            (0, _) | (_, 0) => Err(text),
            _ => Ok(()),
        }
    });
    worker.stop();
}
