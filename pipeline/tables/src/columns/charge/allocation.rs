//! The share of a node or of a shared charge that a row of `cost_allocation` is allocated: method, pod and
//! ratios.

use std::fmt::Write;

use prorata_schemas::decimal::Decimal12;
use prorata_schemas::event::PodStarted;
use prorata_schemas::rows::RowKind;

use super::Charge;

/// `AllocatedMethodId` of node split cost allocation; RULES.md, section 1 documents the method.
const NODE_SPLIT: &str = "prorata-node-split";

/// `AllocatedMethodId` of shared charges that pods divide; RULES.md, section 13 documents the method.
const DIVIDED_CHARGE: &str = "prorata-shared-charge";

/// Reserved size of the details of an allocation: a ratio has 14 characters, a quantity about as many.
const DETAILS_BYTES: usize = 288;

impl Charge<'_> {
    /// Returns the pod that is allocated a share of a node or of a charge. `None` on other rows, on idle
    /// capacity, and if the pod is itself the resource.
    pub fn allocated_pod(&self) -> Option<&PodStarted> {
        self.pod().filter(|_| self.has_allocated_pod())
    }

    /// Returns the uid of [`Self::allocated_pod`].
    pub fn allocated_resource_id(&self) -> Option<&str> {
        self.row.pod_uid.as_deref().filter(|_| self.has_allocated_pod())
    }

    const fn has_allocated_pod(&self) -> bool {
        matches!(self.row.kind, RowKind::PodNode | RowKind::SharedCharge)
    }

    /// Returns the allocation method on every row that splits a node, and on the part of a charge that a pod
    /// bears; `None` on other rows.
    pub fn allocated_method(&self) -> Option<&'static str> {
        match self.row.kind {
            RowKind::PodNode | RowKind::NodeIdle => Some(NODE_SPLIT),
            RowKind::SharedCharge if self.row.pod_uid.is_some() => Some(DIVIDED_CHARGE),
            _ => None,
        }
    }

    /// Returns the row's ratio of its origin as JSON, by resource if the row costs anything. `None` on an
    /// unknown node, because there is no origin to divide.
    pub fn allocated_details(&self) -> Option<String> {
        let ratio = self.row.allocated_ratio?;
        let mut details = String::with_capacity(DETAILS_BYTES);
        // Writing to a text cannot fail.
        let _ = match (self.row.allocated, self.ratio_by_resource(ratio)) {
            (Some(hours), Some([cpu, memory, gpu])) => write!(
                details,
                concat!(
                    r#"{{"Elements":[{{"AllocatedRatio":{},"UsageUnit":"vCPU-Hours","UsageQuantity":{}}},"#,
                    r#"{{"AllocatedRatio":{},"UsageUnit":"GiB-Hours","UsageQuantity":{}}},"#,
                    r#"{{"AllocatedRatio":{},"UsageUnit":"GPU-Hours","UsageQuantity":{}}}]}}"#
                ),
                cpu, hours.cpu_core_hours, memory, hours.memory_gib_hours, gpu, hours.gpu_hours
            ),
            _ => write!(details, r#"{{"Elements":[{{"AllocatedRatio":{ratio}}}]}}"#),
        };
        Some(details)
    }

    /// Divides the row's ratio over resources as EffectiveCost divides over them. `None` if the row costs
    /// nothing, or has no cost by resource.
    fn ratio_by_resource(&self, ratio: Decimal12) -> Option<[Decimal12; 3]> {
        let row = self.row;
        divided(ratio, [row.cpu_cost?, row.memory_cost?, row.gpu_cost?])
    }

    /// Returns the pod's labels if the pod is allocated a share of a node or of a charge, and `None`
    /// otherwise.
    pub fn allocated_tags(&self) -> Option<&str> {
        self.allocated_pod().and(self.pod_tags.as_deref())
    }
}

/// Divides a ratio in proportion to the magnitudes of costs by largest remainder; in a tie, the earlier cost
/// comes first. `None` if all costs are zero, or a number overflows.
fn divided(ratio: Decimal12, costs: [Decimal12; 3]) -> Option<[Decimal12; 3]> {
    let mut magnitudes = [0_i128; 3];
    for (magnitude, cost) in magnitudes.iter_mut().zip(costs) {
        *magnitude = cost.atoms().checked_abs()?;
    }
    let total = magnitudes.into_iter().try_fold(0, i128::checked_add)?;
    if total == 0 {
        return None;
    }
    let mut parts = [0; 3];
    let mut rests = [(0, 0); 3];
    for (place, magnitude) in magnitudes.into_iter().enumerate() {
        let product = ratio.atoms().checked_mul(magnitude)?;
        parts[place] = product / total;
        // The largest rest comes first.
        rests[place] = (-(product % total), place);
    }
    rests.sort_unstable();
    let left = ratio.atoms() - parts.iter().sum::<i128>();
    for (_, place) in rests.into_iter().take(usize::try_from(left).unwrap_or(0)) {
        parts[place] += 1;
    }
    Some(parts.map(Decimal12::from_atoms))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ratio_divides_as_the_costs_do_and_sums_to_itself() {
        let atoms = |ratio: i128, costs: [i128; 3]| {
            let parts = divided(Decimal12::from_atoms(ratio), costs.map(Decimal12::from_atoms));
            parts.map(|parts| parts.map(Decimal12::atoms))
        };
        assert_eq!(atoms(100, [1, 2, 1]), Some([25, 50, 25]));
        assert_eq!(atoms(100, [1, 1, 1]), Some([34, 33, 33]), "a tie goes to the earlier one");
        assert_eq!(atoms(100, [0, 1, 2]), Some([0, 33, 67]), "the largest rest goes first");
        assert_eq!(atoms(0, [0, 1, 2]), Some([0, 0, 0]));
        assert_eq!(atoms(100, [-1, -2, -1]), Some([25, 50, 25]), "a credit divides as a cost does");
        assert_eq!(atoms(100, [0, 0, 0]), None);
        assert_eq!(atoms(100, [i128::MAX, 1, 0]), None, "a cost beyond its column");
    }
}
