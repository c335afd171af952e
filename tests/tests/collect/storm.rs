//! All faults in one run, while pods are created, resized and removed. The collector is killed, its
//! connections are cut, Kafka stops, and the API server that it follows is killed. A second API server of the
//! same cluster is left alone, and a watch there is the truth.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use prorata_schemas::event::{Event, Payload};
use prorata_schemas::time::Timestamp;
use prorata_testkit::wait::eventually;
use prorata_tests::program::Program;
use prorata_tests::proxy::{Proxy, Weather};
use rand::prelude::*;
use rand_chacha::ChaCha8Rng;
use serde_json::json;

use super::cluster::{Cluster, SecondServer, pod, restart};
use super::collector::Room;
use super::faults::{kubeconfig_through, server, stop_kafka_for};
use super::lives::{Life, Lives, Watcher, said_by_killed, second_of};
use super::scene::alone;
use super::topics::{room_with, sent};

/// Number of pods that are created at once.
const BATCH: usize = 20;

/// Exit code of a collector that finds no broker or no API server at its start.
const UNAVAILABLE: i32 = 4;

/// Maximum age of a collector's own status on a busy machine.
const SLACK_SECONDS: i64 = 15;

/// Pods of the storm, as the second API server shows them.
struct Crowd<'s> {
    cluster: &'s Cluster,
    pods: &'s str,
    made: AtomicUsize,
    resized: AtomicUsize,
}

impl Crowd<'_> {
    /// Creates, resizes and removes pods until there were `count` and the storm is over. Then repeats this
    /// with as many pods in the calm, where every time is reported exactly to the second.
    fn act(&self, count: usize, is_over: &AtomicBool) {
        let mut last = None;
        for batch in 0.. {
            if last.is_none() && batch * BATCH >= count && is_over.load(Ordering::Relaxed) {
                last = Some(2 * batch);
            }
            if last.is_some_and(|last| batch > last) {
                break;
            }
            let name = |number| format!("pod-{batch}-{number}");
            self.cluster
                .create_all(self.pods, (0..BATCH).map(|number| pod(&name(number), "storm")).collect());
            self.made.fetch_add(BATCH, Ordering::Relaxed);
            sleep(Duration::from_millis(600));
            for number in 0..BATCH {
                let path = format!("{}/{}", self.pods, name(number));
                match number % 4 {
                    0 => self.resize(&path),
                    1 => self.cluster.delete(&path, Some(0)),
                    2 => self.cluster.delete(&path, None),
                    // This pod runs for longer.
                    _ => {}
                }
            }
            // These pods were created some batches ago.
            for number in (0..BATCH).filter(|number| batch >= 5 && [0, 3].contains(&(number % 4))) {
                self.cluster.delete(&format!("{}/pod-{}-{number}", self.pods, batch - 5), None);
            }
        }
    }

    /// Tries to resize a pod, and counts the resize if it succeeds. It fails if the pod is not running yet.
    fn resize(&self, path: &str) {
        let container = json!({ "name": "main", "resources": { "requests": { "cpu": "100m" } } });
        let change = json!({ "spec": { "containers": [container] } });
        if self.cluster.try_patch(&format!("{path}/resize"), change).is_ok() {
            self.resized.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// Ends the actions of the crowd when it is dropped. Otherwise, they would continue forever after a failed
/// storm.
struct Over<'s>(&'s AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// The faults that the collector suffers.
struct Storm<'s> {
    random: ChaCha8Rng,
    room: &'s Room,
    proxy: &'s Proxy,
    program: Program,
    /// Spans in which ends may have gone unseen, in seconds as Kubernetes writes them.
    gaps: Vec<(String, String)>,
    kills: usize,
}

impl Storm<'_> {
    /// Applies each fault in random order.
    fn pass(&mut self) {
        let mut faults = [0, 0, 1, 1, 2, 3];
        faults.shuffle(&mut self.random);
        for fault in faults {
            sleep(Duration::from_millis(self.random.random_range(200..2_000)));
            match fault {
                0 => self.kill(),
                1 => self.cut(),
                2 => stop_kafka_for(Duration::from_secs(self.random.random_range(3..12)), || {}),
                _ => self.kill_api_server(),
            }
        }
    }

    fn kill(&mut self) {
        self.program.kill();
        self.kills += 1;
        sleep(Duration::from_millis(self.random.random_range(0..4_000)));
        self.program = self.room.start(&[]);
        // Sometimes it is killed again before it is ready.
        if self.random.random_bool(0.7) {
            self.ready();
        }
    }

    /// Waits until the collector is ready. Starts it again, as Kubernetes does, if it has found no broker or
    /// no API server at its start.
    fn ready(&mut self) {
        eventually("the collector is ready", || {
            if !self.program.is_running() {
                let next = self.room.start(&[]);
                let ended = std::mem::replace(&mut self.program, next).wait();
                assert_eq!(ended.code, Some(UNAVAILABLE), "{}{}", ended.output, ended.log);
            }
            self.room.is_ready()
        });
    }

    fn cut(&mut self) {
        let cut = Weather::Cut(self.random.random_range(1_000..100_000));
        let mut weathers = [cut, Weather::Refusing, Weather::Slow(Duration::from_millis(20))];
        weathers.shuffle(&mut self.random);
        for weather in weathers {
            self.proxy.set(weather);
            sleep(Duration::from_millis(self.random.random_range(200..1_500)));
        }
        self.proxy.set(Weather::Clear);
    }

    /// Kills the API server. Then a watch cannot continue from most earlier versions, so the collector lists.
    fn kill_api_server(&mut self) {
        self.ready();
        // Changes that it has not stored yet are only known from the list.
        let lag = || self.room.status()["lag_seconds"].as_f64().unwrap_or(f64::from(u16::MAX));
        let from = seconds_ago(lag() as i64 + SLACK_SECONDS);
        let is_killed = self.random.random_bool(0.5);
        if is_killed {
            self.program.kill();
            self.kills += 1;
        }
        restart("kube-apiserver");
        let first = Cluster::at(&server());
        eventually("the API server is back", || first.try_get("/readyz"));
        let (back, back_at) = (Instant::now(), seconds_ago(0));
        if is_killed {
            self.program = self.room.start(&[]);
            self.ready();
        }
        // The contact is a list, or a watch that continues because no pod changed meanwhile.
        eventually("pods are heard of", || match self.room.status() {
            status if status["kinds"]["Pod"]["last_contact_at"].as_str() > Some(&back_at) => Ok(()),
            status => Err(status.to_string()),
        });
        // A collector that is killed before it has stored a list lists again. It updates its lag once a
        // second.
        eventually("what was listed is stored", || match lag() {
            lag if lag + 1.0 <= back.elapsed().as_secs_f64() => Ok(()),
            lag => Err(format!("{lag} s behind")),
        });
        self.gaps.push((from, seconds_ago(0)));
    }
}

/// Formats a time as Kubernetes does.
fn seconds_ago(seconds: i64) -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
    second_of(Timestamp((i64::try_from(now).unwrap() - seconds) * 1_000_000))
}

/// Returns the uids of pods that events report as resized.
fn resized(events: &[Event]) -> BTreeSet<String> {
    let of = |event: &Event| match &event.payload {
        Payload::PodStarted(pod) => {
            let cpu = pod.requests.get("cpu").map(|quantity| quantity.text.to_string());
            (cpu.as_deref() == Some("100m")).then(|| pod.pod_uid.to_string())
        }
        _ => None,
    };
    events.iter().filter_map(of).collect()
}

/// Returns the differences between the pods' lives and the reports of them. Within a gap, a reported end may
/// be earlier, or later if the list has shown another description. A reported start may differ if the
/// scheduler has taken back the binding. A pod that came and went within a gap may be missing, or have a stop
/// alone.
fn differences(
    lives: &Lives,
    (reported, only_stopped): &(Lives, BTreeSet<String>),
    gaps: &[(String, String)],
) -> Vec<String> {
    let hides = |at: &str| gaps.iter().any(|(from, to)| from.as_str() <= at && at <= to.as_str());
    let agrees = |life: &Life, reported: Option<&Life>| {
        let hidden = life.end.as_deref().is_some_and(hides);
        match reported {
            Some(reported) => {
                let end_fits = |end: &str| Some(end) <= life.end.as_deref() || hides(end);
                let end_agrees =
                    reported.end == life.end || hidden && reported.end.as_deref().is_some_and(end_fits);
                end_agrees && (reported.start == life.start || hides(&life.start))
            }
            None => hidden && hides(&life.start),
        }
    };
    let missing = lives.iter().filter(|(uid, life)| !agrees(life, reported.get(*uid)));
    let missing = missing.map(|(uid, life)| format!("{uid}: {life:?}, reported {:?}", reported.get(uid)));
    let unknown = reported.keys().chain(only_stopped).filter(|uid| !lives.contains_key(*uid));
    let unknown = unknown.map(|uid| format!("{uid} was not there"));
    missing.chain(unknown).collect()
}

#[test]
fn nothing_is_lost_in_a_storm_but_what_nobody_can_know() {
    let _calm = alone();
    let seed = rand::random::<u64>();
    println!("seed {seed}");
    let count = std::env::var("PRORATA_COLLECT_PODS").map_or(200, |count| count.parse().unwrap());
    let second = SecondServer::start();
    let cluster = Cluster::at(&second.url);
    let pods = cluster.namespace("storm");
    for number in 0..6 {
        cluster.node(&format!("storm-{number}"), "storm");
    }
    let watcher = Watcher::start(&cluster, &pods);
    let proxy = Proxy::before(&server());
    // Most pods go at once, repeatedly, so a list without them is believed.
    let mut room = room_with("storm", &["mass_stop_confirmations: 1"]);
    room.use_kubeconfig(kubeconfig_through(&proxy, &room));
    let mut program = room.start(&[]);
    room.ready(&mut program);
    let random = ChaCha8Rng::seed_from_u64(seed);
    let (gaps, kills) = (Vec::new(), 0);
    let mut storm = Storm { random, room: &room, proxy: &proxy, program, gaps, kills };
    let (made, resizes) = Default::default();
    let crowd = Crowd { cluster: &cluster, pods: &pods, made, resized: resizes };
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let acting = scope.spawn(|| crowd.act(count, &is_over));
        let over = Over(&is_over);
        storm.pass();
        while !acting.is_finished() && crowd.made.load(Ordering::Relaxed) < count {
            storm.pass();
        }
        drop(over);
        acting.join().unwrap();
    });
    for left in cluster.list(&pods) {
        cluster.delete(&format!("{pods}/{}", left["metadata"]["name"].as_str().unwrap()), None);
    }
    cluster.emptied(&pods);
    storm.ready();
    let Storm { program, gaps, kills, .. } = storm;
    let lives = watcher.lives();
    eventually("all is reported", || {
        let reported = said_by_killed(&sent(&cluster, "storm"), "storm");
        let differ = differences(&lives, &reported, &gaps);
        if differ.is_empty() { Ok(()) } else { Err(format!("{differ:#?}, gaps {gaps:?}")) }
    });
    Room::stop(program).succeeded();
    let events = sent(&cluster, "storm");
    let reported = said_by_killed(&events, "storm");
    assert_eq!(differences(&lives, &reported, &gaps), Vec::<String>::new());
    let exact = lives.iter().filter(|(uid, life)| reported.0.get(*uid) == Some(life)).count();
    let (made, resizes) = (crowd.made.into_inner(), crowd.resized.into_inner());
    println!(
        "{made} pods, {} bound, {exact} to the second, {resizes} resized, {} so reported; {} kills, \
         {} restarts of the API server, {} connections harmed",
        lives.len(),
        resized(&events).len(),
        kills,
        gaps.len(),
        proxy.harmed()
    );
    assert!(lives.len() >= made / 2 && exact >= lives.len() / 2, "{exact} of {}", lives.len());
    assert!(kills > 1 && proxy.harmed() > 0 && !gaps.is_empty());
    assert!(resized(&events).len() >= resizes / 2, "{resizes} were resized");
}
