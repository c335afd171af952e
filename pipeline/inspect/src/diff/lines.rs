//! The lines of one date in both lakes: the cost of each bearer in each hour.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use prorata_schemas::tables::Table;
use prorata_schemas::time::{Hour, HourRange};

use super::{Bearer, Change, Difference, Side};
use crate::columns::{self, ReadError};

const COST_COLUMNS: [&str; 9] = [
    "BillingAccountId",
    "BillingCurrency",
    "ChargePeriodStart",
    "EffectiveCost",
    "x_RowKind",
    "SubAccountId",
    "x_Namespace",
    "x_PodName",
    "x_PodUid",
];

/// A bearer of cost in an hour.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct BearerHour {
    /// The hour.
    pub hour: Hour,
    /// The namespace, or the kind of row.
    pub bearer: Bearer,
    /// Name and uid of the pod, if the bearer is a pod.
    pub pod: Option<(String, String)>,
}

/// The costs of a date in both lakes.
#[derive(Default)]
pub struct DayCosts {
    lines: BTreeMap<BearerHour, Change>,
    totals: BTreeMap<(String, Hour), Change>,
    before: BTreeSet<String>,
    after: BTreeSet<String>,
}

impl DayCosts {
    /// Adds a file of `hours` or `cost_allocation`.
    ///
    /// # Errors
    /// If the file cannot be read.
    pub fn add(&mut self, table: Table, side: Side, range: HourRange, bytes: Bytes) -> Result<(), ReadError> {
        match table {
            Table::Hours => self.add_totals(side, range, bytes),
            _ => self.add_costs(side, range, bytes),
        }
    }

    fn add_costs(&mut self, side: Side, range: HourRange, bytes: Bytes) -> Result<(), ReadError> {
        columns::read(bytes, &COST_COLUMNS, |rows| {
            let (organizations, currencies) =
                (rows.texts("BillingAccountId")?, rows.texts("BillingCurrency")?);
            let (hours, costs) = (rows.hours("ChargePeriodStart")?, rows.amounts("EffectiveCost")?);
            let (kinds, clusters) = (rows.texts("x_RowKind")?, rows.texts("SubAccountId")?);
            let (namespaces, names) = (rows.texts("x_Namespace")?, rows.texts("x_PodName")?);
            let uids = rows.texts("x_PodUid")?;
            for row in 0..rows.len() {
                let text = |column: &[Option<&str>]| {
                    column.get(row).copied().flatten().unwrap_or_default().to_owned()
                };
                let hour = hours.get(row).copied().flatten().unwrap_or(Hour(0));
                if !range.contains(hour) {
                    continue;
                }
                let namespace = match text(&namespaces) {
                    none if none.is_empty() => format!("({})", text(&kinds)),
                    namespace => namespace,
                };
                let uid = text(&uids);
                let bearer = Bearer {
                    organization: text(&organizations),
                    currency: text(&currencies),
                    cluster: text(&clusters),
                    namespace,
                };
                let pod = (!uid.is_empty()).then(|| (text(&names), uid));
                let cost = costs.get(row).copied().flatten();
                let change = self.lines.entry(BearerHour { hour, bearer, pod }).or_default();
                cost.into_iter().for_each(|cost| change.add(side, cost));
            }
            Ok(())
        })
    }

    fn add_totals(&mut self, side: Side, range: HourRange, bytes: Bytes) -> Result<(), ReadError> {
        columns::read(bytes, &["organization_id", "hour", "allocated_cost"], |rows| {
            let (organizations, hours) = (rows.texts("organization_id")?, rows.hours("hour")?);
            let costs = rows.amounts("allocated_cost")?;
            for row in 0..rows.len() {
                let organization = organizations.get(row).copied().flatten().unwrap_or_default().to_owned();
                let hour = hours.get(row).copied().flatten().unwrap_or(Hour(0));
                if !range.contains(hour) {
                    continue;
                }
                match side {
                    Side::Before => self.before.insert(organization.clone()),
                    Side::After => self.after.insert(organization.clone()),
                };
                let change = self.totals.entry((organization, hour)).or_default();
                costs.get(row).copied().flatten().into_iter().for_each(|cost| change.add(side, cost));
            }
            Ok(())
        })
    }

    /// Returns the organizations with a row in `hours`.
    pub fn organizations(&self, side: Side) -> impl Iterator<Item = String> {
        match side {
            Side::Before => self.before.iter().cloned(),
            Side::After => self.after.iter().cloned(),
        }
    }

    /// Adds the changes and the totals of the date to the difference of the lakes.
    pub fn finish(self, difference: &mut Difference) {
        for ((organization, hour), change) in &self.totals {
            difference.hours = Some(difference.hours.unwrap_or((*hour).into()).with(*hour));
            difference.totals.entry(organization.clone()).or_default().join(change);
        }
        for (line, change) in self.lines.into_iter().filter(|(_, change)| !change.is_none()) {
            difference.add(line, &change);
        }
    }
}
