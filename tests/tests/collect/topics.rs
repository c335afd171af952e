//! The collector on Kafka: events in one topic, the state in another. It is killed, meets a second collector,
//! waits while brokers do not answer, and writes Confluent's framing for a worker.

use std::path::Path;

use prorata_connectors::messages::SingleObjectMessages;
use prorata_schemas::event::Event;
use prorata_testkit::wait::eventually;
use prorata_tests::kafka::admin::{create_compacted_topics, create_topics};
use prorata_tests::kafka::topic::all_messages;
use prorata_tests::program::{Program, prorata};
use prorata_worker::source::{Message, MessageDecoder};
use serde_json::Value;
use tokio::runtime::Runtime;

use super::cluster::Cluster;
use super::collector::Room;
use super::faults::stop_kafka;
use super::lives::{Lives, said};
use super::scene::{Scene, alone, shared};

pub fn brokers() -> String {
    std::env::var("PRORATA_TEST_KAFKA").expect("run by servers.py --kafka")
}

/// Creates topics, and a room whose collectors send to the topic of this name and keep their state in another
/// topic.
fn room(name: &str) -> Room {
    room_with(name, &[])
}

/// Creates a room like [`room`], with further lines in the section `collect`.
pub fn room_with(name: &str, lines: &[&str]) -> Room {
    let state = format!("{name}-state");
    Runtime::new().unwrap().block_on(async {
        create_topics(&brokers(), &[name], 2, 1).await;
        create_compacted_topics(&brokers(), &[&state], 2, 1).await;
    });
    let state_topic = format!("state_topic: {state}");
    let room = Room::new("token", &[&[state_topic.as_str()], lines].concat());
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

/// Returns the lives of a namespace's pods, as the topic reports them.
fn reported(cluster: &Cluster, topic: &str, namespace: &str) -> Lives {
    said(&sent(cluster, topic), namespace)
}

/// Returns the events of a topic, each as often as it was sent.
pub fn sent(cluster: &Cluster, topic: &str) -> Vec<Event> {
    let decoder = SingleObjectMessages::new().unwrap();
    let decode = |message: &Message| {
        let record = decoder.decode(message.value.as_deref().unwrap());
        record.map(|record| record.event.into_owned())
    };
    messages(cluster, topic)
        .iter()
        .map(|message| decode(message).unwrap_or_else(|_| panic!("{message:?}")))
        .collect()
}

/// Waits until the topic reports this many pods of a namespace.
fn announced(cluster: &Cluster, topic: &str, namespace: &str, pods: usize) {
    eventually("pods are reported", || match reported(cluster, topic, namespace).len() {
        reported if reported == pods => Ok(()),
        reported => Err(format!("{reported} are")),
    });
}

#[test]
fn on_kafka_a_killed_collector_continues() {
    // It runs alone, like all tests that kill: a pod of another test may wait for its node.
    let scene = Scene::open(alone(), "kafka", 1, room("collected"));
    let Scene { cluster, room, .. } = &scene;
    let mut program = started(room);
    for round in 0..4 {
        scene.create(&format!("pod-{round}"), 5);
        if round % 2 == 0 {
            // Pods of the previous round may have gone without a node.
            let of_round = |pod: &Value| {
                let name = pod["metadata"]["name"].as_str().unwrap();
                name.starts_with(&format!("pod-{round}-")) && pod["spec"]["nodeName"].is_string()
            };
            eventually("pods are bound", || {
                match cluster.list(&scene.pods).iter().filter(|pod| of_round(pod)).count() {
                    5 => Ok(()),
                    bound => Err(format!("{bound} are")),
                }
            });
        }
        program.kill();
        for number in 0..5 {
            scene.delete(&format!("pod-{round}-{number}"), (number == 0).then_some(0));
        }
        program = room.start(&[]);
    }
    cluster.emptied(&scene.pods);
    room.ready(&mut program);
    let lives = scene.watcher.lives();
    eventually("all is reported", || reported(cluster, "collected", "kafka") == lives);
    Room::stop(program).succeeded();
    assert_eq!(reported(cluster, "collected", "kafka"), lives);
}

/// The second collector of a cluster continues, and the first collector ends before it sends anything more.
#[test]
fn a_second_collector_shuts_the_first_out() {
    let scene = Scene::open(shared(), "second", 1, room("twice"));
    let cluster = &scene.cluster;
    let first = started(&scene.room);
    scene.create("early", 5);
    announced(cluster, "twice", "second", 5);
    let second_room = room("twice");
    let second = started(&second_room);
    scene.create("late", 5);
    let ended = first.wait();
    assert_eq!(ended.code, Some(2), "{}", ended.log);
    assert!(ended.log.contains("another collector of cluster"), "{}", ended.log);
    announced(cluster, "twice", "second", 10);
    scene.clear();
    let lives = scene.watcher.lives();
    eventually("all is reported", || reported(cluster, "twice", "second") == lives);
    Room::stop(second).succeeded();
    assert_eq!(reported(cluster, "twice", "second"), lives);
}

#[test]
fn a_state_topic_that_forgets_is_refused() {
    let _calm = shared();
    // `room` leaves an existing topic as it is.
    Runtime::new().unwrap().block_on(create_topics(&brokers(), &["forgets-state"], 1, 1));
    let room = room("forgets");
    let ended = room.start(&[]).wait();
    assert_eq!(ended.code, Some(2), "{}", ended.log);
    assert!(ended.log.contains("topic forgets-state has cleanup.policy=delete"), "{}", ended.log);
}

/// Pods come and go while brokers do not answer, and nothing is lost. All other tests on Kafka wait.
#[test]
fn kafka_that_stops_loses_nothing() {
    let scene = Scene::open(alone(), "outage", 1, room("outage"));
    let room = &scene.room;
    let program = started(room);
    scene.create("before", 5);
    room.follows(5);
    stop_kafka(|| {
        scene.create("during", 5);
        for number in 0..5 {
            scene.delete(&format!("before-{number}"), None);
        }
    });
    scene.clear();
    eventually("all is stored", || match room.status() {
        status if status["pods"] == 0 && status["write_error"].is_null() => Ok(()),
        status => Err(status.to_string()),
    });
    Room::stop(program).succeeded();
    assert_eq!(reported(&scene.cluster, "outage", "outage"), scene.watcher.lives());
}

/// With a registry, messages have Confluent's framing, and a worker reads them.
#[test]
fn a_worker_reads_what_is_framed_by_a_registry() {
    let scene = Scene::open(shared(), "framed", 1, room("framed"));
    let Scene { cluster, room, .. } = &scene;
    let url = std::env::var("PRORATA_TEST_REGISTRY").expect("run by servers.py --registry");
    room.add(&format!("registry:\n  url: {url}\n  timeout: 20s\n"));
    let program = started(room);
    scene.create("pod", 5);
    eventually("the node and its pods are reported", || match messages(cluster, "framed").len() {
        count if count >= 6 => Ok(()),
        count => Err(format!("{count} events are")),
    });
    scene.clear();
    Room::stop(program).succeeded();
    let sent = messages(cluster, "framed");
    assert!(sent.len() >= 11, "a node and five pods: {}", sent.len());
    assert!(sent.iter().all(|message| message.value.as_ref().is_some_and(|value| value[0] == 0)));
    read_by_a_worker(room, &url, sent.len());
}

/// Checks that a worker accepts this many messages and rejects none.
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
