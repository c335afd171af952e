//! `prorata maintain`: compacts tables and deletes leftovers in a lake, while workers may run.

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use clap::Args;
use prorata_connectors::{DeltaTables, ParquetEncoder, SystemClock};
use prorata_schemas::tables::Table;
use prorata_worker::root::maintain::{MaintainPorts, Maintained, MaintainedTable, maintain};
use serde_json::{Value, json};

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
    report::print(&if args.json { format!("{:#}", as_json(&maintained)) } else { as_text(&maintained) })?;
    Ok(ExitCode::SUCCESS)
}

fn as_json(maintained: &Maintained) -> Value {
    let table = |(table, done): (&Table, &MaintainedTable)| {
        let MaintainedTable { compacted, day_files, files, bytes, log_files, log_checkpoint } = done;
        let value = json!({
            "files_compacted": compacted,
            "day_files_written": day_files,
            "files_deleted": files,
            "bytes_deleted": bytes,
            "log_files_deleted": log_files,
            "log_checkpoint_written": log_checkpoint,
        });
        (table.name().to_owned(), value)
    };
    let tables: serde_json::Map<String, Value> = maintained.tables.iter().map(table).collect();
    json!({ "tables": tables, "state_objects_deleted": maintained.state_objects })
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
