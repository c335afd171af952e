//! The same on Kafka: events in one topic, the state in another, through kills, next to a second collector,
//! while brokers do not answer, and in Confluent's framing for a worker.

use std::path::Path;
use std::sync::PoisonError;

use prorata_connectors::messages::SingleObjectMessages;
use prorata_schemas::event::Event;
use prorata_testkit::wait::eventually;
use prorata_tests::kafka::admin::{create_compacted_topics, create_topics};
use prorata_tests::kafka::topic::all_messages;
use prorata_tests::program::{Program, prorata};
use prorata_worker::source::{Message, MessageDecoder};

use super::CALM;
use super::cluster::{Cluster, pod};
use super::collector::Room;
use super::faults::stop_kafka;
use super::lives::{Lives, Watcher, said};

fn brokers() -> String {
    std::env::var("PRORATA_TEST_KAFKA").expect("run by servers.py --kafka")
}

/// A room whose collectors send to a topic of this name, and keep their state in another.
fn room(cluster: &Cluster, name: &str) -> Room {
    let state = format!("{name}-state");
    cluster.runtime().block_on(async {
        create_topics(&brokers(), &[name], 2, 1).await;
        create_compacted_topics(&brokers(), &[&state], 2, 1).await;
    });
    let room = Room::new("token", &[&format!("state_topic: {state}")]);
    room.add(&format!("kafka:\n  bootstrap_servers: \"{}\"\n  topics: [{name}]\n", brokers()));
    room
}

fn started(room: &Room) -> Program {
    let mut program = room.start(&[]);
    room.ready(&mut program);
    program
}

fn messages(cluster: &Cluster, topic: &str) -> Vec<Message> {
    let messages = cluster.runtime().block_on(all_messages(brokers(), topic.into())).unwrap();
    assert!(messages.iter().all(|message| message.key.as_deref() == Some(b"acme")));
    messages
}

/// What the topic says of pods of a namespace.
fn told(cluster: &Cluster, topic: &str, namespace: &str) -> Lives {
    let decoder = SingleObjectMessages::new().unwrap();
    let value = |message: &Message| message.value.clone().unwrap();
    let decode = |bytes: Vec<u8>| decoder.decode(&bytes).map(|record| record.event);
    let events: Vec<Event> = messages(cluster, topic)
        .iter()
        .map(|message| decode(value(message)).unwrap_or_else(|_| panic!("{message:?}")))
        .collect();
    said(&events, namespace)
}

/// Waits until the topic tells of so many pods of a namespace.
fn announced(cluster: &Cluster, topic: &str, namespace: &str, pods: usize) {
    eventually("pods are told", || match told(cluster, topic, namespace).len() {
        told if told == pods => Ok(()),
        told => Err(format!("{told} are")),
    });
}

#[test]
fn on_kafka_a_killed_collector_goes_on() {
    let _calm = CALM.read().unwrap_or_else(PoisonError::into_inner);
    let cluster = Cluster::open();
    let pods = cluster.namespace("kafka");
    cluster.node("kafka-0", "kafka");
    let watcher = Watcher::start(&cluster, &pods);
    let room = room(&cluster, "collected");
    let mut program = started(&room);
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
    let lives = watcher.lives();
    eventually("all is told", || told(&cluster, "collected", "kafka") == lives);
    Room::stop(program).succeeded();
    assert!(lives.values().all(|life| life.end.is_some()), "{lives:?}");
    assert_eq!(told(&cluster, "collected", "kafka"), lives);
}

/// The second collector of a cluster goes on, and the first one ends before it sends anything more.
#[test]
fn a_second_collector_shuts_the_first_out() {
    let _calm = CALM.read().unwrap_or_else(PoisonError::into_inner);
    let cluster = Cluster::open();
    let pods = cluster.namespace("second");
    cluster.node("second-0", "second");
    let watcher = Watcher::start(&cluster, &pods);
    let first_room = room(&cluster, "twice");
    let first = started(&first_room);
    cluster.create_all(&pods, (0..5).map(|number| pod(&format!("early-{number}"), "second")).collect());
    announced(&cluster, "twice", "second", 5);
    let second_room = room(&cluster, "twice");
    let second = started(&second_room);
    cluster.create_all(&pods, (0..5).map(|number| pod(&format!("late-{number}"), "second")).collect());
    let ended = first.wait();
    assert_eq!(ended.code, Some(2), "{}", ended.log);
    assert!(ended.log.contains("another collector of cluster"), "{}", ended.log);
    announced(&cluster, "twice", "second", 10);
    for left in cluster.list(&pods) {
        cluster.delete(&format!("{pods}/{}", left["metadata"]["name"].as_str().unwrap()), None);
    }
    cluster.emptied(&pods);
    Room::stop(second).succeeded();
    assert_eq!(told(&cluster, "twice", "second"), watcher.lives());
}

#[test]
fn a_state_topic_that_forgets_is_refused() {
    let _calm = CALM.read().unwrap_or_else(PoisonError::into_inner);
    let cluster = Cluster::open();
    // `room` leaves a topic that is there as it is.
    cluster.runtime().block_on(create_topics(&brokers(), &["forgets-state"], 1, 1));
    let room = room(&cluster, "forgets");
    let ended = room.start(&[]).wait();
    assert_eq!(ended.code, Some(2), "{}", ended.log);
    assert!(ended.log.contains("topic forgets-state has cleanup.policy=delete"), "{}", ended.log);
}

/// While brokers do not answer, pods come and go; nothing is lost. All other tests on Kafka wait.
#[test]
fn kafka_that_stops_loses_nothing() {
    let _calm = CALM.write().unwrap_or_else(PoisonError::into_inner);
    let cluster = Cluster::open();
    let pods = cluster.namespace("outage");
    cluster.node("outage-0", "outage");
    let watcher = Watcher::start(&cluster, &pods);
    let room = room(&cluster, "outage");
    let program = started(&room);
    let some = |name: &str| (0..5).map(|number| pod(&format!("{name}-{number}"), "outage")).collect();
    cluster.create_all(&pods, some("before"));
    room.follows(5);
    stop_kafka(|| {
        cluster.create_all(&pods, some("during"));
        for number in 0..5 {
            cluster.delete(&format!("{pods}/before-{number}"), None);
        }
    });
    for number in 0..5 {
        cluster.delete(&format!("{pods}/during-{number}"), None);
    }
    cluster.emptied(&pods);
    eventually("all is stored", || match room.status() {
        status if status["pods"] == 0 && status["storing_problem"].is_null() => Ok(()),
        status => Err(status.to_string()),
    });
    Room::stop(program).succeeded();
    assert_eq!(told(&cluster, "outage", "outage"), watcher.lives());
}

/// With a registry, messages are in Confluent's framing, and a worker reads them.
#[test]
fn a_worker_reads_what_is_framed_by_a_registry() {
    let _calm = CALM.read().unwrap_or_else(PoisonError::into_inner);
    let cluster = Cluster::open();
    let pods = cluster.namespace("framed");
    cluster.node("framed-0", "framed");
    let room = room(&cluster, "framed");
    let url = std::env::var("PRORATA_TEST_REGISTRY").expect("run by servers.py --registry");
    room.add(&format!("registry:\n  url: {url}\n  timeout: 20s\n"));
    let program = started(&room);
    cluster.create_all(&pods, (0..5).map(|number| pod(&format!("pod-{number}"), "framed")).collect());
    eventually("the node and its pods are told", || match messages(&cluster, "framed").len() {
        count if count >= 6 => Ok(()),
        count => Err(format!("{count} events are")),
    });
    for number in 0..5 {
        cluster.delete(&format!("{pods}/pod-{number}"), None);
    }
    cluster.emptied(&pods);
    Room::stop(program).succeeded();
    let sent = messages(&cluster, "framed");
    assert!(sent.len() >= 11, "a node and five pods: {}", sent.len());
    assert!(sent.iter().all(|message| message.value.as_ref().is_some_and(|value| value[0] == 0)));
    read_by_a_worker(&room, &url, sent.len());
}

/// A worker accepts so many messages, and finds no fault with any.
fn read_by_a_worker(room: &Room, registry: &str, count: usize) {
    let lake = room.path("worked");
    let text = format!(
        "root:\n  url: {}\n  shards: 2\nkafka:\n  bootstrap_servers: \"{}\"\n  topics: [framed]\n  group_id: \
         framed\nregistry:\n  url: {registry}\n  timeout: 20s\nhttp:\n  listen: {}\nlog:\n  level: info\n",
        lake.display(),
        brokers(),
        room.listen(),
    );
    let config = room.path("work.yaml");
    std::fs::write(&config, text).unwrap();
    let worker = work(&config, room);
    let sum = |metrics: &str, name: &str| {
        let lines = metrics.lines().filter(|line| line.starts_with(name));
        lines.map(|line| line.rsplit(' ').next().unwrap().parse::<f64>().unwrap()).sum::<f64>()
    };
    eventually("the worker has accepted all", || {
        let metrics = room.ask("/metrics").unwrap_or_default();
        let letters = sum(&metrics, "prorata_dead_letters_total");
        let accepted = sum(&metrics, "prorata_events_total");
        assert!(letters < 1.0, "{metrics}");
        if accepted as usize == count { Ok(()) } else { Err(format!("{accepted} of {count}: {metrics}")) }
    });
    worker.signal("TERM");
    worker.wait().succeeded();
}

fn work(config: &Path, room: &Room) -> Program {
    let mut command = prorata();
    command.arg("work").arg("--config").arg(config);
    Program::start(command, "work", room.folder.path())
}
