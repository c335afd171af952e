//! The same on Kafka: events in one topic, the state in another, through kills.

use std::sync::PoisonError;

use prorata_connectors::messages::SingleObjectMessages;
use prorata_schemas::event::Event;
use prorata_testkit::wait::eventually;
use prorata_tests::kafka::admin::create_topics;
use prorata_tests::kafka::topic::all_messages;
use prorata_worker::source::MessageDecoder;

use super::CALM;
use super::cluster::{Cluster, pod};
use super::collector::Room;
use super::lives::{Watcher, said};

#[test]
fn on_kafka_a_killed_collector_goes_on() {
    let _calm = CALM.read().unwrap_or_else(PoisonError::into_inner);
    let cluster = Cluster::open();
    let brokers = std::env::var("PRORATA_TEST_KAFKA").expect("run by servers.py --kafka");
    cluster.runtime().block_on(create_topics(&brokers, &["collected", "collector-state"], 2, 1));
    let pods = cluster.namespace("kafka");
    cluster.node("kafka-0", "kafka");
    let watcher = Watcher::start(&cluster, &pods);
    let room = Room::new("token", &["state_topic: collector-state"]);
    room.add(&format!("kafka:\n  bootstrap_servers: \"{brokers}\"\n  topics: [collected]\n"));
    let mut program = room.start(&[]);
    room.ready(&mut program);
    for round in 0..4 {
        let name = |number| format!("pod-{round}-{number}");
        cluster.create_all(&pods, (0..5).map(|number| pod(&name(number), "kafka")).collect());
        if round % 2 == 0 {
            eventually("pods are bound", || match watcher.lives().len() {
                all if all == (round + 1) * 5 => Ok(()),
                all => Err(format!("{all} are")),
            });
        }
        program.kill();
        for number in 0..5 {
            cluster.delete(&format!("{pods}/{}", name(number)), (number == 0).then_some(0));
        }
        program = room.start(&[]);
    }
    cluster.emptied(&pods);
    room.ready(&mut program);
    Room::stop(program).succeeded();
    let decoder = SingleObjectMessages::new().unwrap();
    let messages = cluster.runtime().block_on(all_messages(brokers, "collected".into())).unwrap();
    assert!(messages.iter().all(|message| message.key.as_deref() == Some(b"acme")));
    let value = |message: &prorata_worker::source::Message| message.value.clone().unwrap();
    let decode = |bytes: Vec<u8>| decoder.decode(&bytes).map(|record| record.event);
    let events: Vec<Event> = messages
        .iter()
        .map(|message| decode(value(message)).unwrap_or_else(|_| panic!("{message:?}")))
        .collect();
    let lives = watcher.lives();
    assert!(lives.values().all(|life| life.end.is_some()), "{lives:?}");
    assert_eq!(said(&events, "kafka"), lives);
}
