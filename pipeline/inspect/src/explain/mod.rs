//! Explains the costs of one hour. The engine itself folds the hour again, from its archived events and the
//! state before it, and reports the steps.
//!
//! Reading order: [`Subject`] is the object to explain; `find` looks it up in the table files; `answer` folds
//! and compares; `explained` has the compared rows and their charges; `changes` reads the rows of an earlier
//! version; `events` selects the events that affect the rows; `pack` copies what an explanation reads; the
//! other modules write the text and the JSON.

mod answer;
mod bills;
mod changes;
mod events;
mod explained;
mod find;
mod lines;
mod nodes;
mod pack;
mod rows;
mod spans;
mod text;

use std::sync::Arc;

use prorata_schemas::ids::OrganizationId;
use prorata_schemas::time::{Hour, Timestamp};
use prorata_worker::root::Root;
use prorata_worker::root::look::{HourInput, look};
use prorata_worker::{Ports, WorkerError};

use crate::lake::LakeTables;

pub use answer::{Answer, from_input};
pub use changes::{Changes, RowChange};
pub use events::UsedEvent;
pub use explained::{ExplainedRow, FigureDifference, SplitCharge};
pub use find::{Found, Grain, TableRow, figures, grain};
pub use pack::PackingStore;

/// The object to explain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Subject {
    /// A pod, by uid or `NAMESPACE/NAME`.
    Pod(String),
    /// A node with its pods and its idle rows, by id or `CLUSTER/ID`.
    Node(String),
    /// A reservation.
    Reservation(String),
    /// A commitment.
    Commitment(String),
    /// A namespace, by name or `CLUSTER/NAME`.
    Namespace(String),
    /// A resource of a bill with its lines and its nodes, by the key in the bill; empty for charges of no
    /// resource.
    Bill(String),
}

impl Subject {
    /// Returns the kind and the name of the object.
    pub fn name(&self) -> (&'static str, &str) {
        match self {
            Self::Pod(name) => ("pod", name),
            Self::Node(name) => ("node", name),
            Self::Reservation(name) => ("reservation", name),
            Self::Commitment(name) => ("commitment", name),
            Self::Namespace(name) => ("namespace", name),
            Self::Bill(key) => ("bill", key),
        }
    }
}

/// A question.
#[derive(Clone, Debug)]
pub struct Question {
    /// The object to explain.
    pub subject: Subject,
    /// The hour.
    pub hour: Hour,
    /// The organization, if known.
    pub organization: Option<OrganizationId>,
}

/// An error that prevents an answer.
#[derive(Debug, thiserror::Error)]
pub enum ExplainError {
    /// The lake has no such object; the message names similar objects.
    #[error("{0}")]
    NotFound(String),
    /// The lake cannot be read.
    #[error(transparent)]
    Worker(#[from] WorkerError),
}

/// Explains rows of an hour. If the tables as of an instant are given, also explains the changes since then.
///
/// # Errors
/// If the lake has no such rows, an object is missing or damaged, or storage is unavailable.
pub async fn explain(
    lake: &LakeTables<'_>,
    then: Option<(Timestamp, &LakeTables<'_>)>,
    ports: &Ports,
    question: &Question,
) -> Result<Answer, ExplainError> {
    let found = find::find(lake, question).await?;
    let mut changes = match then {
        Some((since, then)) => Some(Changes::find(since, then, question, &found).await?),
        None => None,
    };
    let input = input(ports, &found.organization, question.hour).await?;
    let mut answer = from_input(question.subject.clone(), input, found)?;
    if let Some(changes) = &mut changes {
        let files = answer.input.files.iter().map(|file| file.path.as_str());
        changes.find_new_files(&*ports.store, files).await?;
    }
    answer.changes = changes;
    Ok(answer)
}

/// An hour of an organization, which is read once to explain several subjects. Each answer has the tables of
/// the hour.
pub struct HourToExplain<'a> {
    lake: &'a LakeTables<'a>,
    rows: Vec<(String, TableRow)>,
    input: Arc<HourInput>,
}

impl<'a> HourToExplain<'a> {
    /// Reads the hour.
    ///
    /// # Errors
    /// If an object of the lake is missing or damaged, or storage is unavailable.
    pub async fn read(
        lake: &'a LakeTables<'a>,
        ports: &Ports,
        organization: &OrganizationId,
        hour: Hour,
    ) -> Result<Self, ExplainError> {
        let rows = find::rows_of(lake, &[hour], Some(organization)).await?;
        Ok(Self { lake, rows, input: input(ports, organization, hour).await? })
    }

    /// Explains a subject.
    ///
    /// # Errors
    /// If the hour has no such rows, or cannot be explained.
    pub async fn explain(&self, subject: Subject) -> Result<Answer, ExplainError> {
        let organization = Some(self.input.organization_id.clone());
        let question = Question { subject, hour: self.input.hour, organization };
        let found = find::among(self.lake, &question, &self.rows).await?;
        from_input(question.subject, Arc::clone(&self.input), found)
    }
}

/// Reads the input that the hour is folded from.
async fn input(
    ports: &Ports,
    organization: &OrganizationId,
    hour: Hour,
) -> Result<Arc<HourInput>, ExplainError> {
    let root = Root::find(&*ports.store, None).await?;
    let root = root.ok_or_else(|| ExplainError::NotFound("the lake has no root.json".to_owned()))?;
    Ok(Arc::new(look(ports, &root, organization, hour).await?))
}
