//! The program's entry: arguments in, an exit code and a sentence out.

mod backfill;
mod commands;
mod config;
mod dead_letters;
mod failure;
mod kafka;
mod logging;
mod operations;
mod progress;
mod registry;
mod schemas;
mod summary;
mod work;

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use tikv_jemallocator::Jemalloc;

/// It gives back what is free: of three measured, the others held twice what was in use.
#[global_allocator]
static ALLOCATOR: Jemalloc = Jemalloc;

/// From Kubernetes and cloud events to the hourly cost of every pod.
///
/// Exit codes: 0 done, 1 stopped for a reason that it names, or an internal error, 2 wrong usage or configuration,
/// 3 done but some input was dead-lettered, 4 storage, Kafka or registry unavailable.
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
    /// Lists what could not become events, and replays it after a mend
    DeadLetters(dead_letters::DeadLettersArgs),
    /// Writes synthetic load to files or Kafka, the same for the same seed
    Generate(commands::generate::GenerateArgs),
    /// Prints or registers the Avro schemas of the events
    Schemas(schemas::SchemasArgs),
    /// Folds events from Kafka into hourly tables, until it is told to stop
    Work(work::WorkArgs),
}

fn main() -> ExitCode {
    // Two cryptographic libraries are linked in; without a choice the first TLS connection would panic.
    let _already_installed = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let outcome = match Arguments::parse().command {
        Command::Backfill(args) => backfill::run(&args),
        Command::DeadLetters(args) => dead_letters::run(&args),
        Command::Generate(args) => commands::generate::run(&args),
        Command::Schemas(args) => schemas::run(&args),
        Command::Work(args) => work::run(&args),
    };
    outcome.unwrap_or_else(|error| failure::report(&error))
}
