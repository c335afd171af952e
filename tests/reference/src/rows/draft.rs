//! Rows of `cost_allocation` with exact amounts, before they are sorted, rounded and split by largest
//! remainder.

use std::collections::BTreeMap;

use num_traits::Zero;
use prorata_schemas::Text;
use prorata_schemas::decimal::Decimal12;
use prorata_schemas::event::Labels;
use prorata_schemas::ids::{ClusterId, CommitmentId, PodUid, QuotaId, ReservationId};
use prorata_schemas::money::UnitPrice;
use prorata_schemas::rows::{CostRow, QuotaState, ResourceHours, ResourceRatios, RowKind, Unpriced};

use crate::hour::Label;
use crate::names;
use crate::resources::Three;
use crate::rounding::{Exact, half_even, largest_remainder, zero};
use crate::world::NodeKey;

/// The rows that split one charge.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Charge {
    /// A node's own-price component at one unit price.
    Node(NodeKey, UnitPrice),
    /// A commitment-hour, which Used and Unused rows split, and which purchase rows split a second time.
    Commitment(CommitmentId),
    /// One row alone.
    Row,
}

/// A row before rounding: texts, descriptions and exact amounts.
pub struct Draft {
    /// Texts and descriptions. The amounts are still zero or null.
    pub row: CostRow,
    /// The charge that the row is a part of.
    pub charge: Charge,
    /// Whether the row stays even without quantity and cost, because it is a pod's only row.
    pub keep: bool,
    /// `PricingQuantity`.
    pub quantity: Exact,
    /// The row's part of the charge: `EffectiveCost`, or `BilledCost` on purchases.
    pub cost: Exact,
    /// `ListCost`. `None` if it equals the cost.
    pub list_cost: Option<Exact>,
    /// `CommitmentDiscountQuantity`.
    pub commitment_quantity: Option<Exact>,
    /// The row's part of its origin.
    pub ratio: Option<Exact>,
    /// Split and unused cost.
    pub split_unused: Option<[Exact; 2]>,
    /// Cost of CPU, memory and GPU.
    pub by_resource: Option<Three>,
    /// Allocated hours.
    pub allocated: Option<Three>,
    /// Requested hours.
    pub requested: Option<Three>,
    /// Used hours.
    pub used: Option<Three>,
    /// Split usage ratios, and unused ratios, of vCPU, memory and GPUs.
    pub ratios: [[Option<Exact>; 3]; 2],
    /// Running hours.
    pub running: Option<Exact>,
    /// The pod's charge in its pool.
    pub pool_charge: Option<Exact>,
}

impl Draft {
    /// Creates a draft without amounts.
    pub fn new(kind: RowKind, resource_id: Text, charge: Charge) -> Self {
        Self {
            row: CostRow::new(kind, resource_id, "unknown".into()),
            charge,
            keep: false,
            quantity: zero(),
            cost: zero(),
            list_cost: None,
            commitment_quantity: None,
            ratio: None,
            split_unused: None,
            by_resource: None,
            allocated: None,
            requested: None,
            used: None,
            ratios: Default::default(),
            running: None,
            pool_charge: None,
        }
    }

    /// Sets the label's quota, state and reason.
    pub fn labelled(mut self, label: &Label) -> Self {
        self.row.quota_id = label.quota_id.clone();
        self.row.quota_state = label.state;
        self.row.unpriced = label.reason.or(self.row.unpriced);
        self
    }
}

/// The fields that order rows inside an organization and hour.
type RowOrder = (
    (RowKind, Option<ClusterId>, Text, Option<PodUid>, Option<CommitmentId>, Option<ReservationId>),
    (Option<QuotaId>, Option<&'static str>, Decimal12, Option<&'static str>, Option<Labels>),
);

/// Returns the grain of a row.
pub fn grain(row: &CostRow) -> RowOrder {
    let resource = (
        row.kind,
        row.cluster_id.clone(),
        row.resource_id.clone(),
        row.pod_uid.clone(),
        row.commitment_id.clone(),
    );
    let (kind, cluster, id, pod, commitment) = resource;
    let state = row.quota_state.map(QuotaState::name);
    let reason = row.unpriced.map(Unpriced::name);
    (
        (kind, cluster, id, pod, commitment, row.reservation_id.clone()),
        (
            row.quota_id.clone(),
            state,
            row.list_unit_price,
            reason,
            row.pod.as_ref().map(|pod| pod.labels.clone()),
        ),
    )
}

/// Drops rows without quantity and cost, sorts the others by grain and rounds them.
pub fn finish(mut drafts: Vec<Draft>) -> Vec<CostRow> {
    drafts.retain(|draft| draft.keep || !draft.quantity.is_zero() || !draft.cost.is_zero());
    drafts.sort_by_key(|draft| grain(&draft.row));
    split_charges(&mut drafts);
    split_ratios(&mut drafts);
    split_pool_charges(&mut drafts);
    drafts.iter_mut().for_each(|draft| names::show_provider(&mut draft.row));
    drafts.into_iter().map(round).collect()
}

/// Rounds each charge once and splits it over its rows.
fn split_charges(drafts: &mut [Draft]) {
    let group = |draft: &Draft| match &draft.charge {
        Charge::Row => None,
        charge => Some((charge.clone(), draft.row.kind == RowKind::CommitmentPurchase)),
    };
    for (indexes, shares) in split_groups(drafts, group, |draft| draft.cost.clone()) {
        for (index, share) in indexes.into_iter().zip(shares) {
            set_cost(&mut drafts[index], share);
        }
    }
    for draft in drafts.iter_mut().filter(|draft| draft.charge == Charge::Row) {
        let cost = half_even(&draft.cost);
        set_cost(draft, cost);
    }
}

/// Sets the rounded cost of a row. A purchase has a billed cost, a committed row has an effective cost, and
/// any other row has both.
fn set_cost(draft: &mut Draft, cost: Decimal12) {
    let purchase = draft.row.kind == RowKind::CommitmentPurchase;
    let committed = draft.row.commitment_id.is_some() && !purchase;
    draft.row.effective_cost = if purchase { Decimal12::ZERO } else { cost };
    draft.row.billed_cost = if committed { Decimal12::ZERO } else { cost };
}

/// Splits ratios, so that the ratios of one origin (node, commitment or none, unit price) sum to exactly 1.
fn split_ratios(drafts: &mut [Draft]) {
    let origin = |draft: &Draft| {
        let row = &draft.row;
        let key =
            (row.cluster_id.clone(), row.resource_id.clone(), row.commitment_id.clone(), row.list_unit_price);
        draft.ratio.is_some().then_some(key)
    };
    for (indexes, shares) in split_groups(drafts, origin, |draft| draft.ratio.clone().unwrap_or_else(zero)) {
        for (index, share) in indexes.into_iter().zip(shares) {
            drafts[index].row.allocated_ratio = Some(share);
        }
    }
}

/// Rounds the pool charge of each pod once over all the pod's rows on nodes, and splits it over these rows.
fn split_pool_charges(drafts: &mut [Draft]) {
    let pod = |draft: &Draft| {
        let charged = draft.row.kind == RowKind::PodNode && draft.pool_charge.is_some();
        charged.then(|| draft.row.pod_uid.clone())
    };
    for (indexes, shares) in split_groups(drafts, pod, |draft| draft.pool_charge.clone().unwrap_or_else(zero))
    {
        for (index, share) in indexes.into_iter().zip(shares) {
            drafts[index].row.pool_charge = Some(share);
        }
    }
}

/// Groups drafts in row order, rounds each group's sum once and splits it by largest remainder.
fn split_groups<K: Ord>(
    drafts: &[Draft],
    key: impl Fn(&Draft) -> Option<K>,
    part: impl Fn(&Draft) -> Exact,
) -> Vec<(Vec<usize>, Vec<Decimal12>)> {
    let mut groups: BTreeMap<K, Vec<usize>> = BTreeMap::new();
    for (index, draft) in drafts.iter().enumerate() {
        if let Some(key) = key(draft) {
            groups.entry(key).or_default().push(index);
        }
    }
    let mut split = Vec::new();
    for indexes in groups.into_values() {
        let parts: Vec<Exact> = indexes.iter().map(|&index| part(&drafts[index])).collect();
        let sum = half_even(&parts.iter().sum());
        split.push((indexes, largest_remainder(sum, &parts)));
    }
    split
}

/// Rounds everything that is rounded row by row. Parts of EffectiveCost split the rounded EffectiveCost.
fn round(draft: Draft) -> CostRow {
    let mut row = draft.row;
    row.pricing_quantity = half_even(&draft.quantity);
    row.list_cost = draft.list_cost.as_ref().map_or(row.effective_cost, half_even);
    if row.kind == RowKind::CommitmentPurchase {
        row.list_cost = row.billed_cost;
    }
    row.commitment_quantity = draft.commitment_quantity.as_ref().map(half_even);
    if let Some(parts) = &draft.split_unused {
        let split = largest_remainder(row.effective_cost, parts);
        row.split_cost = split.first().copied();
        row.unused_cost = split.get(1).copied();
    }
    if let Some(parts) = &draft.by_resource {
        let split = largest_remainder(row.effective_cost, parts);
        row.cpu_cost = split.first().copied();
        row.memory_cost = split.get(1).copied();
        row.gpu_cost = split.get(2).copied();
    }
    row.allocated = draft.allocated.as_ref().map(resource_hours);
    row.requested = draft.requested.as_ref().map(resource_hours);
    row.used = draft.used.as_ref().map(resource_hours);
    let ratios = draft.ratios.map(|of| {
        let [cpu, memory, gpu] = of.map(|ratio| ratio.as_ref().map(half_even));
        ResourceRatios { cpu, memory, gpu }
    });
    [row.split_usage, row.unused] = ratios;
    row.running_seconds = draft.running.map(|hours| half_even(&(hours * crate::rounding::whole(3600))));
    if row.kind == RowKind::PodPool && row.unpriced.is_none() {
        row.pool_charge = Some(row.effective_cost);
    }
    row
}

/// Rounds three amounts, each half to even.
pub fn resource_hours(amounts: &Three) -> ResourceHours {
    let [cpu, memory, gpu] = amounts;
    ResourceHours {
        cpu_core_hours: half_even(cpu),
        memory_gib_hours: half_even(memory),
        gpu_hours: half_even(gpu),
    }
}
