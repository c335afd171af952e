//! Collects kinds besides pods: custom resources, device claims, and a node that is removed.

use prorata_schemas::event::{Event, Payload};
use prorata_testkit::wait::eventually;
use serde_json::{Value, json};

use super::cluster::{Cluster, pod};
use super::collector::Room;
use super::lives::{events, running_seconds, said, wait_for_end};
use super::scene::{alone, shared};

/// Defines a custom resource of any shape. Returns the path of its objects.
fn define(cluster: &Cluster, group: &str, version: &str, kind: &str, is_namespaced: bool) -> String {
    let plural = format!("{}s", kind.to_lowercase());
    let any = json!({ "type": "object", "x-kubernetes-preserve-unknown-fields": true });
    let schema = json!({ "openAPIV3Schema": any });
    let spec = json!({
        "group": group,
        "scope": if is_namespaced { "Namespaced" } else { "Cluster" },
        "names": { "kind": kind, "plural": plural, "singular": kind.to_lowercase() },
        "versions": [{ "name": version, "served": true, "storage": true, "schema": schema }],
    });
    let definition = json!({ "metadata": { "name": format!("{plural}.{group}") }, "spec": spec });
    cluster.create(DEFINITIONS, definition);
    let path = format!("/apis/{group}/{version}/{plural}");
    // A collector discovers a kind by its group, which may show it a moment later than its path.
    eventually("the kind is served", || {
        let found = cluster.get(&format!("/apis/{group}/{version}")).map_err(|code| code.to_string())?;
        let has = |resource: &Value| resource["name"] == *plural;
        if !found["resources"].as_array().is_some_and(|all| all.iter().any(has)) {
            return Err(found.to_string());
        }
        cluster.get(&path).map(drop).map_err(|code| code.to_string())
    });
    path
}

const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";

/// Returns the values that `of` takes from the events collected so far.
fn sorted<T>(room: &Room, of: impl Fn(&Event) -> Option<T>) -> Vec<T> {
    events(&room.events()).iter().filter_map(of).collect()
}

pub fn uid(object: &Value) -> String {
    object["metadata"]["uid"].as_str().unwrap().to_owned()
}

/// Custom resources of nos and TensorFusion. Other tests rely on their absence.
pub struct Definitions {
    pub quotas: String,
    composites: String,
    pools: String,
    gpu_nodes: String,
}

impl Definitions {
    /// Defines the kinds. The quotas are in a namespace.
    pub fn new(cluster: &Cluster, namespace: &str) -> Self {
        let (nos, fusion) = ("nos.nebuly.com", "tensor-fusion.ai");
        let inside =
            |path: String, plural: &str| path.replace(plural, &format!("namespaces/{namespace}/{plural}"));
        let quotas = define(cluster, nos, "v1alpha1", "ElasticQuota", true);
        let composites = define(cluster, nos, "v1alpha1", "CompositeElasticQuota", true);
        Self {
            quotas: inside(quotas, "elasticquotas"),
            composites: inside(composites, "compositeelasticquotas"),
            pools: define(cluster, fusion, "v1", "GPUPool", false),
            gpu_nodes: define(cluster, fusion, "v1", "GPUNode", false),
        }
    }

    pub fn remove(self, cluster: &Cluster) {
        for kind in ["elasticquotas", "compositeelasticquotas"] {
            cluster.delete(&format!("{DEFINITIONS}/{kind}.nos.nebuly.com"), None);
        }
        for kind in ["gpupools", "gpunodes"] {
            cluster.delete(&format!("{DEFINITIONS}/{kind}.tensor-fusion.ai"), None);
        }
        eventually("the kinds are gone", || match cluster.get(&self.gpu_nodes) {
            Err(404) => Ok(()),
            other => Err(format!("{other:?}")),
        });
    }
}

pub fn object(version: &str, kind: &str, name: &str, spec: Value) -> Value {
    json!({ "apiVersion": version, "kind": kind, "metadata": { "name": name }, "spec": spec })
}

/// Returns the id, the guaranteed amounts and the number of namespaces of a quota; `None` for other events.
fn quota_set(event: &Event) -> Option<(String, String, usize)> {
    match &event.payload {
        Payload::QuotaSet(set) => {
            Some((set.quota_id.to_string(), format!("{:?}", set.min), set.namespaces.len()))
        }
        _ => None,
    }
}

/// Returns the id, the price and the pool of a started node; `None` for other events.
fn node_started(event: &Event) -> Option<(String, String, Option<String>)> {
    match &event.payload {
        Payload::NodeStarted(node) => {
            let pool = node.pool_id.as_ref().map(|pool| pool.rsplit('/').next().unwrap().to_owned());
            Some((node.node_id.to_string(), node.hourly_cost.to_string(), pool))
        }
        _ => None,
    }
}

/// Returns the number of prices of the pool `shared`; `None` for other events.
fn pool_set(event: &Event) -> Option<usize> {
    match &event.payload {
        Payload::PoolSet(pool) => pool.pool_id.ends_with("/shared").then_some(pool.qos_pricing.len()),
        _ => None,
    }
}

fn ended(event: &Event) -> Option<String> {
    match &event.payload {
        Payload::QuotaDeleted(gone) => Some(gone.quota_id.to_string()),
        Payload::PoolDeleted(gone) => Some(gone.pool_id.rsplit('/').next()?.to_owned()),
        _ => None,
    }
}

/// Quotas of nos and pools of TensorFusion are collected from creation through a change to the end.
#[test]
fn quotas_pools_and_their_nodes_are_followed() {
    let _calm = alone();
    let cluster = Cluster::open();
    cluster.namespace("quotas");
    let kinds = Definitions::new(&cluster, "quotas");
    let (nos, fusion) = ("nos.nebuly.com/v1alpha1", "tensor-fusion.ai/v1");
    let spec = json!({ "min": { "nvidia.com/gpu": 2 }, "max": { "nvidia.com/gpu": 4 } });
    let quota = uid(&cluster.create(&kinds.quotas, object(nos, "ElasticQuota", "team", spec)));
    let spec = json!({ "namespaces": ["a", "b"], "min": { "cpu": "10" } });
    let both = object(nos, "CompositeElasticQuota", "both", spec);
    let composite = uid(&cluster.create(&kinds.composites, both));
    let requests = json!({ "perFP16TFlopsPerHour": "$0.01", "perGBOfVRAMPerHour": "$0.02" });
    let pricing = json!([{ "qos": "high", "requests": requests }]);
    let spec = json!({ "qosConfig": { "defaultQoS": "high", "pricing": pricing } });
    cluster.create(&kinds.pools, object(fusion, "GPUPool", "shared", spec));
    let spec = json!({ "costPerHour": "7.25" });
    cluster.create(&kinds.gpu_nodes, object(fusion, "GPUNode", "quotas-0", spec));
    let room = Room::new("token", &[]);
    let program = room.collect();
    cluster.node("quotas-0", "quotas");
    let pooled = json!({ "metadata": { "labels": { "tensor-fusion.ai/pool-shared": "true" } } });
    cluster.patch("/api/v1/nodes/quotas-0", pooled);

    let node = ("aws:///us-east-1a/quotas-0".to_owned(), "7.25".to_owned(), Some("shared".to_owned()));
    eventually("quotas, the pool and its node are reported", || {
        let (quotas, pools) = (sorted(&room, quota_set), sorted(&room, pool_set));
        let nodes = sorted(&room, node_started);
        let has = |uid: &str, count| quotas.iter().any(|(id, _, spaces)| *id == uid && *spaces == count);
        let all = has(&quota, 1) && has(&composite, 2) && pools == [1] && nodes.contains(&node);
        if all { Ok(()) } else { Err(format!("{quotas:?} {pools:?} {nodes:?}")) }
    });
    let larger = json!({ "spec": { "min": { "nvidia.com/gpu": 3 } } });
    cluster.merge(&format!("{}/team", kinds.quotas), larger);
    eventually("its change is reported", || {
        let sets = sorted(&room, quota_set).into_iter().filter(|(id, ..)| *id == quota).collect::<Vec<_>>();
        if sets.len() == 2 && sets[0].1 != sets[1].1 { Ok(()) } else { Err(format!("{sets:?}")) }
    });
    cluster.delete(&format!("{}/team", kinds.quotas), None);
    cluster.delete(&format!("{}/shared", kinds.pools), None);
    eventually("their ends are reported", || {
        let mut ends = sorted(&room, ended);
        ends.sort();
        let mut wanted = [quota.clone(), "shared".to_owned()];
        wanted.sort();
        if ends == wanted { Ok(()) } else { Err(format!("{ends:?}")) }
    });
    Room::stop(program).succeeded();
    cluster.delete("/api/v1/nodes/quotas-0", None);
    kinds.remove(&cluster);
}

/// Devices that the scheduler allocates to a pod's claim count as its requests.
#[test]
fn a_claim_of_a_gpu_is_a_request() {
    let _calm = shared();
    let cluster = Cluster::open();
    let pods = cluster.namespace("claims");
    cluster.node("claims-0", "claims");
    let selector = json!({ "cel": { "expression": "device.driver == \"gpu.nvidia.com\"" } });
    let class = json!({ "metadata": { "name": "gpu.nvidia.com" }, "spec": { "selectors": [selector] } });
    cluster.create("/apis/resource.k8s.io/v1/deviceclasses", class);
    let pool = json!({ "name": "claims-0", "generation": 1, "resourceSliceCount": 1 });
    let devices = json!([{ "name": "gpu-0" }, { "name": "gpu-1" }, { "name": "gpu-2" }]);
    let spec =
        json!({ "driver": "gpu.nvidia.com", "nodeName": "claims-0", "pool": pool, "devices": devices });
    let slice = json!({ "metadata": { "name": "claims-0" }, "spec": spec });
    cluster.create("/apis/resource.k8s.io/v1/resourceslices", slice);
    let exactly = json!({ "deviceClassName": "gpu.nvidia.com", "count": 2 });
    let devices = json!({ "requests": [{ "name": "gpus", "exactly": exactly }] });
    let claim = json!({ "metadata": { "name": "two" }, "spec": { "devices": devices } });
    cluster.create("/apis/resource.k8s.io/v1/namespaces/claims/resourceclaims", claim);
    let room = Room::new("token", &[]);
    let program = room.collect();
    let mut claiming = pod("claiming", "claims");
    claiming["spec"]["resourceClaims"] = json!([{ "name": "gpus", "resourceClaimName": "two" }]);
    claiming["spec"]["containers"][0]["resources"]["claims"] = json!([{ "name": "gpus" }]);
    let uid = uid(&cluster.create(&pods, claiming));
    eventually("its devices are reported", || {
        let reported = sorted(&room, |event| match &event.payload {
            Payload::PodStarted(pod) => {
                let gpus = pod.requests.get("nvidia.com/gpu").map(|quantity| quantity.text.to_string());
                (*pod.pod_uid == *uid).then_some(gpus)
            }
            _ => None,
        });
        match &reported[..] {
            [Some(text)] if text == "2" => Ok(()),
            reported => {
                Err(format!("{reported:?}, {}", cluster.get(&format!("{pods}/claiming")).unwrap()["status"]))
            }
        }
    });
    cluster.delete(&format!("{pods}/claiming"), None);
    cluster.emptied(&pods);
    wait_for_end(&room.events(), "claims", &uid);
    Room::stop(program).succeeded();
    let lake = room.fold();
    let (life, ran) = (&said(&events(&room.events()), "claims")[&uid], running_seconds(&lake, "claims"));
    assert!(life.end.is_some() && ran.len() <= 1, "{life:?} {ran:?}");
}

/// A removed node ends its pods, whatever happens to their objects.
#[test]
fn a_node_that_goes_ends_its_pods() {
    let _calm = shared();
    let cluster = Cluster::open();
    let pods = cluster.namespace("lost");
    cluster.node("lost-0", "lost");
    let room = Room::new("token", &[]);
    let program = room.collect();
    let uid = uid(&cluster.create(&pods, pod("one", "lost")));
    eventually("the pod is reported", || said(&events(&room.events()), "lost").len() == 1);
    std::thread::sleep(std::time::Duration::from_secs(3));
    cluster.delete("/api/v1/nodes/lost-0", None);
    let stop = eventually("the node's end is reported", || {
        let stops = sorted(&room, |event| match &event.payload {
            Payload::NodeStopped(node) => {
                (*node.node_id == *"aws:///us-east-1a/lost-0").then_some(event.event_time)
            }
            _ => None,
        });
        stops.first().copied().ok_or("not yet".to_owned())
    });
    std::thread::sleep(std::time::Duration::from_secs(2));
    cluster.delete(&format!("{pods}/one"), Some(0));
    cluster.emptied(&pods);
    Room::stop(program).succeeded();
    let all = events(&room.events());
    let start = prorata_collector::parse_instant(&said(&all, "lost")[&uid].start).unwrap();
    let ran = running_seconds(&room.fold(), "lost")[&uid];
    let to_its_end = u64::try_from((stop.0 - start.0) / 1_000_000).unwrap();
    assert!(ran == to_its_end || ran + 1 == to_its_end, "{ran} s, and {to_its_end} to the node's end");
}
