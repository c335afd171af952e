//! The hour folded again, with its steps, and a comparison of its rows with the table files.

use std::collections::BTreeSet;
use std::sync::Arc;

use prorata_engine::trace::{Focus, Trace};
use prorata_engine::{close_hour, close_hour_traced};
use prorata_schemas::event::PodStarted;
use prorata_schemas::rows::{CostRow, HourTables, RowKind};
use prorata_worker::root::look::HourInput;

use super::changes::Changes;
use super::events::{self, UsedEvent};
use super::explained::{ExplainedRow, SplitCharge, charges, differences};
use super::find::{self, Found, Grain, SharedGrains};
use super::{ExplainError, Subject};
use crate::Sum;

/// An explanation.
#[derive(Debug)]
pub struct Answer {
    /// The subject of the question.
    pub subject: Subject,
    /// The input that the hour was folded from.
    pub input: Arc<HourInput>,
    /// The tables of the hour, as the engine computes them now.
    pub tables: HourTables,
    /// The steps that lead to the rows.
    pub trace: Trace,
    /// The events that affect the rows.
    pub events: Vec<UsedEvent>,
    /// The rows of the subject.
    pub rows: Vec<ExplainedRow>,
    /// Rows that only the table files have.
    pub only_in_table: Vec<Grain>,
    /// Files of `cost_allocation` that have the rows.
    pub table_files: Vec<String>,
    /// The charges that the rows are parts of.
    pub charges: Vec<SplitCharge>,
    /// Changes since the requested instant; `None` if no instant was requested.
    pub changes: Option<Changes>,
    /// Whether the newest revision of the hour is in the table.
    pub is_published: bool,
}

impl Answer {
    /// Returns whether the table files have exactly the rows that the engine computed.
    pub fn is_same(&self) -> bool {
        self.only_in_table.is_empty() && self.rows.iter().all(|row| row.differences.is_empty())
    }

    /// Returns the archive files that hold the events of the answer, ascending.
    pub fn event_files(&self) -> BTreeSet<&str> {
        self.events.iter().map(|event| event.file.as_str()).collect()
    }

    /// Returns the number of an archive file in the text, from 1.
    pub fn file_number(&self, file: &str) -> usize {
        self.event_files().range(..=file).count()
    }

    /// Returns the total cost of the rows.
    pub fn cost(&self) -> Sum {
        let mut cost = Sum::default();
        self.rows.iter().for_each(|row| cost.add(row.row.effective_cost));
        cost
    }
}

/// Explains rows of an hour from the input that the hour is folded from.
///
/// # Errors
/// If the organization is held, or the engine refuses the hour.
pub fn from_input(subject: Subject, input: Arc<HourInput>, found: Found) -> Result<Answer, ExplainError> {
    let (organization, hour) = (&input.organization_id, input.hour);
    if let Some(hold) = &input.hold {
        return Err(ExplainError::NotFound(prorata_worker::checkpoint::snapshot::hold_message(
            organization,
            hold,
        )));
    }
    let Some(rules) = input.rules.clone() else {
        return Err(ExplainError::NotFound(format!("the checkpoint lists no rules for hour {hour}")));
    };
    let refused = |error: prorata_engine::EngineError| {
        ExplainError::NotFound(format!("organization '{organization}', hour {hour}: {error}"))
    };
    let (_, tables) = close_hour(input.state(), input.events(), &rules).map_err(refused)?;
    let focus = focus(&subject, &tables);
    let (_, again, trace) =
        close_hour_traced(input.state(), input.events(), &rules, focus.clone()).map_err(refused)?;
    debug_assert!(tables == again, "a trace changes nothing");
    let (mut in_table, mut shared) = (found.rows, SharedGrains::default());
    let rows = tables.cost_allocation.iter().filter(|row| is_of(&subject, row)).map(|row| {
        let found = in_table.remove(&shared.number(find::grain(row)));
        let differences = differences(row, found.map(|row| row.figures));
        ExplainedRow { row: CostRow::clone(row), differences }
    });
    let rows: Vec<ExplainedRow> = rows.collect();
    Ok(Answer {
        events: events::used(&input, &focus, &trace, &rows),
        charges: charges(&subject, &tables, &rows),
        only_in_table: in_table.into_keys().collect(),
        table_files: found.files,
        changes: None,
        is_published: true,
        subject,
        input,
        tables,
        trace,
        rows,
    })
}

/// Returns whether a row from the engine belongs to the subject.
fn is_of(subject: &Subject, row: &CostRow) -> bool {
    let pod = row.pod.as_deref();
    let named = |pod: Option<&PodStarted>| {
        pod.map_or((String::new(), String::new()), |pod| {
            (pod.namespace.to_string(), pod.pod_name.to_string())
        })
    };
    let (namespace, name) = named(pod);
    subject.has(&find::grain(row), &namespace, &name)
}

/// Returns the objects to trace for a subject.
fn focus(subject: &Subject, tables: &HourTables) -> Focus {
    let mut focus = Focus::default();
    for row in tables.cost_allocation.iter().filter(|row| is_of(subject, row)) {
        // All charges of no resource share the empty key, and an explanation of one does not need the others.
        // An entry may divide very many lines over a pod, and its division names them.
        let keys = row.lines.iter().map(|billed| &billed.set.resource_key);
        let is_bill = matches!(subject, Subject::Bill(_));
        let is_by_entry =
            row.kind == RowKind::SharedCharge && row.pod.is_some() && row.resource_id.is_empty();
        focus.bills.extend(keys.filter(|key| is_bill || !key.is_empty() && !is_by_entry).cloned());
        let cluster = row.cluster_id.clone();
        let is_of_node = row.node.is_some() && matches!(row.kind, RowKind::PodNode | RowKind::NodeIdle);
        let wants_node = !matches!(subject, Subject::Commitment(_) | Subject::Namespace(_));
        if let (true, true, Some(cluster_id)) = (is_of_node, wants_node, cluster.clone()) {
            focus.nodes.insert((cluster_id, row.resource_id.clone().into()));
        }
        if !matches!(subject, Subject::Commitment(_) | Subject::Node(_) | Subject::Bill(_)) {
            focus.pods.extend(row.pod_uid.clone());
            focus.reservations.extend(row.reservation_id.clone());
            focus.quotas.extend(cluster.zip(row.quota_id.clone()));
        }
        if matches!(subject, Subject::Commitment(_)) {
            focus.commitments.extend(row.commitment_id.clone());
        }
    }
    focus
}
