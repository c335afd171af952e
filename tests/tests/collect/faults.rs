//! Breaks connections to the API server and stops Kafka. Nothing is lost except facts that nobody can know.

use std::thread::sleep;
use std::time::Duration;

use prorata_testkit::wait::eventually;
use prorata_tests::program::{Program, send};
use prorata_tests::proxy::{Proxy, Weather};
use rand::prelude::*;
use serde_json::Value;

use super::cluster::kubeconfig;
use super::collector::Room;
use super::lives::{events, said};
use super::scene::{Scene, shared};

/// Writes a kubeconfig that reaches the server through the proxy, and returns its path.
pub fn kubeconfig_through(proxy: &Proxy, room: &Room) -> std::path::PathBuf {
    let text = std::fs::read_to_string(kubeconfig()).unwrap();
    let mut config: Value = serde_json::from_str(&text).unwrap();
    let server = &mut config["clusters"][0]["cluster"]["server"];
    *server = proxy.url(server.as_str().unwrap()).trim_end_matches('/').into();
    let path = room.path("kubeconfig");
    std::fs::write(&path, config.to_string()).unwrap();
    path
}

/// Returns the URL of the server in the cluster's kubeconfig.
pub fn server() -> String {
    let text = std::fs::read_to_string(kubeconfig()).unwrap();
    let config: Value = serde_json::from_str(&text).unwrap();
    config["clusters"][0]["cluster"]["server"].as_str().unwrap().to_owned()
}

#[test]
fn connections_that_break_lose_nothing() {
    let mut random = rand::rng();
    let proxy = Proxy::before(&server());
    let mut room = Room::new("token", &[]);
    room.use_kubeconfig(kubeconfig_through(&proxy, &room));
    let scene = Scene::open(shared(), "cut", 1, room);
    let mut program = scene.room.collect();
    for round in 0..8 {
        proxy.set(match round % 4 {
            0 => Weather::Cut(random.random_range(1_000..60_000)),
            1 => Weather::Refusing,
            2 => Weather::Slow(Duration::from_millis(20)),
            _ => Weather::Clear,
        });
        scene.create(&format!("pod-{round}"), 5);
        sleep(Duration::from_millis(random.random_range(500..2_000)));
        for number in 0..5 {
            scene.delete(&format!("pod-{round}-{number}"), (number == 0).then_some(0));
        }
        program.assert_running();
    }
    scene.clear();
    proxy.set(Weather::Clear);
    scene.wait_until_reported();
    Room::stop(program).succeeded();
    assert!(proxy.harmed() > 0, "the collector did not feel it");
    scene.assert_accounts_agree();
}

/// While the API server accepts no connections or never answers, a start waits. A stop ends the wait.
#[test]
fn a_start_that_waits_for_the_api_server_hears_a_stop() {
    let proxy = Proxy::before(&server());
    for weather in [Weather::Refusing, Weather::Silent] {
        proxy.set(weather);
        let mut room = Room::new("token", &[]);
        room.use_kubeconfig(kubeconfig_through(&proxy, &room));
        let program = room.start(&["--output", room.events().to_str().unwrap()]);
        eventually("it serves its status", || room.ask("/livez").map(drop));
        // Without a stop, it would end with 4 when its patience runs out.
        let ended = Room::stop(program);
        assert_eq!(ended.code, Some(0), "{weather:?}: {}", ended.log);
    }
}

/// Breaks connections during each of the requests of a start.
#[test]
fn a_start_whose_connections_break_asks_again() {
    let proxy = Proxy::before(&server());
    for bytes in [1_000, 4_000, 8_000, 12_000, 16_000] {
        proxy.set(Weather::Cut(bytes));
        let mut room = Room::new("token", &[]);
        room.use_kubeconfig(kubeconfig_through(&proxy, &room));
        let mut program = room.start(&["--output", room.events().to_str().unwrap()]);
        eventually("it says so, or is ready", || {
            program.assert_running();
            // A start sends each request again. The other tests' nodes may make a list longer than all of its
            // answers: then the start passes, and the list is cut while the weather lasts.
            let log = program.log();
            let is_logged = log.contains("does not answer yet") || log.contains("trying again in");
            is_logged || room.ask("/readyz").is_some_and(|answer| answer.starts_with("HTTP/1.1 200"))
        });
        proxy.set(Weather::Clear);
        room.ready(&mut program);
        Room::stop(program).succeeded();
    }
    assert!(proxy.harmed() > 0, "it did not feel it");
}

/// Applies a change to the collector's folder while the collector is frozen.
fn swap(program: &Program, change: impl FnOnce() -> std::io::Result<()>) {
    program.signal("STOP");
    change().unwrap();
    program.signal("CONT");
}

#[test]
fn a_folder_that_cannot_be_written_is_reported_and_tried_again() {
    let scene = Scene::open(shared(), "unwritable", 1, Room::new("token", &[]));
    let room = &scene.room;
    let mut program = room.collect();
    scene.create("before", 3);
    eventually("pods are reported", || match said(&events(&room.events()), "unwritable").len() {
        3 => Ok(()),
        reported => Err(format!("{reported} are")),
    });
    let (folder, away) = (room.events(), room.path("away"));
    swap(&program, || std::fs::rename(&folder, &away).and_then(|()| std::fs::write(&folder, "")));
    scene.create("meanwhile", 3);
    eventually("it is reported", || match room.status()["write_error"].clone() {
        Value::String(_) => Ok(()),
        other => Err(other.to_string()),
    });
    assert!(room.metrics().contains("prorata_collector_write_failing 1"), "{}", room.metrics());
    program.assert_running();
    swap(&program, || std::fs::remove_file(&folder).and_then(|()| std::fs::rename(&away, &folder)));
    eventually("it stores again", || match room.status()["write_error"].clone() {
        Value::Null => Ok(()),
        problem => Err(problem.to_string()),
    });
    scene.end(program);
}

/// Stops the broker for a while. `PRORATA_OUTAGE_SECONDS` sets a longer time.
pub fn stop_kafka(meanwhile: impl FnOnce()) {
    let seconds = std::env::var("PRORATA_OUTAGE_SECONDS").map_or(12, |text| text.parse().unwrap());
    stop_kafka_for(Duration::from_secs(seconds), meanwhile);
}

pub fn stop_kafka_for(time: Duration, meanwhile: impl FnOnce()) {
    let listing = std::env::var_os("PRORATA_TEST_KAFKA_BROKERS").unwrap();
    let brokers: Vec<Value> = serde_json::from_slice(&std::fs::read(listing).unwrap()).unwrap();
    let all = |signal: &str| {
        for broker in &brokers {
            send(signal, u32::try_from(broker["pid"].as_u64().unwrap()).unwrap());
        }
    };
    all("STOP");
    meanwhile();
    sleep(time);
    all("CONT");
}
