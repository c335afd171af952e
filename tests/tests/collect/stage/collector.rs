//! A process of `prorata collect`, with its folder, its configuration and its status.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use prorata_testkit::wait::eventually;
use prorata_tests::program::{Ended, Program, prorata};
use serde_json::Value;
use tempfile::TempDir;

use super::cluster::kubeconfig;

/// Folder, configuration and output of the collectors of one organization, which run one after another.
pub struct Room {
    pub folder: TempDir,
    port: u16,
    context: String,
    kubeconfig: PathBuf,
}

impl Room {
    /// Creates a room whose configuration has these further lines in the section `collect`.
    pub fn new(context: &str, lines: &[&str]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let lines: String = lines.iter().map(|line| format!("  {line}\n")).collect();
        let text = format!(
            "collect:\n  organization_id: acme\n  file_rotation_interval: 500ms\n  \
             price_per_vcpu_hour: \"0.03\"\n{lines}http:\n  listen: 127.0.0.1:{port}\nlog:\n  level: info\n"
        );
        let room = Self { folder, port, context: context.to_owned(), kubeconfig: kubeconfig() };
        std::fs::write(room.path("prorata.yaml"), text).unwrap();
        room
    }

    /// Uses another kubeconfig for the cluster.
    pub fn use_kubeconfig(&mut self, file: PathBuf) {
        self.kubeconfig = file;
    }

    /// Adds sections to the configuration.
    pub fn add(&self, sections: &str) {
        let file = self.path("prorata.yaml");
        std::fs::write(&file, std::fs::read_to_string(&file).unwrap() + sections).unwrap();
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub fn events(&self) -> PathBuf {
        self.path("events")
    }

    fn command(&self) -> Command {
        let mut command = prorata();
        command.arg("collect").arg("--config").arg(self.path("prorata.yaml"));
        command.arg("--kubeconfig").arg(&self.kubeconfig).args(["--context", &self.context]);
        command
    }

    /// Starts a collector that writes files, and waits until it is ready.
    pub fn collect(&self) -> Program {
        let mut program = self.start(&["--output", self.events().to_str().unwrap()]);
        self.ready(&mut program);
        program
    }

    /// Starts a collector with these arguments, without waiting for it.
    pub fn start(&self, args: &[&str]) -> Program {
        let mut command = self.command();
        command.args(args);
        Program::start(command, "collect", self.folder.path())
    }

    pub fn ready(&self, program: &mut Program) {
        eventually("the collector is ready", || {
            program.assert_running();
            self.is_ready()
        });
    }

    pub fn is_ready(&self) -> bool {
        self.ask("/readyz").is_some_and(|answer| answer.starts_with("HTTP/1.1 200"))
    }

    /// Stops the collector, which first stores all that happened, and returns the result.
    pub fn stop(program: Program) -> Ended {
        program.signal("TERM");
        program.wait()
    }

    /// Returns the address at which the collector serves its status.
    pub fn listen(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    pub fn ask(&self, path: &str) -> Option<String> {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).ok()?;
        stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).ok()?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).ok()?;
        Some(answer)
    }

    pub fn status(&self) -> Value {
        let answer = eventually("the collector answers", || self.ask("/status"));
        serde_json::from_str(answer.split_once("\r\n\r\n").unwrap().1).unwrap()
    }

    /// Waits until the status shows this many running pods.
    pub fn follows(&self, pods: u64) {
        eventually("pods are followed", || match self.status() {
            status if status["pods"] == pods => Ok(()),
            status => Err(status.to_string()),
        });
    }

    pub fn metrics(&self) -> String {
        eventually("the collector answers", || self.ask("/metrics"))
    }

    /// Folds the collected events. Returns the lake.
    pub fn fold(&self) -> PathBuf {
        let lake = self.path("lake");
        let mut command = prorata();
        command.arg("backfill").arg("--events").arg(self.events()).arg("--lake").arg(&lake);
        Program::start(command, "backfill", self.folder.path()).wait().succeeded();
        lake
    }
}
