//! Runs the tables of `testdata/collector/requests`: each table lists containers, and the expected effective
//! requests and limits.

use prorata_collector::effective;
use serde_json::{Map, Value, json};

use crate::shown::quantities;
use crate::{tables_in, words};

/// A pod while its lines are read.
#[derive(Default)]
struct Pod {
    containers: Vec<Value>,
    init_containers: Vec<Value>,
    statuses: Vec<Value>,
    overhead: Value,
    whole: Value,
    conditions: Vec<Value>,
}

fn amounts(words: &[&str], beginning: &str) -> Value {
    let split = words.iter().filter_map(|word| word.split_once('='));
    let own = split.filter_map(|(key, value)| {
        let name = if beginning.is_empty() {
            Some(key).filter(|key| !is_special(key))
        } else {
            key.strip_prefix(beginning)
        };
        Some((name?.replace("gpu", "nvidia.com/gpu"), json!(value)))
    });
    Value::Object(own.collect::<Map<String, Value>>())
}

fn is_special(key: &str) -> bool {
    key.starts_with("limit.") || key.starts_with("allocated.")
}

fn resources(words: &[&str]) -> Value {
    json!({"requests": amounts(words, ""), "limits": amounts(words, "limit.")})
}

impl Pod {
    fn line(&mut self, words: &[&str]) {
        let (name, rest) = (words.get(1).copied().unwrap_or(""), words.get(2..).unwrap_or_default());
        match words[0] {
            "container" => self.containers.push(json!({"name": name, "resources": resources(rest)})),
            "init" => self.init_containers.push(json!({"name": name, "resources": resources(rest)})),
            "sidecar" => {
                let sidecar = json!({"name": name, "resources": resources(rest), "restartPolicy": "Always"});
                self.init_containers.push(sidecar);
            }
            "overhead" => self.overhead = amounts(&words[1..], ""),
            "whole" => self.whole = resources(&words[1..]),
            "status" => self.statuses.push(json!({
                "name": name, "resources": resources(rest), "allocatedResources": amounts(rest, "allocated."),
            })),
            "infeasible" => self
                .conditions
                .push(json!({"type": "PodResizePending", "status": "True", "reason": "Infeasible"})),
            other => panic!("no line '{other}'"),
        }
    }

    fn effective(&self) -> (Vec<String>, Vec<String>) {
        let pod = json!({
            "spec": {
                "containers": self.containers,
                "initContainers": self.init_containers,
                "overhead": self.overhead,
                "resources": self.whole,
            },
            "status": {
                "conditions": self.conditions,
                "containerStatuses": self.statuses,
                "initContainerStatuses": self.statuses,
            },
        });
        let (requests, limits) = effective(&serde_json::from_value(pod).unwrap()).unwrap();
        (quantities("", &requests), quantities("", &limits))
    }
}

#[test]
fn requests_are_what_the_scheduler_counts() {
    let (mut compared, mut faults) = (0, Vec::new());
    for (file, text) in tables_in("requests") {
        let mut pod = Pod::default();
        for (index, line) in text.lines().enumerate() {
            let words = words(line);
            match words.first() {
                None => {}
                Some(word) if word.starts_with('#') => {}
                Some(&"case") => pod = Pod::default(),
                Some(side @ (&"requests" | &"limits")) => {
                    compared += 1;
                    let (requests, limits) = pod.effective();
                    let mut got = if *side == "requests" { requests } else { limits };
                    let mut wanted: Vec<String> = words[1..].iter().map(|word| (*word).to_owned()).collect();
                    got.sort();
                    wanted.sort();
                    if got != wanted {
                        faults.push(format!("{file}:{}: got {}", index + 1, got.join(" ")));
                    }
                }
                Some(_) => pod.line(&words),
            }
        }
    }
    assert!(faults.is_empty(), "\n{}", faults.join("\n"));
    assert!(compared > 20, "{compared} compared");
}

#[test]
fn an_invalid_quantity_is_reported() {
    let pod = json!({"spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "1x"}}}]}});
    let error = effective(&serde_json::from_value(pod).unwrap()).unwrap_err();
    assert!(error.to_string().contains("'1x' is not a Kubernetes quantity"), "{error}");
}
