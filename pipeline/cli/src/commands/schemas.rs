//! `prorata schemas`: prints or registers the Avro schemas of the events, as they are in `schemas/events/`.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use prorata_schemas::avsc::{avsc, full_name};
use prorata_schemas::event::EventKind;
use serde::Serialize;

use crate::config;
use crate::failure::Failure;
use crate::report;
use crate::wiring::{self, registry};

/// Arguments of `prorata schemas`.
#[derive(Clone, Debug, Args)]
pub struct SchemasArgs {
    /// Event type, such as PodStarted [default: all, as one JSON array]
    #[arg(value_name = "EVENT")]
    pub event: Option<String>,
    /// Register the schemas at this base URL of a Confluent-compatible registry, and print their ids
    ///
    /// Subjects are record names, such as prorata.events.PodStarted. Record types share a topic, so producers
    /// must use RecordNameStrategy. Registering again changes nothing and prints the same ids.
    #[arg(long, value_name = "URL")]
    pub register: Option<String>,
    /// Configuration file, with credentials and certificates in section registry
    #[arg(long, value_name = "FILE", requires = "register")]
    pub config: Option<PathBuf>,
    /// Print the ids as JSON
    #[arg(long, requires = "register")]
    pub json: bool,
}

/// Prints or registers one schema or all schemas.
///
/// # Errors
/// If there is no such event type, or the registry refuses a schema.
pub fn run(args: &SchemasArgs) -> anyhow::Result<ExitCode> {
    let kinds = match &args.event {
        Some(name) => vec![named(name)?],
        None => EventKind::ALL.to_vec(),
    };
    let text = match (&args.register, kinds.as_slice()) {
        (Some(url), kinds) => {
            let ids = register(args, url, kinds)?;
            if args.json { as_json(&ids)? } else { as_text(&ids) }
        }
        (None, [kind]) => avsc(*kind).trim_end().to_owned(),
        (None, kinds) => {
            let texts: Vec<&str> = kinds.iter().map(|kind| avsc(*kind).trim_end()).collect();
            format!("[\n{}\n]", texts.join(",\n"))
        }
    };
    report::print(&text)?;
    Ok(ExitCode::SUCCESS)
}

fn named(name: &str) -> Result<EventKind, Failure> {
    let bare = name.strip_prefix("prorata.events.").unwrap_or(name);
    EventKind::ALL.into_iter().find(|kind| kind.name() == bare).ok_or_else(|| {
        let names = EventKind::ALL.map(EventKind::name);
        Failure::usage(format!("'{name}' is not an event type; the types are {}", names.join(", ")))
    })
}

fn register(args: &SchemasArgs, url: &str, kinds: &[EventKind]) -> anyhow::Result<Vec<(EventKind, u32)>> {
    if url.is_empty() {
        return Err(Failure::usage("--register is empty; name the base URL of Confluent's API").into());
    }
    let mut section = config::load(args.config.as_deref())?.config.registry;
    section.url = url.to_owned();
    let Some(registry) = registry::open(&section)? else { return Ok(Vec::new()) };
    let runtime = wiring::small_runtime()?;
    runtime.block_on(async {
        let mut ids = Vec::with_capacity(kinds.len());
        for kind in kinds {
            ids.push((*kind, registry::ask(|| registry.register_event(*kind)).await?));
        }
        Ok(ids)
    })
}

/// The registered schemas as a document.
#[derive(Serialize)]
struct SchemasDocument {
    schemas: Vec<RegisteredSchema>,
}

/// A schema of the registry.
#[derive(Serialize)]
struct RegisteredSchema {
    id: u32,
    subject: String,
}

fn as_json(ids: &[(EventKind, u32)]) -> serde_json::Result<String> {
    let schemas = ids.iter().map(|(kind, id)| RegisteredSchema { id: *id, subject: full_name(*kind) });
    report::document(&SchemasDocument { schemas: schemas.collect() })
}

fn as_text(ids: &[(EventKind, u32)]) -> String {
    let widest = ids.iter().map(|(kind, _)| full_name(*kind).len()).max().unwrap_or_default();
    let lines = ids.iter().map(|(kind, id)| format!("{:widest$}  {id}", full_name(*kind)));
    lines.collect::<Vec<_>>().join("\n")
}
