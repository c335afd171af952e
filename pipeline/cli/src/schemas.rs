//! `prorata schemas`: the Avro schemas of the events, as they are in `schemas/events/`.

use std::io::{ErrorKind, Write};
use std::process::ExitCode;

use clap::Args;
use prorata_schemas::avsc::avsc;
use prorata_schemas::event::EventKind;

use crate::failure::Failure;

/// Arguments of `prorata schemas`.
#[derive(Clone, Debug, Args)]
pub struct SchemasArgs {
    /// Only this event type, such as PodStarted; by default all, as one JSON array
    #[arg(value_name = "EVENT")]
    pub event: Option<String>,
}

/// Prints one schema, or all.
///
/// # Errors
/// When there is no such event type.
pub fn run(args: &SchemasArgs) -> anyhow::Result<ExitCode> {
    let text = match &args.event {
        Some(name) => avsc(named(name)?).trim_end().to_owned(),
        None => format!("[\n{}\n]", EventKind::ALL.map(|kind| avsc(kind).trim_end()).join(",\n")),
    };
    match writeln!(std::io::stdout(), "{text}") {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => Err(Failure::storage(error).into()),
        _ => Ok(ExitCode::SUCCESS),
    }
}

fn named(name: &str) -> Result<EventKind, Failure> {
    let bare = name.strip_prefix("prorata.events.").unwrap_or(name);
    EventKind::ALL.into_iter().find(|kind| kind.name() == bare).ok_or_else(|| {
        let names = EventKind::ALL.map(EventKind::name);
        Failure::usage(format!("'{name}' is no event type; they are {}", names.join(", ")))
    })
}
