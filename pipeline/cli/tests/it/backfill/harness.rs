//! Runs the program, creates the input, and compares lakes.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use prorata_connectors::archive::write_events;
use prorata_samples::bill::bill_line;
use prorata_samples::trace::{node, pod, pod_stop};
use prorata_schemas::event::{BillLine, BillSet, Event, EventRecord, Payload};
use prorata_schemas::tables::Table;
use prorata_schemas::time::{HOUR_MICROS, Hour, Timestamp};
use prorata_testkit::wait::eventually;
use prorata_tests::lake::{EVERY_HOUR, LiveFiles, StoredLake};
use prorata_worker::names::TableFile;
use tempfile::TempDir;
use tokio::runtime::Runtime;

/// A folder with events and room for lakes.
pub struct Room {
    folder: TempDir,
}

impl Room {
    pub fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("events")).unwrap();
        Self { folder }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Puts a file into the events' folder.
    pub fn put(&self, name: &str, bytes: &[u8]) {
        let path = self.path("events").join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, bytes).unwrap();
    }

    /// Puts an Avro file of these events into the events' folder.
    pub fn put_events(&self, name: &str, events: &[EventRecord]) {
        self.put(name, &avro(events));
    }

    /// Fills the events' folder with generated load of two organizations.
    pub fn generate(&self, hours: u32) {
        self.generate_for(2, hours);
    }

    /// Fills the events' folder with generated load of some organizations.
    pub fn generate_for(&self, organizations: u32, hours: u32) {
        std::fs::remove_dir(self.path("events")).unwrap();
        let (organizations, hours) = (organizations.to_string(), hours.to_string());
        let args =
            ["generate", "--organizations", &organizations, "--pods", "6", "--seed", "7", "--hours", &hours];
        let args = [&args[..], &["--output"]].concat();
        let output = program().args(args).arg(self.path("events")).output().unwrap();
        assert!(output.status.success(), "{}", error(&output));
    }

    /// Returns the command `prorata backfill` of the events into a lake.
    pub fn backfill(&self, lake: &str) -> Command {
        let mut command = program();
        command.arg("backfill").arg("--events").arg(self.path("events")).arg("--lake").arg(self.path(lake));
        command
    }

    /// Runs `prorata backfill` of the events into a lake, and returns its output.
    pub fn run(&self, lake: &str, args: &[&str]) -> Output {
        self.backfill(lake).args(args).output().unwrap()
    }

    /// Returns the digests of the live files by table, hour and shard.
    pub fn content(&self, lake: &str) -> BTreeMap<(Table, Hour, u16), Vec<String>> {
        let digest = |((table, shard, hour), files): ((Table, u16, Hour), Vec<TableFile>)| {
            for file in &files {
                let path = self.path(lake).join(table.name()).join(file.path());
                assert!(path.is_file(), "{}", path.display());
            }
            ((table, hour, shard), files.into_iter().map(|file| file.digest).collect())
        };
        self.live_files(lake).into_iter().map(digest).collect()
    }

    /// Returns the live files by table.
    pub fn files(&self, lake: &str) -> BTreeMap<Table, Vec<String>> {
        let mut files = BTreeMap::from(Table::HOURLY.map(|table| (table, Vec::new())));
        for ((table, ..), of_hour) in self.live_files(lake) {
            files.entry(table).or_default().extend(of_hour.iter().map(TableFile::path));
        }
        files
    }

    fn live_files(&self, lake: &str) -> LiveFiles {
        let runtime = Arc::new(Runtime::new().unwrap());
        StoredLake::open(self.path(lake).to_str().unwrap(), runtime).files(EVERY_HOUR)
    }

    /// Returns the names of all files of a lake, which a run may be changing.
    pub fn objects(&self, lake: &str) -> Vec<String> {
        let mut names = Vec::new();
        walk(&self.path(lake), "", &mut names);
        names.sort();
        names
    }
}

/// Builds a room with the sample day in a lake.
pub fn sample_day() -> Room {
    let room = Room::new();
    let events = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/sample-day/events");
    let mut backfill = program();
    backfill.arg("backfill").arg("--events").arg(events).arg("--lake").arg(room.path("lake"));
    assert!(backfill.output().unwrap().status.success());
    room
}

fn walk(folder: &Path, prefix: &str, names: &mut Vec<String>) {
    for entry in std::fs::read_dir(folder).into_iter().flatten() {
        let entry = entry.unwrap();
        let name = format!("{prefix}{}", entry.file_name().to_string_lossy());
        if entry.file_type().unwrap().is_dir() {
            walk(&entry.path(), &format!("{name}/"), names);
        } else {
            names.push(name);
        }
    }
}

/// Waits until the second of the last commit of a lake has passed. Returns an instant between this commit and
/// the next commit.
pub fn instant_after(lake: &Path) -> Timestamp {
    // The time of its commit, in milliseconds, identifies a version of a table.
    let then = eventually("an instant after the last commit", || {
        let seconds = |time: SystemTime| time.duration_since(UNIX_EPOCH).unwrap().as_secs();
        let log = std::fs::metadata(lake.join("hours/_delta_log")).unwrap().modified().unwrap();
        let now = seconds(SystemTime::now());
        if now > seconds(log) { Ok(now) } else { Err("the second is not over".to_owned()) }
    });
    Timestamp(i64::try_from(then).unwrap() * 1_000_000)
}

/// Returns the program with nothing configured.
pub fn program() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_prorata"));
    for (key, _) in std::env::vars() {
        if key.starts_with("PRORATA_") {
            command.env_remove(key);
        }
    }
    command
}

/// Runs a command with a limit on the size of files, in KiB. It simulates a full disk: writes fail in the
/// middle.
pub fn run_on_full_disk(command: &Command, kibibytes: u32) -> Output {
    let limited = format!("trap '' XFSZ; ulimit -f {kibibytes}; exec \"$@\"");
    let mut shell = Command::new("bash");
    shell.args(["-c", &limited, "bash"]).arg(command.get_program()).args(command.get_args());
    shell.output().unwrap()
}

pub fn code(output: &Output) -> i32 {
    output.status.code().unwrap_or(-1)
}

pub fn text(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

pub fn error(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

/// Parses the JSON document that was printed.
pub fn json(output: &Output) -> serde_json::Value {
    let document = serde_json::from_slice(&output.stdout);
    assert!(document.is_ok(), "{}{}", text(output), error(output));
    document.unwrap()
}

/// Returns the one message of a failure.
pub fn message(output: &Output) -> String {
    let error = error(output);
    assert_eq!(error.trim_end().lines().count(), 1, "one message, no trace: {error}");
    assert!(error.starts_with("prorata: "), "{error}");
    assert!(output.stdout.is_empty(), "no summary of a failure");
    error
}

pub fn avro(events: &[EventRecord]) -> Vec<u8> {
    let bodies: Vec<_> = events.iter().map(|event| (event.event.payload.kind(), &*event.body)).collect();
    write_events(&bodies).unwrap()
}

/// Returns the events of three hours of one node.
pub fn trace() -> Vec<EventRecord> {
    vec![node("acme", 0, 10), pod("acme", 30, "a", 1), pod_stop("acme", 150, "a")]
}

/// Returns the events of three hours of one node, and its bill: 6 for three hours of a day.
pub fn billed_trace() -> Vec<EventRecord> {
    let EventRecord { event: mut start, .. } = node("acme", 0, 10);
    let Payload::NodeStarted(started) = &mut start.payload else { panic!("not a start of a node") };
    started.resource_key = Some("i-1".into());
    let begin = start.event_time;
    let line = BillLine {
        description: Some("m5.xlarge on demand".into()),
        hours: Some("3".parse().unwrap()),
        list_unit_price: Some("2.5".parse().unwrap()),
        list_cost: "7.5".parse().unwrap(),
        ..bill_line("day", Timestamp(begin.0 + 24 * HOUR_MICROS), "6")
    };
    let bill = BillSet {
        provider: "aws".into(),
        billing_account_id: "111122223333".into(),
        resource_key: "i-1".into(),
        currency: "USD".into(),
        lines: vec![line],
    };
    let bill = Event::new("acme".into(), begin, Payload::BillSet(Box::new(bill)));
    let pods = [pod("acme", 30, "a", 1), pod_stop("acme", 150, "a")];
    [start, bill].map(EventRecord::new).into_iter().chain(pods).collect()
}
