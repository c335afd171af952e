//! Steps of bills.

use prorata_schemas::Text;
use prorata_schemas::decimal::Decimal12;
use prorata_schemas::ids::{ClusterId, NodeId};
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
    /// The nodes that the part goes to, each with its own part. Empty if the part is a row of its own.
    pub nodes: Vec<(ClusterId, NodeId, BillFigures)>,
}
