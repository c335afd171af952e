//! Differences between two lakes, or between two states of a lake: by organization, namespace, hour and pod.
//!
//! Files with the same content in both lakes are not read, because their names contain a digest of the
//! content.

mod lines;
mod report;

use std::collections::{BTreeMap, BTreeSet};

use prorata_schemas::tables::Table;
use prorata_schemas::time::{Hour, HourRange};
use prorata_worker::WorkerError;

use crate::Sum;
use crate::lake::{FoundFile, LakeTables};

use lines::{BearerHour, DayCosts};

/// Maximum number of pods that are kept. If there are more, the pods with the smallest changes are dropped,
/// and the report says so.
const PODS_MAX: usize = 100_000;

/// One of the two lakes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The first lake, or the earlier state.
    Before,
    /// The second lake, or the later state.
    After,
}

/// An amount in both lakes, in EffectiveCost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Change {
    /// Amount in the first lake.
    pub before: Sum,
    /// Amount in the second lake.
    pub after: Sum,
}

impl Change {
    fn add(&mut self, side: Side, amount: impl Into<Sum>) {
        match side {
            Side::Before => self.before.add(amount),
            Side::After => self.after.add(amount),
        }
    }

    fn join(&mut self, other: &Self) {
        self.before.add(other.before);
        self.after.add(other.after);
    }

    /// Returns the second amount minus the first.
    pub fn difference(&self) -> Sum {
        self.after.minus(self.before)
    }

    fn is_none(&self) -> bool {
        self.before == self.after
    }
}

/// A bearer of cost: a namespace, or a kind of row without a namespace.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Bearer {
    /// The organization.
    pub organization: String,
    /// The currency.
    pub currency: String,
    /// The cluster; empty for reservations and commitments.
    pub cluster: String,
    /// The namespace, or the kind of row in parentheses.
    pub namespace: String,
}

/// A pod.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PodName {
    /// Bearer of the pod's cost, with its namespace.
    pub bearer: Bearer,
    /// Name and uid.
    pub pod: (String, String),
}

/// The differences.
#[derive(Clone, Debug, Default)]
pub struct Difference {
    /// First and last hour that either lake has.
    pub hours: Option<HourRange>,
    /// Totals of every organization from `hours`, including totals without a change.
    pub totals: BTreeMap<String, Change>,
    /// Changes by namespace.
    pub namespaces: BTreeMap<Bearer, Change>,
    /// Changes by organization and hour.
    pub by_hour: BTreeMap<(String, Hour), Change>,
    /// Changes by pod.
    pub pods: BTreeMap<PodName, Change>,
    /// Whether pods were dropped because there were too many.
    pub pods_cut: bool,
    /// Organizations that only one lake has, each with the name of its side, `before` or `after`.
    pub only: BTreeMap<String, &'static str>,
    /// Live files that cannot be read, with the error; their rows are missing here.
    pub unreadable: Vec<(String, String)>,
}

impl Difference {
    /// Returns whether nothing differs.
    pub fn is_empty(&self) -> bool {
        self.by_hour.is_empty() && self.only.is_empty() && self.totals.values().all(Change::is_none)
    }

    /// Returns the organizations whose changed rows do not add up to the change of their totals. There are
    /// none if both lakes are complete.
    pub fn open(&self) -> Vec<&str> {
        let mut rows: BTreeMap<&str, Sum> = BTreeMap::new();
        for ((organization, _), change) in &self.by_hour {
            rows.entry(organization).or_default().add(change.difference());
        }
        let mut totals: BTreeMap<&str, Sum> = BTreeMap::new();
        for (organization, change) in &self.totals {
            totals.entry(organization).or_default().add(change.difference());
        }
        let all: BTreeSet<&str> = rows.keys().chain(totals.keys()).copied().collect();
        let sum = |of: &BTreeMap<&str, Sum>, one: &str| of.get(one).copied().unwrap_or_default();
        all.into_iter().filter(|one| sum(&rows, one) != sum(&totals, one)).collect()
    }
}

/// Compares the tables of two lakes.
///
/// # Errors
/// If storage is unavailable.
pub async fn diff(
    before: &LakeTables<'_>,
    after: &LakeTables<'_>,
    range: HourRange,
) -> Result<Difference, WorkerError> {
    let mut difference = Difference::default();
    let mut organizations = [BTreeSet::new(), BTreeSet::new()];
    let (mut left, mut right) = (before.days(range), after.days(range));
    let dates: BTreeSet<_> = left.keys().chain(right.keys()).copied().collect();
    for date in dates {
        let files = [left.remove(&date).unwrap_or_default(), right.remove(&date).unwrap_or_default()];
        let mut lines = DayCosts::default();
        let changed = changed(&files);
        for (lake, side, index) in [(before, Side::Before, 0), (after, Side::After, 1)] {
            let wanted = files.get(index).into_iter().flatten().filter(|file| match file.table {
                Table::Hours => true,
                Table::CostAllocation => changed.contains(&content(file)),
                _ => false,
            });
            let seen = organizations.get_mut(index);
            lake.read_each(wanted, |file, bytes| {
                let added = match bytes {
                    Some(bytes) => {
                        lines.add(file.table, side, range, bytes).map_err(|error| error.to_string())
                    }
                    None => Err("the object is gone".to_owned()),
                };
                difference.unreadable.extend(added.err().map(|why| (file.to_string(), why)));
            })
            .await?;
            seen.into_iter().for_each(|seen| seen.extend(lines.organizations(side)));
        }
        lines.finish(&mut difference);
        cut(&mut difference);
    }
    let [left, right] = organizations;
    difference.only.extend(left.difference(&right).map(|organization| (organization.clone(), "before")));
    difference.only.extend(right.difference(&left).map(|organization| (organization.clone(), "after")));
    Ok(difference)
}

/// Returns the table of a file, and a text that is equal for files with equal content. If the name is not
/// valid, the text is the path.
fn content(file: &FoundFile) -> (Table, String) {
    let of_hour = file.name().map(|name| format!("{}-{}", name.hour, name.digest));
    let of_day = || file.day().map(|day| format!("{}-{}", day.date, day.digest));
    (file.table, of_hour.or_else(of_day).unwrap_or_else(|| file.path.clone()))
}

/// Returns the contents that occur a different number of times in the two lakes.
fn changed(files: &[Vec<FoundFile>; 2]) -> BTreeSet<(Table, String)> {
    let mut counts: BTreeMap<(Table, String), i64> = BTreeMap::new();
    for (files, step) in files.iter().zip([1, -1]) {
        files.iter().for_each(|file| *counts.entry(content(file)).or_default() += step);
    }
    counts.into_iter().filter(|(_, count)| *count != 0).map(|(content, _)| content).collect()
}

/// Drops the pods with the smallest changes if there are too many.
fn cut(difference: &mut Difference) {
    if difference.pods.len() <= PODS_MAX {
        return;
    }
    difference.pods_cut = true;
    let mut magnitudes: Vec<u128> =
        difference.pods.values().map(|change| change.difference().magnitude()).collect();
    let middle = magnitudes.len() / 2;
    let (_, least, _) = magnitudes.select_nth_unstable(middle);
    let least = *least;
    difference.pods.retain(|_, change| change.difference().magnitude() > least);
}

impl Difference {
    fn add(&mut self, line: BearerHour, change: &Change) {
        let organization = line.bearer.organization.clone();
        self.namespaces.entry(line.bearer.clone()).or_default().join(change);
        self.by_hour.entry((organization, line.hour)).or_default().join(change);
        if let Some(pod) = line.pod {
            self.pods.entry(PodName { bearer: line.bearer, pod }).or_default().join(change);
        }
    }
}
