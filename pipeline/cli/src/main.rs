//! The program's entry: arguments in, an exit code and a sentence out.

mod backfill;
mod config;
mod failure;
mod generate;
mod logging;
#[cfg_attr(not(test), expect(dead_code, reason = "`prorata work` serves it"))]
mod operations;
mod progress;
mod schemas;
mod summary;

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use mimalloc::MiMalloc;

use failure::Failure;
use generate::GenerateError;

#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

/// From Kubernetes and cloud events to the hourly cost of every pod.
///
/// Exit codes: 0 done, 1 internal error, 2 wrong usage or configuration, 3 done but some input was dead-lettered,
/// 4 storage unavailable.
#[derive(Debug, Parser)]
#[command(name = "prorata", version)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Folds archived events into hourly tables
    Backfill(backfill::BackfillArgs),
    /// Writes realistic load, reproducible
    Generate(generate::GenerateArgs),
    /// Prints the Avro schemas of the events
    Schemas(schemas::SchemasArgs),
}

fn main() -> ExitCode {
    // Two cryptographic libraries are linked in; without a choice the first TLS connection would panic.
    let _already_installed = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let outcome = match Arguments::parse().command {
        Command::Backfill(args) => backfill::run(&args),
        Command::Generate(args) => {
            generate::run(&args).map(|()| ExitCode::SUCCESS).map_err(|error| match error {
                GenerateError::FolderNotEmpty(_) => Failure::usage(error).into(),
                GenerateError::Write(_) => Failure::storage(error).into(),
            })
        }
        Command::Schemas(args) => schemas::run(&args),
    };
    outcome.unwrap_or_else(|error| failure::report(&error))
}
