//! `prorata agreements`: converts reservations, commitments, rates and pools of a file to events.

mod import;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use prorata_collector::agreements::{AgreementEvents, Agreements};
use prorata_connectors::SystemClock;
use prorata_connectors::archive::AvroArchive;
use prorata_schemas::body;
use prorata_schemas::event::Event;
use prorata_schemas::time::Timestamp;
use prorata_worker::ports::{Archive, Clock, ObjectStore, PutOutcome, Wanted};

use crate::archive_file::archive_file;
use crate::commands::generate::kafka::{EventSender, KafkaArgs};
use crate::config::yaml;
use crate::failure::Failure;
use crate::report;
use crate::wiring;
use import::AgreementsAction;

/// Arguments of `prorata agreements`.
#[derive(Clone, Debug, Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub struct AgreementsArgs {
    /// Another action. `None` if the file is to be converted.
    #[command(subcommand)]
    pub action: Option<AgreementsAction>,
    /// YAML file of reservations, commitments, rates and pools
    #[arg(long, value_name = "FILE", required = true)]
    pub file: Option<PathBuf>,
    /// Folder or URL to write a file of events to, or kafka [default: only check the file]
    #[arg(long, alias = "to", value_name = "FOLDER|URL|kafka")]
    pub output: Option<String>,
    /// Folder or URL with the events of earlier versions of the file [default: --output]
    ///
    /// They show what to correct: an entry that was moved or removed is retracted. New events are added to
    /// this folder, and all events go to --output. Without --output, the command prints what would change,
    /// and adds nothing.
    #[arg(long, value_name = "FOLDER|URL")]
    pub sent: Option<String>,
    /// The destination.
    #[command(flatten)]
    pub kafka: KafkaArgs,
}

/// Checks the file, writes or sends its events, and corrects events that were sent before. A second run
/// changes nothing.
///
/// # Errors
/// If the file is wrong, or its events cannot be read, written or sent.
pub fn run(args: &AgreementsArgs) -> anyhow::Result<ExitCode> {
    if let Some(AgreementsAction::Import(args)) = &args.action {
        return import::run(args);
    }
    let file = args.file.as_deref().ok_or_else(|| Failure::usage("give --file FILE"))?;
    let is_kafka = args.output.as_deref() == Some("kafka");
    if !is_kafka && args.kafka != KafkaArgs::default() {
        let message =
            "--config, --bootstrap-servers, --topic and --rate are for --output kafka; leave them out";
        return Err(Failure::usage(message).into());
    }
    let agreements = read(file)?;
    let kept = args.sent.as_deref().or(args.output.as_deref().filter(|_| !is_kafka));
    let sent = kept.map_or(Ok(Vec::new()), |folder| sent_before(folder, &agreements))?;
    let found = agreements
        .events(Timestamp(SystemClock.now().0), &sent)
        .map_err(|error| Failure::usage(format!("'{}': {error}", file.display())))?;
    let to = match (&args.output, &args.sent) {
        (None, _) => "checked, not sent".to_owned(),
        (Some(to), None) if !is_kafka => write(to, &agreements, &found.events)?,
        (Some(to), folder) => {
            // The events are stored first. A correction of an event that never arrived is harmless, but a
            // missing correction is not.
            if let Some(folder) = folder {
                write(folder, &agreements, &found.events)?;
            }
            // Stored events that were perhaps never sent are sent again. A repeated event counts once.
            let all = [sent, found.events.clone()].concat();
            if is_kafka { send(&args.kafka, &agreements, &all)? } else { write(to, &agreements, &all)? }
        }
    };
    report::print(&summary(&found, &to))?;
    if is_kafka && kept.is_none() {
        report::print(
            "entries that were moved or removed since the last time are not taken back without --sent",
        )?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Returns the events of all files that this command has written to a folder for the organization.
fn sent_before(folder: &str, agreements: &Agreements) -> anyhow::Result<Vec<Event>> {
    let store = wiring::store(folder)?;
    let runtime = wiring::small_runtime()?;
    let ours = format!("{}/agreements-", agreements.organization_id);
    let parent = format!("{}/", agreements.organization_id);
    let files = runtime.block_on(store.list(&parent)).map_err(Failure::storage)?;
    let mut events = Vec::new();
    for file in files.iter().filter(|file| file.path.starts_with(&ours) && file.path.ends_with(".avro")) {
        let bytes = runtime.block_on(store.get(&file.path)).map_err(Failure::storage)?.unwrap_or_default();
        let damaged = |error: &dyn std::fmt::Display| {
            Failure::usage(format!("'{}' of {folder}: {error}; restore it from a backup", file.path))
        };
        AvroArchive
            .read_own(&bytes, Wanted::default(), &mut |event| events.push(event.into_owned()))
            .map_err(|error| damaged(&error))?;
    }
    Ok(events)
}

fn read(path: &Path) -> Result<Agreements, Failure> {
    let wrong = |error: &dyn std::fmt::Display| Failure::usage(format!("'{}': {error}", path.display()));
    let text = std::fs::read_to_string(path).map_err(|error| wrong(&error))?;
    yaml::from_text(&text).map_err(|error| wrong(&error))
}

fn summary(found: &AgreementEvents, to: &str) -> String {
    let mut text = format!("{} events, {to}", found.events.len());
    for change in &found.changes {
        text += &format!("\n{change}");
    }
    for (place, from) in &found.later {
        text += &format!("\n{place} begins at {from}: send the file again then");
    }
    text
}

/// Writes one file named by a hash of its content, so that equal events give one file. Returns the place of
/// the file, for the report.
fn write(to: &str, agreements: &Agreements, events: &[Event]) -> anyhow::Result<String> {
    if events.is_empty() {
        return Ok("nothing new to write".to_owned());
    }
    let (name, file) = archive_file(events)?;
    let path = format!("{}/agreements-{name}.avro", agreements.organization_id);
    let store = wiring::store(to)?;
    let outcome = wiring::small_runtime()?.block_on(store.put_if_absent(&path, file.into()));
    Ok(match outcome.map_err(Failure::storage)? {
        PutOutcome::Created => format!("in {path} of {to}"),
        PutOutcome::Exists => format!("in {path} of {to}, which already existed"),
    })
}

/// Sends the events, and waits until all are stored. Returns the topics, for the report.
fn send(args: &KafkaArgs, agreements: &Agreements, events: &[Event]) -> anyhow::Result<String> {
    let mut sender = EventSender::open(args)?;
    for event in events {
        sender.send(event.payload.kind(), &agreements.organization_id, &body::encode(event))?;
    }
    Ok(sender.finish()?)
}
