//! `prorata generate` as a program: wrong usage is reported before anything is written or sent.

use std::path::Path;
use std::process::Command;

use prorata_tests::registry::fake::{Fake, Reply};

fn generate(folder: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_prorata"));
    command.current_dir(folder).arg("generate").args(["--pods", "2", "--hours", "1"]).args(args);
    command
}

fn failure(mut command: Command, code: i32) -> String {
    let output = command.output().unwrap();
    let message = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(code), "{message}");
    assert!(output.stdout.is_empty());
    assert!(message.starts_with("prorata: ") && message.lines().count() == 1, "{message}");
    message
}

#[test]
fn a_folder_is_filled_once() {
    let folder = tempfile::tempdir().unwrap();
    let output = generate(folder.path(), &["--output", "./kafka"]).output().unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(said.contains(" events in 1 files, ") && said.contains("in ./kafka"), "{said}");
    assert!(folder.path().join("kafka").is_dir());
    let message = failure(generate(folder.path(), &["--output", "./kafka"]), 2);
    assert!(message.contains("'./kafka' is not empty; name a new folder"), "{message}");
}

#[test]
fn options_for_kafka_are_refused_for_files() {
    let folder = tempfile::tempdir().unwrap();
    for option in ["--config", "--bootstrap-servers", "--topic", "--rate"] {
        let message = failure(generate(folder.path(), &["--output", "events", option, "1"]), 2);
        assert!(message.contains(option) && message.contains("--output kafka"), "{message}");
    }
    assert!(!folder.path().join("events").exists());
}

#[test]
fn kafka_needs_brokers_and_a_topic() {
    let folder = tempfile::tempdir().unwrap();
    let message = failure(generate(folder.path(), &["--output", "kafka", "--topic", "events"]), 2);
    assert!(
        message.contains("name them with --bootstrap-servers, or as kafka.bootstrap_servers"),
        "{message}"
    );
    let brokers = ["--output", "kafka", "--bootstrap-servers", "127.0.0.1:1"];
    let message = failure(generate(folder.path(), &brokers), 2);
    assert!(message.contains("name one with --topic, or in kafka.topics"), "{message}");
}

#[test]
fn a_registry_that_refuses_or_is_down_ends_it_before_anything_is_sent() {
    let folder = tempfile::tempdir().unwrap();
    let args = ["--output", "kafka", "--bootstrap-servers", "127.0.0.1:1", "--topic", "events"];
    let with = |url: &str| {
        let mut command = generate(folder.path(), &args);
        command.env("PRORATA_REGISTRY__URL", url);
        command
    };
    let refusing = Fake::answering(|_| Reply::error(401, 401, "Unauthorized"));
    assert!(failure(with(&refusing.url()), 2).contains("check registry.username"));
    assert_eq!(refusing.asked().len(), 1, "asking again changes nothing");
    let down = Fake::registry().url();
    let output = with(&down).output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(4), "{said}");
    let last = said.lines().last().unwrap();
    assert!(last.starts_with("prorata: the schema registry is unavailable: "), "{said}");
    assert_eq!(said.matches("asking again in").count(), 2, "{said}");
}
