//! Tests of the configuration as people and environments write it.

use std::path::PathBuf;

use prorata_connectors::Secret;
use serde_json::Value;

use super::*;

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn with(yaml: &str, variables: &[(&str, &str)]) -> Result<Loaded, String> {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("prorata.yaml");
    std::fs::write(&file, yaml).unwrap();
    let variables = variables.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
    load_from(Some(&file), Environment::new(variables.collect())).map_err(|failure| failure.to_string())
}

#[test]
fn the_documented_file_is_the_defaults() {
    let file = repository().join("deploy/prorata.yaml");
    let text = std::fs::read_to_string(&file).unwrap();
    let written: Value = serde_saphyr::from_str(&text).unwrap();
    let defaults = serde_json::to_value(Config::default()).unwrap();
    assert_eq!(written, defaults, "deploy/prorata.yaml names every key with its default");
    let loaded = load_from(Some(&file), Environment::new(vec![])).unwrap().config;
    assert_eq!(serde_json::to_value(loaded).unwrap(), defaults);
}

#[test]
fn an_unknown_key_is_an_error_with_the_one_that_was_meant() {
    let message = with("backfill:\n  bufer_bytes: 1\n", &[]).unwrap_err();
    assert!(message.contains("unknown key backfill.bufer_bytes in '"), "{message}");
    assert!(message.contains("did you mean 'buffer_bytes'?"), "{message}");
    let message = with("", &[("PRORATA_ROOT__SHARD", "4")]).unwrap_err();
    assert!(message.contains("unknown key root.shard in the environment"), "{message}");
    let message = with("rulez: {}\n", &[]).unwrap_err();
    assert!(message.contains("did you mean 'rules'?"), "{message}");
    let message = with("base: &base {level: info}\nlog:\n  <<: *base\n", &[]).unwrap_err();
    assert!(message.contains("unknown key "), "{message}");
}

#[test]
fn the_environment_overrides_the_file_and_text_stays_text() {
    let loaded = with(
        "root:\n  shards: 4\nrules:\n  version: \"7\"\n",
        &[
            ("PRORATA_ROOT__SHARDS", "8"),
            ("PRORATA_RULES__WEIGHTS__CPU", "0.5"),
            ("PRORATA_RULES__VERSION", "2"),
        ],
    )
    .unwrap();
    assert_eq!(loaded.config.root.shards, 8);
    assert_eq!(loaded.config.rules.weights.cpu.to_string(), "0.5");
    assert_eq!(&*loaded.config.rules.version, "2");
    assert!(loaded.shards_given && loaded.rules_given);
    let nothing = with("log:\n  level: info\n", &[]).unwrap();
    assert!(!nothing.shards_given && !nothing.rules_given);
}

#[test]
fn lists_and_durations_may_come_from_the_environment() {
    let variables = [("PRORATA_KAFKA__TOPICS", "[a, b]"), ("PRORATA_WORK__MAX_WATERMARK_HOLD", "1h30m")];
    let config = with("", &variables).unwrap().config;
    assert_eq!(topic_names(&config.kafka.topics), ["a", "b"]);
    assert_eq!(config.work.max_watermark_hold.as_secs(), 5_400);
    let batches = "[{topic=a, partition=3, offset=7}, {topic=a, partition=4, offset=7, through=9}]";
    let config = with("", &[("PRORATA_KAFKA__SKIP_BATCHES", batches)]).unwrap().config;
    let through: Vec<_> = config.kafka.skip_batches.iter().map(|batch| batch.through).collect();
    assert_eq!(through, [None, Some(9)]);
    let misspelled = "kafka:\n  skip_batches: [{topic: a, partition: 3, offest: 7}]\n";
    let misspelled = with(misspelled, &[]).unwrap_err();
    assert!(misspelled.contains("kafka.skip_batches"), "{misspelled}");
}

#[test]
fn a_topic_may_name_the_organizations_that_it_may_bring() {
    let yaml = "kafka:\n  topics: [shared, {name: acme, organizations: [acme, 'acme-*']}]\n  \
                retired_topics: [{name: old, organizations: [acme]}]\n";
    let kafka = with(yaml, &[]).unwrap().config.kafka;
    assert_eq!(topic_names(&kafka.topics), ["shared", "acme"]);
    let organizations = kafka.organizations().unwrap();
    for (topic, organization, may) in [
        ("shared", "hooli", true),
        ("acme", "acme-eu", true),
        ("acme", "hooli", false),
        ("old", "hooli", false),
    ] {
        assert_eq!(organizations.check(topic, organization).is_ok(), may, "{topic}: {organization}");
    }
    let empty = with("kafka:\n  topics: [{name: a, organizations: []}]\n", &[]).unwrap().config.kafka;
    let message = empty.organizations().unwrap_err().to_string();
    assert!(message.contains("organizations of topic a: an empty list"), "{message}");
    let misspelled = with("kafka:\n  topics: [{name: a, organisations: [b]}]\n", &[]).unwrap_err();
    assert!(misspelled.contains("kafka.topics"), "{misspelled}");
}

#[test]
fn a_wrong_value_is_an_error_with_its_key_and_place() {
    let message = with("backfill:\n  checkpoint_interval: soon\n", &[]).unwrap_err();
    assert!(message.contains("backfill.checkpoint_interval in '"), "{message}");
    assert!(message.contains("'soon' is not a duration; use "), "{message}");
    assert!(message.contains("such as 30s, 5m, 1h30m or 2d"), "{message}");
    let message = with("root:\n  shards: many\n", &[]).unwrap_err();
    assert!(message.contains("root.shards in '") && message.contains("many"), "{message}");
    let message = with("", &[("PRORATA_WORK__THREADS", "-1")]).unwrap_err();
    assert!(message.contains("work.threads in the environment"), "{message}");
}

#[test]
fn shared_charges_are_entries_that_are_checked() {
    let yaml = "rules:\n  shared_charges:\n  - {service: Amazon EKS, cluster_id: prod, over: cost}\n  \
                - {category: Tax, provider: aws, over: pods}\n";
    let entries = with(yaml, &[]).unwrap().config.rules.shared_charges;
    let over: Vec<&str> = entries.iter().map(|entry| entry.over.name()).collect();
    assert_eq!(over, ["cost", "pods"]);
    assert_eq!(entries[0].service.as_deref(), Some("Amazon EKS"));
    let variables = [("PRORATA_RULES__SHARED_CHARGES", "[{service=x, over=gpu}]")];
    assert_eq!(with("", &variables).unwrap().config.rules.shared_charges.len(), 1);
    let wrong = [
        ("{service: '', over: cost}", "rules.shared_charges, entry 1: service is empty"),
        ("{service: 'a*b', over: cost}", "entry 1: service 'a*b' has a * before its end"),
        ("{service: a, label: b, over: cost}", "rules.shared_charges"),
        ("{service: a}", "rules.shared_charges"),
    ];
    for (entry, expected) in wrong {
        let message = with(&format!("rules:\n  shared_charges: [{entry}]\n"), &[]).unwrap_err();
        assert!(message.contains(expected), "{entry}: {message}");
    }
}

#[test]
fn broken_yaml_is_an_error_with_file_and_line() {
    let message = with("log:\n  level: warn\n  level: info\n", &[]).unwrap_err();
    assert!(message.contains("prorata.yaml' is not valid YAML: "), "{message}");
    assert!(message.contains("line 3"), "{message}");
    assert!(message.lines().count() == 1, "{message}");
}

#[test]
fn a_password_in_the_file_is_refused_with_where_it_belongs() {
    for (key, variable) in [
        ("kafka:\n  sasl_password: s3cret\n", "PRORATA_KAFKA__SASL_PASSWORD"),
        ("registry:\n  password: 12345\n", "PRORATA_REGISTRY__PASSWORD"),
    ] {
        let message = with(key, &[]).unwrap_err();
        assert!(message.contains(&format!("set {variable} in the environment")), "{message}");
        assert!(message.contains("password_file"), "{message}");
        assert!(!message.contains("s3cret") && !message.contains("12345"), "{message}");
    }
    let loaded = with("registry:\n  password: \"\"\n", &[("PRORATA_REGISTRY__PASSWORD", "12345")]).unwrap();
    assert_eq!(loaded.config.registry.password, Secret::new("12345"));
    assert!(!format!("{loaded:?}").contains("12345"));
}
