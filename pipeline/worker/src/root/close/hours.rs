//! The months that can close, by the basis of their hours.

use std::collections::BTreeMap;
use std::sync::Arc;

use futures::{StreamExt, stream};
use prorata_schemas::ids::OrganizationId;
use prorata_schemas::tables::{HourBasis, Table};
use prorata_schemas::time::{Date, Hour};

use super::{ClosePorts, OpenMonth, OpenReason};
use crate::error::{Result, WorkerError};
use crate::names::closed::Month;
use crate::names::{self, DayFile, Shard, TableFile};
use crate::objects::CONCURRENCY;

/// Number of months before the newest hour whose hours are read.
const MONTHS: u32 = 4;

/// Rows of `hours` of one month.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct MonthHours {
    /// Number of hours.
    hours: u64,
    /// Number of hours that are not final.
    not_final: u64,
}

/// The hours of an organization.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct OrganizationHours {
    /// The newest hour.
    newest: Hour,
    months: BTreeMap<Month, MonthHours>,
}

/// The hours that were read.
#[derive(Debug)]
pub(super) struct ReadHours {
    /// The first month.
    first: Month,
    /// The hours by shard.
    pub(super) shards: BTreeMap<Shard, BTreeMap<OrganizationId, OrganizationHours>>,
    /// The first damaged file of each shard. The hours of such a shard are not known.
    pub(super) broken: BTreeMap<Shard, WorkerError>,
}

impl ReadHours {
    /// Reads hours from a date's month on, or from four months before the newest hour on. Holds a few files
    /// at a time.
    ///
    /// # Errors
    /// If storage is unavailable.
    pub(super) async fn read(ports: &ClosePorts, from: Option<Date>) -> Result<Self> {
        let live = ports.tables.load(Table::Hours).await?.files;
        let named = live.into_iter().filter_map(|file| {
            let (shard, hour) = last_hour(&file.path)?;
            Some((shard, hour, file.path))
        });
        let named: Vec<(Shard, Hour, String)> = named.collect();
        let newest = named.iter().map(|(_, hour, _)| *hour).max();
        let recent = newest.map_or(Month::of(Date::from_days(0)), |hour| Month::of(hour.date()));
        let first = from.map_or_else(|| recent.earlier(MONTHS), Month::of);
        let wanted = named.into_iter().filter(|(_, hour, _)| *hour >= first.first_hour());
        let reads = wanted.map(|(shard, _, path)| async move { (shard, bases(ports, &path).await) });
        let mut reads = stream::iter(reads.collect::<Vec<_>>()).buffered(CONCURRENCY);
        let mut hours = Self { first, shards: BTreeMap::new(), broken: BTreeMap::new() };
        while let Some((shard, read)) = reads.next().await {
            match read {
                Ok(bases) => hours.add(shard, bases),
                Err(error @ WorkerError::Damaged { .. }) => {
                    hours.broken.entry(shard).or_insert(error);
                }
                Err(error) => return Err(error),
            }
        }
        Ok(hours)
    }

    fn add(&mut self, shard: Shard, bases: Vec<HourBasis>) {
        let organizations = self.shards.entry(shard).or_default();
        for HourBasis { organization_id, hour, is_final } in bases {
            let empty = OrganizationHours { newest: hour, months: BTreeMap::new() };
            let of = organizations.entry(organization_id).or_insert(empty);
            of.newest = of.newest.max(hour);
            let month = of.months.entry(Month::of(hour.date())).or_default();
            month.hours += 1;
            month.not_final += u64::from(!is_final);
        }
    }

    /// Returns the month that an organization closes next; `None` if no month can close. `last` is its last
    /// closed month. Adds the months that are over and cannot close to `open`.
    pub(super) fn next(
        &self,
        organization_id: &OrganizationId,
        of: &OrganizationHours,
        last: Option<Month>,
        open: &mut Vec<OpenMonth>,
    ) -> Option<Month> {
        let mut waits = |period: Month, reason: OpenReason| {
            open.push(OpenMonth { organization_id: organization_id.clone(), period, reason });
        };
        let next = last.map(Month::next);
        if let Some(next) = next.filter(|next| *next < self.first) {
            waits(next, OpenReason::NotRead);
            return None;
        }
        let later = of.months.iter().filter(|(period, _)| next.is_none_or(|next| **period >= next));
        for (period, month) in later.filter(|(period, _)| period.next().first_hour() <= of.newest.next()) {
            if month.not_final == 0 {
                return Some(*period);
            }
            let MonthHours { hours, not_final } = *month;
            // Organizations that close no months are not reported.
            if last.is_some() || not_final < hours {
                waits(*period, OpenReason::NotFinal { hours, not_final });
            }
            // Months close in order. Only the first one may be any month.
            if last.is_some() {
                return None;
            }
        }
        None
    }
}

/// Returns the shard and the last hour of a table file; `None` if this program did not write it.
fn last_hour(path: &str) -> Option<(Shard, Hour)> {
    if let Some(day) = DayFile::parse(path) {
        return Some((day.shard, day.hours().last()?));
    }
    TableFile::parse(path).map(|file| (file.shard, file.hour))
}

async fn bases(ports: &ClosePorts, path: &str) -> Result<Vec<HourBasis>> {
    let object = format!("{}/{path}", names::table(Table::Hours));
    let damaged = |cause: String| WorkerError::Damaged { object: object.clone(), cause };
    let bytes = ports.store.get(&object).await?.ok_or_else(|| damaged("it does not exist".to_owned()))?;
    let encoder = Arc::clone(&ports.encoder);
    let bases = tokio::task::spawn_blocking(move || encoder.bases(&bytes)).await?;
    bases.map_err(|error| damaged(error.to_string()))
}
