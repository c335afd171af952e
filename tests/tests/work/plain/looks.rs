//! People look at the lake of a worker that keeps writing. Every answer is true at every time.

use std::collections::BTreeSet;
use std::slice::from_mut;
use std::time::Duration;

use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::record::Field;
use prorata_schemas::tables::Table;
use prorata_schemas::time::Hour;
use prorata_testkit::wait::eventually;
use prorata_tests::lake::{EVERY_HOUR, StoredLake};
use prorata_tests::program::Ended;
use prorata_tests::proxy::{Proxy, Weather};
use prorata_worker::names;
use serde_json::{Value, json};

use crate::world::{Load, World, sent, variable};

/// Number of events a second, chosen so that the load lasts a minute.
const RATE: u32 = 150;
/// True findings about a lake whose worker has not folded or published everything yet.
const UNFOLDED: [&str; 5] = ["dirty", "incomplete", "not_published", "unpriced", "never_matched"];
const TOO_FAST: &str = "a worker writes the lake faster than its tables and checkpoints can be compared";
const READ_AGAIN: &str = "reading the lake again";

/// Numbers of looks and their results.
#[derive(Debug, Default)]
struct Looks {
    checks: usize,
    /// Number of explanations that agree with the table.
    explained: usize,
    /// Hours that were explained.
    hours: BTreeSet<Hour>,
    /// Number of explanations that report what the hour waits for.
    waiting: usize,
    /// Number of repeated reads of the lake.
    again: usize,
    /// Number of checks that report that the worker writes too fast.
    gave_up: usize,
}

impl Looks {
    fn asked(&self) -> usize {
        self.checks + self.gave_up + self.explained + self.waiting
    }

    fn run(&mut self, world: &World, arguments: &[&str]) -> (Ended, Value) {
        let ended = world.run(&[arguments, &["--lake", &world.root, "--json"]].concat());
        self.again += ended.log.matches(READ_AGAIN).count();
        let document = serde_json::from_str(&ended.output).unwrap_or_default();
        (ended, document)
    }

    /// Runs a check, and fails if it finds anything except `UNFOLDED`. Counts a check that gives up because
    /// the worker writes too fast.
    fn check(&mut self, world: &World) {
        let (ended, report) = self.run(world, &["check"]);
        if ended.code == Some(4) && ended.log.contains(TOO_FAST) {
            self.gave_up += 1;
            return;
        }
        let findings = report["findings"].as_array().unwrap_or_else(|| panic!("{ended:?}")).iter();
        let wrong: Vec<_> =
            findings.filter(|finding| !UNFOLDED.contains(&finding["problem"].as_str().unwrap())).collect();
        assert!(wrong.is_empty(), "{wrong:#?} {}", ended.log);
        self.checks += 1;
    }

    /// Explains a pod, whose figures agree with the table. If they do not, the answer says that a late event
    /// is not folded yet, or a revision not published. A late event may also have ended the pod before the
    /// hour.
    fn explain(&mut self, world: &World, hour: Hour) {
        let lake = world.lake();
        let Some(pod) = pods(&lake, hour).pop_first() else { return };
        let arguments = ["explain", "--hour", &hour.to_string(), "--pod", &pod];
        let (ended, document) = self.run(world, &arguments);
        let waits = document["is_dirty"] == true || document["is_published"] == false;
        match ended.code {
            Some(0) => self.explained += 1,
            Some(1) if waits => self.waiting += 1,
            Some(2) if !pods(&lake, hour).contains(&pod) => {}
            _ => panic!("{arguments:?}: {ended:?}"),
        }
        self.hours.insert(hour);
    }
}

/// Returns the hours with cost rows.
fn hours(lake: &StoredLake) -> BTreeSet<Hour> {
    let files = lake.files(EVERY_HOUR).into_keys();
    files.filter(|(table, ..)| *table == Table::CostAllocation).map(|(.., hour)| hour).collect()
}

/// Returns the pods of an hour.
fn pods(lake: &StoredLake, hour: Hour) -> BTreeSet<String> {
    let files = lake.files(hour).into_iter();
    let files = files.filter(|((table, _, of), _)| (*table, *of) == (Table::CostAllocation, hour));
    let paths = files.flat_map(|((table, ..), files)| {
        files.into_iter().map(move |file| format!("{}/{}", names::table(table), file.path()))
    });
    let mut pods = BTreeSet::new();
    for path in paths {
        let reader = SerializedFileReader::new(lake.object(&path)).unwrap();
        for row in reader.get_row_iter(None).unwrap().map(Result::unwrap) {
            if let Some((_, Field::Str(pod))) = row.get_column_iter().find(|(name, _)| *name == "x_PodUid") {
                pods.insert(pod.clone());
            }
        }
    }
    pods
}

#[test]
fn check_and_explain_are_right_while_hours_close_and_are_restated() {
    let mut world = World::new("looks");
    world.root = format!("s3://{}/{}", variable("PRORATA_TEST_BUCKET"), world.name);
    // The slow store leaves time to look between a decision and the last of its commits.
    let proxy = Proxy::before(&variable("AWS_ENDPOINT_URL"));
    world.environment("AWS_ENDPOINT_URL", &proxy.url(&variable("AWS_ENDPOINT_URL")));
    world.set("work.checkpoint_interval", json!("2s"));
    let mut worker = world.worker();
    worker.ready();
    proxy.set(Weather::Slow(Duration::from_millis(5)));
    let load = Load { hours: 24, ..Load::small(91) };
    let mut generator = world.start_sending(load, Some(RATE));
    let lake = world.lake();
    eventually("an hour is closed", || hours(&lake).pop_first().ok_or("the table has no rows"));
    let mut looks = Looks::default();
    // On a busy machine there are few looks while events arrive, so looking continues afterwards.
    while generator.is_running() || looks.checks == 0 || looks.explained < 4 {
        looks.check(&world);
        // Each look takes a different hour, because late events may belong to much earlier hours.
        let closed: Vec<Hour> = hours(&lake).into_iter().collect();
        for look in 0..3 {
            looks.explain(&world, closed[(looks.asked() * 7 + look) % closed.len()]);
        }
    }
    let messages = sent(generator);
    world.drained(from_mut(&mut worker), messages);
    println!("{looks:?}, {} hours restated", worker.counter("hours_restated"));
    assert!(looks.again > 0 && worker.counter("hours_restated") > 0, "{looks:?}");
    worker.stop();
    world.assert_law(&[load]);
}
