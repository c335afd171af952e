//! An API server played by the test, with more pods than a real server can create during a test. It lists
//! nodes and pods in pages and serves watches. Each pod is as large as in a cluster in use.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use prorata_schemas::time::Timestamp;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncWrite, AsyncWriteExt, BufReader};
use tokio::net::TcpListener;
use tokio::runtime::Runtime;
use tokio::sync::watch;
use tokio::time::{Instant, timeout_at};

use super::cluster::kubeconfig;
use super::collector::Room;
use super::lives::second_of;
use super::meters::acceptor;

/// Number of pods of each node.
const PODS_PER_NODE: usize = 100;
/// Version of the lists; the change with index `i` has the version `FIRST + 1 + i`.
const FIRST: usize = 1_000_000;
/// Number of pods that come and go at the same time in the watch.
const SIDE_BY_SIDE: usize = 100;
/// Duration of a watch.
const WATCH: Duration = Duration::from_secs(60);
/// Number of changes in one piece of a watch's answer.
const PIECE: usize = 20;

/// Number of changes that a watch reports for one pod, from its binding to its removal.
pub const STAGES: usize = 7;

/// A server with this many permanent pods, which ends when it is dropped.
pub struct PlayedServer {
    url: String,
    released: watch::Sender<usize>,
    dropped: Arc<AtomicUsize>,
    traffic: Arc<Traffic>,
    _runtime: Runtime,
}

/// Number of requests to the server, and number of bytes of its answers.
#[derive(Debug, Default)]
pub struct Traffic {
    pub requests: AtomicU64,
    pub bytes: AtomicU64,
}

/// The objects that the server has.
struct Site {
    pods: usize,
    /// The time at which the permanent pods started.
    began: String,
    /// Pods of each stage, with placeholders for the parts that differ.
    texts: [String; STAGES],
    released: watch::Receiver<usize>,
    dropped: Arc<AtomicUsize>,
    traffic: Arc<Traffic>,
}

impl PlayedServer {
    pub fn start(pods: usize) -> Self {
        let runtime = Runtime::new().unwrap();
        let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
        let url = format!("https://{}", listener.local_addr().unwrap());
        let (released, changes) = watch::channel(0);
        let traffic = Arc::<Traffic>::default();
        let dropped = Arc::<AtomicUsize>::default();
        let texts = std::array::from_fn(|stage| pod(stage).to_string());
        let site = Site {
            pods,
            began: now(),
            texts,
            released: changes,
            dropped: Arc::clone(&dropped),
            traffic: Arc::clone(&traffic),
        };
        let site = Arc::new(site);
        let tls = acceptor();
        runtime.spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (tls, site) = (tls.clone(), Arc::clone(&site));
                tokio::spawn(async move {
                    // A peer that hangs up is not a fault of the server.
                    if let Ok(stream) = tls.accept(stream).await {
                        drop(site.serve(BufReader::new(stream)).await);
                    }
                });
            }
        });
        Self { url, released, dropped, traffic, _runtime: runtime }
    }

    /// Writes a kubeconfig of this server.
    pub fn kubeconfig(&self, room: &Room) -> PathBuf {
        let text = std::fs::read_to_string(kubeconfig()).unwrap();
        let mut config: Value = serde_json::from_str(&text).unwrap();
        config["clusters"][0]["cluster"]["server"] = self.url.as_str().into();
        let path = room.path("kubeconfig");
        std::fs::write(&path, config.to_string()).unwrap();
        path
    }

    /// Lets the watch of pods report its first `changes`.
    pub fn release(&self, changes: usize) {
        self.released.send_replace(changes);
    }

    /// Removes the first `pods` permanent pods. No watch reports this.
    pub fn drop_unseen(&self, pods: usize) {
        self.dropped.store(pods, Ordering::Relaxed);
    }

    pub fn traffic(&self) -> (u64, u64) {
        (self.traffic.requests.load(Ordering::Relaxed), self.traffic.bytes.load(Ordering::Relaxed))
    }
}

impl Site {
    async fn serve(
        &self,
        mut stream: impl AsyncBufReadExt + AsyncRead + AsyncWrite + Unpin,
    ) -> std::io::Result<()> {
        loop {
            let mut head = String::new();
            while !head.ends_with("\r\n\r\n") {
                if stream.read_line(&mut head).await? == 0 {
                    return Ok(());
                }
            }
            self.traffic.requests.fetch_add(1, Ordering::Relaxed);
            let target = head.split(' ').nth(1).unwrap_or_default();
            let (path, query) = target.split_once('?').unwrap_or((target, ""));
            let of = |name: &str| {
                let mut pairs = query.split('&').filter_map(|pair| pair.split_once('='));
                pairs.find(|(key, _)| *key == name).and_then(|(_, value)| value.parse::<usize>().ok())
            };
            let (status, body) = match path {
                _ if query.contains("watch=true") => {
                    let from = of("resourceVersion").unwrap_or(FIRST) - FIRST;
                    self.watch(&mut stream, path == "/api/v1/pods", from).await?;
                    continue;
                }
                "/version" => ("200 OK", "{}".to_owned()),
                "/api/v1/namespaces/kube-system" => {
                    ("200 OK", json!({ "metadata": { "uid": "played" } }).to_string())
                }
                "/api/v1/nodes" => ("200 OK", self.nodes()),
                "/api/v1/pods" => (
                    "200 OK",
                    self.page(
                        of("continue").unwrap_or_else(|| self.dropped.load(Ordering::Relaxed)),
                        of("limit").unwrap_or(self.pods),
                    ),
                ),
                _ => ("404 Not Found", json!({ "kind": "Status", "code": 404 }).to_string()),
            };
            let head = format!(
                "HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n",
                body.len()
            );
            self.send(&mut stream, &head).await?;
            self.send(&mut stream, &body).await?;
        }
    }

    async fn send(&self, stream: &mut (impl AsyncWrite + Unpin), text: &str) -> std::io::Result<()> {
        stream.write_all(text.as_bytes()).await?;
        stream.flush().await?;
        self.traffic.bytes.fetch_add(text.len() as u64, Ordering::Relaxed);
        Ok(())
    }

    /// Serves a watch, which reports the changes from `from` on as they are released.
    async fn watch(
        &self,
        stream: &mut (impl AsyncWrite + Unpin),
        is_of_pods: bool,
        from: usize,
    ) -> std::io::Result<()> {
        let head = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n";
        self.send(stream, head).await?;
        let (mut next, mut released, end) = (from, self.released.clone(), Instant::now() + WATCH);
        while let Ok(Ok(until)) = timeout_at(end, released.wait_for(|until| is_of_pods && *until > next))
            .await
            .map(|until| until.map(|until| *until))
        {
            let mut piece = String::new();
            for index in next..until.min(next + PIECE) {
                let (stage, kind) = match index / SIDE_BY_SIDE % STAGES {
                    0 => (0, "ADDED"),
                    last if last == STAGES - 1 => (last, "DELETED"),
                    stage => (stage, "MODIFIED"),
                };
                let number =
                    self.pods + index / (SIDE_BY_SIDE * STAGES) * SIDE_BY_SIDE + index % SIDE_BY_SIDE;
                let object = self.pod(number, stage, FIRST + 1 + index, &now());
                writeln!(piece, "{{\"type\":\"{kind}\",\"object\":{object}}}").unwrap();
            }
            next = until.min(next + PIECE);
            self.send(stream, &format!("{:x}\r\n{piece}\r\n", piece.len())).await?;
        }
        self.send(stream, "0\r\n\r\n").await
    }

    /// Returns a pod in this stage, with this start time.
    fn pod(&self, number: usize, stage: usize, version: usize, time: &str) -> String {
        self.texts[stage]
            .replace("@NUMBER@", &format!("{number:012}"))
            .replace("@NODE@", &format!("node-{}", number % (self.pods / PODS_PER_NODE).max(1)))
            .replace("@VERSION@", &version.to_string())
            .replace("@TIME@", time)
    }

    /// Returns a page of the permanent pods, all of them running.
    fn page(&self, from: usize, limit: usize) -> String {
        let to = self.pods.min(from + limit);
        let items =
            (from..to).map(|number| self.pod(number, 3, FIRST, &self.began)).collect::<Vec<_>>().join(",");
        let next = if to < self.pods { to.to_string() } else { String::new() };
        let meta = json!({ "resourceVersion": FIRST.to_string(), "continue": next });
        format!("{{\"kind\":\"PodList\",\"metadata\":{meta},\"items\":[{items}]}}")
    }

    fn nodes(&self) -> String {
        let capacity = json!({ "cpu": "128", "memory": "512Gi", "pods": "500", "nvidia.com/gpu": "8" });
        let labels = json!({
            "node.kubernetes.io/instance-type": "p5.48xlarge",
            "topology.kubernetes.io/region": "us-east-1",
            "topology.kubernetes.io/zone": "us-east-1a",
        });
        let node = |number| {
            json!({
                "metadata": {
                    "name": format!("node-{number}"), "uid": format!("node-{number}-uid"),
                    "resourceVersion": "1", "creationTimestamp": "2026-01-01T00:00:00Z", "labels": labels,
                },
                "spec": { "providerID": format!("aws:///us-east-1a/i-{number:017}") },
                "status": { "capacity": capacity, "allocatable": capacity },
            })
        };
        let items: Vec<_> = (0..(self.pods / PODS_PER_NODE).max(1)).map(node).collect();
        json!({ "metadata": { "resourceVersion": FIRST.to_string() }, "items": items }).to_string()
    }
}

/// Formats the current time as Kubernetes does.
fn now() -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_micros();
    second_of(Timestamp(i64::try_from(now).unwrap()))
}

/// Returns a pod in a stage of its life: bound, accepted, containers created, running, to be deleted, ended,
/// gone. The pod takes about 13 kB, half of which are managed fields.
fn pod(stage: usize) -> Value {
    let setting = |number| format!("SERVICE_SETTING_{number}");
    let value = "some-value-of-a-setting";
    let envs: Vec<_> = (0..24).map(|number| json!({ "name": setting(number), "value": value })).collect();
    let resources = json!({
        "requests": { "cpu": "250m", "memory": "512Mi" }, "limits": { "cpu": "1", "memory": "1Gi" },
    });
    let container = |name: &str| {
        json!({
            "name": name, "image": "registry.example.com/team/service:2026.11.23", "env": envs,
            "resources": resources, "imagePullPolicy": "IfNotPresent", "ports": [{ "containerPort": 8080 }],
            "livenessProbe": { "httpGet": { "path": "/livez", "port": 8080 }, "periodSeconds": 10 },
            "volumeMounts": [{ "name": "token", "mountPath": "/var/run/secrets/tokens", "readOnly": true }],
        })
    };
    let fields: serde_json::Map<String, Value> = (0..64)
        .map(|number| {
            (
                format!("k:{{\"name\":\"SERVICE_SETTING_{number}\"}}"),
                json!({ ".": {}, "f:name": {}, "f:value": {} }),
            )
        })
        .collect();
    let managed: Vec<_> = ["kube-controller-manager", "kubelet"]
        .map(|manager| {
            json!({
                "manager": manager, "operation": "Update", "apiVersion": "v1", "time": "@TIME@",
                "fieldsType": "FieldsV1", "fieldsV1": { "f:spec": { "f:containers": fields } },
            })
        })
        .into();
    let mut metadata = json!({
        "name": "service-7d9c5bb6f8-@NUMBER@", "namespace": "team-services", "resourceVersion": "@VERSION@",
        "uid": "3f0b6a6e-6f0e-4a53-9d3f-@NUMBER@", "creationTimestamp": "@TIME@",
        "labels": { "app": "service", "team": "platform", "pod-template-hash": "7d9c5bb6f8" },
        "ownerReferences": [{
            "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "service-7d9c5bb6f8", "controller": true,
        }],
        "managedFields": managed,
    });
    if stage >= 4 {
        metadata["deletionTimestamp"] = "@TIME@".into();
        metadata["deletionGracePeriodSeconds"] = if stage == 6 { 0 } else { 30 }.into();
    }
    let condition = |kind| json!({ "type": kind, "status": "True", "lastTransitionTime": "@TIME@" });
    let mut status = json!({ "phase": "Pending", "conditions": [condition("PodScheduled")] });
    if stage >= 1 {
        status["startTime"] = "@TIME@".into();
    }
    if stage >= 3 {
        status["phase"] = "Running".into();
        status["conditions"] =
            ["PodScheduled", "Initialized", "ContainersReady", "Ready"].map(condition).into();
        let state = json!({ "running": { "startedAt": "@TIME@" } });
        let ended = json!({ "terminated": { "finishedAt": "@TIME@", "exitCode": 0 } });
        let status_of = |name| {
            json!({
                "name": name, "ready": true, "resources": resources,
                "state": if stage < 5 { &state } else { &ended },
            })
        };
        status["containerStatuses"] = ["main", "side"].map(status_of).into();
    }
    if stage >= 5 {
        status["phase"] = "Succeeded".into();
    }
    let spec = json!({
        "nodeName": "@NODE@", "containers": [container("main"), container("side")],
    });
    json!({ "kind": "Pod", "apiVersion": "v1", "metadata": metadata, "spec": spec, "status": status })
}
