//! Somebody else has changed a root. A worker reports the change and its place, stops, and continues once the
//! root is fixed.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use prorata_schemas::tables::Table;
use prorata_testkit::wait::eventually;
use prorata_tests::lake::StoredLake;
use serde_json::{Value, json};

use super::world::{Load, World};

/// The table into which somebody else writes.
const TABLE: Table = Table::CostAllocation;

fn load(seed: u64) -> Load {
    Load { organizations: 4, pods: 8, hours: 3, ..Load::small(seed) }
}

/// Starts a worker that takes this load after `before` messages, and stops it. Returns the new number of
/// messages.
fn take(world: &World, before: i64, load: Load) -> i64 {
    let mut worker = world.worker();
    let messages = before + world.send(load);
    world.drained(std::slice::from_mut(&mut worker), messages);
    worker.stop();
    messages
}

fn copy(from: &Path, to: &Path) {
    assert!(Command::new("cp").arg("-r").args([from, to]).status().unwrap().success(), "{from:?}");
}

/// Replaces a folder with a copy of another folder.
fn replace(folder: &Path, with: &Path) {
    if folder.exists() {
        std::fs::remove_dir_all(folder).unwrap();
    }
    copy(with, folder);
}

#[test]
fn checkpoints_older_than_the_tables_are_a_loud_stop() {
    let mut world = World::new("behind");
    let [first, second, third] = [101, 102, 103].map(load);
    let state = Path::new(&world.root).join("state");
    let [old, new] = ["old", "new"].map(|name| world.folder.path().join(name));
    let messages = take(&world, 0, first);
    copy(&state, &old);
    let messages = take(&world, messages, second);
    std::fs::rename(&state, &new).unwrap();
    let tables = world.lake().tables();
    let stops = || {
        let words = ["state_behind_tables: ", " knows checkpoint ", "the newest under state/ is "];
        let ways_out = ["restore the missing checkpoints", "start a new root"];
        world.worker().stops_loudly(&[&words[..], &ways_out].concat());
        assert_eq!(world.lake().tables(), tables);
    };
    // The state is missing, and then it is an earlier copy.
    stops();
    replace(&state, &old);
    stops();
    stops();

    // With the state restored, the worker continues as if nothing had happened.
    replace(&state, &new);
    let messages = take(&world, messages, third);
    world.assert_law(&[first, second, third]);
    let expected = StoredLake::open(&world.root, Arc::clone(&world.runtime));
    // A new root starts with the earliest messages.
    world.root = world.folder.path().join("another").to_str().unwrap().to_owned();
    let mut worker = world.worker();
    world.drained(std::slice::from_mut(&mut worker), messages);
    worker.stop();
    world.lake().assert_equals(&expected, world.through());
}

/// A table's log, as another writer sees it.
struct Log {
    table: PathBuf,
}

impl Log {
    fn of(world: &World) -> Self {
        Self { table: Path::new(&world.root).join(TABLE.name()) }
    }

    /// Returns the log's commits in order.
    fn commits(&self) -> Vec<PathBuf> {
        let entries = std::fs::read_dir(self.table.join("_delta_log")).unwrap();
        let paths = entries.map(|entry| entry.unwrap().path());
        let mut commits: Vec<PathBuf> =
            paths.filter(|path| path.extension().is_some_and(|extension| extension == "json")).collect();
        commits.sort();
        commits
    }

    /// Returns the `add` actions of live files by path.
    fn live(&self) -> BTreeMap<String, Value> {
        let mut live = BTreeMap::new();
        for commit in self.commits() {
            for line in std::fs::read_to_string(commit).unwrap().lines() {
                let action: Value = serde_json::from_str(line).unwrap();
                if let Some(path) = action["remove"]["path"].as_str() {
                    live.remove(path);
                }
                if let Some(path) = action["add"]["path"].as_str() {
                    live.insert(path.to_owned(), action["add"].clone());
                }
            }
        }
        live
    }

    /// Commits removals and additions of files.
    fn commit(&self, operation: &str, removes: &[&Value], adds: &[&Value]) {
        let removes = removes.iter().map(|add| {
            let (path, values) = (&add["path"], &add["partitionValues"]);
            json!({ "remove": { "path": path, "partitionValues": values, "size": add["size"],
                "extendedFileMetadata": true, "deletionTimestamp": add["modificationTime"],
                "dataChange": false } })
        });
        let adds = adds.iter().map(|add| json!({ "add": add }));
        let info = json!({ "commitInfo": { "timestamp": 1, "operation": operation } });
        let lines: Vec<String> =
            [info].into_iter().chain(removes).chain(adds).map(|action| action.to_string()).collect();
        let version = self.commits().len();
        let path = self.table.join(format!("_delta_log/{version:020}.json"));
        assert!(!path.exists(), "{path:?}");
        std::fs::write(path, lines.join("\n")).unwrap();
    }

    /// Copies a file to a foreign name, without adding the copy to a table. Returns the `add` action of the
    /// copy.
    fn foreign(&self, of: &Value) -> Value {
        let path = of["path"].as_str().unwrap();
        let (folder, _) = path.split_once('/').unwrap();
        let name = format!("{folder}/part-00000-c000.snappy.parquet");
        std::fs::copy(self.table.join(path), self.table.join(&name)).unwrap();
        let mut foreign = of.clone();
        foreign["path"] = json!(name);
        foreign
    }
}

/// Parts of the message about a file.
fn words(foreign: &Value) -> [String; 3] {
    let path = foreign["path"].as_str().unwrap();
    [
        format!("foreign_file: {path} in {} was not written by prorata", TABLE.name()),
        "remove it from the table".to_owned(),
        "restore the table to a version before it".to_owned(),
    ]
}

fn stops(world: &World, foreign: &Value) {
    let before = Log::of(world).commits();
    for _ in 0..2 {
        world.worker().stops_loudly(&words(foreign).each_ref().map(String::as_str));
    }
    assert_eq!(Log::of(world).commits(), before);
}

#[test]
fn a_file_that_somebody_else_adds_to_a_table_is_a_loud_stop() {
    let world = World::new("foreign");
    let [first, second, third] = [104, 105, 106].map(load);
    let mut worker = world.worker();
    let messages = world.send(first);
    world.drained(std::slice::from_mut(&mut worker), messages);
    let log = Log::of(&world);
    let foreign = log.foreign(log.live().values().next().unwrap());
    log.commit("WRITE", &[], &[&foreign]);
    // The worker sees the file when it changes the file's partition.
    let messages = messages + world.send(second);
    worker.stops_loudly(&words(&foreign).each_ref().map(String::as_str));
    stops(&world, &foreign);
    // The way out is to remove the file.
    log.commit("DELETE", &[&foreign], &[]);
    take(&world, messages, third);
    world.assert_law(&[first, second, third]);
}

#[test]
fn a_table_whose_files_somebody_else_has_put_together_is_a_loud_stop() {
    let world = World::new("compacted");
    let [first, second] = [107, 108].map(load);
    let messages = take(&world, 0, first);
    let log = Log::of(&world);
    let live = log.live();
    let [one, other] = [live.values().next().unwrap(), live.values().nth(1).unwrap()];
    let foreign = log.foreign(one);
    log.commit("OPTIMIZE", &[one, other], &[&foreign]);
    stops(&world, &foreign);
    // The way out is to restore the table.
    log.commit("RESTORE", &[&foreign], &[one, other]);
    take(&world, messages, second);
    world.assert_law(&[first, second]);
}

/// Returns the archive files of one shard.
fn archived(world: &World, shard: u16) -> Vec<PathBuf> {
    let mut folders = vec![Path::new(&world.root).join(format!("events/shard={shard:04}"))];
    let mut files = Vec::new();
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()) {
            if entry.is_dir() { folders.push(entry) } else { files.push(entry) }
        }
    }
    files
}

/// Follows the way out of a damaged archive file that has no copy. The file is deleted, and a copy of its
/// events is folded into its shard alone, while the worker continues with the others.
#[test]
fn a_damaged_archive_file_stops_its_shard_until_its_events_are_folded_again() {
    let world = World::new("damaged");
    let loads = [109, 110].map(|seed| Load { organizations: 12, ..load(seed) });
    let messages = take(&world, 0, loads[0]);
    let shard = (0..4).find(|shard| archived(&world, *shard).len() > 1).unwrap();
    let damaged = archived(&world, shard);
    for file in &damaged {
        let bytes = std::fs::read(file).unwrap();
        std::fs::write(file, &bytes[..bytes.len() / 2]).unwrap();
    }
    // The events are late, so their hours are read from the archive again.
    let mut worker = world.worker();
    let messages = messages + world.send(loads[1]);
    let reported = eventually("a shard is stopped", || match worker.stopped_shards().pop() {
        Some(reported) => Ok(reported),
        None => Err(worker.program.tail()),
    });
    let way_out =
        format!("fold a copy of its events with 'prorata backfill --shards {shard} --without-archive-file");
    assert!(reported.contains("is damaged") && reported.contains(&way_out), "{reported}");

    damaged.iter().for_each(|file| std::fs::remove_file(file).unwrap());
    let root = Path::new(&world.root);
    let without = damaged.iter().map(|file| file.strip_prefix(root).unwrap().to_str().unwrap());
    let without: Vec<&str> = without.flat_map(|path| ["--without-archive-file", path]).collect();
    let copy = world.folder.path().join("copy");
    world.write(loads[0], &copy);
    let (shard, copy, config) = (shard.to_string(), copy.to_str().unwrap(), world.config());
    let arguments = ["backfill", "--shards", &shard, "--events", copy, "--lake", &world.root, "--config"];
    world.run(&[&arguments[..], &[config.to_str().unwrap()], &without].concat()).succeeded();
    // The worker continues with the shard automatically.
    world.drained(std::slice::from_mut(&mut worker), messages);
    worker.ready();
    worker.stop();
    world.assert_law(&loads);
}
