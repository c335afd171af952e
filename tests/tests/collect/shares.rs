//! Parts of GPUs, from nodes and pods of each sharing scheme to the table and its explanation.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use prorata_schemas::event::Payload;
use prorata_testkit::wait::eventually;
use prorata_tests::program::{Program, prorata};
use serde_json::{Value, json};

use super::cluster::{Cluster, pod};
use super::collector::Room;
use super::kinds::uid;
use super::lives::{column_sums, events};
use super::scene::shared;

/// A node with a way to share its GPUs, and its pods.
struct Shared {
    scheme: &'static str,
    labels: Value,
    annotations: Value,
    capacity: Value,
    /// Pods by name: the resources and annotations of a pod, and the part of cards that it holds.
    pods: Vec<(&'static str, Value, Value, Option<&'static str>)>,
}

fn on(scheme: &'static str, labels: Value, annotations: Value, capacity: Value) -> Shared {
    Shared { scheme, labels, annotations, capacity, pods: Vec::new() }
}

impl Shared {
    /// Adds a pod that holds a part of cards; `None` if the part is not known.
    fn pod(self, name: &'static str, limits: Value, gpus: Option<&'static str>) -> Self {
        self.annotated(name, limits, json!({}), gpus)
    }

    fn annotated(
        mut self,
        name: &'static str,
        limits: Value,
        annotations: Value,
        gpus: Option<&'static str>,
    ) -> Self {
        self.pods.push((name, limits, annotations, gpus));
        self
    }
}

/// Returns nodes whose pods are placed by Kubernetes' own scheduler.
fn of_device_plugins() -> Vec<Shared> {
    let replicas = |strategy: &str| {
        json!({
            "nvidia.com/gpu.count": "1",
            "nvidia.com/gpu.replicas": "4",
            "nvidia.com/gpu.sharing-strategy": strategy,
        })
    };
    let gke = json!({
        "cloud.google.com/gke-gpu-sharing-strategy": "time-sharing",
        "cloud.google.com/gke-max-shared-clients-per-gpu": "2",
    });
    let intel = json!({ "gpu.intel.com/device-id.0380-56c0.count": "2" });
    let gpus = |count: u32| json!({ "nvidia.com/gpu": count.to_string() });
    let renamed = |count: u32| json!({ "nvidia.com/gpu.shared": count.to_string() });
    let partitions = |count: u32| json!({ "amd.com/cpx_nps4": count.to_string() });
    let tiles = |count: u32| json!({ "gpu.intel.com/i915": count.to_string() });
    let parts = |count: u32| json!({ "example.com/gpu-part": count.to_string() });
    vec![
        on("time-slicing", replicas("time-slicing"), json!({}), gpus(4)).pod("one", gpus(1), Some("250m")),
        on("mps", replicas("mps"), json!({}), renamed(4)).pod("two", renamed(2), Some("500m")),
        on("gke", gke, json!({}), gpus(2)).pod("one", gpus(1), Some("500m")),
        on("amd-partition", json!({}), json!({}), partitions(64)).pod("two", partitions(2), Some("250m")),
        on("intel", intel, json!({}), tiles(20)).pod("one", tiles(1), Some("100m")),
        on("unknown", json!({}), json!({}), parts(10)).pod("one", parts(1), None),
    ]
}

/// Returns nodes whose pods are placed by the scheduler of the scheme. In this test Kubernetes places the
/// pods, because all nodes have capacity.
fn of_schedulers() -> Vec<Shared> {
    let cards = |count: &str| json!({ "nvidia.com/gpu.count": count, "nvidia.com/gpu.memory": "40960" });
    let slices = |count: u32| json!({ "nvidia.com/gpu-10gb": count.to_string() });
    let hami = json!({ "hami.io/node-nvidia-register": "GPU-a,10,40960,100,NVIDIA-A100,0,true:" });
    let hami_capacity = json!({
        "nvidia.com/gpu": "10", "nvidia.com/gpumem-percentage": "100", "nvidia.com/gpucores": "100",
    });
    let tenth = json!({ "nvidia.com/gpu": "1", "nvidia.com/gpumem-percentage": "10" });
    let cores = json!({ "nvidia.com/gpu": "1", "nvidia.com/gpucores": "90" });
    let volcano = json!({ "volcano.sh/node-vgpu-register": "GPU-v,10,32768,Tesla-V100,true,hami-core:" });
    let volcano_capacity = json!({ "volcano.sh/vgpu-number": "10", "volcano.sh/vgpu-memory": "32768" });
    let asked = json!({ "volcano.sh/vgpu-number": "1", "volcano.sh/vgpu-memory": "8192" });
    let number = json!({ "volcano.sh/vgpu-number": "1" });
    let got = json!({ "volcano.sh/vgpu-ids-new": "GPU-v,NVIDIA,16384,0:;" });
    let memory = |gb: u32| json!({ "aliyun.com/gpu-mem": gb.to_string() });
    let gpushare = json!({ "aliyun.com/gpu-mem": "80", "aliyun.com/gpu-count": "2" });
    vec![
        on("nos", cards("1"), json!({}), slices(4)).pod("quarter", slices(1), Some("250m")).pod(
            "rest",
            slices(3),
            Some("750m"),
        ),
        on("hami", json!({}), hami, hami_capacity).pod("tenth", tenth, Some("100m")).pod(
            "cores",
            cores,
            Some("900m"),
        ),
        on("volcano", json!({}), volcano, volcano_capacity).pod("asked", asked, Some("250m")).annotated(
            "got",
            number,
            got,
            Some("500m"),
        ),
        on("kai", cards("8"), json!({}), json!({ "nvidia.com/gpu": "8" }))
            .annotated("fraction", json!({}), json!({ "gpu-fraction": "0.5" }), Some("500m"))
            .annotated("memory", json!({}), json!({ "gpu-memory": "10240" }), Some("250m")),
        on("gpushare", json!({}), json!({}), gpushare).pod("memory", memory(30), Some("750m")),
    ]
}

/// Returns the scheme and the part of cards of each pod so far, by uid.
fn shares(room: &Room) -> BTreeMap<String, (Option<String>, Option<String>)> {
    let mut shares = BTreeMap::new();
    for event in events(&room.events()) {
        if let Payload::PodStarted(pod) = &event.payload {
            let gpus = pod.gpus.as_ref().map(|gpus| gpus.text.to_string());
            shares.insert(pod.pod_uid.to_string(), (pod.gpu_sharing.as_ref().map(ToString::to_string), gpus));
        }
    }
    shares
}

/// Every scheme gives the part that its documentation promises, in events, in the table, and in explanations.
#[test]
fn every_scheme_gives_a_pod_its_part() {
    let _calm = shared();
    let cluster = Cluster::open();
    let (pods, reserving) = (cluster.namespace("shares"), cluster.namespace("kai-resource-reservation"));
    let room = Room::new("token", &[]);
    let program = room.collect();
    let mut expected = BTreeMap::new();
    for node in of_device_plugins().into_iter().chain(of_schedulers()) {
        let Shared { scheme, labels, annotations, capacity, pods: held } = node;
        let group = format!("shares-{scheme}");
        cluster.node_of(&group, &group, (labels, annotations, capacity));
        for (name, limits, annotations, gpus) in held {
            let mut pod = pod(&format!("{scheme}-{name}"), &group);
            pod["metadata"]["annotations"] = annotations;
            pod["spec"]["containers"][0]["resources"]["limits"] = limits;
            expected
                .insert(uid(&cluster.create(&pods, pod)), (Some(scheme.to_owned()), gpus.map(str::to_owned)));
        }
    }
    let mut reservation = pod("gpu-reservation-shares-kai-x", "shares-kai");
    reservation["spec"]["containers"][0]["resources"]["limits"] = json!({ "nvidia.com/gpu": "1" });
    let reservation = uid(&cluster.create(&reserving, reservation));
    expected.insert(reservation, (Some("kai-reservation".to_owned()), Some("0".to_owned())));
    eventually("every part is reported", || {
        let mut found = shares(&room);
        found.retain(|uid, _| expected.contains_key(uid));
        if found == expected { Ok(()) } else { Err(format!("{found:#?} instead of {expected:#?}")) }
    });
    let unknown = "prorata_collector_unknown_gpu_shares{reason=\"unknown_scheme\"} 1";
    eventually("the unknown part is reported", || {
        let metrics = room.metrics();
        if metrics.contains(unknown) { Ok(()) } else { Err(metrics) }
    });
    std::thread::sleep(std::time::Duration::from_secs(2));
    for pods in [&pods, &reserving] {
        for left in cluster.list(pods) {
            cluster.delete(&format!("{pods}/{}", left["metadata"]["name"].as_str().unwrap()), None);
        }
        cluster.emptied(pods);
    }
    Room::stop(program).succeeded();
    send_plan(&room);
    let lake = room.fold();

    // Pods of one node that began together: their GPU hours are as their parts.
    let hours = column_sums(&lake, "shares", "x_GpuHours");
    for (uid, (scheme, gpus)) in &expected {
        let hours = hours.get(uid).copied().unwrap_or_default();
        let holds = gpus.as_deref().is_some_and(|gpus| gpus != "0");
        assert_eq!(hours > 0.0, holds, "{scheme:?} {gpus:?}: {hours} GPU hours");
    }
    for (scheme, name) in [("nos", "quarter"), ("hami", "cores"), ("kai", "fraction")] {
        let pod = format!("shares/{scheme}-{name}");
        let mut explain: Command = prorata();
        explain.args(["explain", "--hour", &hour_of(&room, &format!("{scheme}-{name}")), "--pod", &pod]);
        explain.arg("--lake").arg(&lake);
        let text = Program::start(explain, "explain", room.folder.path()).wait().succeeded();
        assert!(text.contains(&format!("shares GPUs by {scheme}")), "{text}");
        assert!(text.contains("Savings plans: the usage that they cover"), "{text}");
    }
    assert_report(&room, &lake);
}

/// Adds a savings plan that covers all nodes of the cluster, including the nodes of other tests.
fn send_plan(room: &Room) {
    let text = r#"
organization_id: acme
currency: USD
commitments:
  - {id: plan, from: 2026-01-01, provider: aws, kind: SAVINGS_PLAN,
     hourly_commitment: "100000", hourly_cost: "100000",
     discounts: [{applies_to: NODE, region: us-east-1, saving: "0.3"}]}
"#;
    std::fs::write(room.path("agreements.yaml"), text).unwrap();
    let mut send = prorata();
    send.arg("agreements").arg("--file").arg(room.path("agreements.yaml")).arg("--output").arg(room.events());
    Program::start(send, "agreements", room.folder.path()).wait().succeeded();
}

/// Checks that the report has GPU-hours by model, and the plan's savings.
fn assert_report(room: &Room, lake: &Path) {
    let page = room.path("report.html");
    let mut report = prorata();
    report.arg("report").arg("--lake").arg(lake).arg("--output").arg(&page);
    Program::start(report, "report", room.folder.path()).wait().succeeded();
    let page = std::fs::read_to_string(page).unwrap();
    let (_, data) = page.split_once(r#"<script type="application/json" id="data">"#).unwrap();
    let data: Value = serde_json::from_str(data.split_once("</script>").unwrap().0).unwrap();
    let amount = |of: &Value, name: &str| of[name].as_str().unwrap().parse::<i128>().unwrap();
    let sharing = &data["gpu_sharing"];
    let shared = sharing.as_array().unwrap().iter().find(|of| of["gpu_model"] == "h100");
    let shared = shared.unwrap_or_else(|| panic!("{sharing}"));
    let (physical, allocated) = (amount(shared, "physical_hours"), amount(shared, "allocated_hours"));
    // Each scheme leaves a part of its cards to nobody, and oversells none.
    assert!(0 < allocated && allocated < physical, "{shared}");
    assert_eq!(amount(shared, "oversubscribed_hours"), 0, "{shared}");
    let plan = &data["agreements"]["commitments"][0];
    assert_eq!(plan["id"], "plan", "{plan}");
    // Covered usage costs 0.7 of its list price: 0.3 of 0.7 of it is saved.
    let (used, avoided) = (amount(plan, "used_cost"), amount(plan, "list_cost_avoided"));
    assert!(used > 0 && (avoided - used * 10 / 7).abs() < 1_000_000, "{plan}");
}

/// Returns the hour in which the pod with this name began.
fn hour_of(room: &Room, name: &str) -> String {
    let events = events(&room.events());
    let began = events.iter().filter_map(|event| match &event.payload {
        Payload::PodStarted(pod) => (*pod.pod_name == *name).then_some(event.event_time),
        _ => None,
    });
    began.min().unwrap().hour().to_string()
}
