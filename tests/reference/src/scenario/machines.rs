//! Random nodes, pods, samples and quotas.

use prorata_schemas::Text;
use prorata_schemas::event::{CapacityType, NodeStarted, PodStarted, PodUsage, QuotaKind, QuotaSet};
use prorata_schemas::time::Timestamp;
use rand::Rng;

use super::choices::{Choices, NAMESPACES, NODES, PODS, POOLS, QUOTAS};

/// A model that agreements spell in another way.
const A100: &str = "NVIDIA-A100-SXM4-80GB";

impl Choices {
    pub fn node(&mut self) -> NodeStarted {
        let whole: [(&str, &[&str]); 3] = [
            ("cpu", &["16", "4", "64", "3", "0"]),
            ("memory", &["32Gi", "16Gi", "488Gi", "7Gi", "1000000007"]),
            ("nvidia.com/gpu", &["2", "8", "1", "0"]),
        ];
        let more: [(&str, &[&str]); 3] = [
            ("tensor-fusion.ai/tflops", &["312", "2496500m"]),
            ("tensor-fusion.ai/vram", &["80Gi", "640Gi"]),
            ("ephemeral-storage", &["2Ti", "1000001"]),
        ];
        let slices: [(&str, &[&str]); 3] = [
            ("nvidia.com/mig-1g.10gb", &["7", "3"]),
            ("nvidia.com/gpu.shared", &["4", "16"]),
            ("amd.com/gpu", &["1"]),
        ];
        let often = self.pick(&[0.0, 0.7, 1.0, 1.0, 1.0]);
        let mut capacity = self.quantities(&whole, often);
        capacity.extend(self.quantities(&more, 0.6));
        capacity.extend(self.quantities(&slices, self.slices));
        NodeStarted {
            cluster_id: self.cluster(),
            node_id: self.text(&NODES),
            node_name: self.text(&["one", "two"]),
            provider: self.provider(),
            region: self.region(),
            zone: self.maybe(0.3, &["z"]),
            instance_type: "f.1".into(),
            instance_family: self.agreed_text(&["f", "f", "g", "F"]),
            capacity_type: self.agreed(&[CapacityType::OnDemand, CapacityType::Spot]),
            capacity,
            gpu_model: self
                .agreed(&[Some("m"), Some("t"), None, Some(A100), Some("A100-40GB")])
                .map(Text::from),
            hourly_cost: self.price(),
            currency: "USD".into(),
            pool_id: self.maybe(0.6, &POOLS),
            gpus: self.gpus(&["1", "250m", "2", "8", "250m", "0"]),
            resource_key: None,
            account_id: None,
        }
    }

    pub fn pod(&mut self) -> PodStarted {
        let plain: [(&str, &[&str]); 3] = [
            ("cpu", &["1", "500m", "16", "5", "0", "100m"]),
            ("memory", &["4Gi", "100Gi", "1", "30Gi", "333333333"]),
            ("nvidia.com/gpu", &["1", "2", "0"]),
        ];
        let pooled: [(&str, &[&str]); 2] = [
            ("tensor-fusion.ai/tflops", &["100", "20", "500m"]),
            ("tensor-fusion.ai/vram", &["10Gi", "4Gi", "1000000001"]),
        ];
        let slices: [(&str, &[&str]); 3] = [
            ("nvidia.com/mig-2g.20gb", &["1", "3"]),
            ("nvidia.com/gpu.shared", &["1", "3"]),
            ("example.com/thing", &["1", "1500m"]),
        ];
        let limits: [(&str, &[&str]); 2] =
            [("tensor-fusion.ai/tflops", &["200", "30", "1"]), ("tensor-fusion.ai/vram", &["20Gi", "1Gi"])];
        let often = self.pick(&[0.0, 0.6, 1.0, 1.0, 1.0, 1.0]);
        let mut requests = self.quantities(&plain, often);
        requests.extend(self.quantities(&pooled, 0.6));
        requests.extend(self.quantities(&slices, self.slices));
        PodStarted {
            cluster_id: self.cluster(),
            namespace: self.text(&NAMESPACES),
            pod_name: self.text(&["x", "y"]),
            pod_uid: self.text(&PODS),
            created_at: Timestamp(self.around().0 + self.rng.random_range(0..2) * 999_999),
            priority: self.pick(&[0, 0, 0, -1, 100]),
            node_id: self.maybe(self.on_node, &NODES),
            region: self.agreed(&[Some("r"), Some("r"), Some("s"), None, Some("R")]).map(Text::from),
            zone: self.agreed(&[Some("z"), Some("y"), None]).map(Text::from),
            pool_id: self.maybe(self.in_pool, &POOLS),
            qos: self.agreed_text(&["default", "medium", "critical", "", "BestEffort"]),
            gpu_model: self.agreed(&[Some("m"), Some("m"), Some("t"), None, Some(A100)]).map(Text::from),
            requests,
            limits: self.quantities(&limits, 0.6),
            workload_kind: self.maybe(0.2, &["Job"]),
            workload_name: None,
            labels: [("v".into(), self.text(&["1", "2", "3"]))].into(),
            eviction_protected_until: if self.rng.random_bool(0.2) { Some(self.around()) } else { None },
            gpus: self.gpus(&["500m", "0.25", "1", "333m", "3", "0"]),
            gpu_sharing: self.maybe(self.shares, &["mps"]),
            volume_keys: Vec::new(),
        }
    }

    pub fn usage(&mut self, at: Timestamp) -> PodUsage {
        let minutes = self.pick(&[0, 1, 5, 10, 30, 60, 60]);
        PodUsage {
            pod_uid: self.text(&PODS),
            interval_end: Timestamp(at.0 + minutes * 60_000_000),
            cpu_millis: self.pick(&[0, 100, 4000, 18_000]),
            memory_bytes: self.pick(&[0, 3 << 30, 140 << 30, 1_000_003]),
            gpu_millis: self.pick(&[0, 1000, 333, 3000]),
            gpu_memory_bytes: self.pick(&[None, Some(0), Some(5 << 30), Some(1_000_003)]),
        }
    }

    pub fn quota(&mut self) -> QuotaSet {
        let amounts: [(&str, &[&str]); 6] = [
            ("cpu", &["1", "4", "0", "10m", "16"]),
            ("nos.nebuly.com/gpu-memory", &["32", "64", "10", "0"]),
            ("nvidia.com/gpu", &["1", "2", "3"]),
            ("memory", &["4Gi", "100Gi", "7"]),
            ("example.com/thing", &["1", "2500m"]),
            ("pods", &["2"]),
        ];
        let often = self.pick(&[0.2, 0.4, 1.0]);
        let max = self.quantities(&amounts, 0.4);
        let claimed = self.pick(&[0.4, 0.4, 0.9]);
        let composite = self.rng.random_bool(0.3);
        let namespaces = NAMESPACES.into_iter().filter(|_| self.rng.random_bool(claimed)).map(Text::from);
        QuotaSet {
            namespaces: namespaces.collect(),
            cluster_id: self.cluster(),
            quota_id: self.text(&QUOTAS),
            kind: if composite { QuotaKind::CompositeElasticQuota } else { QuotaKind::ElasticQuota },
            min: self.quantities(&amounts, often),
            max: (self.rng.random_bool(0.5) && !max.is_empty()).then_some(max),
        }
    }
}
