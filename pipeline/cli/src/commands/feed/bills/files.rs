//! The files of one export of a bill, as the commands on bills name them, and the choice of its charges.

use std::collections::BTreeSet;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use prorata_bills::{BillError, BillFilter, BillFormat, BillImport, BillImporter, BillReport, PARTITIONS};
use prorata_schemas::event::Event;
use prorata_schemas::time::Timestamp;

use crate::failure::Failure;

/// The files of one export, and the choice of its charges.
#[derive(Clone, Debug, Args)]
pub struct BillFiles {
    /// Format of the files
    ///
    /// focus: FOCUS 1.0 to 1.4, of any provider. cur2, cur: AWS's Cost and Usage Report 2.0, or the legacy
    /// one. azure: cost details, actual or amortized. gcp: the detailed export of Cloud Billing.
    #[arg(value_enum)]
    pub format: FormatName,
    /// Files of one export: CSV, plain or in gzip, or Parquet; for gcp also JSON, one object a line
    #[arg(value_name = "FILE", required = true)]
    pub files: Vec<PathBuf>,
    /// Organization that pays the bill
    #[arg(long, value_name = "ID")]
    pub organization: String,
    /// Take all charges
    ///
    /// By default, the command takes charges of the resources in --key-file, charges that name a commitment
    /// or a capacity reservation, and charges of each --account.
    #[arg(long)]
    pub all: bool,
    /// Account, project or subscription whose charges are all taken; may be repeated
    #[arg(long = "account", value_name = "ID")]
    pub accounts: Vec<String>,
    /// File with the resource keys of known nodes, one a line
    #[arg(long, value_name = "FILE")]
    pub key_file: Option<PathBuf>,
}

/// A format of bills.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum FormatName {
    Focus,
    #[value(name = "cur2")]
    Cur2,
    Cur,
    Azure,
    Gcp,
}

impl From<FormatName> for BillFormat {
    fn from(name: FormatName) -> Self {
        match name {
            FormatName::Focus => Self::Focus,
            FormatName::Cur2 => Self::Cur2,
            FormatName::Cur => Self::Cur,
            FormatName::Azure => Self::Azure,
            FormatName::Gcp => Self::Gcp,
        }
    }
}

impl BillFiles {
    /// Reads the files, and passes an event for each set to `each`. Sets of the `previous` files that these
    /// files lack are retracted.
    ///
    /// # Errors
    /// If a file is wrong, if the lines do not fit on the disk, or an error of `each`.
    pub fn import(
        &self,
        recorded_at: Timestamp,
        previous: &[PathBuf],
        each: &mut dyn FnMut(Event) -> io::Result<()>,
    ) -> Result<BillReport, Failure> {
        if self.organization.is_empty() {
            return Err(Failure::usage("--organization is empty; name the organization that pays the bill"));
        }
        check_names(&self.files)?;
        let import = BillImport {
            format: self.format.into(),
            organization_id: self.organization.as_str().into(),
            recorded_at,
            filter: self.filter()?,
        };
        let partitions = (0..PARTITIONS).map(|_| tempfile::tempfile()).collect::<io::Result<Vec<File>>>();
        let mut importer = BillImporter::new(import, partitions.map_err(disk)?);
        for path in &self.files {
            importer.read(&path.display().to_string(), open(path)?).map_err(failure)?;
        }
        for path in previous {
            importer.read_previous(&path.display().to_string(), open(path)?).map_err(failure)?;
        }
        importer.finish(each).map_err(failure)
    }

    fn filter(&self) -> Result<BillFilter, Failure> {
        let mut filter = BillFilter::new(self.all, self.accounts.iter().cloned().collect());
        if let Some(path) = &self.key_file {
            let keys = std::fs::read_to_string(path)
                .map_err(|error| Failure::usage(format!("'{}': {error}", path.display())))?;
            keys.lines().map(str::trim).filter(|key| !key.is_empty()).for_each(|key| filter.add_key(key));
        }
        Ok(filter)
    }
}

/// Refuses a file that is named twice: its charges would count twice.
fn check_names(files: &[PathBuf]) -> Result<(), Failure> {
    let mut known = BTreeSet::new();
    for path in files {
        if !known.insert(path.canonicalize().unwrap_or_else(|_| path.clone())) {
            let message = format!("'{}' is named twice, so its charges would count twice", path.display());
            return Err(Failure::usage(message));
        }
    }
    Ok(())
}

fn open(path: &Path) -> Result<File, Failure> {
    let wrong = |what: &dyn std::fmt::Display| Failure::usage(format!("'{}': {what}", path.display()));
    if path.is_dir() {
        return Err(wrong(&"it is a folder; name the files in it"));
    }
    File::open(path).map_err(|error| wrong(&error))
}

fn failure(error: BillError) -> Failure {
    match error {
        BillError::Disk(_) => Failure::storage(error),
        _ => Failure::usage(error),
    }
}

/// Returns the failure for a disk that cannot hold the lines.
pub fn disk(error: io::Error) -> Failure {
    failure(BillError::Disk(error))
}
