//! Connections to the API server that break, and Kafka that stops: nothing is lost but what nobody can know.

use std::sync::PoisonError;
use std::thread::sleep;
use std::time::Duration;

use prorata_tests::program::send;
use prorata_tests::proxy::{Proxy, Weather};
use rand::prelude::*;
use serde_json::Value;

use super::cluster::{Cluster, kubeconfig, pod};
use super::collector::Room;
use super::lives::Watcher;
use super::{CALM, all_told, assert_accounts_agree};

/// A kubeconfig whose server is behind the proxy.
fn behind(proxy: &Proxy, room: &Room) -> std::path::PathBuf {
    let text = std::fs::read_to_string(kubeconfig()).unwrap();
    let mut config: Value = serde_json::from_str(&text).unwrap();
    let server = &mut config["clusters"][0]["cluster"]["server"];
    *server = proxy.url(server.as_str().unwrap()).trim_end_matches('/').into();
    let path = room.path("kubeconfig");
    std::fs::write(&path, config.to_string()).unwrap();
    path
}

/// The server behind a kubeconfig.
fn server() -> String {
    let text = std::fs::read_to_string(kubeconfig()).unwrap();
    let config: Value = serde_json::from_str(&text).unwrap();
    config["clusters"][0]["cluster"]["server"].as_str().unwrap().to_owned()
}

#[test]
fn connections_that_break_lose_nothing() {
    let _calm = CALM.read().unwrap_or_else(PoisonError::into_inner);
    let mut random = rand::rng();
    let cluster = Cluster::open();
    let pods = cluster.namespace("cut");
    cluster.node("cut-0", "cut");
    let proxy = Proxy::before(&server());
    let watcher = Watcher::start(&cluster, &pods);
    let mut room = Room::new("token", &[]);
    room.use_kubeconfig(behind(&proxy, &room));
    let mut program = room.collect();
    for round in 0..8 {
        proxy.set(match round % 4 {
            0 => Weather::Cut(random.random_range(1_000..60_000)),
            1 => Weather::Refusing,
            2 => Weather::Slow(Duration::from_millis(20)),
            _ => Weather::Clear,
        });
        let name = |number| format!("pod-{round}-{number}");
        cluster.create_all(&pods, (0..5).map(|number| pod(&name(number), "cut")).collect());
        sleep(Duration::from_millis(random.random_range(500..2_000)));
        for number in 0..5 {
            cluster.delete(&format!("{pods}/{}", name(number)), (number == 0).then_some(0));
        }
        program.assert_running();
    }
    cluster.emptied(&pods);
    proxy.set(Weather::Clear);
    all_told(&room, &watcher, "cut");
    Room::stop(program).succeeded();
    assert!(proxy.harmed() > 0, "the collector did not feel it");
    assert_accounts_agree(&room, &watcher, "cut");
}

/// Stops the broker for a while. `PRORATA_OUTAGE_SECONDS` makes it longer.
pub fn stop_kafka(meanwhile: impl FnOnce()) {
    let seconds = std::env::var("PRORATA_OUTAGE_SECONDS").map_or(12, |text| text.parse().unwrap());
    let listing = std::env::var_os("PRORATA_TEST_KAFKA_BROKERS").unwrap();
    let brokers: Vec<Value> = serde_json::from_slice(&std::fs::read(listing).unwrap()).unwrap();
    let all = |signal: &str| {
        for broker in &brokers {
            send(signal, u32::try_from(broker["pid"].as_u64().unwrap()).unwrap());
        }
    };
    all("STOP");
    meanwhile();
    sleep(Duration::from_secs(seconds));
    all("CONT");
}
