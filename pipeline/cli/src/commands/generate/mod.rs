//! `prorata generate`: generates synthetic load, and writes it to files or sends it to Kafka. The same
//! arguments give the same bytes.

mod files;
pub mod kafka;
mod pace;
#[cfg(test)]
mod tests;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use prorata_generate::Load;
use prorata_schemas::decimal::ONE;
use prorata_schemas::money::Ratio;
use prorata_schemas::time::Hour;

use crate::config::duration;
use crate::failure::Failure;
use crate::report;
use files::FilesError;
use kafka::KafkaArgs;

/// The value of `--output` that means Kafka instead of a folder.
const KAFKA: &str = "kafka";

/// Maximum number of pods that may run at once in one organization.
const PODS_MAX: u64 = 10_000_000;
/// Maximum number of hours in one run: ten years.
const HOURS_MAX: u64 = 87_600;

/// Arguments of `prorata generate`.
#[derive(Clone, Debug, Args)]
pub struct GenerateArgs {
    /// Number of organizations
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    pub organizations: u64,
    /// Average number of running pods per organization
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u64).range(1..=PODS_MAX))]
    pub pods: u64,
    /// Number of hours to generate
    #[arg(long, default_value_t = 24, value_parser = clap::value_parser!(u64).range(1..=HOURS_MAX))]
    pub hours: u64,
    /// Random seed; the same arguments generate the same events
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Empty or new folder to write files to, or kafka
    #[arg(long, alias = "to", value_name = "FOLDER|kafka")]
    pub output: PathBuf,
    /// First hour, in UTC
    #[arg(long, value_name = "HOUR", default_value = "2026-11-01T00")]
    pub start: Hour,
    /// Share of events that arrive one minute to six hours late, from 0 to 1
    #[arg(long, value_name = "SHARE", default_value = "0.01", value_parser = parse_share)]
    pub late_rate: u32,
    /// Share of events that arrive twice, from 0 to 1
    #[arg(long, value_name = "SHARE", default_value = "0.01", value_parser = parse_share)]
    pub duplicate_rate: u32,
    /// Interval of measured use, such as 1m, from 1s to 1h
    ///
    /// Intervals end at multiples of their length, as in prorata collect. By default, most pods are measured
    /// every 5, 10 or 15 minutes, and some never.
    #[arg(long, value_name = "DURATION", value_parser = parse_usage_interval)]
    pub usage_interval: Option<Duration>,
    /// Maximum number of events per file
    #[arg(long, value_name = "COUNT", default_value_t = 20_000)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub events_per_file: u32,
    /// The destination and the rate.
    #[command(flatten)]
    pub kafka: KafkaArgs,
}

impl GenerateArgs {
    /// Returns the load that these arguments describe.
    const fn load(&self) -> Load {
        Load {
            organizations: self.organizations,
            pods: self.pods,
            hours: self.hours,
            start: self.start,
            seed: self.seed,
            late_per_million: self.late_rate,
            duplicates_per_million: self.duplicate_rate,
            usage_interval: self.usage_interval,
        }
    }
}

/// Writes or sends the events, and prints how many there are.
///
/// # Errors
/// If a folder is not empty, that is a usage error. If a file cannot be written, that is a storage error. For
/// errors of Kafka, see [`kafka::run`].
pub fn run(args: &GenerateArgs) -> anyhow::Result<ExitCode> {
    if args.output.as_os_str() == KAFKA {
        return kafka::run(args);
    }
    if args.kafka != KafkaArgs::default() {
        let message = "--config, --bootstrap-servers, --topic and --rate are for --output kafka; leave them \
                       out for files";
        return Err(Failure::usage(message).into());
    }
    let encode = &prorata_connectors::archive::write_events;
    let written = files::generate(&args.load(), &args.output, args.events_per_file, encode);
    let written = written.map_err(|error| match error {
        FilesError::FolderNotEmpty(_) => Failure::usage(error),
        FilesError::Write { .. } | FilesError::Encode { .. } => Failure::storage(error),
    })?;
    let (events, files, bytes) = (written.events, written.files, written.bytes);
    let to = args.output.display();
    report::print(&format!("{events} events in {files} files, {bytes} bytes, in {to}"))?;
    Ok(ExitCode::SUCCESS)
}

/// Returns a progress bar of hours, which appears only on a terminal.
fn progress_bar(hours: u64) -> ProgressBar {
    let bar = ProgressBar::new(hours);
    if let Ok(style) = ProgressStyle::with_template("generating {bar:40} {pos}/{len} hours, {eta} left") {
        bar.set_style(style);
    }
    bar
}

/// The error for a text that is not a share.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("it is not a decimal from 0 to 1, such as 0.01")]
struct ParseShareError;

/// The error for a text that is not the length of an interval.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("it is not a duration from 1s to 1h, such as 30s or 1m")]
struct ParseIntervalError;

/// Parses the interval of measured use: a duration from a second to an hour.
fn parse_usage_interval(text: &str) -> Result<Duration, ParseIntervalError> {
    let allowed = Duration::from_secs(1)..=Duration::from_secs(3600);
    duration::parse(text).filter(|every| allowed.contains(every)).ok_or(ParseIntervalError)
}

/// Parses a share from 0 to 1, as events in a million. Digits after the sixth decimal are cut off.
fn parse_share(text: &str) -> Result<u32, ParseShareError> {
    let share = text.parse::<Ratio>().map_err(|_| ParseShareError)?;
    let per_million = u32::try_from(share.atoms() / (ONE / 1_000_000)).map_err(|_| ParseShareError)?;
    if per_million <= 1_000_000 { Ok(per_million) } else { Err(ParseShareError) }
}
