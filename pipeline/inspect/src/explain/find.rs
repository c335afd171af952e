//! Finds rows of an hour in the table files, and similar names if there are no rows.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use prorata_schemas::decimal::Decimal12;
use prorata_schemas::event::ChargeCategory;
use prorata_schemas::ids::OrganizationId;
use prorata_schemas::rows::{CostBasis, CostRow, ResourceHours, RowKind, Unpriced};
use prorata_schemas::tables::Table;
use prorata_schemas::time::{Hour, HourRange};
use prorata_tables::tags_of;

use super::{ExplainError, Question, Subject};
use crate::columns::{self, ReadError, Rows};
use crate::lake::{FoundFile, LakeTables};

/// Maximum number of names to report if nothing has the requested name.
const NEAR_MAX: usize = 5;

const TEXTS: [&str; 16] = [
    "BillingAccountId",
    "x_RowKind",
    "SubAccountId",
    "ResourceId",
    "x_PodUid",
    "CommitmentDiscountId",
    "CapacityReservationId",
    "x_QuotaId",
    "x_QuotaState",
    "x_Unpriced",
    "AllocatedTags",
    "Tags",
    "x_Namespace",
    "x_CostBasis",
    "x_ResourceKey",
    "InvoiceDetailId",
];

/// A column with numbers, and the matching field of a row from the engine.
type Figure = (&'static str, fn(&CostRow) -> Option<Decimal12>);

/// Columns with numbers.
pub const FIGURES: [Figure; 28] = [
    ("BilledCost", |row| Some(row.billed_cost)),
    ("EffectiveCost", |row| Some(row.effective_cost)),
    ("ListCost", |row| Some(row.list_cost)),
    ("PricingQuantity", |row| (!is_tax(row)).then_some(row.pricing_quantity)),
    ("CommitmentDiscountQuantity", |row| row.commitment_quantity),
    ("x_EstimatedCost", |row| row.estimated_cost),
    ("x_SplitCost", |row| row.split_cost),
    ("x_UnusedCost", |row| row.unused_cost),
    ("x_CpuCost", |row| row.cpu_cost),
    ("x_MemoryCost", |row| row.memory_cost),
    ("x_GpuCost", |row| row.gpu_cost),
    ("x_PoolCharge", |row| row.pool_charge),
    ("x_RunningSeconds", |row| row.running_seconds),
    ("x_CpuCoreHours", |row| cpu(row.allocated)),
    ("x_MemoryGibHours", |row| memory(row.allocated)),
    ("x_GpuHours", |row| gpu(row.allocated)),
    ("x_RequestedCpuCoreHours", |row| cpu(row.requested)),
    ("x_RequestedMemoryGibHours", |row| memory(row.requested)),
    ("x_RequestedGpuHours", |row| gpu(row.requested)),
    ("x_UsedCpuCoreHours", |row| cpu(row.used)),
    ("x_UsedMemoryGibHours", |row| memory(row.used)),
    ("x_UsedGpuHours", |row| gpu(row.used)),
    ("x_CpuSplitUsageRatio", |row| row.split_usage.cpu),
    ("x_MemorySplitUsageRatio", |row| row.split_usage.memory),
    ("x_GpuSplitUsageRatio", |row| row.split_usage.gpu),
    ("x_CpuUnusedRatio", |row| row.unused.cpu),
    ("x_MemoryUnusedRatio", |row| row.unused.memory),
    ("x_GpuUnusedRatio", |row| row.unused.gpu),
];

fn cpu(hours: Option<ResourceHours>) -> Option<Decimal12> {
    hours.map(|hours| hours.cpu_core_hours)
}

fn memory(hours: Option<ResourceHours>) -> Option<Decimal12> {
    hours.map(|hours| hours.memory_gib_hours)
}

fn gpu(hours: Option<ResourceHours>) -> Option<Decimal12> {
    hours.map(|hours| hours.gpu_hours)
}

/// Returns whether a row is a tax of a bill. The table has no price and no quantity of a tax.
fn is_tax(row: &CostRow) -> bool {
    let is_of_node = matches!(row.kind, RowKind::PodNode | RowKind::NodeIdle);
    let mut lines = row.lines.iter().map(|billed| billed.line());
    !is_of_node && !row.lines.is_empty() && lines.all(|line| line.category == ChargeCategory::Tax)
}

/// Key of a row within its organization and hour: kind, cluster, resource, pod, commitment, reservation,
/// quota, state, reason for having no price, labels of the pod, basis, resource in the bill if its lines have
/// only one, line of the bill if it has only one, and price. The last number is the place among the rows that
/// share all of these, from 0.
pub type Grain = ([String; 13], Option<Decimal12>, usize);

/// The numbers of rows that share a key. Such rows are lines of several sets of a bill, or a pod's parts of
/// several charges, which no column of the key distinguishes. The files and the engine have them in one
/// order.
#[derive(Debug, Default)]
pub struct SharedGrains(BTreeMap<Grain, usize>);

impl SharedGrains {
    /// Returns the key of the next row with its place.
    pub fn number(&mut self, grain: Grain) -> Grain {
        let ([.., basis, _, _], ..) = &grain;
        // Keys of estimates are unique, and there are many.
        if basis != CostBasis::Billed.name() {
            return grain;
        }
        let next = self.0.entry(grain.clone()).or_default();
        let place = *next;
        *next += 1;
        let (texts, price, _) = grain;
        (texts, price, place)
    }
}

/// A row of a table file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableRow {
    /// The organization.
    pub organization: String,
    /// Unique key of the row.
    pub grain: Grain,
    /// Namespace and name of the pod; empty without a pod.
    pub pod: (String, String),
    /// Numbers of the row, in the order of `FIGURES`.
    pub figures: Vec<Option<Decimal12>>,
}

/// Rows of a subject in the table files.
#[derive(Clone, Debug)]
pub struct Found {
    /// The organization.
    pub organization: OrganizationId,
    /// Files of the hour with rows of the subject.
    pub files: Vec<String>,
    /// Rows of the subject.
    pub rows: BTreeMap<Grain, TableRow>,
}

impl Found {
    /// Collects rows of a subject, each with its file, in the order of the files.
    pub fn new(organization: OrganizationId, rows: impl IntoIterator<Item = (String, TableRow)>) -> Self {
        let mut files: BTreeMap<String, SharedGrains> = BTreeMap::new();
        let rows = rows.into_iter().map(|(file, mut row)| {
            row.grain = files.entry(file).or_default().number(row.grain);
            (row.grain.clone(), row)
        });
        let rows = rows.collect();
        Self { organization, files: files.into_keys().collect(), rows }
    }
}

impl Subject {
    /// Returns whether a row belongs to the subject.
    pub fn has(&self, grain: &Grain, namespace: &str, pod_name: &str) -> bool {
        let ([kind, cluster, resource, uid, commitment, reservation, _, _, unpriced, _, basis, key, _], ..) =
            grain;
        let in_cluster = |name: &str, asked: &str| name == asked || format!("{cluster}/{name}") == asked;
        match self {
            Self::Pod(asked) => {
                !uid.is_empty() && (uid == asked || format!("{namespace}/{pod_name}") == *asked)
            }
            Self::Node(asked) => {
                let runs = unpriced != Unpriced::UnknownNode.name();
                (kind == "pod_node" || kind == "node_idle") && runs && in_cluster(resource, asked)
            }
            Self::Reservation(asked) => reservation == asked,
            Self::Commitment(asked) => commitment == asked,
            Self::Namespace(asked) => !uid.is_empty() && in_cluster(namespace, asked),
            Self::Bill(asked) => basis == CostBasis::Billed.name() && key == asked,
        }
    }

    /// Returns whether a row of the table belongs to the subject.
    fn has_row(&self, row: &TableRow) -> bool {
        self.has(&row.grain, &row.pod.0, &row.pod.1)
    }

    /// Returns the name by which a question finds this row, or `None` if the row is of another kind.
    fn named(&self, row: &TableRow) -> Option<String> {
        let ([kind, _, resource, uid, commitment, reservation, .., basis, key, _], ..) = &row.grain;
        let named = match self {
            Self::Pod(_) if uid.is_empty() => String::new(),
            Self::Pod(_) => format!("{}/{}", row.pod.0, row.pod.1),
            Self::Node(_) if kind == "pod_node" || kind == "node_idle" => resource.clone(),
            Self::Node(_) => String::new(),
            Self::Reservation(_) => reservation.clone(),
            Self::Commitment(_) => commitment.clone(),
            Self::Namespace(_) => row.pod.0.clone(),
            Self::Bill(_) if basis == CostBasis::Billed.name() => key.clone(),
            Self::Bill(_) => String::new(),
        };
        (!named.is_empty()).then_some(named)
    }
}

/// Returns the key of a row from the engine, at place 0.
pub fn grain(row: &CostRow) -> Grain {
    let text = |text: Option<&str>| text.unwrap_or_default().to_owned();
    let (basis, line) = match &*row.lines {
        [] => (CostBasis::Estimated, None),
        [only] => (CostBasis::Billed, Some(&*only.line().line_id)),
        [..] => (CostBasis::Billed, None),
    };
    let texts = [
        row.kind.name().to_owned(),
        text(row.cluster_id.as_deref()),
        row.resource_id.to_string(),
        text(row.pod_uid.as_deref()),
        text(row.commitment_id.as_deref()),
        text(row.reservation_id.as_deref()),
        text(row.quota_id.as_deref()),
        text(row.quota_state.map(|state| state.name())),
        text(row.unpriced.map(|reason| reason.name())),
        row.pod.as_ref().and_then(|pod| tags_of(&pod.labels)).unwrap_or_default(),
        basis.name().to_owned(),
        text(row.resource_key().map(|key| &**key)),
        text(line),
    ];
    (texts, (!is_tax(row)).then_some(row.list_unit_price), 0)
}

/// Returns the numbers of a row from the engine, in the form of a [`TableRow`].
pub fn figures(row: &CostRow) -> Vec<Option<Decimal12>> {
    FIGURES.iter().map(|(_, of)| of(row)).collect()
}

/// Finds the rows of a question in the table files.
///
/// # Errors
/// If there are no rows, rows of several organizations, or a file that cannot be read.
pub async fn find(lake: &LakeTables<'_>, question: &Question) -> Result<Found, ExplainError> {
    let rows = rows_of(lake, &[question.hour], question.organization.as_ref()).await?;
    among(lake, question, &rows).await
}

/// Finds the rows of a question among the rows of its hour.
///
/// # Errors
/// See [`find`].
pub async fn among(
    lake: &LakeTables<'_>,
    question: &Question,
    rows: &[(String, TableRow)],
) -> Result<Found, ExplainError> {
    let Question { subject, hour, .. } = question;
    let is_it = |row: &TableRow| subject.has_row(row);
    let organizations: BTreeSet<&str> =
        rows.iter().filter(|(_, row)| is_it(row)).map(|(_, row)| row.organization.as_str()).collect();
    let (what, name) = subject.name();
    match organizations.len() {
        0 => Err(ExplainError::NotFound(nothing(lake, question, rows).await?)),
        1 => {
            let organization = organizations.first().copied().unwrap_or_default().into();
            Ok(Found::new(organization, rows.iter().filter(|(_, row)| is_it(row)).cloned()))
        }
        _ => {
            let all: Vec<&str> = organizations.into_iter().collect();
            Err(ExplainError::NotFound(format!(
                "{} organizations have a {what} '{name}' in hour {hour}: {}; name one with --organization",
                all.len(),
                all.join(", ")
            )))
        }
    }
}

/// Returns the rows of a question in the tables now or as of an instant. It is not an error if there are
/// none.
///
/// # Errors
/// If a file cannot be read.
pub async fn rows_of_subject(
    lake: &LakeTables<'_>,
    question: &Question,
    organization: &OrganizationId,
) -> Result<BTreeMap<Grain, TableRow>, ExplainError> {
    let rows = rows_of(lake, &[question.hour], Some(organization)).await?;
    let rows = rows.into_iter().filter(|(_, row)| question.subject.has_row(row));
    Ok(Found::new(organization.clone(), rows).rows)
}

/// Returns a message that says why nothing was found, with similar names.
async fn nothing(
    lake: &LakeTables<'_>,
    question: &Question,
    rows: &[(String, TableRow)],
) -> Result<String, ExplainError> {
    let Question { subject, hour, organization } = question;
    let (what, name) = subject.name();
    let of = organization.as_ref().map_or(String::new(), |id| format!(" of organization '{id}'"));
    if rows.is_empty() {
        let hours = lake.files().filter(|file| file.table == Table::Hours).flat_map(|file| file.hours());
        let hours: BTreeSet<Hour> = hours.collect();
        return Ok(match (hours.first(), hours.last()) {
            (Some(first), Some(last)) if hours.contains(hour) => {
                let all = rows_of(lake, &[*hour], None).await?;
                let all: BTreeSet<&str> = all.iter().map(|(_, row)| row.organization.as_str()).collect();
                let near = near(organization.as_deref().unwrap_or_default(), all.into_iter());
                format!("hour {hour} has no rows{of}; the lake has hours {first} to {last}{near}")
            }
            (Some(first), Some(last)) => {
                format!(
                    "the lake has no hour {hour}: it has {first} to {last}; name one of these hours with \
                     --hour"
                )
            }
            _ => "the lake has no hours yet: nothing has been closed".to_owned(),
        });
    }
    let day = hour.date().days() * 24;
    let day: Vec<Hour> = (day..day + 24).map(Hour).collect();
    let elsewhere = rows_with_hours(lake, &day, organization.as_ref()).await?;
    let is_it = |row: &TableRow| subject.has_row(row);
    let hours: BTreeSet<String> =
        elsewhere.iter().filter(|(_, row)| is_it(row)).map(|(hour, _)| hour.to_string()).collect();
    if !hours.is_empty() {
        let hours: Vec<String> = hours.into_iter().collect();
        return Ok(format!(
            "{what} '{name}'{of} has no row in hour {hour}; it has rows in {}",
            hours.join(", ")
        ));
    }
    let names: BTreeSet<String> = rows.iter().filter_map(|(_, row)| subject.named(row)).collect();
    let near = near(name, names.iter().map(String::as_str));
    let is_bill = matches!(subject, Subject::Bill(_));
    let joined = if is_bill && rows.iter().any(|(_, row)| is_joined(row)) {
        "; a charge of several resources has no key: explain it with --bill '', or by a pod"
    } else {
        ""
    };
    Ok(format!("hour {hour} has no {what} '{name}'{of}{near}{joined}"))
}

/// Returns whether a row is a pod's part of charges of several resources, which has no key, or of charges of
/// no resource.
fn is_joined(row: &TableRow) -> bool {
    let ([kind, _, _, uid, .., basis, key, _], ..) = &row.grain;
    let is_part = kind == RowKind::SharedCharge.name() && !uid.is_empty();
    is_part && basis == CostBasis::Billed.name() && key.is_empty()
}

/// Returns the end of a message with the names that are most similar to a name; empty without names.
fn near<'a>(asked: &str, names: impl Iterator<Item = &'a str>) -> String {
    let mut names: Vec<(u64, &str)> = names
        .map(|name| {
            let likeness = strsim::normalized_damerau_levenshtein(asked, name);
            // Whole thousandths have an exact order.
            ((likeness * 1000.0).round() as u64, name)
        })
        .collect();
    names.sort_by(|a, b| b.0.cmp(&a.0).then(a.1.cmp(b.1)));
    names.truncate(NEAR_MAX);
    let names: Vec<String> = names.into_iter().map(|(_, name)| format!("'{name}'")).collect();
    if names.is_empty() { String::new() } else { format!("; the nearest: {}", names.join(", ")) }
}

/// Returns all rows of some hours of one date, each with its file.
///
/// # Errors
/// If a file cannot be read.
pub async fn rows_of(
    lake: &LakeTables<'_>,
    hours: &[Hour],
    organization: Option<&OrganizationId>,
) -> Result<Vec<(String, TableRow)>, ExplainError> {
    let mut rows = Vec::new();
    scan(lake, hours, organization, |file, _, row| rows.push((file.to_string(), row))).await?;
    Ok(rows)
}

async fn rows_with_hours(
    lake: &LakeTables<'_>,
    hours: &[Hour],
    organization: Option<&OrganizationId>,
) -> Result<Vec<(Hour, TableRow)>, ExplainError> {
    let mut rows = Vec::new();
    scan(lake, hours, organization, |_, hour, row| rows.push((hour, row))).await?;
    Ok(rows)
}

/// Reads the rows of some hours of one date, and passes each row with its file and hour to `each`.
async fn scan(
    lake: &LakeTables<'_>,
    hours: &[Hour],
    organization: Option<&OrganizationId>,
    mut each: impl FnMut(&FoundFile, Hour, TableRow),
) -> Result<(), ExplainError> {
    let range = HourRange::between(hours.first().copied(), hours.last().copied());
    let days = lake.days(range);
    let files = days.values().flatten().filter(|file| {
        file.table == Table::CostAllocation && file.hours().iter().any(|hour| range.contains(*hour))
    });
    let mut damaged = None;
    lake.read_each(files, |file, bytes| {
        let read = match bytes {
            Some(bytes) => read(bytes, |hour, row| {
                let is_wanted = organization.is_none_or(|wanted| **wanted == *row.organization);
                if is_wanted && range.contains(hour) {
                    each(file, hour, row);
                }
            })
            .map_err(|error| error.to_string()),
            None => Err("the object is gone".to_owned()),
        };
        if let Err(why) = read {
            damaged.get_or_insert_with(|| format!("'{file}' cannot be read: {why}"));
        }
    })
    .await?;
    damaged.map_or(Ok(()), |why| Err(ExplainError::NotFound(why)))
}

fn read(bytes: Bytes, mut each: impl FnMut(Hour, TableRow)) -> Result<(), ReadError> {
    let figures = FIGURES.iter().map(|(name, _)| *name);
    let others = ["x_PodName", "ChargePeriodStart", "ListUnitPrice"];
    let wanted: Vec<&str> = TEXTS.into_iter().chain(figures).chain(others).collect();
    columns::read(bytes, &wanted, |rows| {
        let texts = TEXTS.iter().map(|name| rows.texts(name)).collect::<Result<Vec<_>, _>>()?;
        let names = rows.texts("x_PodName")?;
        let hours = rows.hours("ChargePeriodStart")?;
        let prices = rows.amounts("ListUnitPrice")?;
        let figures = FIGURES.iter().map(|(name, _)| rows.amounts(name)).collect::<Result<Vec<_>, _>>()?;
        for row in 0..Rows::len(rows) {
            let text = |column: usize| {
                let found = texts.get(column).and_then(|column| column.get(row)).copied().flatten();
                found.unwrap_or_default().to_owned()
            };
            // `Tags` has the labels of the resource. If that is not the pod, `AllocatedTags` has the pod's.
            let is_allocated = ["pod_node", "node_idle", "shared_charge"].contains(&&*text(1));
            let labels = if is_allocated { 10 } else { 11 };
            let mut texts = [1, 2, 3, 4, 5, 6, 7, 8, 9, labels, 13, 14, 15].map(text);
            let [.., basis, key, _] = &mut texts;
            if basis != CostBasis::Billed.name() {
                // An estimated row of a node names the resource that the node would be billed as.
                key.clear();
            }
            let grain = (texts, prices.get(row).copied().flatten(), 0);
            let pod = (text(12), names.get(row).copied().flatten().unwrap_or_default().to_owned());
            let figures = figures.iter().map(|column| column.get(row).copied().flatten()).collect();
            let hour = hours.get(row).copied().flatten().unwrap_or_default();
            each(hour, TableRow { organization: text(0), grain, pod, figures });
        }
        Ok(())
    })
}
