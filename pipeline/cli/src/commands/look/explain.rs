//! `prorata explain`: how the cost of a pod, a node, an agreement or a namespace in an hour came about.

use std::process::ExitCode;

use clap::{ArgGroup, Args};
use prorata_inspect::HourRange;
use prorata_inspect::check::Checkpoints;
use prorata_inspect::explain::{Answer, ExplainError, Question, Subject, explain};
use prorata_schemas::time::{Hour, Timestamp};

use super::diff::parse_time;
use crate::failure::Failure;
use crate::{report, wiring};

/// Exit code when the table files have other rows than the hour folded again.
const DIFFERS: u8 = 1;

/// Arguments of `prorata explain`.
#[derive(Clone, Debug, Args)]
#[command(group = ArgGroup::new("subject").required(true))]
pub struct ExplainArgs {
    /// Folder or URL (s3://, gs://, az://, file://) of the lake
    #[arg(long, value_name = "FOLDER|URL")]
    pub lake: String,
    /// The hour, such as 2026-11-20T13
    #[arg(long, value_name = "HOUR")]
    pub hour: Hour,
    /// A pod: by uid, or by namespace and name
    #[arg(long, value_name = "UID|NAMESPACE/NAME", group = "subject")]
    pub pod: Option<String>,
    /// A node with its pods and its idle cost: by id, or by cluster and id
    #[arg(long, value_name = "ID|CLUSTER/ID", group = "subject")]
    pub node: Option<String>,
    /// A reservation: which units no pod held
    #[arg(long, value_name = "ID", group = "subject")]
    pub reservation: Option<String>,
    /// A commitment: what it covered, and what was unused
    #[arg(long, value_name = "ID", group = "subject")]
    pub commitment: Option<String>,
    /// A namespace: which pods, on which nodes
    #[arg(long, value_name = "NAME|CLUSTER/NAME", group = "subject")]
    pub namespace: Option<String>,
    /// The organization, where several have the name
    #[arg(long, value_name = "ID")]
    pub organization: Option<String>,
    /// Tell also what has changed in the rows since then, such as 2026-11-20T13:00:00Z: what late events and
    /// other rules did. VACUUM must not have removed the files of then
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    pub since: Option<Timestamp>,
    /// Print one JSON document with every step instead of lines for people
    #[arg(long)]
    pub json: bool,
}

/// Explains, and prints it. The exit code is 0, or 1 when the table files have other rows.
///
/// # Errors
/// When the lake has nothing of the kind, or cannot be read.
pub fn run(args: &ExplainArgs) -> anyhow::Result<ExitCode> {
    let (runtime, _) = wiring::runtime(0)?;
    let answer = runtime.block_on(answer(args))?;
    report::print(&if args.json { format!("{:#}", answer.json()?) } else { answer.to_string() })?;
    Ok(if answer.is_same() { ExitCode::SUCCESS } else { ExitCode::from(DIFFERS) })
}

async fn answer(args: &ExplainArgs) -> anyhow::Result<Answer> {
    let store = wiring::lake::store(&args.lake).await?;
    let ports = wiring::look_ports(store.clone());
    let subject = subject(args).ok_or_else(|| Failure::usage("name a pod by --pod, or another subject"))?;
    let organization = args.organization.as_deref().map(Into::into);
    let question = Question { subject, hour: args.hour, organization };
    let then = match args.since {
        Some(since) => Some((since, wiring::lake::tables(&store, Some(since)).await?)),
        None => None,
    };
    let then = then.as_ref().map(|(since, then)| (*since, then));
    let mut attempts = 0;
    loop {
        let tables = wiring::lake::tables(&store, None).await?;
        let mut answer = explain(&tables, then, &ports, &question).await;
        if answer.as_ref().is_ok_and(Answer::is_same) {
            return answer.map_err(failed);
        }
        // What the table has may be of another revision than what was folded.
        let checkpoints = Checkpoints::read(&store).await?;
        let hour = HourRange { from: Some(args.hour), to: Some(args.hour) };
        let is_published = checkpoints.are_published(&tables, hour);
        let is_dirty = answer.as_ref().is_ok_and(|answer| answer.input.is_dirty);
        let again = wiring::lake::tables(&store, None).await?;
        let is_done = (is_published && !is_dirty) || !wiring::lake::may_be_under_way(&checkpoints);
        let is_settled = is_done && again.logs() == tables.logs();
        if is_settled || !wiring::lake::try_again(attempts).await {
            if let Ok(answer) = &mut answer {
                answer.is_published = is_published;
            }
            return answer.map_err(failed);
        }
        attempts += 1;
    }
}

fn failed(error: ExplainError) -> anyhow::Error {
    match error {
        ExplainError::NotFound(sentence) => Failure::usage(sentence).into(),
        ExplainError::Worker(error) => error.into(),
    }
}

fn subject(args: &ExplainArgs) -> Option<Subject> {
    let named = |name: &Option<String>, of: fn(String) -> Subject| name.clone().map(of);
    named(&args.pod, Subject::Pod)
        .or_else(|| named(&args.node, Subject::Node))
        .or_else(|| named(&args.reservation, Subject::Reservation))
        .or_else(|| named(&args.commitment, Subject::Commitment))
        .or_else(|| named(&args.namespace, Subject::Namespace))
}
