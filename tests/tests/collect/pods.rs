//! Checks the reports of single pods: their start, their requests, and their volumes.

use prorata_schemas::event::{Event, Payload};
use prorata_testkit::wait::eventually;
use serde_json::{Value, json};

use super::cluster::pod;
use super::collector::Room;
use super::kinds::uid;
use super::lives::{events, second_of};
use super::scene::{Scene, shared};

/// Returns the second and the requested cores in each report of a pod so far.
fn descriptions(room: &Room, uid: &str) -> Vec<(String, String)> {
    let of = |event: &Event| match &event.payload {
        Payload::PodStarted(pod) if *pod.pod_uid == *uid => {
            let cores = pod.requests.get("cpu").map(|quantity| quantity.text.to_string());
            Some((second_of(event.event_time), cores.unwrap_or_default()))
        }
        _ => None,
    };
    let mut reported: Vec<_> = events(&room.events()).iter().filter_map(of).collect();
    // Files are read in any order.
    reported.sort();
    reported
}

fn container(name: &str, cores: &str) -> Value {
    json!({ "name": name, "image": "none", "resources": { "requests": { "cpu": cores } } })
}

/// Containers, a sidecar, init containers and the overhead of a runtime class add up to 3.45 cores. The
/// scheduler counts the same cores. The pod does not fit on a node with a thousandth of a core less. It is
/// reported when it is bound to a node of exactly 3.45 cores.
#[test]
fn a_pod_requests_what_the_scheduler_counts() {
    let scene = Scene::open(shared(), "counted", 0, Room::new("token", &[]));
    let (cluster, room) = (&scene.cluster, &scene.room);
    let class = json!({
        "metadata": { "name": "counted" },
        "handler": "counted",
        "overhead": { "podFixed": { "cpu": "250m" } },
    });
    cluster.create("/apis/node.k8s.io/v1/runtimeclasses", class);
    let program = room.collect();
    cluster.node_of_cores("counted-small", "counted", "3449m");
    let mut sidecar = container("sidecar", "200m");
    sidecar["restartPolicy"] = "Always".into();
    let mut counted = pod("counted", "counted");
    counted["spec"]["runtimeClassName"] = "counted".into();
    counted["spec"]["containers"] = json!([container("one", "1"), container("two", "100m")]);
    counted["spec"]["initContainers"] = json!([container("first", "2"), sidecar, container("last", "3")]);
    let uid = uid(&cluster.create(&scene.pods, counted));
    let path = format!("{}/counted", scene.pods);
    eventually("the scheduler finds no node", || {
        let pod = cluster.get(&path).unwrap();
        let conditions = pod["status"]["conditions"].as_array().cloned().unwrap_or_default();
        if conditions.iter().any(|one| one["reason"] == "Unschedulable") {
            Ok(())
        } else {
            Err(pod.to_string())
        }
    });
    cluster.node_of_cores("counted-large", "counted", "3450m");
    eventually("the pod is reported", || match &descriptions(room, &uid)[..] {
        [] => Err(cluster.get(&path).unwrap()["status"].to_string()),
        reported => Ok(reported.to_vec()),
    });
    let lives = scene.end(program);
    // The pod is reported once, from its binding, because it has no node before that.
    assert_eq!(descriptions(room, &uid), [(lives[&uid].start.clone(), "3450m".to_owned())]);
}

/// A change is reported with the time that the API server gave it.
#[test]
fn a_resize_is_reported_from_its_time() {
    let scene = Scene::open(shared(), "resized", 1, Room::new("token", &[]));
    let program = scene.room.collect();
    let uid = uid(&scene.cluster.create(&scene.pods, pod("one", "resized")));
    let path = format!("{}/one", scene.pods);
    scene.runs("one");
    // The change comes in a later second than the start.
    std::thread::sleep(std::time::Duration::from_secs(2));
    let resized = json!({ "name": "main", "resources": { "requests": { "cpu": "100m" } } });
    scene.cluster.patch(&format!("{path}/resize"), json!({ "spec": { "containers": [resized] } }));
    let reported = eventually("the resize is reported", || match descriptions(&scene.room, &uid) {
        reported if reported.len() == 2 => Ok(reported),
        reported => Err(format!("{reported:?}")),
    });
    let fields = scene.cluster.get(&path).unwrap()["metadata"]["managedFields"].clone();
    let fields = fields.as_array().unwrap();
    let of_resize = fields.iter().find(|one| one["subresource"] == "resize").unwrap();
    let wanted = (of_resize["time"].as_str().unwrap().to_owned(), "100m".to_owned());
    assert_eq!(reported[1], wanted, "{reported:?}");
    assert_eq!(reported[0].1, "50m");
    scene.end(program);
}

/// A pod names the volume of its claim as a bill does.
#[test]
fn a_pod_names_its_volume() {
    let scene = Scene::open(shared(), "volumes", 1, Room::new("token", &[]));
    let (cluster, room) = (&scene.cluster, &scene.room);
    let (access, size) = (json!(["ReadWriteOnce"]), json!({ "storage": "1Gi" }));
    let csi = json!({ "driver": "ebs.csi.aws.com", "volumeHandle": "vol-0123456789abcdef0" });
    let reserved = json!({ "namespace": "volumes", "name": "data" });
    let spec = json!({
        "accessModes": access, "capacity": size, "storageClassName": "", "csi": csi, "claimRef": reserved,
    });
    let volume = json!({ "metadata": { "name": "volumes-data" }, "spec": spec });
    cluster.create("/api/v1/persistentvolumes", volume);
    let program = room.collect();
    let spec = json!({
        "accessModes": access, "resources": { "requests": size }, "storageClassName": "",
        "volumeName": "volumes-data",
    });
    let claim = json!({ "metadata": { "name": "data" }, "spec": spec });
    cluster.create("/api/v1/namespaces/volumes/persistentvolumeclaims", claim);
    let mut mounting = pod("one", "volumes");
    mounting["spec"]["volumes"] =
        json!([{ "name": "data", "persistentVolumeClaim": { "claimName": "data" } }]);
    let uid = uid(&cluster.create(&scene.pods, mounting));
    eventually("its volume is reported", || {
        let all = events(&room.events());
        let of = |event: &Event| match &event.payload {
            Payload::PodStarted(pod) if *pod.pod_uid == *uid => {
                let keys: Vec<String> = pod.volume_keys.iter().map(ToString::to_string).collect();
                Some((event.event_time, keys))
            }
            _ => None,
        };
        match all.iter().filter_map(of).max() {
            Some((_, keys)) if keys == ["vol-0123456789abcdef0"] => Ok(()),
            last => {
                let status = cluster.get(&format!("{}/one", scene.pods)).unwrap()["status"].clone();
                Err(format!("{last:?}, {status}"))
            }
        }
    });
    scene.end(program);
}
