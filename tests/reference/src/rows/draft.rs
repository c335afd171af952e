//! Rows of `cost_allocation` with exact amounts, before they are sorted, rounded and split by largest
//! remainder.

use prorata_schemas::Text;
use prorata_schemas::decimal::Decimal12;
use prorata_schemas::event::Labels;
use prorata_schemas::ids::{ClusterId, CommitmentId, PodUid, QuotaId, ReservationId};
use prorata_schemas::money::UnitPrice;
use prorata_schemas::rows::{CostRow, QuotaState, ResourceHours, RowKind, Unpriced};

use crate::hour::{Label, LineKey, line_key};
use crate::resources::Three;
use crate::rounding::{Exact, half_even, zero};
use crate::world::NodeKey;

/// The rows that split one charge.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Charge {
    /// A node's own-price component at one unit price.
    Node(NodeKey, UnitPrice),
    /// A commitment-hour, which Used and Unused rows split, and which purchase rows split a second time.
    Commitment(CommitmentId),
    /// A billed component of a node, a line of a bill with a row of its own, or a charge that divides over
    /// pods. It holds the first line.
    Bill(Option<NodeKey>, Option<LineKey>),
    /// One row alone.
    Row,
}

/// The row's parts of the amounts of a billed component or line, besides the effective cost.
pub struct BillAmounts {
    /// `BilledCost`.
    pub billed: Exact,
    /// `ListCost`.
    pub list: Exact,
    /// `x_EstimatedCost`. `None` if the row is not of a node.
    pub estimate: Option<Exact>,
}

/// A row before rounding: texts, descriptions and exact amounts.
pub struct Draft {
    /// Texts and descriptions. The amounts are still zero or null.
    pub row: CostRow,
    /// The charge that the row is a part of.
    pub charge: Charge,
    /// Whether the row stays even without quantity and cost, because it is a pod's only row, or a line's.
    pub keep: bool,
    /// `PricingQuantity`.
    pub quantity: Exact,
    /// The row's part of the charge: `EffectiveCost`, or `BilledCost` on purchases.
    pub cost: Exact,
    /// `ListCost`. `None` if it equals the cost, or if the row is billed.
    pub list_cost: Option<Exact>,
    /// The other amounts of a billed row; `None` if the row is an estimate.
    pub bill: Option<BillAmounts>,
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
            bill: None,
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
    Option<LineKey>,
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
        row.lines.first().map(line_key),
    )
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
