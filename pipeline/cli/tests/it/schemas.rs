//! `prorata schemas` as a program: its output, the schemas that it registers, exit codes and messages.

use std::process::{Command, Output};
use std::sync::atomic::{AtomicUsize, Ordering};

use prorata_schemas::avsc::full_name;
use prorata_schemas::event::EventKind;
use prorata_tests::registry::fake::{self, Fake, Reply};
use serde_json::{Value, json};

fn schemas(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_prorata"));
    command.arg("schemas").args(args);
    command
}

fn run(args: &[&str]) -> Output {
    schemas(args).output().unwrap()
}

fn text(output: &Output) -> String {
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout.clone()).unwrap()
}

/// Checks the exit code, and returns the one line of the error message.
fn failure(output: &Output, code: i32) -> String {
    let message = String::from_utf8(output.stderr.clone()).unwrap();
    assert_eq!(output.status.code(), Some(code), "{message}");
    assert!(output.stdout.is_empty(), "{output:?}");
    assert!(message.starts_with("prorata: ") && message.lines().count() == 1, "{message}");
    message
}

#[test]
fn all_schemas_are_one_json_array_and_one_is_its_record() {
    let all: Value = serde_json::from_str(&text(&run(&[]))).unwrap();
    let names: Vec<&str> = all.as_array().unwrap().iter().map(|one| one["name"].as_str().unwrap()).collect();
    assert_eq!(names, EventKind::ALL.map(full_name));
    for name in ["PodStarted", "prorata.events.PodStarted"] {
        let one: Value = serde_json::from_str(&text(&run(&[name]))).unwrap();
        assert_eq!(one["name"], "prorata.events.PodStarted");
    }
    assert!(
        failure(&run(&["PodStart"]), 2)
            .contains("'PodStart' is not an event type; the types are NodeStarted, ")
    );
}

#[test]
fn registering_twice_gives_the_same_ids() {
    let fake = Fake::registry();
    let url = format!("{}/apis/ccompat/v7/", fake.url());
    let first = text(&run(&["--register", &url]));
    let lines: Vec<Vec<&str>> = first.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(lines.len(), EventKind::ALL.len());
    for ((line, kind), id) in lines.iter().zip(EventKind::ALL).zip(1..) {
        assert_eq!(*line, [full_name(kind), id.to_string()]);
    }
    assert_eq!(text(&run(&["--register", &url])), first);
    let asked = fake.asked();
    assert_eq!(asked.len(), 2 * EventKind::ALL.len());
    assert_eq!(asked[0].path, "/apis/ccompat/v7/subjects/prorata.events.NodeStarted/versions");
}

#[test]
fn one_schema_alone_and_ids_as_json() {
    let fake = Fake::registry();
    let printed = text(&run(&["PodUsage", "--register", &fake.url(), "--json"]));
    let printed: Value = serde_json::from_str(&printed).unwrap();
    assert_eq!(printed, json!({ "schemas": [{ "subject": "prorata.events.PodUsage", "id": 1 }] }));
}

#[test]
fn credentials_come_from_the_environment_or_a_file_that_the_configuration_names() {
    let fake = Fake::registry();
    let url = fake.url();
    let variables = [("PRORATA_REGISTRY__USERNAME", "prorata"), ("PRORATA_REGISTRY__PASSWORD", "s3cret")];
    text(&schemas(&["PodUsage", "--register", &url]).envs(variables).output().unwrap());

    let folder = tempfile::tempdir().unwrap();
    let (config, password) = (folder.path().join("prorata.yaml"), folder.path().join("password"));
    std::fs::write(&password, "s3cret\n").unwrap();
    let section = format!("registry:\n  username: prorata\n  password_file: {}\n", password.display());
    std::fs::write(&config, section).unwrap();
    text(&schemas(&["PodUsage", "--register", &url, "--config"]).arg(&config).output().unwrap());
    for request in fake.asked() {
        assert_eq!(request.headers["authorization"], "Basic cHJvcmF0YTpzM2NyZXQ=");
    }

    std::fs::write(&config, "registry:\n  username: prorata\n  password: s3cret\n").unwrap();
    let output = schemas(&["--register", &url, "--config"]).arg(&config).output().unwrap();
    let message = failure(&output, 2);
    assert!(message.contains("PRORATA_REGISTRY__PASSWORD") && !message.contains("s3cret"), "{message}");
}

#[test]
fn a_refusal_of_the_registry_is_an_error_of_configuration() {
    for (reply, expected) in [
        (Reply::error(401, 401, "Unauthorized"), "check registry.username and registry.password"),
        (Reply::error(403, 40301, "Forbidden"), "check registry.username and registry.password"),
        (
            Reply::error(409, 409, "is incompatible"),
            "refuses the schema of subject prorata.events.NodeStarted",
        ),
        (Reply::typed(404, "text/html", "nothing"), "registry.url must be the base URL of Confluent's API"),
    ] {
        let fake = Fake::answering(move |_| reply.clone());
        let message = failure(&run(&["--register", &fake.url()]), 2);
        assert!(message.contains(expected), "{message}");
    }
    assert!(
        failure(&run(&["--register", "registry"]), 2)
            .contains("registry.url is not a URL (relative URL without a base); name one")
    );
    assert!(failure(&run(&["--register", ""]), 2).contains("--register is empty"));
    assert_eq!(run(&["--json"]).status.code(), Some(2), "--json is of --register");
}

#[test]
fn a_registry_that_is_down_or_failing_is_unavailable() {
    let down = Fake::registry().url();
    assert!(failure(&run(&["--register", &down]), 4).contains("the schema registry is unavailable"));
    let failing = Fake::answering(|_| Reply::error(500, 50001, "Error in the backend data store"));
    let message = failure(&run(&["--register", &failing.url()]), 4);
    assert!(message.contains("Error in the backend data store"), "{message}");
    assert_eq!(failing.asked().len(), 3);
}

#[test]
fn a_registry_that_fails_for_a_moment_is_asked_again() {
    let (working, asked) = (fake::registry(), AtomicUsize::new(0));
    let restarting = Fake::answering(move |request| match asked.fetch_add(1, Ordering::SeqCst) {
        0 | 1 => Reply::error(503, 50301, "starting"),
        _ => working(request),
    });
    let printed = text(&run(&["PodUsage", "--register", &restarting.url()]));
    assert_eq!(printed, "prorata.events.PodUsage  1\n");
    assert_eq!(restarting.asked().len(), 3);
}
