//! `prorata explain`: explains the cost of a pod, a node, an agreement, a namespace or a resource of a bill
//! in an hour.

use std::process::ExitCode;
use std::sync::Arc;

use clap::{ArgGroup, Args};
use prorata_connectors::store::Store;
use prorata_inspect::LakeTables;
use prorata_inspect::check::Checkpoints;
use prorata_inspect::explain::{Answer, ExplainError, PackingStore, Question, Subject, explain};
use prorata_schemas::time::{Hour, HourRange, Timestamp};
use prorata_worker::{Ports, WorkerError};

use super::diff::parse_time;
use crate::failure::Failure;
use crate::{report, wiring};

/// Exit code if the rows of the table files differ from the rows of the hour when it is folded again.
const DIFFERS: u8 = 1;

/// Arguments of `prorata explain`.
#[derive(Clone, Debug, Args)]
#[command(group = ArgGroup::new("subject").required(true))]
pub struct ExplainArgs {
    /// Folder or URL (s3://, gs://, az://, file://) of the lake
    #[arg(long, value_name = "FOLDER|URL")]
    pub lake: String,
    /// Hour, such as 2026-11-20T13
    #[arg(long, value_name = "HOUR")]
    pub hour: Hour,
    /// Pod to explain
    #[arg(long, value_name = "UID|NAMESPACE/NAME", group = "subject")]
    pub pod: Option<String>,
    /// Node to explain, with its pods and its idle cost
    #[arg(long, value_name = "ID|CLUSTER/ID", group = "subject")]
    pub node: Option<String>,
    /// Reservation to explain, with its unused units
    #[arg(long, value_name = "ID", group = "subject")]
    pub reservation: Option<String>,
    /// Commitment to explain, with its coverage and its unused part
    #[arg(long, value_name = "ID", group = "subject")]
    pub commitment: Option<String>,
    /// Namespace to explain, with its pods and their nodes
    #[arg(long, value_name = "NAME|CLUSTER/NAME", group = "subject")]
    pub namespace: Option<String>,
    /// Resource of a bill to explain, with its lines and its nodes; '' for charges of no resource
    #[arg(long, value_name = "KEY", group = "subject")]
    pub bill: Option<String>,
    /// Organization, if several have a subject with this name
    #[arg(long, value_name = "ID")]
    pub organization: Option<String>,
    /// Also show what has changed in the rows since this time, such as 2026-11-20T13:00:00Z
    ///
    /// Shows the effect of late events and other rules. VACUUM must not have removed the files of that time.
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    pub since: Option<Timestamp>,
    /// Also copy everything that the explanation reads to this empty folder or URL, to explain it elsewhere
    ///
    /// Files hold events and rows of other organizations, too.
    #[arg(long, value_name = "FOLDER|URL", conflicts_with = "since")]
    pub pack: Option<String>,
    /// Print JSON with every step instead of text
    #[arg(long)]
    pub json: bool,
}

/// Explains a cost, and prints the explanation. The exit code is 0, or 1 if the rows of the table files
/// differ.
///
/// # Errors
/// If the lake has nothing of the kind, or cannot be read.
pub fn run(args: &ExplainArgs) -> anyhow::Result<ExitCode> {
    let (runtime, _) = wiring::runtime(0)?;
    let answer = runtime.block_on(answer(args))?;
    report::print(&if args.json { format!("{:#}", answer.json()?) } else { answer.to_string() })?;
    Ok(if answer.is_same() { ExitCode::SUCCESS } else { ExitCode::from(DIFFERS) })
}

/// The lake to read, and the pack if one is made.
struct Lake {
    store: Store,
    ports: Ports,
    pack: Option<(Store, Arc<PackingStore>)>,
}

impl Lake {
    /// Opens the lake. With a pack, all reads through `ports` are copied.
    async fn open(args: &ExplainArgs) -> anyhow::Result<Self> {
        let store = wiring::lake::store(&args.lake).await?;
        let mut ports = wiring::look_ports(store.clone());
        let Some(pack) = &args.pack else { return Ok(Self { store, ports, pack: None }) };
        let pack = wiring::lake::empty("--pack", pack).await?;
        let packing = Arc::new(PackingStore::new(ports.store, Arc::new(pack.clone())));
        ports.store = Arc::<PackingStore>::clone(&packing);
        Ok(Self { store, ports, pack: Some((pack, packing)) })
    }

    /// Returns the tables, as of an instant or now. With a pack, copies their logs into the pack and reads
    /// the copies, so that an explanation from the pack reads the same tables.
    async fn tables(&self, as_of: Option<Timestamp>) -> anyhow::Result<LakeTables<'_>> {
        let logs = match &self.pack {
            Some((pack, packing)) => {
                packing.copy_logs().await.map_err(WorkerError::Store)?;
                pack
            }
            None => &self.store,
        };
        let logs = wiring::lake::tables(logs, as_of).await?.logs().clone();
        Ok(LakeTables::new(&*self.ports.store, logs))
    }
}

async fn answer(args: &ExplainArgs) -> anyhow::Result<Answer> {
    let lake = Lake::open(args).await?;
    let subject = subject(args).ok_or_else(|| Failure::usage("name a pod with --pod, or another subject"))?;
    let organization = args.organization.as_deref().map(Into::into);
    let question = Question { subject, hour: args.hour, organization };
    let then = match args.since {
        Some(since) => Some((since, lake.tables(Some(since)).await?)),
        None => None,
    };
    let then = then.as_ref().map(|(since, then)| (*since, then));
    let mut attempts = 0;
    loop {
        let tables = lake.tables(None).await?;
        let mut answer = explain(&tables, then, &lake.ports, &question).await;
        if answer.as_ref().is_ok_and(Answer::is_same) {
            return answer.map_err(failed);
        }
        // The rows of the table may belong to another revision than the folded rows.
        let checkpoints = Checkpoints::read(&*lake.ports.store).await?;
        let hour = HourRange::from(args.hour);
        let is_published = checkpoints.are_published(&tables, hour);
        let is_dirty = answer.as_ref().is_ok_and(|answer| answer.input.is_dirty);
        let again = lake.tables(None).await?;
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
        ExplainError::NotFound(message) => Failure::usage(message).into(),
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
        .or_else(|| named(&args.bill, Subject::Bill))
}
