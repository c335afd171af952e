//! Changes in the rows of an hour since an instant: the rows of the table then and now.

use std::collections::{BTreeMap, BTreeSet};

use prorata_schemas::decimal::Decimal12;
use prorata_schemas::time::Timestamp;
use prorata_worker::ports::ObjectStore;
use serde_json::{Value, json};

use super::find::{self, FIGURES, Found, Grain, TableRow};
use super::lines::{REPORTED_MAX, TextLines};
use super::{ExplainError, Question};
use crate::Sum;
use crate::lake::LakeTables;

/// Changes since an instant.
#[derive(Clone, Debug)]
pub struct Changes {
    /// The instant.
    pub since: Timestamp,
    /// Cost of the rows at that instant.
    pub before: Sum,
    /// Cost of the rows now.
    pub after: Sum,
    /// Rows that differ.
    pub rows: Vec<RowChange>,
    /// Archive files that were written since the instant, with events of the organization in the hour.
    pub new_files: BTreeSet<String>,
}

/// A row that differs.
#[derive(Clone, Debug)]
pub struct RowChange {
    /// Unique key of the row.
    pub grain: Grain,
    /// Namespace and name of the pod; empty without a pod.
    pub pod: (String, String),
    /// Whether the table had the row then, and whether it has the row now.
    pub stands: (bool, bool),
    /// Numbers that differ: the column, the old value and the new value.
    pub figures: Vec<(&'static str, Option<Decimal12>, Option<Decimal12>)>,
}

impl Changes {
    /// Compares a question's rows in the earlier tables with the rows that were found now.
    ///
    /// # Errors
    /// If an earlier file is gone, for example by VACUUM, or storage is unavailable.
    pub async fn find(
        since: Timestamp,
        then: &LakeTables<'_>,
        question: &Question,
        now: &Found,
    ) -> Result<Self, ExplainError> {
        let was = find::rows_of_subject(then, question, &now.organization).await?;
        let grains: BTreeSet<&Grain> = was.keys().chain(now.rows.keys()).collect();
        let rows = grains.into_iter().filter_map(|grain| change(was.get(grain), now.rows.get(grain)));
        let rows = rows.collect();
        Ok(Self { since, before: cost(&was), after: cost(&now.rows), rows, new_files: BTreeSet::new() })
    }

    /// Adds the files that were written after the instant.
    ///
    /// # Errors
    /// If storage is unavailable.
    pub async fn find_new_files(
        &mut self,
        store: &dyn ObjectStore,
        files: impl Iterator<Item = &str>,
    ) -> Result<(), ExplainError> {
        for file in files {
            let stored = store.stat(file).await.map_err(prorata_worker::WorkerError::Store)?;
            if stored.is_some_and(|stored| stored.modified.0 > self.since.0) {
                self.new_files.insert(file.to_owned());
            }
        }
        Ok(())
    }

    /// Writes the changes as text.
    pub fn write(&self, lines: &mut TextLines) {
        lines.head(&format!("What has changed since {}", self.since));
        let more = self.after.minus(self.before);
        lines.add(format!("  together {}, was {}: {more}", self.after, self.before));
        for file in &self.new_files {
            lines.add(format!("  new events in {file}"));
        }
        for row in self.rows.iter().take(REPORTED_MAX) {
            let ([kind, _, resource, ..], ..) = &row.grain;
            let (namespace, name) = &row.pod;
            let pod = if name.is_empty() { String::new() } else { format!(", pod {namespace}/{name}") };
            let stands = match row.stands {
                (false, _) => ": a new row",
                (_, false) => ": the row is gone",
                _ => "",
            };
            lines.add(format!("  {kind}, of {resource}{pod}{stands}"));
            for (column, was, is) in &row.figures {
                lines.add(format!("    {column} {}, was {}", said(*is), said(*was)));
            }
        }
        if self.rows.len() > REPORTED_MAX {
            lines.add("  and so on: --json lists all");
        }
    }

    /// Returns the changes as JSON.
    pub fn json(&self) -> Value {
        let text = |value: Option<Decimal12>| value.map(|value| value.to_string());
        let row = |row: &RowChange| {
            let ([kind, cluster, resource, uid, ..], ..) = &row.grain;
            let figures = row.figures.iter().map(
                |(column, was, is)| json!({ "column": column, "before": text(*was), "after": text(*is) }),
            );
            json!({
                "kind": kind, "cluster": cluster, "resource": resource, "pod_uid": uid,
                "pod": format!("{}/{}", row.pod.0, row.pod.1),
                "is_new": !row.stands.0, "is_gone": !row.stands.1,
                "figures": figures.collect::<Vec<_>>(),
            })
        };
        json!({
            "since": self.since.to_string(),
            "before": self.before.to_string(),
            "after": self.after.to_string(),
            "difference": self.after.minus(self.before).to_string(),
            "new_files": self.new_files,
            "rows": self.rows.iter().map(row).collect::<Vec<_>>(),
        })
    }
}

fn said(value: Option<Decimal12>) -> String {
    value.map_or("nothing".to_owned(), |value| value.to_string())
}

/// Returns the changes of a row, or `None` if there are none.
fn change(was: Option<&TableRow>, is: Option<&TableRow>) -> Option<RowChange> {
    let row = is.or(was)?;
    let figure =
        |row: Option<&TableRow>, at: usize| row.and_then(|row| row.figures.get(at)).copied().flatten();
    let figures = FIGURES.iter().enumerate().map(|(at, (name, _))| (*name, figure(was, at), figure(is, at)));
    let figures: Vec<_> = figures.filter(|(_, was, is)| was != is).collect();
    let stands = (was.is_some(), is.is_some());
    let is_same = figures.is_empty() && stands == (true, true);
    (!is_same).then(|| RowChange { grain: row.grain.clone(), pod: row.pod.clone(), stands, figures })
}

/// Returns the sum of the rows' EffectiveCost.
fn cost(rows: &BTreeMap<Grain, TableRow>) -> Sum {
    let mut sum = Sum::default();
    let column = FIGURES.iter().position(|(name, _)| *name == "EffectiveCost");
    for row in rows.values() {
        if let Some(Some(cost)) = column.and_then(|column| row.figures.get(column)) {
            sum.add(*cost);
        }
    }
    sum
}
