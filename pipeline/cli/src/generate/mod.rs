//! `prorata generate`: a realistic estate's events, seeded and reproducible byte for byte.
//!
//! Organizations are made one by one on every core, each from its own stream of the seed, so files depend on the
//! arguments alone. Memory follows the pods that run at once, not the number of events.

mod actions;
mod agreements;
mod arrivals;
mod catalogue;
mod disorder;
mod estate;
mod fleet;
mod kafka;
#[cfg(test)]
mod kafka_tests;
mod oddity;
mod organization;
mod pods;
mod sharing;
#[cfg(test)]
mod tests;
mod text;
mod workload;
mod write;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use prorata_schemas::decimal::{Decimal12, ONE};
use prorata_schemas::time::{Date, Hour};

use crate::failure::Failure;
use agreements::Run;
use disorder::{Disorder, Rates};
use kafka::KafkaArgs;
use organization::Organization;
use text::MINUTE;
use write::{EncodeFile, Files, WriteError, Written};

/// What `--to` names instead of a folder.
const KAFKA: &str = "kafka";

/// Most pods that may run at once in one organization.
const PODS_MAX: u64 = 10_000_000;
/// Most hours of one run: ten years.
const HOURS_MAX: u64 = 87_600;

/// Arguments of `prorata generate`.
#[derive(Clone, Debug, Args)]
pub struct GenerateArgs {
    /// Number of organizations
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    pub organizations: u64,
    /// Pods that run at once in each organization, on average over a day
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u64).range(1..=PODS_MAX))]
    pub pods: u64,
    /// Length of the run in hours
    #[arg(long, default_value_t = 24, value_parser = clap::value_parser!(u64).range(1..=HOURS_MAX))]
    pub hours: u64,
    /// Seed of everything random: equal arguments make equal files
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Folder for the files, which must be empty or not exist; or `kafka` (a folder of that name is ./kafka)
    #[arg(long, value_name = "FOLDER|kafka")]
    pub to: PathBuf,
    /// First hour, in UTC
    #[arg(long, value_name = "HOUR", default_value = "2026-11-01T00", value_parser = parse_hour)]
    pub start: Hour,
    /// Part of the events that arrive a minute to six hours late, from 0 to 1
    #[arg(long, value_name = "PART", default_value = "0.01", value_parser = parse_part)]
    pub late_rate: u32,
    /// Part of the events that arrive twice, from 0 to 1
    #[arg(long, value_name = "PART", default_value = "0.01", value_parser = parse_part)]
    pub duplicate_rate: u32,
    /// Most events in one file
    #[arg(long, value_name = "COUNT", default_value_t = 20_000, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub events_per_file: u32,
    /// Where and how fast to send.
    #[command(flatten)]
    pub kafka: KafkaArgs,
}

/// Why nothing, or not everything, was generated.
#[derive(Debug, thiserror::Error)]
pub enum GenerateError {
    /// The folder holds something already: new files beside old ones would be another input.
    #[error("'{path}' is not empty; name a new folder, or empty this one first", path = .0.display())]
    FolderNotEmpty(PathBuf),
    /// A file could not be written.
    #[error(transparent)]
    Write(#[from] WriteError),
}

/// Writes or sends the events and says how many there are.
///
/// # Errors
/// See [`GenerateError`]: a folder that is not empty is an error of usage, the others are of storage. See
/// [`kafka::run`] besides.
pub fn run(args: &GenerateArgs) -> anyhow::Result<ExitCode> {
    if args.to.as_os_str() == KAFKA {
        return kafka::run(args);
    }
    if args.kafka != KafkaArgs::default() {
        let sentence =
            "--config, --bootstrap-servers, --topic and --rate are for --to kafka; leave them out for files";
        return Err(Failure::usage(sentence).into());
    }
    let written = generate(args, &prorata_connectors::archive::write_events);
    let written = written.map_err(|error| match error {
        GenerateError::FolderNotEmpty(_) => Failure::usage(error),
        GenerateError::Write(_) => Failure::storage(error),
    })?;
    let (events, files, bytes) = (written.events, written.files, written.bytes);
    println!("{events} events in {files} files, {bytes} bytes, in {}", args.to.display());
    Ok(ExitCode::SUCCESS)
}

/// Writes the events with this encoder of files.
fn generate(args: &GenerateArgs, encode: EncodeFile<'_>) -> Result<Written, GenerateError> {
    refuse_a_full_folder(&args.to)?;
    let progress = progress_bar(args.organizations * args.hours);
    let next = AtomicU64::new(0);
    let outcome: Mutex<Result<Written, GenerateError>> = Mutex::new(Ok(Written::default()));
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..cores {
            scope.spawn(|| {
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    if number >= args.organizations {
                        return;
                    }
                    let made = one_organization(args, encode, number, &progress);
                    let mut outcome = outcome.lock().unwrap_or_else(PoisonError::into_inner);
                    match (&*outcome, made) {
                        (Ok(so_far), Ok(made)) => *outcome = Ok(so_far.and(made)),
                        (Ok(_), Err(error)) => *outcome = Err(error),
                        (Err(_), _) => return,
                    }
                }
            });
        }
    });
    progress.finish_and_clear();
    outcome.into_inner().unwrap_or_else(PoisonError::into_inner)
}

fn one_organization(
    args: &GenerateArgs,
    encode: EncodeFile<'_>,
    number: u64,
    progress: &ProgressBar,
) -> Result<Written, GenerateError> {
    let start = args.start.start().0;
    let per_file = usize::try_from(args.events_per_file).unwrap_or(usize::MAX);
    let mut events = events_of(args, number);
    let mut files = Files::create(&args.to, events.source().id(), encode, per_file)?;
    let mut hours_shown = 0;
    while let Some(event) = events.next() {
        files.push(&event)?;
        let hours = u64::try_from((events.source().clock() - start) / (60 * MINUTE)).unwrap_or(0);
        if hours > hours_shown {
            progress.inc(hours - hours_shown);
            hours_shown = hours;
        }
    }
    progress.inc(args.hours.saturating_sub(hours_shown));
    Ok(files.finish()?)
}

/// Events of the organization with this number, in the order in which they are sent.
fn events_of(args: &GenerateArgs, number: u64) -> Disorder<Organization> {
    let start = args.start.start().0;
    let end = start + i64::try_from(args.hours).unwrap_or(i64::MAX) * 60 * MINUTE;
    let organization = Organization::new(number, args.seed, Run { start, end, pods: args.pods });
    let rates = Rates { late: args.late_rate, duplicate: args.duplicate_rate };
    Disorder::new(organization, rates, args.seed, number)
}

fn refuse_a_full_folder(folder: &Path) -> Result<(), GenerateError> {
    match std::fs::read_dir(folder) {
        Ok(entries) => match entries.count() {
            0 => Ok(()),
            _ => Err(GenerateError::FolderNotEmpty(folder.to_owned())),
        },
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
        Err(cause) => Err(WriteError::File { path: folder.to_owned(), cause }.into()),
    }
}

/// A bar of hours; it shows on a terminal only.
fn progress_bar(hours: u64) -> ProgressBar {
    let bar = ProgressBar::new(hours);
    if let Ok(style) = ProgressStyle::with_template("generating {bar:40} {pos}/{len} hours, {eta} left") {
        bar.set_style(style);
    }
    bar
}

/// A part from 0 to 1, in millionths.
fn parse_part(text: &str) -> Result<u32, String> {
    let part: Decimal12 = text.parse().map_err(|_| format!("'{text}' is not a decimal such as 0.01"))?;
    if part.is_negative() || part > Decimal12::ONE {
        return Err(format!("'{text}' is not between 0 and 1"));
    }
    u32::try_from(part.units() * 1_000_000 / ONE).map_err(|_| format!("'{text}' is not between 0 and 1"))
}

/// An hour such as `2026-11-01T00`.
fn parse_hour(text: &str) -> Result<Hour, String> {
    let refused = || format!("'{text}' is not an hour such as 2026-11-01T00");
    let (date, hour) = text.split_once('T').ok_or_else(refused)?;
    let mut parts = date.splitn(3, '-');
    let mut part = |digits: usize| {
        let text =
            parts.next().filter(|part| part.len() == digits && part.bytes().all(|b| b.is_ascii_digit()));
        text.and_then(|part| part.parse::<u16>().ok()).ok_or_else(refused)
    };
    let (year, month, day) = (part(4)?, part(2)?, part(2)?);
    let narrow = |number: u16| u8::try_from(number).map_err(|_| refused());
    let date = Date { year: i64::from(year), month: narrow(month)?, day: narrow(day)? };
    let hour: i64 = match hour.parse::<u8>() {
        Ok(number) if number < 24 && hour.len() == 2 => i64::from(number),
        _ => return Err(refused()),
    };
    if Date::from_days(date.days()) != date {
        return Err(refused());
    }
    Ok(Hour(date.days() * 24 + hour))
}
