//! Makes storage, the registry and brokers fail, sends a tenant's hostile input, and checks that the tables
//! stay correct.

mod clock;
mod hostile;
mod refusing;

use std::fs::{File, OpenOptions};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use prorata_testkit::wait::eventually;
use prorata_tests::program::send;
use prorata_tests::proxy::{Proxy, Weather};
use serde_json::{Value, json};

use super::chaos::Dice;
use super::world::worker::Worker;
use super::world::{BROKERS, Load, World, rounds, sent, variable};

#[test]
fn a_storage_that_is_slow_down_silent_and_cut_off_loses_nothing() {
    let mut dice = Dice::new();
    let mut world = World::new("storage");
    world.set("kafka.session_timeout", json!("4s"));
    world.root = format!("s3://{}/{}", variable("PRORATA_TEST_BUCKET"), world.name);
    let proxy = Proxy::before(&variable("AWS_ENDPOINT_URL"));
    world.environment("AWS_ENDPOINT_URL", &proxy.url(&variable("AWS_ENDPOINT_URL")));
    let mut workers: Vec<Worker> = (0..2).map(|_| world.worker()).collect();
    workers.iter_mut().for_each(Worker::ready);
    let (load, generator) = dice.start_sending(&world, 4 * rounds());
    for _ in 0..rounds() {
        let weathers = [
            Weather::Slow(Duration::from_millis(100)),
            Weather::Cut(3_000),
            Weather::Cut(40_000),
            Weather::Refusing,
            Weather::Unavailable,
            Weather::Silent,
        ];
        proxy.set(weathers[dice.pick(weathers.len())]);
        dice.sleep(1_000..3_000);
        proxy.set(Weather::Clear);
        dice.sleep(200..1_500);
    }
    let messages = sent(generator);
    world.drained(&mut workers, messages);
    assert!(proxy.harmed() > 0, "no connection met a fault");
    for worker in &mut workers {
        assert_eq!(worker.get("/livez").unwrap().0, 200);
    }
    workers.into_iter().for_each(|worker| drop(worker.stop()));
    world.assert_law(&[load]);
}

#[test]
fn messages_of_new_schemas_wait_for_the_registry_and_membership_is_kept() {
    let mut world = World::new("registry-down");
    world.set("kafka.session_timeout", json!("3s"));
    let registry = variable("PRORATA_TEST_REGISTRY");
    let proxy = Proxy::before(&registry);
    let mut worker = world.worker_with(&[("PRORATA_REGISTRY__URL", &proxy.url(&registry))]);
    worker.ready();
    for weather in [Weather::Refusing, Weather::Silent, Weather::Unavailable] {
        proxy.set(weather);
        if weather == Weather::Refusing {
            world.send(Load::small(61));
        }
        eventually("the worker says what it waits for", || {
            let status = worker.status();
            let waits = status["waiting_for"].to_string().contains("registry");
            if waits { Ok(()) } else { Err(format!("it says {status}")) }
        });
        // This is longer than a session.
        thread::sleep(Duration::from_secs(4));
        assert_eq!(worker.get("/livez").unwrap().0, 200);
    }
    assert_eq!((worker.counter("events"), worker.counter("dead_letters")), (0, 0));
    assert!(worker.counter("retries") > 0);
    let before = worker.counter("rebalances");
    proxy.set(Weather::Clear);
    let folder = world.folder.path().join("count");
    let messages = world.write(Load::small(61), &folder);
    world.drained(std::slice::from_mut(&mut worker), messages);
    assert_eq!(worker.counter("rebalances"), before, "the group took shards away meanwhile");
    assert_eq!(worker.counter("dead_letters"), 0);
    worker.stop();
    world.assert_law(&[Load::small(61)]);
}

/// A broker, as `servers.py` describes it.
struct Broker {
    index: usize,
    process: u32,
    command: Vec<String>,
    log: PathBuf,
    port: u16,
}

impl Broker {
    fn listing() -> Value {
        let file = File::open(variable("PRORATA_TEST_KAFKA_BROKERS")).unwrap();
        serde_json::from_reader(file).unwrap()
    }

    fn all() -> Vec<Self> {
        let listing = Self::listing();
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        let broker = |(index, broker): (usize, &Value)| Self {
            index,
            process: broker["pid"].as_u64().unwrap().try_into().unwrap(),
            command: broker["command"].as_array().unwrap().iter().map(text).collect(),
            log: text(&broker["log"]).into(),
            port: broker["port"].as_u64().unwrap().try_into().unwrap(),
        };
        listing.as_array().unwrap().iter().enumerate().map(broker).collect()
    }

    /// Restarts the broker, and waits until it accepts connections. The broker outlives the test, because
    /// other tests need it.
    fn restart(&mut self) {
        let log = OpenOptions::new().append(true).open(&self.log).unwrap();
        let mut command = Command::new(&self.command[0]);
        command.args(&self.command[1..]).current_dir(self.log.parent().unwrap()).stdin(Stdio::null());
        self.process = command.stdout(log.try_clone().unwrap()).stderr(log).spawn().unwrap().id();
        let mut listing = Self::listing();
        listing[self.index]["pid"] = json!(self.process);
        std::fs::write(variable("PRORATA_TEST_KAFKA_BROKERS"), listing.to_string()).unwrap();
        eventually("the broker is back", || {
            std::net::TcpStream::connect(("127.0.0.1", self.port))
                .map(drop)
                .map_err(|error| error.to_string())
        });
    }
}

#[test]
fn brokers_that_are_killed_and_come_back_lose_nothing_and_double_nothing() {
    let _alone = BROKERS.write().unwrap_or_else(std::sync::PoisonError::into_inner);
    let mut dice = Dice::new();
    let world = World::alone("broker");
    let mut brokers = Broker::all();
    let mut workers: Vec<Worker> = (0..2).map(|_| world.worker()).collect();
    workers.iter_mut().for_each(Worker::ready);
    let turns = rounds().div_ceil(2);
    let (load, generator) = dice.start_sending(&world, 10 * turns);
    for _ in 0..turns {
        dice.sleep(500..2_000);
        let broker = dice.pick(brokers.len());
        println!("broker {broker} is killed");
        send("KILL", brokers[broker].process);
        dice.sleep(2_000..5_000);
        brokers[broker].restart();
        dice.sleep(3_000..6_000);
    }
    let messages = sent(generator);
    world.drained(&mut workers, messages);
    workers.into_iter().for_each(|worker| drop(worker.stop()));
    world.assert_law(&[load]);
}
