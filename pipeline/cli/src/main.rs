//! The program: arguments in; an exit code, and one message if something is wrong, out.
//!
//! Read `commands` first; `wiring` builds what they run on, `config` is what is configured, `operations` what
//! a worker serves over HTTP, `report` what is printed.

mod commands;
mod config;
#[cfg(test)]
mod documents;
mod failure;
mod logging;
mod operations;
mod report;
mod wiring;

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use tikv_jemallocator::Jemalloc;

use commands::feed::{agreements, collect, prices};
use commands::{backfill, check, dead_letters, generate, look, maintain, ready, replay, schemas, work};

/// Jemalloc returns freed memory to the system, which a worker with a memory limit needs.
#[global_allocator]
static ALLOCATOR: Jemalloc = Jemalloc;

/// Turns Kubernetes and cloud events into the hourly cost of every pod.
///
/// Exit codes: 0 done; 1 stopped for the reason printed, an internal error, or check, diff and explain found
/// errors or differences; 2 usage, configuration or permissions are wrong; 3 done, but some input was
/// dead-lettered, or check found warnings; 4 storage, Kafka or the registry is unavailable.
#[derive(Debug, Parser)]
#[command(name = "prorata", version)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Turns a file of reservations, commitments, rates and pools into events
    Agreements(agreements::AgreementsArgs),
    /// Builds hourly tables from files of events
    Backfill(backfill::BackfillArgs),
    /// Checks a lake: whether it is whole and its money adds up; or what a configuration needs at a start
    Check(check::CheckArgs),
    /// Watches a Kubernetes cluster, and writes its events to files or Kafka, until it is stopped
    Collect(collect::CollectArgs),
    /// Lists dead letters, and replays them once their cause is fixed
    DeadLetters(dead_letters::DeadLettersArgs),
    /// Compares two lakes, or a lake now and then: which costs changed by how much
    Diff(look::diff::DiffArgs),
    /// Shows how a pod's cost in an hour came about, step by step, from the events of the lake's archive
    Explain(look::explain::ExplainArgs),
    /// Generates synthetic events, to files or Kafka; the same seed gives the same events
    Generate(generate::GenerateArgs),
    /// Trims what only grows in a lake: replaced files of tables, expired versions, leftovers
    Maintain(maintain::MaintainArgs),
    /// Makes a price list of providers' price documents
    Prices(prices::PricesArgs),
    /// Asks workers, over the network, whether they are ready
    Ready(ready::ReadyArgs),
    /// Folds what retired Kafka topics still hold, on whatever partition it lies
    Replay(replay::ReplayArgs),
    /// Writes a lake as one HTML page: cost over time, idle and unused money, who bears it
    Report(look::report::ReportArgs),
    /// Prints or registers the Avro schemas of the events
    Schemas(schemas::SchemasArgs),
    /// Builds hourly tables from Kafka, until it is stopped
    Work(work::WorkArgs),
}

fn main() -> ExitCode {
    // Two cryptographic libraries are linked. Without this choice, the first TLS connection would panic.
    let _already_installed = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let outcome = match Arguments::parse().command {
        Command::Agreements(args) => agreements::run(&args),
        Command::Backfill(args) => backfill::run(&args),
        Command::Check(args) => check::run(&args),
        Command::Collect(args) => collect::run(&args),
        Command::DeadLetters(args) => dead_letters::run(&args),
        Command::Diff(args) => look::diff::run(&args),
        Command::Explain(args) => look::explain::run(&args),
        Command::Generate(args) => generate::run(&args),
        Command::Maintain(args) => maintain::run(&args),
        Command::Prices(args) => prices::run(&args),
        Command::Ready(args) => ready::run(&args),
        Command::Replay(args) => replay::run(&args),
        Command::Report(args) => look::report::run(&args),
        Command::Schemas(args) => schemas::run(&args),
        Command::Work(args) => work::run(&args),
    };
    outcome.unwrap_or_else(|error| failure::report(&error))
}
