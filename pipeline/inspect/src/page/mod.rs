//! A lake as one HTML page: what it cost over time, who bore it, what was idle or unused, and what has no
//! price. The page holds its data and asks nobody for anything.
//!
//! Reading order: [`Report`] is what is told; `collect` reads the cost rows, `agreements` the other tables;
//! `explained` explains what cost most; `html` writes the page; `assets` is what runs in the browser.

mod agreements;
mod collect;
mod explained;
mod html;

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use prorata_schemas::decimal::Decimal12;
use prorata_schemas::time::Hour;
use prorata_worker::{Ports, WorkerError};

use crate::Sum;
use crate::lake::{HourRange, LakeTables};

pub use agreements::{CommitmentUse, PoolSpend, QuotaUse, ReservationUse};

/// Up to so many hours the page shows hours; beyond, days.
const HOURS_SHOWN_MAX: i64 = 96;

/// What costs are grouped by.
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

/// A text is nothing to group by.
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

/// What bears a cost: a pod, or what no pod does.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct CostBearer {
    /// The organization.
    pub organization: String,
    /// Its currency.
    pub currency: String,
    /// `pod`, `idle`, `reservation` or `commitment`.
    pub kind: &'static str,
    /// The group that the page was asked for.
    pub group: String,
    /// The cluster; empty where there is none.
    pub cluster: String,
    /// The namespace of a pod.
    pub namespace: String,
    /// Name of the pod, id of the idle node, reservation or commitment.
    pub name: String,
    /// Uid of the pod.
    pub uid: String,
    /// The GPU model; empty without one.
    pub gpu_model: String,
}

/// What one bearer had in a span of time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BearerAmounts {
    /// EffectiveCost.
    pub cost: Sum,
    /// Part of it for capacity of nodes that it was allocated.
    pub used: Sum,
    /// Part of it for capacity of nodes that nobody was allocated.
    pub unused: Sum,
    /// Part of it while over quota.
    pub over_quota: Sum,
    /// Part of it for GPUs.
    pub gpu_cost: Sum,
    /// GPU-hours that it was allocated.
    pub gpu_hours: Sum,
    /// The row that cost most, and its hour: that is what there is to explain.
    pub dearest: Option<(Decimal12, Hour)>,
}

/// Pods without a price.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UnpricedPods {
    /// How many.
    pub pods: std::collections::BTreeSet<String>,
    /// Seconds for which they ran.
    pub seconds: Sum,
}

/// What a page is to show.
#[derive(Clone, Debug)]
pub struct ReportOptions {
    /// The lake's name.
    pub lake: String,
    /// Its hours.
    pub range: HourRange,
    /// The only organization; `None` for all.
    pub organization: Option<String>,
    /// What costs are grouped by.
    pub group_by: GroupBy,
    /// How many of the bearers that cost most are explained.
    pub explain: usize,
}

/// Everything that the page tells.
#[derive(Clone, Debug)]
pub struct Report {
    /// The lake's name.
    pub lake: String,
    /// The only organization that is on the page; `None` if all are.
    pub organization: Option<String>,
    /// What costs are grouped by.
    pub group_by: GroupBy,
    /// First and last hour; none of an empty lake.
    pub hours: Option<(Hour, Hour)>,
    /// The period before, of the same length, if the lake has any of it.
    pub before_hours: Option<(Hour, Hour)>,
    /// Whether time goes by days.
    pub by_day: bool,
    /// BearerAmounts by time and bearer. Time is an hour, the first of its day where it goes by days.
    pub amounts: BTreeMap<(Hour, CostBearer), BearerAmounts>,
    /// Explanations of what cost most, each of the hour in which it cost most, as lines for people.
    pub explained: BTreeMap<CostBearer, String>,
    /// Cost of groups in the period before, by organization, currency and group.
    pub before: BTreeMap<(String, String, String), Sum>,
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
    /// Live files that cannot be read, and why.
    pub unreadable: Vec<(String, String)>,
}

impl Report {
    /// A page of these hours, with nothing on it yet.
    fn new(options: &ReportOptions, hours: Option<(Hour, Hour)>) -> Self {
        Self {
            lake: options.lake.clone(),
            organization: options.organization.clone(),
            group_by: options.group_by.clone(),
            hours,
            before_hours: None,
            by_day: hours.is_some_and(|(first, last)| last.0 - first.0 >= HOURS_SHOWN_MAX),
            amounts: BTreeMap::new(),
            explained: BTreeMap::new(),
            before: BTreeMap::new(),
            unpriced: BTreeMap::new(),
            reservations: BTreeMap::new(),
            commitments: BTreeMap::new(),
            quotas: BTreeMap::new(),
            pools: BTreeMap::new(),
            unreadable: Vec::new(),
        }
    }

    /// Whether rows of an organization are on the page.
    fn shows(&self, organization: Option<&str>) -> bool {
        self.organization.as_deref().is_none_or(|only| organization == Some(only))
    }

    /// The time that an hour belongs to: itself, or the first hour of its day.
    fn time_of(&self, hour: Hour) -> Hour {
        if self.by_day { Hour(hour.date().days() * 24) } else { hour }
    }
}

/// Reads the tables of a lake for a page, and explains what cost most.
///
/// # Errors
/// When storage is unavailable. A file that cannot be read is told on the page.
pub async fn report(
    lake: &LakeTables<'_>,
    ports: &Ports,
    options: &ReportOptions,
) -> Result<Report, WorkerError> {
    let all = collect::hours(lake);
    let hours = all.filter(|hour| options.range.holds(*hour)).collect::<std::collections::BTreeSet<_>>();
    let hours = hours.first().copied().zip(hours.last().copied());
    let mut report = Report::new(options, hours);
    if let Some((first, last)) = hours {
        collect::costs(lake, (first, last), &mut report).await?;
        agreements::read(lake, (first, last), &mut report).await?;
        collect::before(lake, (first, last), &mut report).await?;
        explained::dearest(lake, ports, options.explain, &mut report).await?;
    }
    Ok(report)
}
