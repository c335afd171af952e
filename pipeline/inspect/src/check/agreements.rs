//! Agreements that matched nothing in all hours that were read: commitments without a node, and reservations
//! without a pod.

use std::collections::{BTreeMap, BTreeSet};

use prorata_schemas::decimal::Decimal12;
use prorata_schemas::event::names;
use prorata_schemas::time::{Hour, HourRange};

use super::finding::{Findings, Problem};
use crate::columns::{ReadError, Rows};

/// Columns of `commitment_utilization`: the committed capacity and spend, and the capacity and spend that the
/// commitment could cover.
pub const COMMITMENT_COLUMNS: [&str; 11] = [
    "organization_id",
    "hour",
    "commitment_id",
    "committed_vcpu_hours",
    "committed_gib_hours",
    "committed_gpu_hours",
    "committed_spend",
    "provisioned_vcpu_hours",
    "provisioned_gib_hours",
    "provisioned_gpu_hours",
    "provisioned_spend",
];

/// Columns of `reservation_usage`.
pub const RESERVATION_COLUMNS: [&str; 7] =
    ["organization_id", "hour", "reservation_id", "region", "gpu_model", "units", "used_unit_seconds"];

/// Organization and id.
type AgreementId = (String, String);

/// Organization, region and GPU model, by their canonical names (RULES.md, section 12).
type PodPlace = (String, String, String);

/// Matches of a lake's agreements in the hours that were read so far.
#[derive(Debug, Default)]
pub struct MatchedAgreements {
    /// Number of hours in which each commitment was effective. `None` if in one of them there was something
    /// that the commitment could cover.
    commitments: BTreeMap<AgreementId, Option<u64>>,
    /// Number of hours in which each reservation was effective, and the place of its pods. `None` if in one
    /// of them a pod held a unit.
    reservations: BTreeMap<AgreementId, Option<(u64, PodPlace)>>,
    /// Places of serverless pods.
    pods: BTreeSet<PodPlace>,
}

impl MatchedAgreements {
    /// Adds a serverless pod.
    pub fn add_pod(&mut self, organization: &str, region: &str, gpu_model: &str) {
        self.pods.insert(place(organization, region, gpu_model));
    }

    /// Adds rows of `commitment_utilization`.
    ///
    /// # Errors
    /// If a column is missing or has another type.
    pub fn add_commitments(&mut self, rows: &Rows, range: HourRange) -> Result<(), ReadError> {
        let (organizations, hours) = (rows.texts("organization_id")?, rows.hours("hour")?);
        let ids = rows.texts("commitment_id")?;
        let [_, _, _, amounts @ ..] = COMMITMENT_COLUMNS;
        let amounts = amounts.map(|name| rows.amounts(name)).into_iter().collect::<Result<Vec<_>, _>>()?;
        for row in 0..rows.len() {
            let is_any =
                |columns: &[Vec<Option<Decimal12>>]| columns.iter().any(|column| is_positive(column, row));
            let (committed, provisioned) = amounts.split_at(4);
            if !holds(range, &hours, row) || !is_any(committed) {
                continue;
            }
            let seen = self.commitments.entry(agreement(&organizations, &ids, row)).or_insert(Some(0));
            *seen = seen.filter(|_| !is_any(provisioned)).map(|hours| hours + 1);
        }
        Ok(())
    }

    /// Adds rows of `reservation_usage`.
    ///
    /// # Errors
    /// If a column is missing or has another type.
    pub fn add_reservations(&mut self, rows: &Rows, range: HourRange) -> Result<(), ReadError> {
        let (organizations, hours) = (rows.texts("organization_id")?, rows.hours("hour")?);
        let (ids, regions) = (rows.texts("reservation_id")?, rows.texts("region")?);
        let models = rows.texts("gpu_model")?;
        let (units, used) = (rows.amounts("units")?, rows.amounts("used_unit_seconds")?);
        for row in 0..rows.len() {
            if !holds(range, &hours, row) || !is_positive(&units, row) {
                continue;
            }
            let of_pods = place(text(&organizations, row), text(&regions, row), text(&models, row));
            let seen = self.reservations.entry(agreement(&organizations, &ids, row));
            let seen = seen.or_insert_with(|| Some((0, of_pods.clone())));
            let before = seen.take().filter(|_| !is_positive(&used, row));
            *seen = before.map(|(hours, _)| (hours + 1, of_pods));
        }
        Ok(())
    }

    /// Reports the agreements that matched nothing.
    pub fn finish(self, findings: &mut Findings) {
        for ((organization, id), hours) in self.commitments {
            if let Some(hours) = hours {
                let what = format!(
                    "in {hours} hours no on-demand node was of its provider, region and instance family, and \
                     none of its discounts applied"
                );
                let location = format!("organization '{organization}', commitment '{id}'");
                findings.add(Problem::NeverMatched, location, what);
            }
        }
        for ((organization, id), seen) in self.reservations {
            if let Some((hours, place)) = seen.filter(|(_, place)| !self.pods.contains(place)) {
                let (_, region, gpu_model) = place;
                let what =
                    format!("in {hours} hours no serverless pod was in {region} with GPU model {gpu_model}");
                let location = format!("organization '{organization}', reservation '{id}'");
                findings.add(Problem::NeverMatched, location, what);
            }
        }
    }
}

fn place(organization: &str, region: &str, gpu_model: &str) -> PodPlace {
    (organization.to_owned(), names::place(region).into_owned(), names::gpu_model(gpu_model).into_owned())
}

fn agreement(organizations: &[Option<&str>], ids: &[Option<&str>], row: usize) -> AgreementId {
    (text(organizations, row).to_owned(), text(ids, row).to_owned())
}

fn text<'t>(column: &[Option<&'t str>], row: usize) -> &'t str {
    column.get(row).copied().flatten().unwrap_or_default()
}

fn holds(range: HourRange, hours: &[Option<Hour>], row: usize) -> bool {
    hours.get(row).copied().flatten().is_some_and(|hour| range.contains(hour))
}

fn is_positive(column: &[Option<Decimal12>], row: usize) -> bool {
    column.get(row).copied().flatten().is_some_and(|amount| amount > Decimal12::ZERO)
}
