//! `prorata prices import`: builds one price list from the documents that providers publish.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, Subcommand, ValueEnum};
use prorata_collector::prices::{Imported, Importer, LeftOut, PriceDocument, PriceList, write_price_list};
use prorata_inspect::text::plain;

use crate::failure::Failure;
use crate::report;

/// Arguments of `prorata prices`.
#[derive(Clone, Debug, Args)]
pub struct PricesArgs {
    /// The action.
    #[command(subcommand)]
    pub action: PricesAction,
}

/// Actions on prices.
#[derive(Clone, Debug, Subcommand)]
pub enum PricesAction {
    /// Build a price list as CSV, with a line per instance type, region and time
    Import(ImportArgs),
}

/// Arguments of `prorata prices import`.
#[derive(Clone, Debug, Args)]
pub struct ImportArgs {
    /// Format of the documents
    ///
    /// aws: index.json of the AmazonEC2 offer of one region. azure: responses of the Retail Prices API. gcp:
    /// responses of the Cloud Billing Catalog API for Compute Engine. csv: price lists, which are merged.
    #[arg(value_enum)]
    pub provider: Provider,
    /// Price documents; they may be hundreds of megabytes
    #[arg(value_name = "FILE", required = true)]
    pub files: Vec<PathBuf>,
    /// File to write the price list to, other than the documents [default: standard output]
    #[arg(long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Currency of the prices to import (ISO 4217)
    #[arg(long, value_name = "CODE", default_value = "USD")]
    pub currency: String,
}

/// The provider of the documents.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Provider {
    Aws,
    Azure,
    Gcp,
    Csv,
}

/// Writes a price list of the documents, and reports on standard error what was left out.
///
/// # Errors
/// If a file cannot be read or written, or a document is wrong.
pub fn run(args: &PricesArgs) -> anyhow::Result<ExitCode> {
    let PricesAction::Import(args) = &args.action;
    if args.output.as_ref().is_some_and(|to| args.files.contains(to)) {
        return Err(Failure::usage("--output names one of the documents; name another file").into());
    }
    let (list, imported) = read(args)?;
    let mut csv = Vec::new();
    write_price_list(&list, &mut csv)?;
    match &args.output {
        Some(to) => replace(to, |mut file| file.write_all(&csv))
            .map_err(|error| Failure::storage(format!("failed to write '{}': {error}", to.display())))?,
        None => report::print(String::from_utf8_lossy(&csv).trim_end())?,
    }
    // The list is already written, so the lines about it may get lost.
    for line in summary(&list, &imported).lines() {
        let _ = writeln!(io::stderr(), "{}", plain(line));
    }
    Ok(ExitCode::SUCCESS)
}

fn read(args: &ImportArgs) -> anyhow::Result<(PriceList, Imported)> {
    let document = match args.provider {
        Provider::Aws => PriceDocument::Aws,
        Provider::Azure => PriceDocument::Azure,
        Provider::Gcp => PriceDocument::Gcp,
        Provider::Csv => PriceDocument::Csv,
    };
    let mut importer = Importer::new(&args.currency);
    for path in &args.files {
        let wrong = |error: &dyn std::fmt::Display| Failure::usage(format!("'{}': {error}", path.display()));
        let file = File::open(path).map_err(|error| wrong(&error))?;
        importer.read(document, file).map_err(|error| wrong(&error))?;
    }
    Ok(importer.finish().map_err(Failure::usage)?)
}

/// Replaces a file atomically with what `write` writes: a reader sees the old file or the new file.
///
/// # Errors
/// If the file cannot be written. Then no part of the new file is left.
pub fn replace<E: From<io::Error>>(to: &Path, write: impl FnOnce(&File) -> Result<(), E>) -> Result<(), E> {
    let mut new = to.as_os_str().to_owned();
    new.push(".new");
    let file = File::create(&new)?;
    let written = write(&file).and_then(|()| {
        file.sync_all()?;
        Ok(std::fs::rename(&new, to)?)
    });
    written.inspect_err(|_| {
        // A partial file takes the space that the next run needs. Its removal may fail as well.
        std::fs::remove_file(&new).ok();
    })
}

fn summary(list: &PriceList, imported: &Imported) -> String {
    let regions: BTreeSet<_> = list.iter().map(|(of, ..)| (&of.provider, &of.region)).collect();
    let mut text = format!("{} prices in {} regions", list.len(), regions.len());
    for (reason, LeftOut { count, example }) in &imported.skipped {
        text += &format!("\n{count} left out: {reason}, such as {example}");
    }
    text
}
