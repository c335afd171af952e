//! Roots that released versions wrote, in `testdata/roots`. This program opens them, continues with later
//! events, and restates old hours. The result equals the tables of a fresh backfill of the same events.

#![expect(clippy::unwrap_used, clippy::panic, reason = "helpers of tests")]

mod worker;

use std::collections::BTreeSet;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use prorata_schemas::tables::Table;
use prorata_schemas::time::Hour;
use prorata_tests::lake::{self, EVERY_HOUR, StoredLake};
use prorata_tests::program;
use serde_json::Value;
use tempfile::TempDir;
use tokio::runtime::Runtime;

/// A root as a version left it.
struct Stored {
    /// The version that wrote it.
    version: &'static str,
    /// The command that wrote the root: `backfill` or `worker`.
    by: &'static str,
    shards: u16,
    /// The first hour of rules `2`; `None` if they never came into force.
    second_rules: Option<&'static str>,
}

/// Every stored root. Each release adds its own roots, and none is removed.
const STORED: [Stored; 2] = [
    Stored { version: "0.2.0", by: "backfill", shards: 4, second_rules: Some("2026-11-02T18") },
    Stored { version: "0.2.0", by: "worker", shards: 2, second_rules: None },
];

const SECOND_RULES: &str = "rules:\n  version: \"2\"\n  weights:\n    cpu: \"0.5\"\n  allocation: requests\n";

impl Stored {
    fn path(&self, what: &str) -> PathBuf {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        root.join("testdata/roots").join(self.version).join(format!("{}{what}", self.by))
    }

    /// Unpacks the root into a folder.
    fn unpack(&self, folder: &Path) {
        let packed = File::open(self.path(".tar.zst")).unwrap();
        tar::Archive::new(zstd::Decoder::new(packed).unwrap()).unpack(folder).unwrap();
    }

    /// Runs a backfill of these events into a lake below `folder`, and returns its summary.
    fn backfill(&self, folder: &Path, events: &Path, lake: &str, rules: &str, args: &[&str]) -> Value {
        let config = folder.join("prorata.yaml");
        std::fs::write(&config, format!("root:\n  shards: {}\n{rules}", self.shards)).unwrap();
        let mut command = program::prorata();
        command.args(["backfill", "--json", "--config"]).arg(config).arg("--events").arg(events);
        command.arg("--lake").arg(folder.join(lake)).args(args);
        let output = command.output().unwrap();
        assert!(output.status.success(), "{}: {}", self.by, String::from_utf8_lossy(&output.stderr));
        serde_json::from_slice(&output.stdout).unwrap()
    }

    /// Returns the listing of dead letters in the lake.
    fn dead_letters(&self, folder: &Path) -> String {
        let mut command = program::prorata();
        let output =
            command.args(["dead-letters", "--json", "--lake"]).arg(folder.join("lake")).output().unwrap();
        let said = String::from_utf8(output.stdout).unwrap();
        assert!(output.status.success(), "{}: {}", self.by, String::from_utf8_lossy(&output.stderr));
        said
    }

    /// Checks that a worker's root keeps later hours open for its worker, unless `--to` names them. Any other
    /// root is closed through its last event.
    fn later_hours_are_the_workers_to_close(
        &self,
        folder: &Path,
        said: &Value,
        hours: impl Fn() -> BTreeSet<Hour>,
    ) {
        let open = said["not_closed"]["last"].as_str();
        assert_eq!(open.is_some(), self.by == "worker", "{said}");
        if let Some(last) = open {
            let closed = hours();
            assert!(closed.last().unwrap().to_string().as_str() < last, "{closed:?}");
            let said = self.backfill(folder, &folder.join("lake/events"), "lake", "", &["--to", last]);
            assert_eq!(said["events"]["new"], 0, "{said}");
            assert!(said["not_closed"].is_null(), "{said}");
            assert_eq!(hours().last().map(Hour::to_string).as_deref(), Some(last));
        }
    }

    fn continues_and_restates(&self, runtime: &Arc<Runtime>) {
        let temporary = TempDir::new().unwrap();
        let folder = temporary.path();
        self.unpack(folder);
        let open = |name: &str| StoredLake::open(folder.join(name).to_str().unwrap(), Arc::clone(runtime));
        let before = open("lake").files(EVERY_HOUR);
        assert!(self.dead_letters(folder).contains("malformed"), "{}", self.by);

        let said = self.backfill(folder, &self.path("-later"), "lake", "", &[]);
        assert!(said["events"]["new"].as_u64() > Some(0), "{said}");
        assert!(said["hours_restated"].as_u64() > Some(0), "{said}");
        let hours = |files: &lake::LiveFiles| -> BTreeSet<Hour> { files.keys().map(|key| key.2).collect() };
        self.later_hours_are_the_workers_to_close(folder, &said, || hours(&open("lake").files(EVERY_HOUR)));
        let after = open("lake").files(EVERY_HOUR);
        assert!(hours(&after).last() > hours(&before).last(), "{}: no hour is new", self.by);
        let kept = before.iter().filter(|(key, file)| after.get(key) == Some(file)).count();
        assert!(kept > 0, "{}: no file of before is kept", self.by);
        let restated = |key: &&(Table, u16, Hour)| after.get(key) != before.get(key);
        assert!(before.keys().any(|key| restated(&key)), "{}: nothing is restated", self.by);

        // The archive has every event that ever arrived.
        let events = folder.join("lake/events");
        self.backfill(folder, &events, "fresh", "", &[]);
        if let Some(from) = self.second_rules {
            self.backfill(folder, &events, "fresh", SECOND_RULES, &["--from", from]);
        }
        open("lake").assert_equals(&open("fresh"), EVERY_HOUR);
    }
}

#[test]
fn stored_roots_continue_and_restate() {
    let runtime = Arc::new(Runtime::new().unwrap());
    STORED.iter().for_each(|stored| stored.continues_and_restates(&runtime));
}
