//! Workloads: the requests of their pods, and the pods themselves.

use prorata_schemas::Text;
use prorata_schemas::event::{Labels, PodStarted, Quantities};
use prorata_schemas::ids::PoolId;
use prorata_schemas::time::Timestamp;
use rand::Rng;
use rand_chacha::ChaCha8Rng;

use super::classes::{Placement, PodClass};
use super::fleet::Amounts;
use crate::HOUR;
use crate::clusters::catalogue::{ReservationUnit, UNITS};
use crate::clusters::{CLUSTERS, GROUPS, POOL_L4, POOL_L40S, SERVERLESS};
use crate::quantities::{put_cpu_as_written, put_memory_as_written, put_mib, put_millis};
use crate::random::{chance, pick, span, suffix, uid};

/// The properties that all pods of one workload share.
#[derive(Clone, Debug)]
pub struct Workload {
    pub class: &'static PodClass,
    pub name: Text,
    pub namespace: Text,
    /// Index of the workload's node group.
    pub group: Option<usize>,
    /// Index of the workload's cluster.
    pub cluster: usize,
    pub need: Amounts,
    pub pool_id: Option<PoolId>,
    pub qos: Text,
    pub gpu_model: Option<Text>,
    pub requests: Quantities,
    pub limits: Quantities,
    pub labels: Labels,
    /// GPUs of one pod in thousandths, including MIG slices. Measured use is drawn from it.
    pub gpu_millis: u64,
}

const TEAMS: &[&str] = &["storefront", "ranking", "ledger", "ml-platform", "data", "vision", "speech"];
const ENVIRONMENTS: &[&str] = &["prod", "staging", "dev"];
const COST_CENTERS: &[&str] = &["cc-1001", "cc-1002", "cc-2040", "cc-3107"];
const TIERS: &[&str] = &["frontend", "backend", "batch", "cache"];
const QOS_OF_POOL_PODS: &[&str] = &["", "default", "default", "low", "medium", "high", "critical"];

impl Workload {
    /// Draws a new workload of this class.
    pub fn draw(rng: &mut ChaCha8Rng, class: &'static PodClass) -> Self {
        let group = match class.placement {
            Placement::Nodes(groups) | Placement::PoolNodes(groups) => pick(rng, groups).copied(),
            Placement::Slices(group) => Some(group),
            Placement::Serverless | Placement::PoolOnly => None,
        };
        let cluster = match class.placement {
            Placement::Serverless => SERVERLESS,
            _ => group.and_then(|index| GROUPS.get(index)).map_or(0, |group| group.cluster),
        };
        let name: Text = format!("{}-{}", class.name, suffix(rng)).into();
        let namespace: Text = pick(rng, class.namespaces).copied().unwrap_or("default").into();
        let need = Amounts {
            cpu_millis: pick(rng, class.cpu_millis).copied().unwrap_or(100),
            memory_mib: pick(rng, class.memory_mib).copied().unwrap_or(128),
            gpus: pick(rng, class.gpus).copied().unwrap_or(0),
            ..Amounts::default()
        };
        let labels = labels(rng, class, &name);
        let mut workload = Self {
            class,
            name,
            namespace,
            group,
            cluster,
            need,
            pool_id: None,
            qos: "default".into(),
            gpu_model: None,
            requests: Quantities::new(),
            limits: Quantities::new(),
            labels,
            gpu_millis: need.gpus * 1000,
        };
        workload.request(rng);
        workload
    }

    /// Sets requests and limits, according to the placement.
    fn request(&mut self, rng: &mut ChaCha8Rng) {
        match self.class.placement {
            Placement::Serverless => self.request_unit(rng),
            Placement::Slices(_) => self.request_slices(rng),
            Placement::PoolNodes(_) | Placement::PoolOnly => self.request_pool(rng),
            Placement::Nodes(_) => {}
        }
        put_cpu_as_written(rng, &mut self.requests, "cpu", self.need.cpu_millis);
        put_memory_as_written(rng, &mut self.requests, "memory", self.need.memory_mib);
        if chance(rng, 100_000) {
            put_mib(&mut self.requests, "ephemeral-storage", 2048);
        }
        if chance(rng, 600_000) {
            put_millis(&mut self.limits, "cpu", self.need.cpu_millis * 2);
            put_mib(&mut self.limits, "memory", self.need.memory_mib);
        }
        if self.need.gpus > 0 {
            let accelerator = self.group.and_then(|index| GROUPS.get(index));
            let resource = accelerator.map_or("nvidia.com/gpu", |group| group.accelerator);
            put_millis(&mut self.requests, resource, self.need.gpus * 1000);
            put_millis(&mut self.limits, resource, self.need.gpus * 1000);
        }
        if matches!(self.class.placement, Placement::PoolNodes(_)) {
            // Pods of a pool share its GPUs, so GPUs do not limit what fits on a node.
            self.need.gpus = 0;
        }
    }

    /// Sizes a serverless pod by the units that its provider sells. A few pods request more than their unit
    /// has.
    fn request_unit(&mut self, rng: &mut ChaCha8Rng) {
        if chance(rng, 250_000) {
            return;
        }
        let p16en = chance(rng, 500_000);
        let units: Vec<&ReservationUnit> =
            UNITS.iter().filter(|unit| if p16en { unit.card == "P16EN" } else { unit.gpus <= 4 }).collect();
        let smallest = units.get(..3).unwrap_or(&units);
        let choices = if p16en && chance(rng, 800_000) { smallest } else { &units };
        let Some(unit) = pick(rng, choices) else { return };
        let percent = pick(rng, &[50, 75, 90, 100, 100, 110]).copied().unwrap_or(100);
        self.need = Amounts {
            cpu_millis: unit.vcpu * 10 * percent,
            memory_mib: unit.memory_gib * 1024 * percent.min(100) / 100,
            gpus: unit.gpus,
            ..Amounts::default()
        };
        self.gpu_millis = unit.gpus * 1000;
        self.gpu_model = Some(unit.card.into());
        if chance(rng, 150_000) {
            self.qos = "best-effort".into();
        }
    }

    fn request_slices(&mut self, rng: &mut ChaCha8Rng) {
        if chance(rng, 700_000) {
            self.need.mig_1g = rng.random_range(1..=2_u64);
            put_millis(&mut self.requests, "nvidia.com/mig-1g.10gb", self.need.mig_1g * 1000);
        } else {
            self.need.mig_3g = 1;
            put_millis(&mut self.requests, "nvidia.com/mig-3g.40gb", 1000);
        }
        self.gpu_millis = (self.need.mig_1g + 3 * self.need.mig_3g) * 1000 / 7;
    }

    /// Requests TFLOPs and VRAM per GPU. Limits may be missing, equal or higher.
    fn request_pool(&mut self, rng: &mut ChaCha8Rng) {
        let of_group = self.group.and_then(|index| GROUPS.get(index)).and_then(|group| group.pool);
        let other = if chance(rng, 600_000) { POOL_L40S } else { POOL_L4 };
        self.pool_id = Some(of_group.unwrap_or(other).into());
        self.qos = pick(rng, QOS_OF_POOL_PODS).copied().unwrap_or_default().into();
        let tflops = pick(rng, &[10, 20, 50, 100]).copied().unwrap_or(10);
        let vram_gib = pick(rng, &[4, 8, 10, 16]).copied().unwrap_or(4);
        put_millis(&mut self.requests, "tensor-fusion.ai/tflops", tflops * 1000);
        put_mib(&mut self.requests, "tensor-fusion.ai/vram", vram_gib * 1024);
        if chance(rng, 800_000) {
            let factor = rng.random_range(1..=3_u64);
            put_millis(&mut self.limits, "tensor-fusion.ai/tflops", tflops * factor * 1000);
            put_mib(&mut self.limits, "tensor-fusion.ai/vram", vram_gib * 512 * (factor + 1));
        }
    }

    /// Returns a pod of this workload that starts at `at`, without its node.
    pub fn pod(&self, rng: &mut ChaCha8Rng, at: i64, created_at: i64) -> PodStarted {
        let cluster = CLUSTERS.get(self.cluster);
        let serverless = self.class.placement == Placement::Serverless;
        let protected = self.pool_id.is_some() && chance(rng, 250_000);
        PodStarted {
            cluster_id: cluster.map_or("", |cluster| cluster.id).into(),
            namespace: self.namespace.clone(),
            pod_name: format!("{}-{}", self.name, suffix(rng)).into(),
            pod_uid: uid(rng),
            created_at: Timestamp(created_at),
            priority: self.class.priority,
            node_id: None,
            region: cluster.filter(|_| serverless).map(|cluster| cluster.region.into()),
            zone: cluster
                .filter(|_| serverless)
                .and_then(|cluster| pick(rng, cluster.zones))
                .map(|&zone| zone.into()),
            pool_id: self.pool_id.clone(),
            qos: self.qos.clone(),
            gpu_model: self.gpu_model.clone(),
            requests: self.requests.clone(),
            limits: self.limits.clone(),
            workload_kind: Some(self.class.kind.into()),
            workload_name: Some(self.name.clone()),
            labels: self.labels.clone(),
            eviction_protected_until: protected.then(|| Timestamp(at + span(rng, HOUR / 4, 3 * HOUR))),
            gpus: None,
            gpu_sharing: None,
            volume_keys: Vec::new(),
        }
    }
}

/// Draws three to eight labels, as teams set them. A few workloads have none.
fn labels(rng: &mut ChaCha8Rng, class: &PodClass, name: &str) -> Labels {
    let mut labels = Labels::new();
    if chance(rng, 50_000) {
        return labels;
    }
    let mut put = |key: &str, value: &str| labels.insert(Text::from(key), Text::from(value));
    put("app.kubernetes.io/name", class.name);
    put("app.kubernetes.io/instance", name);
    put("team", pick(rng, TEAMS).copied().unwrap_or_default());
    if chance(rng, 800_000) {
        put("env", pick(rng, ENVIRONMENTS).copied().unwrap_or_default());
    }
    if chance(rng, 600_000) {
        put("cost-center", pick(rng, COST_CENTERS).copied().unwrap_or_default());
    }
    if chance(rng, 400_000) {
        put("tier", pick(rng, TIERS).copied().unwrap_or_default());
    }
    if chance(rng, 300_000) {
        put(
            "app.kubernetes.io/version",
            &format!("1.{}.{}", rng.random_range(0..40_u32), rng.random_range(0..9_u32)),
        );
    }
    if chance(rng, 100_000) {
        put("note", "Größe ändern – 費用");
    }
    labels
}
