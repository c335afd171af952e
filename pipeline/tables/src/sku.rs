//! SKUs: the metered and priced thing, in the provider's own words if there are any.
//!
//! `SkuId` names the thing (an instance type, a size, a pool). `SkuPriceId` names the line of the price list:
//! provider, region, SKU and terms. As FOCUS requires, neither holds an amount of money, a date or a
//! contract, so both stay the same when a price changes.

mod line;

use prorata_schemas::Text;
use prorata_schemas::decimal::{Decimal12, ONE};
use prorata_schemas::event::{
    CapacityType, CommitmentKind, CommitmentSet, NodeStarted, PodStarted, Quantities, ReservationSet,
};
use prorata_schemas::quantity::{TFLOPS, VRAM};
use prorata_schemas::rows::{CostRow, HourTables, RowKind};
use prorata_schemas::size::{Size, amount};

use crate::json::Object;

pub use line::{category_of, line_of};

/// Columns `SkuId`, `SkuPriceId`, `SkuMeter` and `SkuPriceDetails` of one row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sku {
    /// The metered thing.
    pub id: String,
    /// The SKU's line in the price list.
    pub price_id: String,
    /// The unit that is counted.
    pub meter: &'static str,
    /// Contents of one unit, as JSON.
    pub details: Option<String>,
}

/// Size of a node, pod or unit, for texts.
pub struct SizeText {
    /// vCPUs.
    pub vcpu: Decimal12,
    /// GiB of memory.
    pub gib: Decimal12,
    /// GPUs.
    pub gpus: Decimal12,
}

impl From<Size> for SizeText {
    fn from(Size { cpu_millis, memory_bytes, gpu_millis }: Size) -> Self {
        Self { vcpu: thousandths(cpu_millis), gib: gib(memory_bytes), gpus: thousandths(gpu_millis) }
    }
}

impl SizeText {
    /// Returns the size of a map of quantities, counted as for cost. `gpu_resources` comes from the rules.
    pub fn of(quantities: &Quantities, gpu_resources: &[Text]) -> Self {
        Size::of(quantities, gpu_resources).into()
    }

    /// Returns the form for identifiers: `8vcpu-60gib-1gpu`.
    fn id(&self) -> String {
        let mut parts = vec![format!("{}vcpu", self.vcpu), format!("{}gib", self.gib)];
        if self.gpus != Decimal12::ZERO {
            parts.push(format!("{}gpu", self.gpus));
        }
        parts.join("-")
    }

    /// Returns the size in words for people, such as `8 vCPU, 60 GiB, 1 x A10`.
    pub fn words(&self, gpu_model: Option<&str>) -> String {
        let mut parts = vec![format!("{} vCPU", self.vcpu), format!("{} GiB", self.gib)];
        if self.gpus != Decimal12::ZERO {
            parts.push(format!(
                "{} x {}",
                self.gpus,
                gpu_model.filter(|model| !model.is_empty()).unwrap_or("GPU")
            ));
        }
        parts.join(", ")
    }

    /// Returns the FOCUS keys of `SkuPriceDetails`, alphabetical.
    fn details(&self, series: Option<(&str, &str)>) -> Object {
        let mut object = Object::default().raw("CoreCount", self.vcpu);
        if self.gpus != Decimal12::ZERO {
            object = object.raw("GpuCount", self.gpus);
        }
        if let Some((family, instance_type)) = series {
            object = object.text("InstanceSeries", family).text("InstanceType", instance_type);
        }
        object.raw("MemorySize", self.gib)
    }
}

impl Sku {
    /// Returns the SKU of a row.
    pub fn of(tables: &HourTables, row: &CostRow) -> Self {
        let (provider, gpus) = (&*row.provider, &*tables.gpu_resources);
        if let Some(billed) = line_of(row) {
            return Self::line(provider, billed.line(), row.lines.len() > 1);
        }
        match row.kind {
            RowKind::PodNode | RowKind::NodeIdle => {
                row.node.as_deref().map_or_else(Self::unpriced, |node| Self::node(provider, node, gpus))
            }
            RowKind::PodServerless => {
                row.pod.as_deref().map_or_else(Self::unpriced, |pod| Self::serverless(provider, pod, gpus))
            }
            RowKind::PodPool => {
                row.pod.as_deref().map_or_else(Self::unpriced, |pod| Self::pool(provider, pod, gpus))
            }
            RowKind::ReservationUnused => row
                .reservation
                .as_deref()
                .map_or_else(Self::unpriced, |set| Self::reservation(provider, set, gpus)),
            RowKind::CommitmentUnused | RowKind::CommitmentPurchase => {
                row.commitment.as_deref().map_or_else(Self::unpriced, |set| Self::commitment(provider, set))
            }
            // A shared charge always has a line.
            RowKind::SharedCharge => Self::unpriced(),
        }
    }

    /// Returns the SKU of a pod on an unknown node, which is not on any price list.
    fn unpriced() -> Self {
        Self {
            id: "unpriced".to_owned(),
            price_id: "unpriced/unknown-node".to_owned(),
            meter: "Unpriced Hours",
            details: None,
        }
    }

    fn node(provider: &str, node: &NodeStarted, gpu_resources: &[Text]) -> Self {
        let id = joined([&*node.instance_type], "node");
        let (terms, capacity) = match node.capacity_type {
            CapacityType::OnDemand => ("on-demand", "ON_DEMAND"),
            CapacityType::Spot => ("spot", "SPOT"),
        };
        let details = SizeText::from(node.size(gpu_resources))
            .details(Some((&node.instance_family, &node.instance_type)))
            .text("x_CapacityType", capacity)
            .text("x_GpuModel", node.gpu_model.as_deref());
        Self {
            price_id: joined([provider, &node.region, &id, terms], ""),
            id,
            meter: "Node Hours",
            details: details.non_empty(),
        }
    }

    fn serverless(provider: &str, pod: &PodStarted, gpu_resources: &[Text]) -> Self {
        let size = SizeText::from(pod.size(gpu_resources));
        let id = format!("serverless-pod/{}", pod.gpu_model.as_deref().unwrap_or("cpu"));
        let region = pod.region.as_deref().unwrap_or_default();
        let details =
            size.details(None).text("x_GpuModel", pod.gpu_model.as_deref()).text("x_Qos", &*pod.qos);
        Self {
            price_id: joined([provider, region, &id, &pod.qos, &size.id()], ""),
            id,
            meter: "Serverless Pod Hours",
            details: details.non_empty(),
        }
    }

    fn pool(provider: &str, pod: &PodStarted, gpu_resources: &[Text]) -> Self {
        let (tflops, vram) = (thousandths(amount(&pod.requests, TFLOPS)), gib(amount(&pod.requests, VRAM)));
        let gpus = match Size::of(&pod.requests, gpu_resources).gpu_millis {
            0 => Decimal12::ONE,
            gpu_millis => thousandths(gpu_millis),
        };
        let id = format!("gpu-pool/{}", pod.pool_id.as_deref().unwrap_or_default());
        let details = Object::default()
            .raw("GpuCount", gpus)
            .text("x_Qos", &*pod.qos)
            .raw("x_TflopsPerGpu", tflops)
            .raw("x_VramGibPerGpu", vram);
        Self {
            price_id: joined([provider, &id, &pod.qos, &format!("{gpus}gpu-{tflops}tflops-{vram}gib")], ""),
            id,
            meter: "Pool Pod Hours",
            details: details.non_empty(),
        }
    }

    fn reservation(provider: &str, reservation: &ReservationSet, gpu_resources: &[Text]) -> Self {
        let size = SizeText::of(&reservation.capacity, gpu_resources);
        let id = format!("capacity-reservation/{}/{}", reservation.gpu_model, size.id());
        let zone = reservation.zone.as_deref().unwrap_or_default();
        Self {
            price_id: joined([provider, &reservation.region, zone, &id], ""),
            id,
            meter: "Reservation Unit Hours",
            details: size.details(None).text("x_GpuModel", &*reservation.gpu_model).non_empty(),
        }
    }

    fn commitment(provider: &str, commitment: &CommitmentSet) -> Self {
        let kind = match commitment.kind {
            CommitmentKind::ReservedInstance => "reserved-instance",
            CommitmentKind::CommittedUseDiscount => "committed-use-discount",
            CommitmentKind::SavingsPlan => return Self::plan(provider),
        };
        let size = commitment_size(commitment);
        let id = joined([kind, &commitment.instance_family], "");
        let details = size
            .details(Some((&commitment.instance_family, "")))
            .text("x_GpuModel", commitment.gpu_model.as_deref());
        Self {
            price_id: joined([provider, &commitment.region, &id, &size.id()], ""),
            id,
            meter: "Commitment Hours",
            details: details.non_empty(),
        }
    }

    /// Returns the SKU of a savings plan, which is bought by spend.
    fn plan(provider: &str) -> Self {
        let id = "savings-plan".to_owned();
        Self { price_id: joined([provider, &id], ""), id, meter: "Commitment Hours", details: None }
    }
}

/// Returns the maximum size that a commitment covers.
pub fn commitment_size(commitment: &CommitmentSet) -> SizeText {
    SizeText {
        vcpu: commitment.vcpu.into(),
        gib: commitment.memory_gib.into(),
        gpus: Decimal12::from_int(i64::from(commitment.gpu)),
    }
}

/// Joins the parts that are not empty with slashes; returns `otherwise` if all are empty.
fn joined<const N: usize>(parts: [&str; N], otherwise: &str) -> String {
    let filled: Vec<_> = parts.into_iter().filter(|part| !part.is_empty()).collect();
    if filled.is_empty() { otherwise.to_owned() } else { filled.join("/") }
}

fn thousandths(amount: u128) -> Decimal12 {
    let units = i128::try_from(amount).ok().and_then(|amount| amount.checked_mul(ONE / 1_000));
    Decimal12::from_atoms(units.unwrap_or(i128::MAX))
}

/// Converts bytes to GiB with three places, rounded down. The result is only text, and is never charged.
fn gib(bytes: u128) -> Decimal12 {
    thousandths(bytes.saturating_mul(1_000) >> 30)
}

#[cfg(test)]
mod tests {
    use prorata_schemas::quantity::Quantity;
    use prorata_schemas::rules::Rules;

    use super::*;

    fn size(resources: &[(&str, u128)]) -> SizeText {
        let quantity = |amount| Quantity { text: "as delivered".into(), amount };
        let quantities = resources.iter().map(|(name, amount)| ((*name).into(), quantity(*amount)));
        SizeText::of(&quantities.collect(), &Rules::default().gpu_resources)
    }

    #[test]
    fn a_size_counts_gpus_of_every_maker_and_mig_slices_once_rounded() {
        let gpus = |resources: &[(&str, u128)]| size(resources).gpus.to_string();
        assert_eq!(gpus(&[("cpu", 1_000)]), "0");
        assert_eq!(gpus(&[("nvidia.com/gpu", 2_000), ("amd.com/gpu", 1_000)]), "3");
        assert_eq!(gpus(&[("nvidia.com/mig-1g.10gb", 1_000)]), "0.143");
        assert_eq!(
            gpus(&[("nvidia.com/mig-1g.10gb", 2_000), ("nvidia.com/mig-2g.20gb.shared", 1_000)]),
            "0.571"
        );
        assert_eq!(gpus(&[("nvidia.com/mig-xg.10gb", 1_000), ("nvidia.com/mig", 1_000)]), "0");
    }

    #[test]
    fn a_size_reads_well_in_identifiers_and_in_messages() {
        let small = size(&[("cpu", 500), ("memory", (1 << 30) + (1 << 29) + 1)]);
        assert_eq!((small.id(), small.words(None)), ("0.5vcpu-1.5gib".into(), "0.5 vCPU, 1.5 GiB".into()));
        let gpu = size(&[("cpu", 8_000), ("memory", 60 << 30), ("nvidia.com/gpu", 1_000)]);
        assert_eq!(
            (gpu.id(), gpu.words(Some("A10"))),
            ("8vcpu-60gib-1gpu".into(), "8 vCPU, 60 GiB, 1 x A10".into())
        );
        assert_eq!(gpu.words(Some("")), "8 vCPU, 60 GiB, 1 x GPU");
        assert_eq!(size(&[("memory", u128::MAX)]).vcpu, Decimal12::ZERO);
    }

    #[test]
    fn empty_parts_leave_no_slashes() {
        assert_eq!(joined(["aws", "", "x"], "none"), "aws/x");
        assert_eq!(joined(["", ""], "none"), "none");
    }
}
