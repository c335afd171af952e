//! `prorata maintain`: compacts tables and deletes leftovers in a lake, while workers may run.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use clap::Args;
use prorata_connectors::{DeltaTables, ParquetEncoder, SystemClock};
use prorata_worker::root::maintain::{MaintainPorts, Maintained, maintain};
use serde::Serialize;

use crate::{config, logging, report, wiring};

/// Arguments of `prorata maintain`.
#[derive(Clone, Debug, Args)]
pub struct MaintainArgs {
    /// Configuration file whose root.url is the lake
    #[arg(long, value_name = "FILE", required_unless_present = "lake")]
    pub config: Option<PathBuf>,
    /// Folder or URL (s3://, gs://, az://, file://) of the lake; overrides root.url
    #[arg(long, value_name = "FOLDER|URL")]
    pub lake: Option<String>,
    /// Print JSON instead of text
    #[arg(long)]
    pub json: bool,
}

/// Compacts and deletes files, and prints what was done.
///
/// # Errors
/// If there is no lake, or storage is unavailable. Deleted files stay deleted, and the next run continues.
pub fn run(args: &MaintainArgs) -> anyhow::Result<ExitCode> {
    let loaded = config::load(args.config.as_deref())?;
    logging::start(&loaded.config.log)?;
    let lake = wiring::lake::named(args.lake.as_ref(), &loaded.config)?;
    let (runtime, _) = wiring::runtime(0)?;
    let maintained = runtime.block_on(async {
        let store = wiring::lake::store(lake).await?;
        let tables = Arc::new(DeltaTables::new(store.clone()));
        let ports = MaintainPorts {
            store: Arc::new(store),
            tables: tables.clone(),
            logs: tables,
            encoder: Arc::new(ParquetEncoder),
            clock: Arc::new(SystemClock),
        };
        Ok::<_, anyhow::Error>(maintain(&ports, &wiring::owner()).await?)
    })?;
    report::print(&if args.json { as_json(&maintained)? } else { as_text(&maintained) })?;
    Ok(ExitCode::SUCCESS)
}

/// The result as a document.
#[derive(Serialize)]
struct MaintainDocument {
    state_objects_deleted: u64,
    tables: BTreeMap<&'static str, MaintainedTableDocument>,
}

/// The result for one table.
#[derive(Serialize)]
struct MaintainedTableDocument {
    bytes_deleted: u64,
    day_files_written: u64,
    files_compacted: u64,
    files_deleted: u64,
    log_checkpoint_written: bool,
    log_files_deleted: u64,
}

fn as_json(maintained: &Maintained) -> serde_json::Result<String> {
    let tables = maintained.tables.iter().map(|(table, done)| {
        let document = MaintainedTableDocument {
            bytes_deleted: done.bytes,
            day_files_written: done.day_files,
            files_compacted: done.compacted,
            files_deleted: done.files,
            log_checkpoint_written: done.log_checkpoint,
            log_files_deleted: done.log_files,
        };
        (table.name(), document)
    });
    report::document(&MaintainDocument {
        state_objects_deleted: maintained.state_objects,
        tables: tables.collect(),
    })
}

fn as_text(maintained: &Maintained) -> String {
    let tables = maintained.tables.iter().map(|(table, done)| {
        let checkpoint = if done.log_checkpoint { ", and its log has a new checkpoint" } else { "" };
        format!(
            "{}: {} files compacted to {}, {} files ({} bytes) and {} files of its log deleted{checkpoint}",
            table.name(),
            done.compacted,
            done.day_files,
            done.files,
            done.bytes,
            done.log_files,
        )
    });
    let state = format!("state and dead letters: {} objects deleted", maintained.state_objects);
    tables.chain([state]).collect::<Vec<_>>().join("\n")
}
