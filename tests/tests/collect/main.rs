//! Runs `prorata collect` on a real Kubernetes API server. Three accounts of the pods agree to the second: an
//! undisturbed watch, the collected events, and the table that they fold into.
//!
//! `tests/python/servers.py --kubernetes --kafka 1 --registry` starts the servers, so these tests need the
//! feature `servers`. `PRORATA_COLLECT_PODS` sets a larger number of pods.

#![expect(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "helpers of tests")]

mod day;
mod faults;
mod kinds;
mod pods;
mod refusals;
mod shares;
mod size;
mod stage;
mod storm;
mod topics;
mod usage;

use std::thread::sleep;
use std::time::{Duration, Instant};

use prorata_testkit::wait::eventually;
use rand::prelude::*;
use rand_chacha::ChaCha8Rng;
use serde_json::{Value, json};

use stage::{cluster, collector, lives, meters, played, scene};

use cluster::{pod, pod_spec, restart};
use collector::Room;
use lives::{Watcher, events, said, seconds_of};
use scene::{Scene, alone, shared};

/// The script contains Deployments, a job, a stateful set, a resize, evictions and forced deletes.
#[test]
fn a_scripted_run_is_reported_to_the_second() {
    let scene = Scene::open(shared(), "script", 2, Room::new("exec", &["relist_interval: 3s"]));
    let Scene { cluster, pods, .. } = &scene;
    let program = scene.room.collect();

    let selector = json!({ "matchLabels": { "app": "script" } });
    let template = json!({ "metadata": { "labels": { "app": "script" } }, "spec": pod_spec("script") });
    let deployments = "/apis/apps/v1/namespaces/script/deployments";
    let spec = json!({ "replicas": 6, "selector": selector, "template": template });
    cluster.create(deployments, json!({ "metadata": { "name": "web" }, "spec": spec }));
    let mut job = template.clone();
    job["spec"]["restartPolicy"] = "Never".into();
    let spec = json!({ "completions": 4, "parallelism": 2, "template": job });
    let jobs = "/apis/batch/v1/namespaces/script/jobs";
    cluster.create(jobs, json!({ "metadata": { "name": "train" }, "spec": spec }));
    cluster.create(pods, pod("forced", "script"));
    cluster.create(pods, pod("lone", "script"));
    eventually("pods run and the job is done", || {
        let running = cluster.list(pods).iter().filter(|pod| pod["status"]["phase"] == "Running").count();
        let done = cluster.get(&format!("{jobs}/train")).unwrap()["status"]["succeeded"] == 4;
        if running == 8 && done { Ok(()) } else { Err(format!("{running} run, done: {done}")) }
    });
    let container = json!({ "name": "main", "resources": { "requests": { "cpu": "100m" } } });
    let spec = json!({ "containers": [container] });
    cluster.patch(&format!("{pods}/lone/resize"), json!({ "spec": spec }));
    scene.delete("forced", Some(0));
    cluster.patch(&format!("{deployments}/web"), json!({ "spec": { "replicas": 2 } }));
    sleep(Duration::from_secs(3));
    cluster.delete(&format!("{deployments}/web"), None);
    scene.delete("lone", None);
    cluster.delete(&format!("{jobs}/train"), None);
    cluster.emptied(pods);
    // Each check agreed with the watches.
    let status = scene.room.status();
    assert!(
        status["kinds"]["Pod"]["lists"].as_u64() > Some(2) && status["repaired_objects"] == 0,
        "{status}"
    );
    scene.wait_until_reported();
    Room::stop(program).succeeded();
    let lives = scene.assert_accounts_agree();
    assert_eq!(lives.len(), 6 + 4 + 2);
}

/// Minimum time for which an API server keeps changes.
const FORGETS: Duration = Duration::from_secs(60);

/// Returns whether a collector has stored all but the last seconds of changes. A collector that has just
/// started may not answer yet.
fn has_caught_up(room: &Room) -> bool {
    let answer = room.ask("/status").unwrap_or_default();
    let status: Value =
        serde_json::from_str(answer.split("\r\n\r\n").nth(1).unwrap_or_default()).unwrap_or_default();
    status["ready"] == true && status["lag_seconds"].as_f64().is_some_and(|lag| lag < 5.0)
}

/// A collector that is killed at random loses nothing and never contradicts itself.
#[test]
fn killed_at_random_nothing_is_lost() {
    let seed = rand::random::<u64>();
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    println!("seed {seed}");
    let count = std::env::var("PRORATA_COLLECT_PODS").map_or(300, |count| count.parse().unwrap());
    // Pods of other tests may wait for their nodes meanwhile.
    let scene = Scene::open(shared(), "crowd", 3, Room::new("token", &[]));
    let room = &scene.room;
    let mut program = room.collect();
    let (acting, paths) = (scene.cluster.clone(), scene.pods.clone());
    let crowd = std::thread::spawn(move || {
        for batch in 0..count / 30 {
            let name = |number| format!("pod-{batch}-{number}");
            acting.create_all(&paths, (0..30).map(|number| pod(&name(number), "crowd")).collect());
            sleep(Duration::from_millis(1_000));
            for number in (0..30).filter(|number| number % 3 != 0) {
                acting.delete(&format!("{paths}/{}", name(number)), (number % 3 == 1).then_some(0));
            }
        }
        for left in acting.list(&paths) {
            let name = left["metadata"]["name"].as_str().unwrap();
            acting.delete(&format!("{paths}/{name}"), None);
        }
        acting.emptied(&paths);
    });
    let mut kills = 0;
    let mut caught_up = Instant::now();
    while !crowd.is_finished() {
        sleep(Duration::from_millis(random.random_range(200..2_500)));
        // The API server keeps about 75 seconds of changes: a collector that needs longer loses older ones.
        if caught_up.elapsed() > FORGETS / 4 {
            eventually("a collector catches up", || crowd.is_finished() || has_caught_up(room));
            caught_up = Instant::now();
        }
        program.kill();
        kills += 1;
        program = room.start(&["--output", room.events().to_str().unwrap()]);
    }
    crowd.join().unwrap();
    room.ready(&mut program);
    scene.wait_until_reported();
    Room::stop(program).succeeded();
    assert!(kills > 3, "killed {kills} times");
    let lives = scene.assert_accounts_agree();
    assert!(lives.len() >= count / 30 * 30 / 2, "{} of {count} pods were bound", lives.len());
}

/// The API server is killed while the collector follows it, and again while no collector runs and pods come
/// and go. Pods that went unseen end with the reason `lost`, even if another pod has their name. All other
/// pods are exact to the second.
#[test]
fn the_api_server_is_restarted() {
    let mut scene = Scene::open(alone(), "restart", 1, Room::new("exec", &[]));
    let mut program = scene.room.collect();
    scene.create("before", 5);
    scene.room.follows(5);
    restart("kube-apiserver");
    eventually("the API server is back", || scene.cluster.try_get("/readyz"));
    scene.create("between", 5);
    scene.room.follows(10);
    assert_eq!(scene.room.status()["missed_stops"], 0);

    // The previous watch ended with the server.
    scene.watcher = Watcher::start(&scene.cluster, &scene.pods);
    eventually("all is stored", || match said(&events(&scene.room.events()), "restart").len() {
        10 => Ok(()),
        known => Err(format!("{known} pods are")),
    });
    program.kill();
    scene.cluster.create(&scene.pods, pod("unseen", "restart"));
    // A pod that is deleted before it is bound has no life, and a scheduler may be slow after a restart.
    scene.runs("unseen");
    for name in ["before-0", "before-1", "unseen"] {
        scene.delete(name, None);
    }
    eventually("three are gone", || match scene.cluster.list(&scene.pods).len() {
        8 => Ok(()),
        left => Err(format!("{left} are left")),
    });
    scene.cluster.create(&scene.pods, pod("before-1", "restart"));
    scene.runs("before-1");
    let hidden = eventually("three ends are seen", || {
        let mut ended = scene.watcher.lives_so_far();
        ended.retain(|_, life| life.end.is_some());
        if ended.len() == 3 { Ok(ended) } else { Err(format!("{ended:?}")) }
    });
    restart("kube-apiserver");
    eventually("the API server is back", || scene.cluster.try_get("/readyz"));
    scene.watcher = Watcher::start(&scene.cluster, &scene.pods);
    let program = scene.room.collect();
    eventually("two missed stops", || match scene.room.status()["missed_stops"].as_u64() {
        Some(2) => Ok(()),
        _ => Err(scene.room.status().to_string()),
    });
    scene.clear();
    scene.wait_until_reported();
    Room::stop(program).succeeded();
    let mut reported = said(&events(&scene.room.events()), "restart");
    let lost = reported.extract_if(.., |uid, _| hidden.contains_key(uid)).collect::<Vec<_>>();
    assert_eq!(reported, scene.watcher.lives());
    // A pod that went unseen ends no later than it really did, within the second to which the API server's
    // clock is known. Pods that came and went unseen are not reported.
    assert_eq!((lost.len(), reported.len()), (2, 9), "{lost:?}");
    for (uid, life) in &lost {
        let (ran, real) = (seconds_of(life).unwrap(), seconds_of(&hidden[uid]).unwrap());
        assert!(ran <= real + 1, "{life:?}, and it was {:?}", hidden[uid]);
    }
}
