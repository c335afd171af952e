//! Steps of bills, and of charges that pods divide.

use prorata_schemas::Text;
use prorata_schemas::decimal::Decimal12;
use prorata_schemas::ids::{ClusterId, NodeId, PodUid};
use prorata_schemas::time::Timestamp;
use serde::Serialize;

use crate::model::state::LineAmounts;
use crate::trace::ExactNumber;
use crate::trace::steps::as_text;

/// Amounts of a line of a bill, or of a part of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct BillFigures {
    /// Effective cost.
    #[serde(serialize_with = "as_text")]
    pub effective: Decimal12,
    /// Billed cost.
    #[serde(serialize_with = "as_text")]
    pub billed: Decimal12,
    /// Cost at list prices.
    #[serde(serialize_with = "as_text")]
    pub list: Decimal12,
    /// Hours of the resource.
    #[serde(serialize_with = "as_text")]
    pub hours: Decimal12,
}

impl From<LineAmounts> for BillFigures {
    fn from(LineAmounts { effective, billed, list, hours }: LineAmounts) -> Self {
        Self { effective, billed, list, hours }
    }
}

/// The part of a line of a bill that the hour takes, and the nodes that it goes to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct BillStep {
    /// The provider that sent the bill.
    pub provider: Text,
    /// The account that the provider bills.
    pub billing_account_id: Text,
    /// The resource in the bill; empty if there is none.
    pub resource_key: Text,
    /// The line.
    pub line_id: Text,
    /// The line's text for people.
    pub description: Option<Text>,
    /// The start of the charge period.
    #[serde(serialize_with = "as_text")]
    pub from: Timestamp,
    /// The end of the charge period.
    #[serde(serialize_with = "as_text")]
    pub to: Timestamp,
    /// The whole line.
    pub whole: BillFigures,
    /// The amounts that earlier hours have left.
    pub left: BillFigures,
    /// The amounts that the hour takes.
    pub part: BillFigures,
    /// Hours for which nodes ran under the line's resource in this hour.
    pub node_hours: ExactNumber,
    /// The nodes that the part goes to, each with its own part. Empty if it goes to no node.
    pub nodes: Vec<(ClusterId, NodeId, BillFigures)>,
}

/// A charge of a bill that pods divide by their weights.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct DivisionStep {
    /// The canonical name of the provider.
    pub provider: Text,
    /// The account that the provider bills.
    pub billing_account_id: Text,
    /// The service of all lines.
    pub service: Text,
    /// The resource key of the volume whose pods divide the charge; `None` if an entry divides it.
    pub volume: Option<Text>,
    /// The number of the entry in `rules.shared_charges`, from 1; `None` if a volume divides the charge.
    pub entry: Option<usize>,
    /// The weight that the entry names, such as `cost`; `None` if a volume divides the charge.
    pub over: Option<&'static str>,
    /// The ids of the lines.
    pub lines: Vec<Text>,
    /// The sums of the amounts that the hour takes of the lines.
    pub amounts: BillFigures,
    /// The number of pods with a weight above zero.
    pub pods: usize,
    /// The sum of all weights: in the hour's currency for `cost`, in hours of a resource for `cpu`, `memory`
    /// and `gpu`, and in hours of running time otherwise.
    pub total_weight: ExactNumber,
    /// The weights of the pods in focus.
    pub weights: Vec<(PodUid, ExactNumber)>,
}
