//! A fast day of a team on nodes with GPUs: services, jobs, a stateful set, a resize, an eviction, a lost
//! node, a quota. The table has the seconds, GPUs and vCPUs of the script.

use std::collections::{BTreeMap, BTreeSet};
use std::thread::sleep;
use std::time::Duration;

use prorata_schemas::event::Payload;
use prorata_testkit::wait::eventually;
use serde_json::{Value, json};

use super::cluster::{pod, pod_spec};
use super::collector::Room;
use super::kinds::{Definitions, object, uid};
use super::lives::{column, column_sums, events, running_seconds, seconds_of};
use super::scene::{Scene, alone};

/// Pods of a workload, by its kind and name.
type Workloads = BTreeMap<(String, String), usize>;

/// Returns the template of a pod of the team, with these GPUs. The pod of a Job also has a running time.
fn template(gpus: u32, runs_for: Option<&str>) -> Value {
    let mut spec = pod_spec("day");
    if gpus > 0 {
        let resources = &mut spec["containers"][0]["resources"];
        resources["requests"]["nvidia.com/gpu"] = gpus.into();
        resources["limits"] = json!({ "nvidia.com/gpu": gpus });
    }
    let annotations = runs_for.map(|time| json!({ "test/runs-for": time }));
    json!({ "metadata": { "labels": { "app": "day" }, "annotations": annotations }, "spec": spec })
}

/// The script of the day. The name of each workload says what happens to the workload.
struct Script<'s> {
    scene: &'s Scene<super::scene::Alone>,
}

impl Script<'_> {
    fn of(&self, group: &str, kind: &str) -> String {
        format!("/apis/{group}/v1/namespaces/day/{kind}")
    }

    fn start(&self) {
        let cluster = &self.scene.cluster;
        let selector = json!({ "matchLabels": { "app": "day" } });
        let service = |name: &str, replicas: u32, gpus: u32| {
            let spec =
                json!({ "replicas": replicas, "selector": selector, "template": template(gpus, None) });
            json!({ "metadata": { "name": name }, "spec": spec })
        };
        cluster.create(&self.of("apps", "deployments"), service("serving", 3, 1));
        cluster.create(&self.of("apps", "statefulsets"), service("store", 2, 0));
        for (name, completions, exit_code) in [("train", 4, "0"), ("broken", 1, "3")] {
            let mut template = template(1, Some("3s"));
            template["metadata"]["annotations"]["test/exit-code"] = exit_code.into();
            template["spec"]["restartPolicy"] = "Never".into();
            let counts = json!({ "completions": completions, "parallelism": 2, "backoffLimit": 0 });
            let mut spec = counts;
            spec["template"] = template;
            cluster.create(&self.of("batch", "jobs"), json!({ "metadata": { "name": name }, "spec": spec }));
        }
        cluster.create(&self.scene.pods, pod("resized", "day"));
        // These run on the node that will be lost; nothing else runs there.
        for number in 0..2 {
            let mut doomed = pod(&format!("doomed-{number}"), "doomed");
            doomed["spec"]["containers"][0]["resources"]["requests"]["cpu"] = "200m".into();
            cluster.create(&self.scene.pods, doomed);
        }
    }

    fn running(&self) -> Vec<Value> {
        let pods = self.scene.cluster.list(&self.scene.pods);
        pods.into_iter().filter(|pod| pod["status"]["phase"] == "Running").collect()
    }

    /// Waits until the services, the stateful set, the resized pod and this many doomed pods run, and the
    /// jobs have ended.
    fn settled(&self, doomed: usize) {
        let jobs = self.of("batch", "jobs");
        let job = |name: &str, count: &str| {
            self.scene.cluster.get(&format!("{jobs}/{name}")).unwrap()["status"][count].as_u64()
        };
        eventually("services run and jobs are over", || {
            let is_doomed = |pod: &Value| pod["metadata"]["name"].as_str().unwrap().starts_with("doomed-");
            let (ill, well): (Vec<_>, Vec<_>) = self.running().into_iter().partition(is_doomed);
            let (trained, failed) = (job("train", "succeeded"), job("broken", "failed"));
            let all =
                well.len() == 3 + 2 + 1 && ill.len() >= doomed && trained == Some(4) && failed == Some(1);
            let reported =
                || format!("{} and {} run, {trained:?} and {failed:?} have ended", well.len(), ill.len());
            if all { Ok(()) } else { Err(reported()) }
        });
    }

    /// Resizes a pod, and returns the time of the change on the API server, in seconds.
    fn resize(&self) -> u64 {
        let container = json!({ "name": "main", "resources": { "requests": { "cpu": "250m" } } });
        let change = json!({ "spec": { "containers": [container] } });
        let resized = self.scene.cluster.patch(&format!("{}/resized/resize", self.scene.pods), change);
        let managers = resized["metadata"]["managedFields"].as_array().unwrap();
        let times = managers.iter().filter_map(|fields| fields["time"].as_str());
        at(times.max().unwrap())
    }

    /// Evicts a pod of the service, as a drain does.
    fn evict(&self) {
        let serving = |pod: &Value| pod["metadata"]["name"].as_str().unwrap().starts_with("serving-");
        let pod = self.running().into_iter().find(serving).unwrap();
        let name = pod["metadata"]["name"].clone();
        let path = format!("{}/{}/eviction", self.scene.pods, name.as_str().unwrap());
        let metadata = json!({ "name": name, "namespace": "day" });
        let kind = json!({ "apiVersion": "policy/v1", "kind": "Eviction", "metadata": metadata });
        self.scene.cluster.create(&path, kind);
    }

    fn end(&self) {
        for (group, kind, name) in [
            ("apps", "deployments", "serving"),
            ("apps", "statefulsets", "store"),
            ("batch", "jobs", "train"),
            ("batch", "jobs", "broken"),
        ] {
            self.scene.cluster.delete(&format!("{}/{name}", self.of(group, kind)), None);
        }
        self.scene.delete("resized", None);
        for number in 0..2 {
            self.scene.delete(&format!("doomed-{number}"), Some(0));
        }
        self.scene.cluster.emptied(&self.scene.pods);
    }
}

/// Seconds since 1970 of a Kubernetes time.
fn at(text: &str) -> u64 {
    u64::try_from(prorata_collector::parse_instant(text).unwrap().0 / 1_000_000).unwrap()
}

#[test]
#[expect(clippy::too_many_lines, reason = "a script, and its expected result")]
fn a_day_at_speed_is_costed_to_the_second() {
    let scene = Scene::open(alone(), "day", 2, Room::new("token", &[]));
    let cluster = &scene.cluster;
    cluster.node("doomed-0", "doomed");
    let kinds = Definitions::new(cluster, "day");
    let spec = json!({ "min": { "nvidia.com/gpu": 2 } });
    cluster.create(&kinds.quotas, object("nos.nebuly.com/v1alpha1", "ElasticQuota", "team", spec));
    let program = scene.room.collect();
    let script = Script { scene: &scene };
    script.start();
    script.settled(2);
    let doomed: BTreeSet<String> =
        (0..2).map(|number| uid(&cluster.get(&format!("{}/doomed-{number}", scene.pods)).unwrap())).collect();
    let resized = uid(&cluster.get(&format!("{}/resized", scene.pods)).unwrap());
    let resized_at = script.resize();
    script.evict();
    scene.delete("store-0", None);
    sleep(Duration::from_secs(2));
    cluster.delete("/api/v1/nodes/doomed-0", None);
    script.settled(0);
    // The objects on the lost node stay for a while, but they cost nothing any more.
    sleep(Duration::from_secs(3));
    script.end();
    scene.room.follows(0);
    Room::stop(program).succeeded();
    kinds.remove(cluster);

    let (all, lives, lake) = (events(&scene.room.events()), scene.watcher.lives(), scene.room.fold());
    let lost = all.iter().find_map(|event| match &event.payload {
        Payload::NodeStopped(node) if node.node_id.ends_with("/doomed-0") => {
            Some(event.event_time.0 / 1_000_000)
        }
        _ => None,
    });
    let lost = u64::try_from(lost.unwrap()).unwrap();
    let mut ran: BTreeMap<String, u64> = BTreeMap::new();
    for (uid, life) in &lives {
        let seconds = seconds_of(life).unwrap();
        let to_its_node = lost - at(&life.start);
        assert!(!doomed.contains(uid) || to_its_node < seconds, "{uid}: its object was there for longer");
        ran.insert(uid.clone(), if doomed.contains(uid) { to_its_node } else { seconds });
    }
    assert_eq!(running_seconds(&lake, "day"), ran, "seconds in the table, and of the script");
    // The job `train` has four pods, and `broken` has one that failed. One pod of the service was evicted,
    // and one of the set was created again.
    let counted = [
        ("Deployment", "serving", 4),
        ("StatefulSet", "store", 3),
        ("Job", "train", 4),
        ("Job", "broken", 1),
    ];
    let counted = counted.map(|(kind, name, pods)| ((kind.to_owned(), name.to_owned()), pods));
    assert_eq!(workloads(&lake), Workloads::from(counted));
    assert_eq!(lives.len(), 4 + 3 + 4 + 1 + 3);

    let gpus = column_sums(&lake, "day", "x_RequestedGpuHours");
    let cpus = column_sums(&lake, "day", "x_RequestedCpuCoreHours");
    let with_gpu: BTreeSet<String> = column(&lake, "day", "x_WorkloadName")
        .into_iter()
        .filter_map(|(uid, name)| (name != "store").then_some(uid))
        .collect();
    for (uid, seconds) in &ran {
        let same = |sums: &BTreeMap<String, f64>, unit_seconds: f64| {
            let reported = sums.get(uid).copied().unwrap_or_default() * 3_600.0;
            // The end of a lost node has a fraction of a second.
            assert!(
                (reported - unit_seconds).abs() < 1e-6 || doomed.contains(uid),
                "{uid}: {reported}, not {unit_seconds}"
            );
        };
        same(&gpus, if with_gpu.contains(uid) { *seconds as f64 } else { 0.0 });
        same(
            &cpus,
            match uid {
                uid if *uid == resized => {
                    let before = resized_at - at(&lives[uid].start);
                    0.05 * before as f64 + 0.25 * (seconds - before) as f64
                }
                _ => 0.05 * *seconds as f64,
            },
        );
    }
    let states: BTreeSet<String> =
        column(&lake, "day", "x_QuotaState").into_iter().map(|(_, state)| state).collect();
    assert_eq!(states, BTreeSet::from(["in-quota".to_owned(), "over-quota".to_owned()]));
}

/// Returns the number of pods of each workload in the table.
fn workloads(lake: &std::path::Path) -> Workloads {
    let names: BTreeMap<String, String> = column(lake, "day", "x_WorkloadName").into_iter().collect();
    let kinds: BTreeMap<String, String> = column(lake, "day", "x_WorkloadKind").into_iter().collect();
    let mut found = Workloads::new();
    for (uid, name) in names {
        *found.entry((kinds[&uid].clone(), name)).or_default() += 1;
    }
    found
}
