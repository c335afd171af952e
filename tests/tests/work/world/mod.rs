//! The setting of a test: topics and a group of its own on the shared Kafka, a folder, a configuration, and
//! load.

pub mod events;
pub mod registry;
pub mod topics;
pub mod worker;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, RwLock, RwLockReadGuard};
use std::time::{SystemTime, UNIX_EPOCH};

use prorata_schemas::time::Hour;
use prorata_testkit::wait::eventually;
use prorata_tests::kafka::admin::create_topics;
use prorata_tests::lake::{Goal, StoredLake};
use prorata_tests::program::{Ended, Program, prorata};
use serde_json::{Map, Value, json};
use tempfile::TempDir;
use tokio::runtime::Runtime;

use self::topics::Admin;
use self::worker::Worker;

/// Number of partitions of every topic.
pub const SHARDS: u16 = 4;

/// A lock that every test holds for reading. The test that kills brokers holds it for writing.
pub static BROKERS: RwLock<()> = RwLock::new(());

/// Parameters of a generated load.
#[derive(Clone, Copy, Debug)]
pub struct Load {
    /// Seed of all random choices.
    pub seed: u64,
    /// Number of organizations.
    pub organizations: u32,
    /// Number of pods at a time in each organization.
    pub pods: u32,
    /// Length in hours. The hours end one hour before the test began.
    pub hours: i64,
}

impl Load {
    /// A load with rows for every table that is small enough for a busy machine.
    pub const fn small(seed: u64) -> Self {
        Self { seed, organizations: 5, pods: 15, hours: 5 }
    }
}

/// The setting of one test.
pub struct World {
    /// The test's folder.
    pub folder: TempDir,
    /// Prefix of its topics, and its group.
    pub name: String,
    /// The test's topics.
    pub topics: Vec<String>,
    /// Folder or URL of its root.
    pub root: String,
    /// The hour in which the test began.
    pub now: Hour,
    /// Runtime for asynchronous calls.
    pub runtime: Arc<Runtime>,
    settings: Map<String, Value>,
    /// Environment of workers.
    environment: BTreeMap<String, String>,
    _brokers: Option<RwLockReadGuard<'static, ()>>,
}

/// Returns a variable that `servers.py` sets.
pub fn variable(name: &str) -> String {
    std::env::var(name).unwrap_or_else(|_| {
        panic!("no {name}: run tests/python/servers.py --kafka 3 --kafka-sasl --registry --s3 cargo test ..")
    })
}

/// Returns a number from the environment, such as the length of a loop.
pub fn tuned(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |text| text.parse().unwrap_or_else(|_| panic!("{name}={text}")))
}

/// Returns the number of rounds of a fault loop.
pub fn rounds() -> u64 {
    tuned("PRORATA_CHAOS_ROUNDS", 4)
}

impl World {
    /// Creates a world with two topics, a registry, and durations so short that hours close soon after their
    /// events.
    pub fn new(name: &str) -> Self {
        let brokers = BROKERS.read().unwrap_or_else(std::sync::PoisonError::into_inner);
        Self { _brokers: Some(brokers), ..Self::alone(name) }
    }

    /// Like [`Self::new`], for a test that has locked the brokers itself.
    pub fn alone(name: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
        let name = format!("{name}-{}-{}", std::process::id(), since.as_millis() % 1_000_000);
        let topics = vec![format!("{name}-a"), format!("{name}-b")];
        let root = folder.path().join("lake").to_str().unwrap().to_owned();
        let now = Hour(i64::try_from(since.as_secs() / 3_600).unwrap());
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
        let runtime = Arc::new(runtime.unwrap());
        let mut world = Self {
            folder,
            name: name.clone(),
            topics,
            root,
            now,
            runtime,
            settings: Map::new(),
            environment: BTreeMap::new(),
            _brokers: None,
        };
        for (key, value) in [
            ("root.shards", json!(SHARDS)),
            // Shorter than the default: tests of old events fold every hour since.
            ("root.horizon", json!("35d")),
            ("kafka.bootstrap_servers", json!(variable("PRORATA_TEST_KAFKA"))),
            ("kafka.group_id", json!(name)),
            ("kafka.session_timeout", json!("6s")),
            ("registry.url", json!(variable("PRORATA_TEST_REGISTRY"))),
            ("registry.timeout", json!("20s")),
            ("work.out_of_orderness", json!("1s")),
            ("work.idle_timeout", json!("1s")),
            ("work.max_watermark_hold", json!("10s")),
            // Few events are in a shard, so a checkpoint is made every second.
            ("work.checkpoint_interval", json!("100ms")),
            ("work.drain_timeout", json!("20s")),
            // Late events are folded at once, because the tests wait for it.
            ("work.max_restate_delay", json!("0s")),
            ("work.threads", json!(1)),
            ("http.listen", json!("127.0.0.1:0")),
            ("log.level", json!("info")),
            ("log.format", json!("json")),
        ] {
            world.set(key, value);
        }
        world.create(&world.topics, SHARDS);
        world
    }

    /// Sets a configuration key.
    pub fn set(&mut self, key: &str, value: Value) {
        let (section, key) = key.split_once('.').unwrap();
        let section = self.settings.entry(section).or_insert_with(|| json!({}));
        section[key] = value;
    }

    /// Sets a variable of the workers' environment.
    pub fn environment(&mut self, key: &str, value: &str) {
        self.environment.insert(key.to_owned(), value.to_owned());
    }

    /// Creates topics with a replica on each broker, but at most three replicas.
    pub fn create(&self, topics: &[String], partitions: u16) {
        let brokers = variable("PRORATA_TEST_KAFKA");
        let copies = i32::try_from(brokers.split(',').count().min(3)).unwrap();
        let names: Vec<&str> = topics.iter().map(String::as_str).collect();
        self.runtime.block_on(create_topics(&brokers, &names, i32::from(partitions), copies));
    }

    /// Writes the current configuration.
    pub fn config(&self) -> PathBuf {
        let mut settings = Value::Object(self.settings.clone());
        settings["root"]["url"] = json!(self.root);
        if settings["kafka"]["topics"].is_null() {
            settings["kafka"]["topics"] = json!(self.topics);
        }
        // Each configuration has its own file, because a program may still be reading an older one. JSON is
        // YAML.
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let path = self.folder.path().join(format!("{}.yaml", NEXT.fetch_add(1, Ordering::Relaxed)));
        std::fs::write(&path, settings.to_string()).unwrap();
        path
    }

    /// Returns a command of the program with its arguments, in the test's environment.
    pub fn command(&self, arguments: &[&str]) -> Command {
        let mut command = prorata();
        command.args(arguments).current_dir(self.folder.path());
        command
    }

    /// Runs a command to its end.
    pub fn run(&self, arguments: &[&str]) -> Ended {
        let name = arguments.first().copied().unwrap_or("prorata");
        Program::start(self.command(arguments), name, self.folder.path()).wait()
    }

    /// Starts a worker.
    pub fn worker(&self) -> Worker {
        self.worker_with(&[])
    }

    /// Starts a worker with further settings, as variables of the environment.
    pub fn worker_with(&self, variables: &[(&str, &str)]) -> Worker {
        let config = self.config();
        let mut command = self.command(&["work", "--config", config.to_str().unwrap()]);
        command.envs(&self.environment).envs(variables.iter().copied());
        Worker::new(Program::start(command, "work", self.folder.path()))
    }

    /// Starts a worker of another release.
    #[cfg(feature = "upgrade")]
    pub fn worker_of(&self, binary: &str) -> Worker {
        let mut command = Command::new(binary);
        let config = self.config();
        command.args(["work", "--config", config.to_str().unwrap()]).current_dir(self.folder.path());
        Worker::new(Program::start(command, "work", self.folder.path()))
    }

    fn generate(&self, load: Load, more: &[&str]) -> Command {
        let start = Hour(self.now.0 - 1 - load.hours);
        let mut command = self.command(&["generate"]);
        for (option, value) in [
            ("--seed", load.seed.to_string()),
            ("--organizations", load.organizations.to_string()),
            ("--pods", load.pods.to_string()),
            ("--hours", load.hours.to_string()),
            ("--start", start.to_string()),
        ] {
            command.args([option, &value]);
        }
        command.args(more);
        command
    }

    /// Starts to send load to the topics, at most `rate` events a second.
    pub fn start_sending(&self, load: Load, rate: Option<u32>) -> Program {
        let config = self.config();
        let mut command = self.generate(load, &["--output", "kafka", "--config", config.to_str().unwrap()]);
        for topic in &self.topics {
            command.args(["--topic", topic]);
        }
        if let Some(rate) = rate {
            command.args(["--rate", &rate.to_string()]);
        }
        Program::start(command, "generate", self.folder.path())
    }

    /// Sends load to the topics. Returns the number of messages.
    pub fn send(&self, load: Load) -> i64 {
        sent(self.start_sending(load, None))
    }

    /// Writes load into a folder. Returns the number of events.
    pub fn write(&self, load: Load, folder: &Path) -> i64 {
        let generate = self.generate(load, &["--output", folder.to_str().unwrap()]);
        sent(Program::start(generate, "generate", self.folder.path()))
    }

    /// Returns the last hour to compare: the hour after the last hour with events.
    pub fn through(&self) -> Hour {
        Hour(self.now.0 - 1)
    }

    /// The workers' lake.
    pub fn lake(&self) -> StoredLake {
        StoredLake::open(&self.root, Arc::clone(&self.runtime))
    }

    /// Waits until this many messages are taken, and all hours are closed and published. Fails if a worker
    /// ends meanwhile. A generator delivers at least once, so any further messages on the topics are taken
    /// too.
    pub fn drained(&self, workers: &mut [Worker], messages: i64) {
        let (_, ends) = Admin::new(self).ranges(&self.topics);
        let messages = messages.max(ends.values().sum());
        let (lake, goal) = (self.lake(), Goal { messages, through: self.through() });
        eventually("the workers are through", || {
            workers.iter_mut().for_each(|worker| worker.program.assert_running());
            lake.reached(goal).map_err(|missing| {
                let tails = workers.iter().map(|worker| worker.program.tail());
                missing + &tails.collect::<String>()
            })
        });
    }

    /// Runs a backfill of these events into a fresh lake.
    pub fn backfill(&self, events: &str, name: &str) -> StoredLake {
        let lake = self.folder.path().join(name);
        let (config, to) = (self.config(), self.through().to_string());
        let (lake, config) = (lake.to_str().unwrap(), config.to_str().unwrap());
        self.run(&["backfill", "--events", events, "--lake", lake, "--to", &to, "--config", config])
            .succeeded();
        StoredLake::open(lake, Arc::clone(&self.runtime))
    }

    /// Fails unless the lake equals a backfill of these loads.
    pub fn assert_law(&self, loads: &[Load]) {
        let events = self.folder.path().join("events");
        for (index, load) in loads.iter().enumerate() {
            self.write(*load, &events.join(index.to_string()));
        }
        let expected = self.backfill(events.to_str().unwrap(), "expected");
        self.lake().assert_equals(&expected, self.through());
    }
}

/// Returns the number of events that a generator says it has sent or written.
pub fn sent(generator: Program) -> i64 {
    let output = generator.wait().succeeded();
    output.split(' ').next().unwrap().parse().unwrap_or_else(|_| panic!("{output}"))
}
