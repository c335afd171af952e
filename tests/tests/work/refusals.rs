//! Setups that can never work are refused at once, with an exit code and a message. The message says what is
//! wrong, where, and how to fix it.

use std::collections::BTreeMap;
use std::net::TcpListener;

use prorata_tests::program::Program;
use serde_json::{Value, json};

use super::world::worker::assert_refused;
use super::world::{Load, World, variable};

/// Creates a world whose worker must be refused.
fn world(name: &str) -> World {
    let mut world = World::new(name);
    world.set("log.level", json!("error"));
    world
}

/// Checks that a worker ends soon, with this code and these words in its last line.
fn refused(world: &World, code: i32, words: &[&str]) {
    assert_refused(world.worker().program.wait(), code, words);
}

fn sasl(world: &mut World, user: &str, password: &str) {
    world.set("kafka.bootstrap_servers", json!(variable("PRORATA_TEST_KAFKA_SASL")));
    world.set("kafka.security_protocol", json!("sasl_plaintext"));
    world.set("kafka.sasl_username", json!(user));
    world.environment("PRORATA_KAFKA__SASL_PASSWORD", password);
}

#[test]
fn a_login_that_kafka_does_not_take() {
    let mut world = world("login");
    let user = variable("PRORATA_TEST_KAFKA_USER");
    sasl(&mut world, &user, "hunter2");
    let ended = world.worker().program.wait();
    assert!(!ended.log.contains("hunter2"), "{}", ended.log);
    assert_refused(ended, 2, &["refuses the login with PLAIN", "kafka.sasl_mechanism"]);
    // The right password works.
    sasl(&mut world, &user, &variable("PRORATA_TEST_KAFKA_PASSWORD"));
    world.set("log.level", json!("info"));
    let mut worker = world.worker();
    worker.ready();
    worker.stop();
}

#[test]
fn topics_that_are_not_there() {
    let mut world = world("topic");
    world.topics.push("no-such-topic".into());
    refused(&world, 2, &["no-such-topic", "kafka.topics"]);
    world.topics.pop();
    world.set("kafka.dead_letter_topic", json!("no-such-letters"));
    refused(&world, 2, &["no-such-letters", "kafka.dead_letter_topic"]);
}

#[test]
fn topics_with_other_numbers_of_partitions() {
    let mut world = world("partitions");
    let wide = format!("{}-wide", world.name);
    world.create(std::slice::from_ref(&wide), 6);
    world.topics.push(wide.clone());
    refused(&world, 2, &[&wide, "6 partitions", "4 shards"]);
    world.topics.pop();
    world.set("log.level", json!("info"));
    let mut worker = world.worker();
    worker.ready();
    worker.stop();
    world.set("log.level", json!("error"));
    world.set("root.shards", json!(6));
    world.topics = vec![wide];
    refused(&world, 2, &["4", "6", "shards"]);
}

#[test]
fn storage_that_is_not_there() {
    let mut world = world("bucket");
    let root = world.root.clone();
    world.root = "s3://no-such-bucket/lake".into();
    refused(&world, 2, &["no-such-bucket", "create it, or correct the URL"]);
    world.root = format!("s3://{}/{}", variable("PRORATA_TEST_BUCKET"), world.name);
    world.environment("AWS_SECRET_ACCESS_KEY", "c29tZWJvZHkgZWxzZSdzIGtleSwgd2hpY2ggaXMgbm90");
    refused(&world, 2, &["refuses these credentials", "once this is corrected"]);
    std::fs::write(&root, "a file, in which nothing can be stored").unwrap();
    world.root = format!("{root}/lake");
    refused(&world, 2, &["lake", "storage cannot be used"]);
    world.root = String::new();
    refused(&world, 2, &["root.url is not set"]);
}

#[test]
fn configurations_that_cannot_be_read() {
    let world = world("config");
    let file = world.folder.path().join("mine.yaml");
    let path = file.to_str().unwrap();
    assert_refused(world.run(&["work", "--config", path]), 2, &["mine.yaml"]);
    for (text, words) in [
        ("kafka: [", &["mine.yaml"][..]),
        ("kafka:\n  topcis: [a]\n", &["topcis", "topics"]),
        ("work:\n  checkpoint_interval: soon\n", &["checkpoint_interval", "soon"]),
        ("root:\n  shards: many\n", &["shards", "many"]),
        ("kafka:\n  sasl_password: hunter2\n", &["kafka.sasl_password"]),
    ] {
        std::fs::write(&file, text).unwrap();
        let ended = world.run(&["work", "--config", path]);
        assert!(!ended.log.contains("hunter2"), "{}", ended.log);
        assert_refused(ended, 2, words);
    }
}

#[test]
fn an_address_that_is_in_use() {
    let mut world = world("port");
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    world.set("http.listen", json!(address));
    refused(&world, 2, &[&address, "is in use", "http.listen"]);
}

#[test]
fn brokers_that_do_not_answer() {
    let mut world = world("brokers");
    let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    world.set("kafka.bootstrap_servers", json!(closed));
    refused(&world, 4, &[&closed]);
    // This broker accepts connections and never answers.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = silent.local_addr().unwrap().to_string();
    world.set("kafka.bootstrap_servers", json!(address));
    refused(&world, 4, &[&address]);
}

#[test]
fn a_registry_at_another_path() {
    let mut world = world("path");
    world.set("registry.url", json!(format!("{}/nowhere", variable("PRORATA_TEST_REGISTRY"))));
    refused(&world, 2, &["registry.url"]);
}

#[test]
fn a_session_that_brokers_do_not_allow() {
    let mut world = world("session");
    world.set("kafka.session_timeout", json!("500ms"));
    refused(&world, 2, &["kafka.session_timeout"]);
}

#[test]
fn a_static_membership_that_another_worker_takes() {
    let mut world = world("fenced");
    world.set("kafka.group_instance_id", json!("worker-0"));
    world.set("log.level", json!("info"));
    let mut first = world.worker();
    first.ready();
    let mut second = world.worker();
    second.ready();
    assert_refused(first.program.wait(), 2, &["kafka.group_instance_id"]);
    let messages = world.send(Load::small(71));
    world.drained(std::slice::from_mut(&mut second), messages);
    second.stop();
    world.assert_law(&[Load::small(71)]);
}

/// Runs `prorata check --config`. Returns the exit code, and the outcome of each check.
fn checked(world: &World) -> (Option<i32>, BTreeMap<String, String>) {
    let config = world.config();
    let command = world.command(&["check", "--json", "--config", config.to_str().unwrap()]);
    let ended = Program::start(command, "check", world.folder.path()).wait();
    let report: Value = serde_json::from_str(&ended.output).unwrap_or_else(|_| panic!("{}", ended.log));
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let checks = report["checks"].as_array().unwrap();
    (ended.code, checks.iter().map(|check| (text(&check["check"]), text(&check["outcome"]))).collect())
}

#[test]
fn a_configuration_is_checked_before_a_start() {
    let mut world = world("check");
    world.root = format!("s3://{}/{}", variable("PRORATA_TEST_BUCKET"), world.name);
    let letters = format!("{}-letters", world.name);
    world.create(std::slice::from_ref(&letters), 1);
    world.set("kafka.dead_letter_topic", json!(letters));
    world.set("kafka.budget_topic", json!(letters));
    let all = ["storage", "clock", "root", "registry", "topics", "dead-letter topic", "budget topic"];
    let (code, mut outcomes) = checked(&world);
    assert_eq!(outcomes.remove("batches").as_deref(), Some("warning"), "Kafka's default is 1 MiB");
    assert_eq!((code, outcomes), (Some(0), all.map(|check| (check.to_owned(), "ok".to_owned())).into()));
    // Each fault is reported, and the other checks still run.
    let missing = |world: &World, check: &str, code: i32| {
        let (ended, outcomes) = checked(world);
        let failed: Vec<&str> = outcomes
            .iter()
            .filter(|(_, outcome)| *outcome == "failed")
            .map(|(name, _)| name.as_str())
            .collect();
        assert_eq!((ended, failed), (Some(code), vec![check]), "{outcomes:?}");
    };
    world.set("kafka.dead_letter_topic", json!("no-such-letters"));
    missing(&world, "dead-letter topic", 2);
    world.set("kafka.dead_letter_topic", json!(letters));
    world.set("kafka.budget_topic", json!("no-such-budgets"));
    missing(&world, "budget topic", 2);
    world.set("kafka.budget_topic", json!(letters));
    world.topics.push("no-such-topic".into());
    missing(&world, "topics", 2);
    world.topics.pop();
    world.set("root.shards", json!(6));
    missing(&world, "topics", 2);
    world.set("root.shards", json!(4));
    let registry = variable("PRORATA_TEST_REGISTRY");
    world.set("registry.url", json!(format!("{registry}/nowhere")));
    missing(&world, "registry", 2);
    let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    world.set("registry.url", json!(format!("http://{closed}")));
    missing(&world, "registry", 4);
    world.set("registry.url", json!(registry));
    world.root = format!("s3://{}-nowhere/{}", variable("PRORATA_TEST_BUCKET"), world.name);
    let (code, outcomes) = checked(&world);
    assert_eq!((code, outcomes["storage"].as_str()), (Some(2), "failed"), "{outcomes:?}");
    assert_eq!((&*outcomes["topics"], &*outcomes["registry"]), ("ok", "ok"));
}
