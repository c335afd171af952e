//! Costs and budgets of a shard, read from its published tables: for metrics, and for messages about exceeded
//! budgets. A failure here changes no checkpoint and no table.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bytes::Bytes;
use prorata_schemas::rows::budget::BudgetUse;
use prorata_schemas::tables::Table;
use prorata_schemas::time::{Hour, WallTime};

use super::LiveShard;
use crate::backoff::{self, Backoff};
use crate::checkpoint::{Checkpoint, HourEntry};
use crate::error::{Result, WorkerError};
use crate::objects::{self, StoredObject};
use crate::ports::{ExceededBudget, FormatError, Ports, TableEncoder};
use crate::shard::rules::RuleBook;
use crate::status::ShardCosts;

/// Maximum number of hours whose budgets are read at once.
const HOURS_AT_ONCE: usize = 24;

/// The costs of a shard's current day, and its budgets, as far as they were read.
#[derive(Debug)]
pub(super) struct Costs {
    /// The sequence number of the checkpoint that was read; 0 before the first.
    seq: u64,
    /// The files of `hours` whose costs are counted, by hour.
    counted: BTreeMap<Hour, String>,
    /// The files of `pool_usage` whose budgets are reported.
    budgets: Vec<String>,
    report: Arc<ShardCosts>,
    backoff: Backoff,
}

impl Default for Costs {
    fn default() -> Self {
        Self {
            seq: 0,
            counted: BTreeMap::new(),
            budgets: Vec::new(),
            report: Arc::default(),
            backoff: Backoff::new(backoff::STREAM),
        }
    }
}

/// Hours whose exceeded budgets were read, each with its entry at that time.
pub(in crate::stream) type HoursRead = Vec<(Hour, Arc<HourEntry>)>;

impl LiveShard {
    /// Returns the costs and budgets that were last read.
    pub fn costs(&self) -> Arc<ShardCosts> {
        Arc::clone(&self.costs.report)
    }

    /// Returns whether the last decided checkpoint is published, and its costs are not read yet and may be
    /// read now.
    pub fn has_unread_costs(&self, now: WallTime) -> bool {
        !self.is_publish_due() && self.decided().seq != self.costs.seq && self.costs.backoff.is_due(now)
    }

    /// Reads the costs of the current day, the UTC day of the last closed hour, and the budgets at that
    /// hour's end. Only files that have changed are read. After an error, the report stays as it was.
    ///
    /// # Errors
    /// If storage is unavailable, or a file is missing or damaged.
    pub async fn read_costs(&mut self, ports: &Ports, rules: &RuleBook, now: WallTime) -> Result<()> {
        let read = self.try_read_costs(ports, rules).await;
        match &read {
            Ok(()) => self.costs.backoff.succeed(),
            Err(_) => self.costs.backoff.fail(now),
        }
        read
    }

    async fn try_read_costs(&mut self, ports: &Ports, rules: &RuleBook) -> Result<()> {
        let decided = self.decided().clone();
        let Some(closed) = decided.closed_through else {
            self.costs.seq = decided.seq;
            return Ok(());
        };
        let mut report = ShardCosts::clone(&self.costs.report);
        let counted = count_day(ports, rules, &decided, closed, &self.costs.counted, &mut report).await?;
        let budgets = decided.hours.get(&closed).map(|entry| paths(entry, Table::PoolUsage));
        let budgets = budgets.unwrap_or_default();
        if budgets != self.costs.budgets {
            let read = decode(ports, budgets.clone(), |encoder, file| encoder.budgets(file)).await?;
            report.budgets = read.into_iter().flatten().collect();
        }
        let backoff = self.costs.backoff;
        self.costs = Costs { seq: decided.seq, counted, budgets, report: Arc::new(report), backoff };
        Ok(())
    }

    /// Returns whether exceeded budgets of decided and published hours may wait for their topic.
    pub fn has_unsent_budgets(&self) -> bool {
        !self.is_sealed() && !self.is_publish_due() && self.unsent_budgets().next().is_some()
    }

    fn unsent_budgets(&self) -> impl Iterator<Item = Hour> {
        let draft = &self.draft.unsent_budgets;
        self.decided().unsent_budgets.iter().filter(|hour| draft.contains(*hour))
    }

    /// Returns the budgets that were first exceeded in an unsent hour, and the hours that were read.
    ///
    /// # Errors
    /// If storage is unavailable. If a file of an hour is missing or damaged, an error is logged that names
    /// the file. Such an hour counts as read, because it would hold up all others.
    pub async fn exceeded_budgets(
        &self,
        ports: &Ports,
        rules: &RuleBook,
    ) -> Result<(Vec<ExceededBudget>, HoursRead)> {
        let (mut exceeded, mut hours) = (Vec::new(), HoursRead::new());
        for hour in self.unsent_budgets().take(HOURS_AT_ONCE) {
            match first_exceeded(ports, rules, self.decided(), hour).await {
                Ok(found) => exceeded.extend(found),
                Err(error @ (WorkerError::Damaged { .. } | WorkerError::Format(_))) => tracing::error!(
                    shard = self.shard(), %hour, %error,
                    "exceeded budgets of this hour do not reach their topic; query table pool_usage for them"
                ),
                Err(error) => return Err(error),
            }
            hours.push((hour, self.decided().hours.get(&hour).cloned().unwrap_or_default()));
        }
        Ok((exceeded, hours))
    }

    /// Notes that the topic has the exceeded budgets of these hours. An hour that has changed since stays
    /// unsent.
    pub fn note_budgets_sent(&mut self, hours: &HoursRead) {
        if let Some(draft) = self.draft() {
            for (hour, entry) in hours {
                draft.remove_budgets(*hour, entry);
            }
        }
    }
}

/// Brings the costs of the day of `closed` up to date. `counted` holds the files whose costs the report
/// includes. Returns the files whose costs the report includes after the update.
async fn count_day(
    ports: &Ports,
    rules: &RuleBook,
    decided: &Checkpoint,
    closed: Hour,
    counted: &BTreeMap<Hour, String>,
    report: &mut ShardCosts,
) -> Result<BTreeMap<Hour, String>> {
    let today = decided.hours.range(closed.date().hours().first..=closed);
    let today = today.filter_map(|(hour, entry)| Some((*hour, paths(entry, Table::Hours).pop()?)));
    let today: BTreeMap<Hour, String> = today.collect();
    // If a counted hour has changed, or is of another day, counting starts again.
    let stays = !counted.is_empty() && counted.iter().all(|(hour, path)| today.get(hour) == Some(path));
    if !stays {
        report.day.clear();
    }
    let new = today.iter().filter(|(hour, _)| !stays || !counted.contains_key(hour));
    let (hours, files): (Vec<Hour>, Vec<String>) = new.map(|(hour, path)| (*hour, path.clone())).unzip();
    let costs = decode(ports, files, |encoder, file| encoder.allocated_costs(file)).await?;
    let listed = rules.for_judging(decided)?;
    for (hour, costs) in hours.into_iter().zip(costs) {
        let Some(rules) = listed.of(hour) else { continue };
        for (organization_id, cost) in costs {
            let currency = rules.currency_of(&organization_id).clone();
            let sum = report.day.entry((organization_id, currency)).or_default();
            let too_large = || FormatError::new("add up the costs of a day", "they are too large");
            *sum = sum.checked_add(cost).ok_or_else(too_large)?;
        }
    }
    Ok(today)
}

/// Returns the budgets that an hour exceeds and that the previous hour of the same period, if any, did not
/// exceed.
async fn first_exceeded(
    ports: &Ports,
    rules: &RuleBook,
    checkpoint: &Checkpoint,
    hour: Hour,
) -> Result<Vec<ExceededBudget>> {
    let over = exceeded_in(ports, checkpoint, hour).await?;
    if over.is_empty() {
        return Ok(Vec::new());
    }
    let key = |used: &BudgetUse| (used.organization_id.clone(), used.pool_id.clone(), used.period);
    let before = exceeded_in(ports, checkpoint, hour.previous()).await?;
    let before: BTreeSet<_> = before.iter().map(key).collect();
    let listed = rules.for_judging(checkpoint)?;
    let Some(rules) = listed.of(hour) else { return Ok(Vec::new()) };
    let is_first = |used: &BudgetUse| {
        let same_period = used.period.start(hour) == used.period.start(hour.previous());
        !same_period || !before.contains(&key(used))
    };
    let first = over.into_iter().filter(is_first).map(|used| {
        let currency = rules.currency_of(&used.organization_id).clone();
        ExceededBudget { used, hour, currency }
    });
    Ok(first.collect())
}

/// Returns the budgets that are exceeded at the end of an hour.
async fn exceeded_in(ports: &Ports, checkpoint: &Checkpoint, hour: Hour) -> Result<Vec<BudgetUse>> {
    let files = checkpoint.hours.get(&hour).map(|entry| paths(entry, Table::PoolUsage)).unwrap_or_default();
    let budgets = decode(ports, files, |encoder, file| encoder.budgets(file)).await?;
    Ok(budgets.into_iter().flatten().filter(BudgetUse::is_exceeded).collect())
}

/// Returns the paths of an hour's files of a table, under the root.
fn paths(entry: &HourEntry, table: Table) -> Vec<String> {
    entry.files_of(table).iter().map(|file| format!("{}/{}", table.name(), file.path)).collect()
}

/// Reads files and decodes them, off the async threads.
async fn decode<T: Send + 'static>(
    ports: &Ports,
    files: Vec<String>,
    decode: fn(&dyn TableEncoder, &Bytes) -> Result<T, FormatError>,
) -> Result<Vec<T>> {
    if files.is_empty() {
        return Ok(Vec::new());
    }
    let files = objects::get_all(&*ports.store, files).await?;
    let encoder = Arc::clone(&ports.encoder);
    let decode = move || {
        let damaged = |object, error: FormatError| WorkerError::Damaged { object, cause: error.to_string() };
        let one =
            |StoredObject { path, bytes }| decode(&*encoder, &bytes).map_err(|error| damaged(path, error));
        files.into_iter().map(one).collect()
    };
    tokio::task::spawn_blocking(decode).await?
}
