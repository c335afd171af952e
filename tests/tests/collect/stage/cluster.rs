//! The cluster that tests act on: it creates, changes and removes objects, and kills and restarts servers.

use std::collections::BTreeMap;
use std::fs::File;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};

use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use prorata_testkit::wait::eventually;
use prorata_tests::program::send;
use serde_json::{Value, json};
use tokio::runtime::Runtime;

/// Returns the path of the kubeconfig of the cluster, from `servers.py --kubernetes`.
pub fn kubeconfig() -> PathBuf {
    std::env::var_os("PRORATA_TEST_KUBERNETES").expect("run by servers.py --kubernetes").into()
}

/// A client of the cluster, with all permissions.
#[derive(Clone)]
pub struct Cluster {
    runtime: Arc<Runtime>,
    pub client: Client,
}

/// The answer to a request: the object, or the status code of a refusal.
pub type Answer = Result<Value, u16>;

impl Cluster {
    pub fn open() -> Self {
        Self::as_user("token")
    }

    /// Creates a client with the permissions of a context's user.
    pub fn as_user(context: &str) -> Self {
        Self::by(context, None)
    }

    /// Creates a client of the API server at this URL.
    pub fn at(url: &str) -> Self {
        Self::by("token", Some(url))
    }

    fn by(context: &str, url: Option<&str>) -> Self {
        let runtime = Arc::new(Runtime::new().unwrap());
        let client = runtime.block_on(async {
            let options =
                KubeConfigOptions { context: Some(context.to_owned()), ..KubeConfigOptions::default() };
            let file = Kubeconfig::read_from(kubeconfig()).unwrap();
            let mut config = Config::from_custom_kubeconfig(file, &options).await.unwrap();
            if let Some(url) = url {
                config.cluster_url = url.parse().unwrap();
            }
            Client::try_from(config).unwrap()
        });
        Self { runtime, client }
    }

    pub fn runtime(&self) -> &Runtime {
        &self.runtime
    }

    async fn ask(client: Client, method: &str, path: String, body: Value) -> Answer {
        let (method, kind) = match method {
            "PATCH" => (method, "application/strategic-merge-patch+json"),
            // Custom resources have no strategic merge.
            "MERGE" => ("PATCH", "application/merge-patch+json"),
            _ => (method, "application/json"),
        };
        let request = http::Request::builder().method(method).uri(path).header("content-type", kind);
        let bytes = if body.is_null() { Vec::new() } else { body.to_string().into_bytes() };
        match client.request::<Value>(request.body(bytes).unwrap()).await {
            Ok(answer) => Ok(answer),
            Err(kube::Error::Api(status)) => Err(status.code),
            Err(error) => panic!("{error}"),
        }
    }

    fn request(&self, method: &str, path: &str, body: Value) -> Answer {
        self.runtime.block_on(Self::ask(self.client.clone(), method, path.to_owned(), body))
    }

    pub fn get(&self, path: &str) -> Answer {
        self.request("GET", path, Value::Null)
    }

    pub fn create(&self, path: &str, object: Value) -> Value {
        self.request("POST", path, object).unwrap_or_else(|code| panic!("{path}: {code}"))
    }

    /// Creates many objects, a few at a time.
    pub fn create_all(&self, path: &str, objects: Vec<Value>) {
        use futures::StreamExt;
        let one = |object| Self::ask(self.client.clone(), "POST", path.to_owned(), object);
        let all = futures::stream::iter(objects).map(one).buffer_unordered(8);
        let answers = self.runtime.block_on(all.collect::<Vec<_>>());
        assert!(answers.iter().all(Result::is_ok), "{answers:?}");
    }

    pub fn patch(&self, path: &str, change: Value) -> Value {
        self.try_patch(path, change).unwrap_or_else(|code| panic!("{path}: {code}"))
    }

    pub fn try_patch(&self, path: &str, change: Value) -> Answer {
        self.request("PATCH", path, change)
    }

    /// Changes a custom resource.
    pub fn merge(&self, path: &str, change: Value) -> Value {
        self.request("MERGE", path, change).unwrap_or_else(|code| panic!("{path}: {code}"))
    }

    /// Deletes an object unless it is gone, with this grace period in seconds if there is one.
    pub fn delete(&self, path: &str, grace: Option<u32>) {
        let options = json!({ "gracePeriodSeconds": grace, "propagationPolicy": "Background" });
        if let Err(code) = self.request("DELETE", path, options) {
            assert_eq!(code, 404, "{path}");
        }
    }

    /// Grants a user of the kubeconfig the permissions of a ClusterRole.
    pub fn bind(&self, user: &str, role: &str) {
        let binding = json!({
            "metadata": { "generateName": "test-" },
            "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role },
            "subjects": [{ "kind": "User", "name": user }],
        });
        self.create("/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", binding);
    }

    /// Returns an object as text, or an error while the server is down.
    pub fn try_get(&self, path: &str) -> Result<String, String> {
        let request = http::Request::get(path).body(Vec::new()).unwrap();
        let asked = self.client.request_text(request);
        self.runtime.block_on(asked).map_err(|error| error.to_string())
    }

    pub fn list(&self, path: &str) -> Vec<Value> {
        self.get(path).unwrap()["items"].as_array().unwrap().clone()
    }

    /// Creates a namespace, and waits until pods can be created in it. Returns the path of its pods.
    pub fn namespace(&self, name: &str) -> String {
        self.create("/api/v1/namespaces", json!({ "metadata": { "name": name } }));
        let account = format!("/api/v1/namespaces/{name}/serviceaccounts/default");
        eventually("a service account", || self.get(&account).map_err(|code| code.to_string()));
        format!("/api/v1/namespaces/{name}/pods")
    }

    /// Creates a ready node of 64 cores and eight GPUs that only runs pods of `group`.
    pub fn node(&self, name: &str, group: &str) {
        self.node_of_cores(name, group, "64");
    }

    /// Like [`Self::node`], with this many cores.
    pub fn node_of_cores(&self, name: &str, group: &str, cores: &str) {
        self.create_node(name, node(name, group, cores));
    }

    /// Creates a node like [`Self::node`], with these labels and annotations, and with this capacity instead
    /// of GPUs.
    pub fn node_of(&self, name: &str, group: &str, (labels, annotations, capacity): (Value, Value, Value)) {
        let mut node = node(name, group, "64");
        node["metadata"]["annotations"] = annotations;
        let add = |to: &mut Value, from: &Value| {
            let from = from.as_object().unwrap().clone();
            to.as_object_mut().unwrap().extend(from);
        };
        add(&mut node["metadata"]["labels"], &labels);
        for room in ["capacity", "allocatable"] {
            node["status"][room].as_object_mut().unwrap().remove("nvidia.com/gpu");
            add(&mut node["status"][room], &capacity);
        }
        self.create_node(name, node);
    }

    fn create_node(&self, name: &str, node: Value) {
        self.create("/api/v1/nodes", node);
        let path = format!("/api/v1/nodes/{name}");
        eventually("a ready node", || {
            let node = self.get(&path).unwrap();
            let conditions = node["status"]["conditions"].as_array().cloned().unwrap_or_default();
            let ready = conditions.iter().any(|one| one["type"] == "Ready" && one["status"] == "True");
            let taints = node["spec"]["taints"].as_array().map_or(0, Vec::len);
            if ready && taints == 0 { Ok(()) } else { Err(node["status"].to_string()) }
        });
    }

    /// Waits until no pod is left at the path.
    pub fn emptied(&self, pods: &str) {
        eventually("no pod", || match self.list(pods).len() {
            0 => Ok(()),
            left => Err(format!("{left} pods are left")),
        });
    }
}

fn node(name: &str, group: &str, cores: &str) -> Value {
    let capacity = json!({
        "cpu": cores, "memory": "512Gi", "ephemeral-storage": "1Ti", "pods": "2000", "nvidia.com/gpu": "8",
    });
    json!({
        "metadata": {
            "name": name,
            "labels": {
                "kubernetes.io/hostname": name,
                "kubernetes.io/os": "linux",
                "node.kubernetes.io/instance-type": "p5.48xlarge",
                "topology.kubernetes.io/region": "us-east-1",
                "topology.kubernetes.io/zone": "us-east-1a",
                "nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3",
                "group": group,
            },
        },
        "spec": { "providerID": format!("aws:///us-east-1a/{name}") },
        "status": { "capacity": capacity, "allocatable": capacity },
    })
}

/// Returns a pod for the nodes of a group.
pub fn pod(name: &str, group: &str) -> Value {
    json!({ "metadata": { "name": name, "labels": { "app": group } }, "spec": pod_spec(group) })
}

/// Returns the spec of a pod for the nodes of a group.
pub fn pod_spec(group: &str) -> Value {
    json!({
        "nodeSelector": { "group": group },
        "terminationGracePeriodSeconds": 1,
        "containers": [{
            "name": "main",
            "image": "none",
            "resources": { "requests": { "cpu": "50m", "memory": "64Mi" } },
        }],
    })
}

/// Servers that tests have restarted, by name.
static RESTARTED: Mutex<BTreeMap<String, Child>> = Mutex::new(BTreeMap::new());

/// Kills a server of the cluster, and restarts it with the same arguments. The server keeps running for later
/// tests until `servers.py` ends it.
pub fn restart(name: &str) {
    let server = listed(name);
    let mut restarted = RESTARTED.lock().unwrap_or_else(PoisonError::into_inner);
    match restarted.remove(name) {
        Some(mut earlier) => {
            earlier.kill().unwrap();
            earlier.wait().unwrap();
        }
        None => {
            let process = u32::try_from(server["pid"].as_u64().unwrap()).unwrap();
            send("KILL", process);
            // The port is free once the process is gone.
            eventually("the server is gone", || {
                let is_there = Path::new(&format!("/proc/{process}")).exists();
                if is_there { Err(process.to_string()) } else { Ok(()) }
            });
        }
    }
    restarted.insert(name.to_owned(), run(&arguments(&server), server["log"].as_str().unwrap()));
}

/// Another API server of the cluster, whose watches are not disturbed when the first server stops. No test
/// stops this server. It ends when it is dropped.
pub struct SecondServer {
    child: Child,
    pub url: String,
}

impl SecondServer {
    pub fn start() -> Self {
        let server = listed("kube-apiserver");
        let mut arguments = arguments(&server);
        let at = arguments.iter().position(|argument| argument == "--secure-port").unwrap() + 1;
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        arguments[at] = port.to_string();
        let log = format!("{}.second", server["log"].as_str().unwrap());
        let second = Self { child: run(&arguments, &log), url: format!("https://127.0.0.1:{port}") };
        let cluster = Cluster::at(&second.url);
        eventually("the second API server is ready", || cluster.try_get("/readyz"));
        second
    }
}

impl Drop for SecondServer {
    fn drop(&mut self) {
        // The server may have ended already.
        let _gone = self.child.kill();
        let _gone = self.child.wait();
    }
}

/// Returns the entry of a server in the list of `servers.py`.
fn listed(name: &str) -> Value {
    let listing = std::env::var_os("PRORATA_TEST_KUBERNETES_SERVERS").unwrap();
    let servers: Vec<Value> = serde_json::from_slice(&std::fs::read(listing).unwrap()).unwrap();
    servers.into_iter().find(|server| server["name"] == name).unwrap()
}

fn arguments(server: &Value) -> Vec<String> {
    server["command"].as_array().unwrap().iter().map(|one| one.as_str().unwrap().to_owned()).collect()
}

fn run(arguments: &[String], log: &str) -> Child {
    let log = File::options().create(true).append(true).open(log).unwrap();
    let mut command = Command::new(&arguments[0]);
    command.args(&arguments[1..]).current_dir(kubeconfig().parent().unwrap());
    command.stdin(Stdio::null()).stdout(log.try_clone().unwrap()).stderr(log);
    command.spawn().unwrap()
}
