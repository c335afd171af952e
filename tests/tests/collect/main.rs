//! `prorata collect` on a real Kubernetes API server: what pods did, by an undisturbed watch, by the
//! collected events and by the table that they fold into, is the same to the second.
//!
//! The servers are started by `tests/python/servers.py --kubernetes --kafka 1 --registry`, so these tests
//! stand behind the feature `servers`. `PRORATA_COLLECT_PODS` makes the crowd larger.

#![expect(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "helpers of tests")]

mod cluster;
mod collector;
mod faults;
mod kinds;
mod lives;
mod meters;
mod refusals;
mod topics;
mod usage;

use std::collections::BTreeMap;
use std::sync::{PoisonError, RwLock};
use std::thread::sleep;
use std::time::Duration;

use prorata_testkit::wait::eventually;
use rand::prelude::*;
use rand_chacha::ChaCha8Rng;
use serde_json::json;

use cluster::{Cluster, Restarted, pod, pod_spec};
use collector::Room;
use lives::{Lives, Watcher, events, running_seconds, said, seconds_of};

/// Who watches holds it for reading; who restarts a server, which ends all watches, for writing.
static CALM: RwLock<()> = RwLock::new(());

/// The three accounts agree on all pods, which have all ended.
fn assert_accounts_agree(room: &Room, watcher: &Watcher, namespace: &str) -> Lives {
    let lives = watcher.lives();
    assert!(lives.values().all(|life| life.end.is_some()), "{lives:?}");
    let all = events(&room.events());
    let told = said(&all, namespace);
    for (uid, life) in &lives {
        let of_pod: Vec<_> = all.iter().filter(|event| format!("{event:?}").contains(uid)).collect();
        assert_eq!(told.get(uid), Some(life), "events, and what {uid} did: {of_pod:#?}");
    }
    assert_eq!(told.len(), lives.len(), "pods that nobody saw");
    let lake = room.fold();
    let ran: BTreeMap<String, u64> =
        lives.iter().map(|(uid, life)| (uid.clone(), seconds_of(life).unwrap())).collect();
    let costed: BTreeMap<String, u64> = running_seconds(&lake, namespace);
    // A pod that started and ended within one second costs nothing, and may have no row.
    let ran: BTreeMap<_, _> = ran.into_iter().filter(|(_, seconds)| *seconds > 0).collect();
    let costed: BTreeMap<_, _> = costed.into_iter().filter(|(_, seconds)| *seconds > 0).collect();
    assert_eq!(costed, ran, "seconds in the table, and what pods did");
    lives
}

/// Waits until the events tell what the watcher saw: a collector that starts again reads what came since.
fn all_told(room: &Room, watcher: &Watcher, namespace: &str) {
    let lives = watcher.lives();
    eventually("all is told", || {
        let told = said(&events(&room.events()), namespace);
        let same = lives.iter().filter(|(uid, life)| told.get(*uid) == Some(life)).count();
        if same == lives.len() { Ok(()) } else { Err(format!("{same} of {} are", lives.len())) }
    });
}

/// Deployments, a job, a stateful set, a resize, evictions and forced deletes.
#[test]
fn a_scripted_run_is_told_to_the_second() {
    let _calm = CALM.read().unwrap_or_else(PoisonError::into_inner);
    let cluster = Cluster::open();
    let pods = cluster.namespace("script");
    cluster.node("script-0", "script");
    cluster.node("script-1", "script");
    let watcher = Watcher::start(&cluster, &pods);
    let room = Room::new("exec", &[]);
    let program = room.collect();

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
    cluster.create(&pods, pod("forced", "script"));
    cluster.create(&pods, pod("lone", "script"));
    eventually("pods run and the job is done", || {
        let running = cluster.list(&pods).iter().filter(|pod| pod["status"]["phase"] == "Running").count();
        let done = cluster.get(&format!("{jobs}/train")).unwrap()["status"]["succeeded"] == 4;
        if running == 8 && done { Ok(()) } else { Err(format!("{running} run, done: {done}")) }
    });
    let container = json!({ "name": "main", "resources": { "requests": { "cpu": "100m" } } });
    let spec = json!({ "containers": [container] });
    cluster.patch(&format!("{pods}/lone/resize"), json!({ "spec": spec }));
    cluster.delete(&format!("{pods}/forced"), Some(0));
    cluster.patch(&format!("{deployments}/web"), json!({ "spec": { "replicas": 2 } }));
    sleep(Duration::from_secs(3));
    cluster.delete(&format!("{deployments}/web"), None);
    cluster.delete(&format!("{pods}/lone"), None);
    cluster.delete(&format!("{jobs}/train"), None);
    cluster.emptied(&pods);
    Room::stop(program).succeeded();
    let lives = assert_accounts_agree(&room, &watcher, "script");
    assert_eq!(lives.len(), 6 + 4 + 2);
}

/// Killed at random, it loses nothing and says nothing twice that differs.
#[test]
fn killed_at_random_nothing_is_lost() {
    let _calm = CALM.read().unwrap_or_else(PoisonError::into_inner);
    let seed = rand::random::<u64>();
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    println!("seed {seed}");
    let count = std::env::var("PRORATA_COLLECT_PODS").map_or(300, |count| count.parse().unwrap());
    let cluster = Cluster::open();
    let pods = cluster.namespace("crowd");
    for number in 0..3 {
        cluster.node(&format!("crowd-{number}"), "crowd");
    }
    let watcher = Watcher::start(&cluster, &pods);
    let room = Room::new("token", &[]);
    let mut program = room.collect();
    let (acting, paths) = (cluster.clone(), pods.clone());
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
    while !crowd.is_finished() {
        sleep(Duration::from_millis(random.random_range(200..2_500)));
        program.kill();
        kills += 1;
        program = room.start(&["--to", room.events().to_str().unwrap()]);
    }
    crowd.join().unwrap();
    room.ready(&mut program);
    all_told(&room, &watcher, "crowd");
    Room::stop(program).succeeded();
    assert!(kills > 3, "killed {kills} times");
    let lives = assert_accounts_agree(&room, &watcher, "crowd");
    assert!(lives.len() >= count / 30 * 30 / 2, "{} of {count} pods were bound", lives.len());
}

/// The API server is killed while the collector follows, and again while no collector runs and pods come and
/// go: what is gone ends with the reason `lost`, and all else to the second.
#[test]
fn the_api_server_is_restarted() {
    let _calm = CALM.write().unwrap_or_else(PoisonError::into_inner);
    let cluster = Cluster::open();
    let pods = cluster.namespace("restart");
    cluster.node("restart-0", "restart");
    let room = Room::new("exec", &[]);
    let mut program = room.collect();
    let five = |name: &str| (0..5).map(|number| pod(&format!("{name}-{number}"), "restart")).collect();
    cluster.create_all(&pods, five("before"));
    room.follows(5);
    let server = Restarted::server("kube-apiserver", None);
    eventually("the API server is back", || cluster.try_get("/readyz"));
    cluster.create_all(&pods, five("between"));
    room.follows(10);
    assert_eq!(room.status()["lost_stops"], 0);

    let watcher = Watcher::start(&cluster, &pods);
    eventually("all is stored", || match said(&events(&room.events()), "restart").len() {
        10 => Ok(()),
        known => Err(format!("{known} pods are")),
    });
    program.kill();
    cluster.create(&pods, pod("unseen", "restart"));
    for name in ["before-0", "unseen"] {
        cluster.delete(&format!("{pods}/{name}"), None);
    }
    eventually("two are gone", || match cluster.list(&pods).len() {
        9 => Ok(()),
        left => Err(format!("{left} are left")),
    });
    let mut hidden = watcher.lives();
    hidden.retain(|_, life| life.end.is_some());
    drop(watcher);
    Restarted::server("kube-apiserver", Some(server));
    eventually("the API server is back", || cluster.try_get("/readyz"));
    let watcher = Watcher::start(&cluster, &pods);
    let program = room.collect();
    eventually("a lost stop", || match room.status()["lost_stops"].as_u64() {
        Some(1) => Ok(()),
        _ => Err(room.status().to_string()),
    });
    for left in cluster.list(&pods) {
        cluster.delete(&format!("{pods}/{}", left["metadata"]["name"].as_str().unwrap()), None);
    }
    cluster.emptied(&pods);
    Room::stop(program).succeeded();
    let mut told = said(&events(&room.events()), "restart");
    let lost = told.extract_if(.., |uid, _| hidden.contains_key(uid)).collect::<Vec<_>>();
    assert_eq!(told, watcher.lives());
    // The end that nobody saw is not later than it was; what came and went unseen is not told.
    let [(uid, life)] = &lost[..] else { panic!("{lost:?}") };
    assert!(life.end <= hidden[uid].end, "{life:?}, and it was {:?}", hidden[uid]);
}
