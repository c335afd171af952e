//! Measured usage, from a kubelet or the metrics API through the real API server and from a GPU exporter, to
//! the table. The collector has a ServiceAccount's token and the chart's rules.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};
use std::ops::Range;
use std::time::{SystemTime, UNIX_EPOCH};

use prorata_schemas::event::{Event, Payload};
use prorata_testkit::wait::eventually;
use serde_json::{Value, json};

use super::cluster::{Cluster, pod};
use super::collector::Room;
use super::lives::{column_sums, events, said, wait_for_end};
use super::meters::{Meter, kubeconfig_of, machine_address};
use super::refusals::rules;
use super::scene::shared;

/// The period of the rounds.
const EVERY_MICROS: i64 = 2_000_000;
const MEMORY_BYTES: i64 = 300 << 20;

/// A node with a measured pod and a pod that reports the use of GPUs, and the played meters of both.
struct Site {
    cluster: Cluster,
    name: &'static str,
    pods: String,
    exporter: Meter,
}

impl Site {
    fn new(name: &'static str) -> Self {
        let cluster = Cluster::open();
        let pods = cluster.namespace(name);
        cluster.node(&format!("{name}-0"), name);
        cluster.create(&pods, pod("worker", name));
        let mut dcgm = pod("dcgm", name);
        dcgm["metadata"]["labels"] = json!({ "exports": name });
        cluster.create(&pods, dcgm);
        let loopback = IpAddr::V4(Ipv4Addr::LOCALHOST);
        let exporter = Meter::start(cluster.runtime(), loopback, false);
        let site = Self { cluster, name, pods, exporter };
        eventually("pods run", || {
            let all = site.cluster.list(&site.pods);
            let running = all.iter().filter(|pod| pod["status"]["phase"] == "Running").count();
            if running == 2 { Ok(()) } else { Err(format!("{running} run")) }
        });
        let status = json!({ "podIP": "127.0.0.1", "podIPs": [{ "ip": "127.0.0.1" }] });
        site.cluster.patch(&format!("{}/dcgm/status", site.pods), json!({ "status": status }));
        site.measure_gpus();
        site
    }

    /// Makes the exporter report that the worker uses half of a GPU.
    fn measure_gpus(&self) {
        let name = self.name;
        let labels = format!("gpu=\"0\",UUID=\"GPU-1\",namespace=\"{name}\",pod=\"worker\"");
        self.exporter.answer("/metrics", move || format!("DCGM_FI_DEV_GPU_UTIL{{{labels}}} 50\n"));
    }

    /// Creates a ServiceAccount with these rules. Returns a kubeconfig with a token of the account.
    fn account(&self, room: &Room, rules: &[&str]) -> std::path::PathBuf {
        let name = self.name;
        let accounts = format!("/api/v1/namespaces/{name}/serviceaccounts");
        self.cluster.create(&accounts, json!({ "metadata": { "name": "collector" } }));
        for file in rules {
            self.grant(file);
        }
        let spec = json!({ "spec": { "audiences": [], "expirationSeconds": 3600 } });
        let token = self.cluster.create(&format!("{accounts}/collector/token"), spec);
        kubeconfig_of(token["status"]["token"].as_str().unwrap(), room.folder.path())
    }

    /// Grants the ServiceAccount the rules in one of the chart's files.
    fn grant(&self, file: &str) {
        let name = self.name;
        let role = json!({ "metadata": { "generateName": "test-" }, "rules": rules(file) });
        let role = self.cluster.create("/apis/rbac.authorization.k8s.io/v1/clusterroles", role);
        let (group, name_of_role) = ("rbac.authorization.k8s.io", &role["metadata"]["name"]);
        let binding = json!({
            "metadata": { "generateName": "test-" },
            "roleRef": { "apiGroup": group, "kind": "ClusterRole", "name": name_of_role },
            "subjects": [{ "kind": "ServiceAccount", "name": "collector", "namespace": name }],
        });
        self.cluster.create("/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", binding);
    }

    fn room(&self, source: &str) -> Room {
        let lines = [
            format!("usage_source: {source}"),
            "usage_interval: 2s".to_owned(),
            format!("dcgm_selector: exports={}", self.name),
            format!("dcgm_namespace: {}", self.name),
            format!("dcgm_port: {}", self.exporter.address.port()),
        ];
        Room::new("token", &lines.iter().map(String::as_str).collect::<Vec<_>>())
    }

    /// Collects until there are some intervals, with one failure of an exporter in between, and compares all
    /// accounts.
    fn measure(&self, room: &mut Room, rules_of_source: &str) {
        let (worker, dcgm) = (self.uid("worker"), self.uid("dcgm"));
        let file = self.account(room, &["collector-rules.yaml"]);
        room.use_kubeconfig(file);
        let program = room.collect();
        let status = || room.status()["usage"].clone();
        eventually("the permission that is missing is named", || match &status()["errors"][0] {
            Value::String(problem) if problem.contains("is forbidden") => Ok(()),
            other => Err(other.to_string()),
        });
        self.grant(rules_of_source);
        let grows = |key: &str, more: u64| {
            let before = status()[key].as_u64().unwrap();
            eventually(key, || match status()[key].as_u64() {
                Some(now) if now >= before + more => Ok(()),
                _ => Err(status().to_string()),
            });
        };
        grows("intervals", 4);
        self.exporter.fail("/metrics");
        grows("incomplete_samples", 1);
        self.measure_gpus();
        grows("intervals", 4);
        assert!(room.metrics().contains("prorata_collector_usage_intervals_total"), "{}", room.metrics());
        for name in ["worker", "dcgm"] {
            self.cluster.delete(&format!("{}/{name}", self.pods), None);
        }
        self.cluster.emptied(&self.pods);
        wait_for_end(&room.events(), self.name, &worker);
        Room::stop(program).succeeded();
        let all = events(&room.events());
        let measured = tiles(&all, &worker);
        assert!(measured.len() >= 3, "{measured:?}");
        assert!(tiles(&all, &dcgm).len() > measured.len(), "the exporter's failure cost its pod nothing");
        let lake = room.fold();
        let life = &said(&all, self.name)[&worker];
        let at = |text: &str| prorata_collector::parse_instant(text).unwrap().0;
        let life = at(&life.start)..at(life.end.as_ref().unwrap());
        for (column, of) in [("x_UsedCpuCoreHours", 1), ("x_UsedMemoryGibHours", 2), ("x_UsedGpuHours", 3)] {
            let reported: f64 = measured.iter().map(|tile| amount(tile, of, &life)).sum();
            let costed = column_sums(&lake, self.name, column)[&worker];
            assert!(reported > 0.0 && (reported - costed).abs() < 1e-9, "{column}: {reported} and {costed}");
        }
    }

    fn uid(&self, pod: &str) -> String {
        let found = self.cluster.get(&format!("{}/{pod}", self.pods)).unwrap();
        found["metadata"]["uid"].as_str().unwrap().to_owned()
    }
}

/// The start, the end and the usage of one interval. The usage is in thousandths of a vCPU, bytes, and
/// thousandths of a GPU.
type Tile = (i64, i64, [i64; 3]);

/// Returns the intervals of a pod. Fails unless they are whole rounds without overlap.
fn tiles(events: &[Event], uid: &str) -> Vec<Tile> {
    let mut tiles = BTreeMap::new();
    for event in events {
        if let Payload::PodUsage(usage) = &event.payload
            && *usage.pod_uid == *uid
        {
            let (from, to) = (event.event_time.0, usage.interval_end.0);
            assert!(from % EVERY_MICROS == 0 && to % EVERY_MICROS == 0 && to > from, "{usage:?}");
            let used = [usage.cpu_millis, usage.memory_bytes, usage.gpu_millis];
            assert_eq!(tiles.insert(from, (from, to, used)), None, "one interval a round");
        }
    }
    let tiles: Vec<Tile> = tiles.into_values().collect();
    assert!(tiles.windows(2).all(|pair| pair[0].1 <= pair[1].0), "{tiles:?}");
    tiles
}

/// Returns the usage of one resource in the part of an interval in which the pod runs, in core-hours,
/// GiB-hours or GPU-hours.
fn amount((from, to, used): &Tile, of: usize, life: &Range<i64>) -> f64 {
    let units = [1e3, (1_u64 << 30) as f64, 1e3];
    let hours = ((*to).min(life.end) - (*from).max(life.start)).max(0) as f64 / 3.6e9;
    used[of - 1] as f64 / units[of - 1] * hours
}

fn now_millis() -> u128 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis()
}

#[test]
fn a_kubelet_and_an_exporter_measure_pods() {
    let _calm = shared();
    let site = Site::new("kubelet");
    let address = machine_address();
    let kubelet = Meter::start(site.cluster.runtime(), address, true);
    kubelet.answer("/metrics/resource", || {
        let (now, mut text) = (now_millis(), String::new());
        // Each pod uses 0.4 of a vCPU.
        let seconds = now as f64 / 1e3 * 0.4;
        for pod in ["worker", "dcgm"] {
            let labels = format!("{{namespace=\"kubelet\",pod=\"{pod}\"}}");
            text += &format!("pod_cpu_usage_seconds_total{labels} {seconds} {now}\n");
            text += &format!("pod_memory_working_set_bytes{labels} {MEMORY_BYTES} {now}\n");
        }
        text
    });
    let endpoint = json!({ "kubeletEndpoint": { "Port": kubelet.address.port() } });
    let addresses = json!([{ "type": "InternalIP", "address": address.to_string() }]);
    let status = json!({ "addresses": addresses, "daemonEndpoints": endpoint });
    site.cluster.patch("/api/v1/nodes/kubelet-0/status", json!({ "status": status }));
    let mut room = site.room("kubelet");
    site.measure(&mut room, "collector-usage/kubelet.yaml");
    let measured: Vec<Tile> = events(&room.events()).iter().filter_map(worked).collect();
    assert!(!measured.is_empty(), "the counters said 0.4 of a vCPU");
}

/// Returns the interval of an event if it has the usage of a pod with a GPU whose CPU was counted, and
/// otherwise `None`.
fn worked(event: &Event) -> Option<Tile> {
    let Payload::PodUsage(usage) = &event.payload else { return None };
    let used = [usage.cpu_millis, usage.memory_bytes, usage.gpu_millis];
    let is_worker = used[1..] == [MEMORY_BYTES, 500] && (395..=405).contains(&used[0]);
    is_worker.then_some((event.event_time.0, usage.interval_end.0, used))
}

#[test]
fn the_metrics_api_and_an_exporter_measure_pods() {
    let _calm = shared();
    let site = Site::new("metered");
    let loopback = IpAddr::V4(Ipv4Addr::LOCALHOST);
    let api = Meter::start(site.cluster.runtime(), loopback, true);
    let group = "/apis/metrics.k8s.io/v1beta1";
    let resource = json!({ "name": "pods", "namespaced": true, "kind": "PodMetrics", "verbs": ["list"] });
    let discovery = json!({
        "kind": "APIResourceList", "apiVersion": "v1",
        "groupVersion": "metrics.k8s.io/v1beta1", "resources": [resource],
    });
    api.answer(group, move || discovery.to_string());
    api.answer(&format!("{group}/pods"), || {
        let of = |pod: &str| {
            json!({
                "metadata": { "name": pod, "namespace": "metered" },
                "window": "15s",
                "containers": [{ "name": "main", "usage": { "cpu": "250400000n", "memory": "300Mi" } }],
            })
        };
        json!({ "kind": "PodMetricsList", "items": [of("worker"), of("dcgm")] }).to_string()
    });
    let service = json!({ "type": "ExternalName", "externalName": "localhost" });
    let service = json!({ "metadata": { "name": "metrics" }, "spec": service });
    site.cluster.create("/api/v1/namespaces/metered/services", service);
    let services = "/apis/apiregistration.k8s.io/v1/apiservices";
    let port = api.address.port();
    let spec = json!({
        "group": "metrics.k8s.io", "version": "v1beta1",
        "groupPriorityMinimum": 100, "versionPriority": 100,
        "insecureSkipTLSVerify": true,
        "service": { "namespace": "metered", "name": "metrics", "port": port },
    });
    let service = json!({ "metadata": { "name": "v1beta1.metrics.k8s.io" }, "spec": spec });
    site.cluster.create(services, service);
    eventually("the metrics API is served", || {
        site.cluster.get(&format!("{group}/pods")).map(drop).map_err(|code| code.to_string())
    });
    let mut room = site.room("metrics_api");
    site.measure(&mut room, "collector-usage/metrics_api.yaml");
    let measured = events(&room.events());
    let rates = measured.iter().filter_map(|event| match &event.payload {
        Payload::PodUsage(usage) => Some((usage.cpu_millis, usage.memory_bytes)),
        _ => None,
    });
    assert!(rates.into_iter().all(|rate| rate == (250, MEMORY_BYTES)));
    site.cluster.delete(&format!("{services}/v1beta1.metrics.k8s.io"), None);
}
