//! One `prorata work` process, and its reports.

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use prorata_testkit::wait::eventually;
use prorata_tests::program::{Ended, Program};
use serde_json::Value;

/// Checks that a program has ended with this code and these words in its last line.
pub fn assert_refused(ended: Ended, code: i32, words: &[&str]) {
    let log = &ended.log;
    let message = log.lines().last().unwrap_or_default();
    assert!(message.starts_with("prorata: "), "{log}");
    assert_eq!(ended.code, Some(code), "{log}");
    let missing: Vec<&&str> = words.iter().filter(|word| !message.contains(**word)).collect();
    assert_eq!(missing, Vec::<&&str>::new(), "{log}");
    assert!(!log.contains("panicked") && !log.contains("backtrace"), "{log}");
}

/// A worker.
#[derive(Debug)]
pub struct Worker {
    /// The process.
    pub program: Program,
    /// Address of the worker's HTTP server; `None` before the first request.
    address: Option<SocketAddr>,
}

impl Worker {
    /// Takes over a started process.
    pub fn new(program: Program) -> Self {
        Self { program, address: None }
    }

    /// Returns the address of the worker's HTTP server, from the worker's log.
    fn address(&mut self) -> SocketAddr {
        if let Some(address) = self.address {
            return address;
        }
        let address = eventually("the worker's log names its address", || {
            self.program.assert_running();
            self.named_address().ok_or_else(|| self.program.tail())
        });
        self.address = Some(address);
        address
    }

    fn named_address(&self) -> Option<SocketAddr> {
        let log = self.program.log();
        let mut lines = log.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        lines.find_map(|line| line["fields"]["address"].as_str()?.parse().ok())
    }

    /// Returns the status code and the body of an answer; `None` if there is no answer.
    pub fn get(&mut self, path: &str) -> Option<(u16, String)> {
        get(self.address(), path)
    }

    /// Waits until the worker holds shards, all of them loaded.
    pub fn ready(&mut self) {
        eventually("the worker is ready", || {
            self.program.assert_running();
            match self.get("/readyz") {
                Some((200, _)) => Ok(()),
                other => Err(format!("it says {other:?}{}", self.program.tail())),
            }
        });
    }

    /// Returns the worker's status; `None` if the worker does not answer with a status.
    pub fn try_status(&mut self) -> Option<Value> {
        let (code, body) = self.get("/status?format=json")?;
        (code == 200).then(|| serde_json::from_str(&body).unwrap())
    }

    /// Waits for its status.
    pub fn status(&mut self) -> Value {
        eventually("the worker's status", || self.try_status().ok_or_else(|| self.program.tail()))
    }

    /// Returns a counter of the worker's metrics, such as `conflicts`, summed over all labels.
    pub fn counter(&mut self, name: &str) -> u64 {
        let (code, body) = self.get("/metrics").unwrap();
        assert_eq!(code, 200, "{body}");
        let prefix = format!("prorata_{name}_total");
        let of = |line: &&str| line.strip_prefix(&*prefix).is_some_and(|rest| rest.starts_with(['{', ' ']));
        let values: Vec<f64> =
            body.lines().filter(of).map(|line| line.rsplit_once(' ').unwrap().1.parse().unwrap()).collect();
        assert!(!values.is_empty(), "{name} is not a counter:\n{body}");
        values.iter().sum::<f64>() as u64
    }

    /// Returns the shards that it holds.
    pub fn shards(&mut self) -> BTreeSet<u64> {
        let status = self.status();
        status["shards"].as_array().unwrap().iter().map(|shard| shard["shard"].as_u64().unwrap()).collect()
    }

    /// Returns the messages of the worker's stopped shards. The list is empty while the worker does not
    /// answer.
    pub fn stopped_shards(&self) -> Vec<String> {
        let status = self.named_address().and_then(|address| get(address, "/status?format=json"));
        let status = status.and_then(|(_, body)| serde_json::from_str::<Value>(&body).ok());
        let shards = status.as_ref().and_then(|status| status["shards"].as_array()).into_iter().flatten();
        shards.filter_map(|shard| shard["stopped"]["message"].as_str().map(str::to_owned)).collect()
    }

    /// Waits until the worker reports with these words that it cannot continue. If other shards continue, the
    /// report is in the status. Otherwise, the worker ends with exit code 1.
    pub fn stops_loudly(mut self, words: &[&str]) {
        eventually("a shard is stopped", || {
            let says_so = |message: &String| words.iter().all(|word| message.contains(word));
            if !self.program.is_running() || self.stopped_shards().iter().any(says_so) {
                return Ok(());
            }
            Err(format!("stopped: {:?}{}", self.stopped_shards(), self.program.tail()))
        });
        if self.program.is_running() {
            self.program.signal("TERM");
        }
        let ended = self.program.wait();
        match ended.code {
            Some(0) => assert!(!ended.log.contains("panicked"), "{}", ended.log),
            _ => assert_refused(ended, 1, words),
        }
    }

    /// Stops it cleanly.
    pub fn stop(self) -> Ended {
        self.program.signal("TERM");
        let ended = self.program.wait();
        assert_eq!(ended.code, Some(0), "a clean stop: {}", ended.log);
        ended
    }
}

fn get(address: SocketAddr, path: &str) -> Option<(u16, String)> {
    let mut stream = TcpStream::connect_timeout(&address, Duration::from_secs(2)).ok()?;
    stream.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    let (head, body) = answer.split_once("\r\n\r\n")?;
    Some((head.split(' ').nth(1)?.parse().ok()?, body.to_owned()))
}
