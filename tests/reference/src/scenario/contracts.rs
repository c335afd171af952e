//! Random reservations, commitments, pools and rates.

use prorata_schemas::Text;
use prorata_schemas::event::{
    Assignment, BudgetExceedStrategy, CommitmentKind, CommitmentSet, DiscountTarget, DiscountedPrice,
    PlanDiscount, PoolSet, QosPrice, RateSet, ReservationSet,
};
use rand::Rng;

use super::choices::{COMMITMENTS, Choices, POOLS, RESERVATIONS};

impl Choices {
    pub fn reservation(&mut self) -> ReservationSet {
        let unit: [(&str, &[&str]); 3] = [
            ("cpu", &["10", "16", "1", "5", "1"]),
            ("memory", &["80Gi", "128Gi", "4Gi"]),
            ("nvidia.com/gpu", &["1", "1", "2", "0"]),
        ];
        let starts_at = self.begin();
        ReservationSet {
            reservation_id: self.text(&RESERVATIONS),
            name: self.text(&["one", "two"]),
            provider: self.provider(),
            region: self.region(),
            zone: self.maybe(0.3, &["z", "z", "Z"]),
            gpu_model: self.agreed_text(&["m", "m", "t", "A100-80GB"]),
            capacity: self.quantities(&unit, 0.97),
            quantity: self.pick(&[0, 1, 1, 2, 3]),
            unit_hourly_price: self.price(),
            currency: "USD".into(),
            created_at: self.around(),
            starts_at,
            ends_at: self.end(starts_at),
        }
    }

    pub fn commitment(&mut self) -> CommitmentSet {
        let mut assignments = Vec::new();
        for cluster_id in ["c", "d"] {
            if self.rng.random_bool(0.4) {
                let priority = self.pick(&[None, Some(1), Some(2)]);
                assignments.push(Assignment { cluster_id: cluster_id.into(), priority });
            }
        }
        let totals = ["0", "2", "4", "20", "100", "0.5", "64"];
        let starts_at = self.begin();
        let is_plan = self.pick(&[false, false, true]);
        let kind = self.pick(&[CommitmentKind::ReservedInstance, CommitmentKind::CommittedUseDiscount]);
        CommitmentSet {
            commitment_id: self.text(&COMMITMENTS),
            name: self.text(&["one", "two"]),
            provider: self.provider(),
            kind: if is_plan { CommitmentKind::SavingsPlan } else { kind },
            region: self.region(),
            instance_family: self.agreed_text(&["f", "f", "g", "F"]),
            vcpu: self.decimal(&totals),
            memory_gib: self.decimal(&totals),
            gpu: self.pick(&[0, 0, 1, 8]),
            gpu_model: self.pick(&[None, Some("m"), Some("m"), Some("t"), Some("A100-80GB")]).map(Text::from),
            hourly_cost: self.price(),
            currency: "USD".into(),
            starts_at,
            ends_at: self.end(starts_at),
            enabled: self.agreed(&[true, true, false]),
            allowed_utilization: self.maybe_decimal(&[
                None,
                None,
                None,
                Some("0.6"),
                Some("0"),
                Some("0.333"),
            ]),
            assignments,
            hourly_commitment: is_plan.then(|| self.decimal(&["1", "0.7", "3", "100", "0.2"])),
            discounts: if is_plan { self.plan_discounts() } else { Vec::new() },
        }
    }

    fn plan_discounts(&mut self) -> Vec<PlanDiscount> {
        let any = || [None, None, None, Some("r"), Some("s")];
        let (node, pod, unit) = (DiscountTarget::Node, DiscountTarget::Pod, DiscountTarget::Reservation);
        let targets = [node, pod, pod, unit, unit, unit];
        let count = self.pick(&[1, 2, 3, 4]);
        let discounts = (0..count).map(|_| {
            let applies_to = self.pick(&targets);
            let of_nodes = applies_to == DiscountTarget::Node;
            let by_rate = applies_to != DiscountTarget::Pod && self.rng.random_bool(0.4);
            let family = self.pick(&[None, Some("f"), Some("g"), Some("F")]).filter(|_| of_nodes);
            let saving = DiscountedPrice::Saving(self.decimal(&["0.3", "0.3", "0.5", "0", "0.25"]));
            PlanDiscount {
                applies_to,
                region: self.pick(&any()).map(Text::from),
                instance_family: family.map(Text::from),
                instance_type: None,
                gpu_model: self.pick(&[None, None, None, Some("m")]).map(Text::from),
                price: match by_rate {
                    true => DiscountedPrice::Rate(self.decimal(&["0.5", "1", "0.07"])),
                    false => saving,
                },
            }
        });
        discounts.collect()
    }

    pub fn pool(&mut self) -> PoolSet {
        let mut qos_pricing = Vec::new();
        for qos in ["medium", "critical", "default"] {
            if self.rng.random_bool(0.6) {
                qos_pricing.push(QosPrice {
                    qos: qos.into(),
                    per_fp16_tflop_hour: self.decimal(&["0.0069228", "2", "0"]),
                    per_vram_gib_hour: self.decimal(&["0.01548", "1"]),
                    limits_over_requests: self.decimal(&["1", "0.5", "0"]),
                });
            }
        }
        let most: [(&str, &[&str]); 2] =
            [("tensor-fusion.ai/tflops", &["500", "1k"]), ("tensor-fusion.ai/vram", &["300Gi"])];
        let warm: [(&str, &[&str]); 2] = [
            ("tensor-fusion.ai/tflops", &["50", "100500m", "0", "400"]),
            ("tensor-fusion.ai/vram", &["10Gi", "1000003", "160Gi"]),
        ];
        let strategies = [BudgetExceedStrategy::AlertOnly, BudgetExceedStrategy::AlertAndTerminateVm];
        PoolSet {
            pool_id: self.text(&POOLS),
            cluster_id: self.cluster(),
            provider: self.provider(),
            default_qos: self.agreed_text(&["medium", "critical", "other"]),
            qos_pricing,
            tflops_oversell_percent: self.pick(&[500, 100, 333]),
            vram_expand_to_host_disk_percent: self.pick(&[70, 0, 33]),
            vram_expand_to_host_mem_percent: self.pick(&[50, 0, 7]),
            max_capacity: self.quantities(&most, 0.3),
            min_capacity: self.quantities(&warm, 0.2),
            warm_capacity: self.quantities(&warm, 0.6),
            budget_per_day: self.maybe_decimal(&[None, Some("0"), Some("10")]),
            budget_per_month: self.maybe_decimal(&[None, Some("5")]),
            budget_per_quarter: self.maybe_decimal(&[None, Some("1")]),
            budget_exceed_strategy: self.pick(&strategies),
            currency: "USD".into(),
        }
    }

    pub fn rate(&mut self) -> RateSet {
        RateSet {
            provider: self.provider(),
            region: self.region(),
            gpu_model: self.agreed(&[Some("m"), Some("t"), None, Some("a100-80gb")]).map(Text::from),
            qos: self.agreed_text(&["default", "medium"]),
            per_vcpu_hour: self.price(),
            per_gib_hour: self.price(),
            per_gpu_hour: self.price(),
            currency: "USD".into(),
        }
    }
}
