//! Writes a lake as one HTML page: cost over time, its bearers, idle and unused cost, bills against
//! estimates, and missing prices. The page contains its data and makes no requests.
//!
//! Reading order: [`Report`] is the content; `collect` reads the cost rows, and `agreements` the other
//! tables; `bills` compares billed costs with estimates, and `gpus` GPU-hours with the cards of nodes;
//! `explained` explains the highest costs; `bound` bounds the page; `html` writes it; `assets` runs in the
//! browser.

mod agreements;
mod bills;
mod bound;
mod collect;
mod explained;
mod gpus;
mod html;

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use prorata_schemas::decimal::Decimal12;
use prorata_schemas::time::{Hour, HourRange};
use prorata_worker::{Ports, WorkerError};

use crate::Sum;
use crate::lake::LakeTables;

pub use agreements::{CommitmentUse, PoolSpend, QuotaUse, ReservationUse};
pub use bills::{BasisSums, BilledCosts};
pub use bound::LeftOut;
pub use gpus::GpuSharing;

/// Maximum number of hours that the page shows as hours; a longer period is shown in days.
const HOURS_SHOWN_MAX: u64 = 96;

/// The property that costs are grouped by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GroupBy {
    /// The pod's namespace.
    Namespace,
    /// The cluster.
    Cluster,
    /// The GPU model.
    GpuModel,
    /// A label of the pod.
    Label(String),
}

/// The error for a text that does not name a property to group by.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("it must be namespace, cluster, gpu_model or label:KEY, such as label:team")]
pub struct ParseGroupError;

impl FromStr for GroupBy {
    type Err = ParseGroupError;

    fn from_str(text: &str) -> Result<Self, ParseGroupError> {
        match (text, text.strip_prefix("label:")) {
            ("namespace", _) => Ok(Self::Namespace),
            ("cluster", _) => Ok(Self::Cluster),
            ("gpu_model", _) => Ok(Self::GpuModel),
            (_, Some(key)) if !key.is_empty() => Ok(Self::Label(key.to_owned())),
            _ => Err(ParseGroupError),
        }
    }
}

impl fmt::Display for GroupBy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Namespace => f.write_str("namespace"),
            Self::Cluster => f.write_str("cluster"),
            Self::GpuModel => f.write_str("gpu_model"),
            Self::Label(key) => write!(f, "label:{key}"),
        }
    }
}

/// A bearer of cost: a pod, or another object if the cost belongs to no pod.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct CostBearer {
    /// The organization.
    pub organization: String,
    /// Currency of the costs.
    pub currency: String,
    /// `pod`, `idle`, `reservation`, `commitment`, or `shared` for a shared charge of a bill that no pod
    /// bears.
    pub kind: &'static str,
    /// The bearer's group.
    pub group: String,
    /// The cluster; empty if there is none.
    pub cluster: String,
    /// Namespace of the pod.
    pub namespace: String,
    /// Name of the pod, id of the idle node, reservation or commitment, or key of the resource in a bill. The
    /// key is empty for charges of no resource.
    pub name: String,
    /// Uid of the pod.
    pub uid: String,
    /// The GPU model; empty without one.
    pub gpu_model: String,
}

/// Amounts of one bearer in a span of time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BearerAmounts {
    /// EffectiveCost.
    pub cost: Sum,
    /// Part of the cost for node capacity that was allocated to the bearer.
    pub used: Sum,
    /// Part of the cost for node capacity that was allocated to nobody.
    pub unused: Sum,
    /// Part of the cost while over quota.
    pub over_quota: Sum,
    /// Part of the cost for GPUs.
    pub gpu_cost: Sum,
    /// GPU-hours that were allocated to the bearer.
    pub gpu_hours: Sum,
    /// The cost and the hour of the most expensive row, which an explanation starts from. `None` if the
    /// amounts are of bearers that were joined.
    pub dearest: Option<(Decimal12, Hour)>,
}

impl BearerAmounts {
    fn add(&mut self, other: &Self) {
        self.cost.add(other.cost);
        self.used.add(other.used);
        self.unused.add(other.unused);
        self.over_quota.add(other.over_quota);
        self.gpu_cost.add(other.gpu_cost);
        self.gpu_hours.add(other.gpu_hours);
        self.dearest = self.dearest.max(other.dearest);
    }
}

/// Pods without a price.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UnpricedPods {
    /// Uids of the pods.
    pub pods: std::collections::BTreeSet<String>,
    /// Seconds that the pods ran.
    pub seconds: Sum,
}

/// The content to show on a page.
#[derive(Clone, Debug)]
pub struct ReportOptions {
    /// Name of the lake.
    pub lake: String,
    /// Hours to show.
    pub range: HourRange,
    /// The only organization to show. `None` if all are shown.
    pub organization: Option<String>,
    /// The property that costs are grouped by.
    pub group_by: GroupBy,
    /// Number of bearers to explain, from the highest cost down.
    pub explain: usize,
}

#[cfg(test)]
impl ReportOptions {
    /// Returns options that show everything, without explanations.
    fn of_tests() -> Self {
        let (lake, range, group_by) = ("lake".to_owned(), HourRange::ALL, GroupBy::Namespace);
        Self { lake, range, organization: None, group_by, explain: 0 }
    }
}

/// The content of the page.
#[derive(Clone, Debug)]
pub struct Report {
    /// Name of the lake.
    pub lake: String,
    /// The only organization on the page. `None` if all are shown.
    pub organization: Option<String>,
    /// The property that costs are grouped by.
    pub group_by: GroupBy,
    /// The hours. `None` if the lake is empty.
    pub hours: Option<HourRange>,
    /// The previous period of the same length. `None` if the lake has no hour of it.
    pub before_hours: Option<HourRange>,
    /// Whether the page shows days instead of hours.
    pub by_day: bool,
    /// Amounts by time and bearer. The time is an hour, or the first hour of the day if the page shows days.
    pub amounts: BTreeMap<(Hour, CostBearer), BearerAmounts>,
    /// Explanations of the highest costs, each for its most expensive hour, as lines of text.
    pub explained: BTreeMap<CostBearer, String>,
    /// Cost of groups in the previous period, by organization, currency and group.
    pub before: BTreeMap<(String, String, String), Sum>,
    /// Costs by basis, if any row is billed.
    pub bills: BilledCosts,
    /// Pods without a price by organization and reason.
    pub unpriced: BTreeMap<(String, String), UnpricedPods>,
    /// Reservations by organization and id.
    pub reservations: BTreeMap<(String, String), ReservationUse>,
    /// Commitments by organization and id.
    pub commitments: BTreeMap<(String, String), CommitmentUse>,
    /// Quotas by organization, cluster, id and resource.
    pub quotas: BTreeMap<(String, String, String, String), QuotaUse>,
    /// Pools by organization and id.
    pub pools: BTreeMap<(String, String), PoolSpend>,
    /// GPU-hours of nodes by organization and GPU model.
    pub gpu_sharing: BTreeMap<(String, String), GpuSharing>,
    /// Items that the page does not show individually.
    pub left_out: LeftOut,
    /// Live files that cannot be read, with the error.
    pub unreadable: Vec<(String, String)>,
}

impl Report {
    /// Creates an empty page of these hours.
    fn new(options: &ReportOptions, hours: Option<HourRange>) -> Self {
        Self {
            lake: options.lake.clone(),
            organization: options.organization.clone(),
            group_by: options.group_by.clone(),
            hours,
            before_hours: None,
            by_day: hours.is_some_and(|hours| hours.count() > HOURS_SHOWN_MAX),
            amounts: BTreeMap::new(),
            explained: BTreeMap::new(),
            before: BTreeMap::new(),
            bills: BilledCosts::default(),
            unpriced: BTreeMap::new(),
            reservations: BTreeMap::new(),
            commitments: BTreeMap::new(),
            quotas: BTreeMap::new(),
            pools: BTreeMap::new(),
            gpu_sharing: BTreeMap::new(),
            left_out: LeftOut::new(),
            unreadable: Vec::new(),
        }
    }

    /// Returns whether rows of an organization belong on the page.
    fn shows(&self, organization: Option<&str>) -> bool {
        self.organization.as_deref().is_none_or(|only| organization == Some(only))
    }

    /// Returns the time of an hour on the page: the hour itself, or the first hour of its day.
    fn time_of(&self, hour: Hour) -> Hour {
        if self.by_day { hour.date().hours().first } else { hour }
    }
}

/// Reads the tables of a lake for a page, and explains the highest costs.
///
/// # Errors
/// If storage is unavailable. A file that cannot be read is reported on the page.
pub async fn report(
    lake: &LakeTables<'_>,
    ports: &Ports,
    options: &ReportOptions,
) -> Result<Report, WorkerError> {
    let all = collect::hours(lake);
    let shown = all.filter(|hour| options.range.contains(*hour)).map(HourRange::from);
    let hours = shown.reduce(|range, hour| range.with(hour.first));
    let mut report = Report::new(options, hours);
    if let Some(range) = hours {
        collect::costs(lake, range, &mut report).await?;
        agreements::read(lake, range, &mut report).await?;
        collect::before(lake, range, &mut report).await?;
        explained::dearest(lake, ports, options.explain, &mut report).await?;
        bound::bound(&mut report);
    }
    Ok(report)
}
