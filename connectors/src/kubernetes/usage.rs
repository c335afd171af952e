//! A single reading of the usage of pods. CPU and memory come from the metrics API or from each node's
//! kubelet, both through the API server, and GPUs from DCGM exporter.
//!
//! Exporters are found by their label, and read at the addresses of their pods. That needs only the
//! permission to list pods. Requests through the API server would need `get` of `pods/proxy`, which reaches
//! every port of every pod. For the same reason the metrics API, where it exists, is the better source of CPU
//! and memory. The kubelets need `get` of `nodes/proxy`, which is close to full control of all nodes.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use futures::{AsyncReadExt, StreamExt, stream};
use http::Request;
use kube::core::params::ListParams;
use prorata_collector::usage::UsageRound;
use prorata_schemas::Text;
use serde::Deserialize;
use tokio::time::{Instant, timeout};

use super::KubeFault;
use super::client::{KubeCluster, fault};
use super::watch::PageMeta;
use crate::store::causes;

/// Maximum number of concurrent reads.
const CONCURRENCY: usize = 8;
/// Maximum time that one read may take.
const PATIENCE: Duration = Duration::from_secs(10);
/// Maximum size of the metrics API's answer, in bytes. The answer holds all pods, with about 700 bytes each.
const LIST_BYTES_MAX: u64 = 128 << 20;
/// Maximum size of one node's answer, in bytes.
const NODE_BYTES_MAX: u64 = 16 << 20;
/// Maximum number of exporters that are read. Each node with GPUs has one exporter.
const EXPORTERS_MAX: usize = 10_000;
/// Number of exporters in a page of their list.
const PAGE_EXPORTERS: u32 = 200;
/// Maximum number of problems of one round that are reported. The others are only counted.
const PROBLEMS_MAX: usize = 5;

const LATE: &str = "not asked, because the others were too slow";

const METRICS_API: &str = "/apis/metrics.k8s.io/v1beta1/pods";

/// The source of CPU and memory usage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UsageSource {
    /// `metrics.k8s.io`, as metrics-server serves it.
    MetricsApi,
    /// `/metrics/resource` of each kubelet, through the API server.
    Kubelet,
}

/// The location of DCGM exporters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GpuExporters {
    /// The selector of the pods' labels.
    pub selector: String,
    /// The namespace of the exporters' pods; `None` for any namespace.
    pub namespace: Option<String>,
    /// The port that serves `/metrics`.
    pub port: u16,
}

/// The result of one round.
#[derive(Debug, Default)]
pub struct UsageRead {
    /// The usage of pods.
    pub round: UsageRound,
    /// The number of answers read.
    pub answers: u64,
    /// The number of failed reads.
    pub failed: u64,
    /// The reasons of the first few failures.
    pub problems: Vec<String>,
}

/// A reader of the usage of pods.
#[derive(Clone)]
pub struct UsageReader {
    cluster: KubeCluster,
    source: UsageSource,
    exporters: Option<GpuExporters>,
    http: reqwest::Client,
}

#[derive(Deserialize)]
struct ExporterPage {
    #[serde(default)]
    metadata: PageMeta,
    items: Option<Vec<Exporter>>,
}

#[derive(Deserialize)]
struct Exporter {
    #[serde(default)]
    status: ExporterStatus,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct ExporterStatus {
    #[serde(rename = "podIP")]
    pod_ip: Option<String>,
}

impl UsageReader {
    /// Makes a reader of one cluster without sending a request.
    ///
    /// # Errors
    /// If the system provides no TLS or no resolver.
    pub fn new(
        cluster: KubeCluster,
        source: UsageSource,
        exporters: Option<GpuExporters>,
    ) -> Result<Self, KubeFault> {
        // Pods are read at their own addresses: no proxy, and no redirects.
        let builder = reqwest::Client::builder().no_proxy().redirect(reqwest::redirect::Policy::none());
        let http = builder.timeout(PATIENCE).build();
        let http = http.map_err(|error| KubeFault::Configuration(causes(&error)))?;
        Ok(Self { cluster, source, exporters, http })
    }

    /// Reads all sources once, for at most about `limit`; reads `nodes` if kubelets are the source. Failures
    /// are reported, and do not hold up the other reads.
    pub async fn read(&self, nodes: Vec<Text>, limit: Duration) -> UsageRead {
        let deadline = Instant::now() + limit;
        let mut read = UsageRead::default();
        match self.source {
            UsageSource::MetricsApi => {
                let answer = self.through_api_server(METRICS_API, LIST_BYTES_MAX).await;
                let answer = answer.map_err(|fault| metrics_api_problem(&fault));
                read.take("metrics.k8s.io", answer, |round, answer| round.add_pod_metrics(&answer));
            }
            UsageSource::Kubelet => {
                let ask = |node: Text| async move {
                    let place = format!("node {node}");
                    if Instant::now() >= deadline {
                        return (place, Err(LATE.to_owned()));
                    }
                    let path = format!("/api/v1/nodes/{node}/proxy/metrics/resource");
                    let answer = self.through_api_server(&path, NODE_BYTES_MAX).await;
                    (place, answer.map_err(|fault| fault.to_string()))
                };
                let mut answers = stream::iter(nodes).map(ask).buffer_unordered(CONCURRENCY);
                while let Some((place, answer)) = answers.next().await {
                    let answer = answer.and_then(text);
                    read.take(&place, answer, |round, text| round.add_kubelet(&text));
                }
            }
        }
        if let Some(exporters) = &self.exporters {
            self.read_gpus(exporters, deadline, &mut read).await;
        }
        read
    }

    async fn read_gpus(&self, exporters: &GpuExporters, deadline: Instant, read: &mut UsageRead) {
        let addresses = match self.exporter_addresses(exporters).await {
            Ok(addresses) => addresses,
            Err(problem) => {
                read.round.lose_gpus();
                return read.fail(&format!("pods with {}", exporters.selector), &problem);
            }
        };
        let ask = |address: SocketAddr| async move {
            let is_late = Instant::now() >= deadline;
            (address, if is_late { Err(LATE.to_owned()) } else { self.directly(address).await })
        };
        let failed = read.failed;
        let mut answers = stream::iter(addresses).map(ask).buffer_unordered(CONCURRENCY);
        while let Some((address, answer)) = answers.next().await {
            let answer = answer.and_then(text);
            read.take(&format!("exporter {address}"), answer, |round, text| round.add_dcgm(&text));
        }
        if read.failed > failed {
            read.round.lose_gpus();
        }
    }

    /// Returns the addresses of the running exporters.
    async fn exporter_addresses(&self, exporters: &GpuExporters) -> Result<Vec<SocketAddr>, String> {
        let path = exporters.namespace.as_ref().map_or_else(
            || "/api/v1/pods".to_owned(),
            |namespace| format!("/api/v1/namespaces/{namespace}/pods"),
        );
        let params = ListParams::default().labels(&exporters.selector).fields("status.phase=Running");
        let mut params = params.limit(PAGE_EXPORTERS);
        let mut addresses = Vec::new();
        loop {
            let request = kube::core::Request::new(path.as_str()).list(&params).map_err(|e| causes(&e))?;
            let asked = timeout(PATIENCE, self.cluster.client().request::<ExporterPage>(request)).await;
            let page = asked.map_err(|_| slow())?.map_err(|error| fault(&error).to_string())?;
            let pods = page.items.unwrap_or_default();
            let ips = pods.into_iter().filter_map(|pod| pod.status.pod_ip?.parse::<IpAddr>().ok());
            addresses.extend(ips.map(|ip| SocketAddr::new(ip, exporters.port)));
            params.continue_token = page.metadata.r#continue.filter(|token| !token.is_empty());
            if params.continue_token.is_none() {
                return Ok(addresses);
            }
            if addresses.len() >= EXPORTERS_MAX {
                return Err(format!("more than {EXPORTERS_MAX} pods have these labels"));
            }
        }
    }

    async fn through_api_server(&self, path: &str, most: u64) -> Result<Vec<u8>, KubeFault> {
        let request = Request::get(path)
            .body(Vec::new())
            .map_err(|error| KubeFault::Configuration(format!("{path}: {error}")))?;
        let read = async {
            let answer = self.cluster.client().request_stream(request).await;
            let answer = answer.map_err(|error| fault(&error))?;
            let mut bytes = Vec::new();
            let broken = |error: std::io::Error| KubeFault::Unavailable(causes(&error));
            std::pin::pin!(answer.take(most + 1)).read_to_end(&mut bytes).await.map_err(broken)?;
            Ok(bytes)
        };
        let bytes = timeout(PATIENCE, read).await.unwrap_or_else(|_| Err(KubeFault::Unavailable(slow())))?;
        if bytes.len() as u64 > most { Err(KubeFault::Unavailable(too_long(most))) } else { Ok(bytes) }
    }

    async fn directly(&self, address: SocketAddr) -> Result<Vec<u8>, String> {
        let request = self.http.get(format!("http://{address}/metrics")).send().await;
        let mut answer = request.and_then(reqwest::Response::error_for_status).map_err(|e| causes(&e))?;
        let mut bytes = Vec::new();
        while let Some(chunk) = answer.chunk().await.map_err(|error| causes(&error))? {
            bytes.extend_from_slice(&chunk);
            if bytes.len() as u64 > NODE_BYTES_MAX {
                return Err(too_long(NODE_BYTES_MAX));
            }
        }
        Ok(bytes)
    }
}

impl UsageRead {
    /// Adds the answer of a source to the round, or notes why the source failed.
    fn take<T, E: std::fmt::Display>(
        &mut self,
        place: &str,
        answer: Result<T, String>,
        add: impl FnOnce(&mut UsageRound, T) -> Result<(), E>,
    ) {
        let added = answer.and_then(|answer| add(&mut self.round, answer).map_err(|error| error.to_string()));
        match added {
            Ok(()) => self.answers += 1,
            Err(problem) => self.fail(place, &problem),
        }
    }

    fn fail(&mut self, place: &str, problem: &str) {
        self.failed += 1;
        if self.problems.len() < PROBLEMS_MAX {
            self.problems.push(format!("{place}: {problem}"));
        }
    }
}

fn text(bytes: Vec<u8>) -> Result<String, String> {
    String::from_utf8(bytes).map_err(|error| format!("it is not UTF-8: {error}"))
}

fn slow() -> String {
    format!("no answer within {} s", PATIENCE.as_secs())
}

fn too_long(most: u64) -> String {
    format!("the answer has more than {} MiB", most >> 20)
}

fn metrics_api_problem(fault: &KubeFault) -> String {
    match fault {
        KubeFault::Permission(_) => {
            format!("{fault}; grant list in a ClusterRole (apiGroups: [metrics.k8s.io], resources: [pods])")
        }
        fault => format!("{fault}; install metrics-server, or set collect.usage_source to kubelet"),
    }
}
