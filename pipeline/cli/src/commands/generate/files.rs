//! Generated events as files: `<folder>/<organization>/<number>.avro`, each with at most a given number of
//! events.
//!
//! Organizations are generated in parallel, one per core. The files depend only on the arguments.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::{fs, io};

use indicatif::ProgressBar;
use prorata_generate::Load;
use prorata_schemas::body;
use prorata_schemas::event::{Event, EventKind};
use prorata_schemas::time::HOUR_MICROS;

use super::progress_bar;

/// Encodes canonical bodies as one archive file.
pub type EncodeFile<'a> = &'a (dyn Fn(&[(EventKind, &[u8])]) -> io::Result<Vec<u8>> + Sync);

/// The reason that files could not be written.
#[derive(Debug, thiserror::Error)]
pub enum FilesError {
    /// The folder is not empty: new files would mix with another input.
    #[error("'{path}' is not empty; name a new folder, or empty this one first", path = .0.display())]
    FolderNotEmpty(PathBuf),
    /// The file system returned an error.
    #[error("failed to write '{path}': {source}", path = .path.display())]
    Write { path: PathBuf, source: io::Error },
    /// The archive format returned an error, whose message says why.
    #[error("failed to encode '{path}': {source}", path = .path.display())]
    Encode { path: PathBuf, source: io::Error },
}

/// Totals of the written files.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Written {
    pub events: u64,
    pub files: u64,
    pub bytes: u64,
}

impl Written {
    /// Returns the sum of both totals.
    const fn plus(self, other: Self) -> Self {
        Self {
            events: self.events + other.events,
            files: self.files + other.files,
            bytes: self.bytes + other.bytes,
        }
    }
}

/// Writes the events of this load into an empty or missing folder.
///
/// # Errors
/// See [`FilesError`]. Files that were written before an error stay.
pub fn generate(
    load: &Load,
    folder: &Path,
    events_per_file: u32,
    encode: EncodeFile<'_>,
) -> Result<Written, FilesError> {
    refuse_a_full_folder(folder)?;
    let run = Run {
        load,
        folder,
        events_per_file: usize::try_from(events_per_file).unwrap_or(usize::MAX),
        encode,
        progress: progress_bar(load.organizations * load.hours),
        next: AtomicU64::new(0),
        outcome: Mutex::new(Ok(Written::default())),
    };
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..cores {
            scope.spawn(|| run.work());
        }
    });
    run.progress.finish_and_clear();
    run.outcome.into_inner().unwrap_or_else(PoisonError::into_inner)
}

/// State that the threads share.
struct Run<'a> {
    load: &'a Load,
    folder: &'a Path,
    events_per_file: usize,
    encode: EncodeFile<'a>,
    progress: ProgressBar,
    /// Number of the next organization.
    next: AtomicU64,
    outcome: Mutex<Result<Written, FilesError>>,
}

impl Run<'_> {
    /// Writes one organization after another, until all are written or one has failed.
    fn work(&self) {
        loop {
            let number = self.next.fetch_add(1, Ordering::Relaxed);
            if number >= self.load.organizations {
                return;
            }
            let written = self.organization(number);
            let mut outcome = self.outcome.lock().unwrap_or_else(PoisonError::into_inner);
            match (&*outcome, written) {
                (Ok(so_far), Ok(written)) => *outcome = Ok(so_far.plus(written)),
                (Ok(_), Err(error)) => *outcome = Err(error),
                (Err(_), _) => return,
            }
        }
    }

    fn organization(&self, number: u64) -> Result<Written, FilesError> {
        let start = self.load.start.start().0;
        let mut events = self.load.organization(number);
        let mut files = Files::create(self.folder, events.id(), self.encode, self.events_per_file)?;
        let mut hours_shown = 0;
        while let Some(event) = events.next() {
            files.push(&event)?;
            let hours = u64::try_from((events.clock().0 - start) / HOUR_MICROS).unwrap_or(0);
            if hours > hours_shown {
                self.progress.inc(hours - hours_shown);
                hours_shown = hours;
            }
        }
        self.progress.inc(self.load.hours.saturating_sub(hours_shown));
        files.finish()
    }
}

fn refuse_a_full_folder(folder: &Path) -> Result<(), FilesError> {
    match fs::read_dir(folder) {
        Ok(entries) => match entries.count() {
            0 => Ok(()),
            _ => Err(FilesError::FolderNotEmpty(folder.to_owned())),
        },
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(source) => Err(FilesError::Write { path: folder.to_owned(), source }),
    }
}

/// The files of one organization. The bodies of one file are buffered.
struct Files<'a> {
    folder: PathBuf,
    encode: EncodeFile<'a>,
    events_per_file: usize,
    bodies: Vec<(EventKind, Vec<u8>)>,
    written: Written,
}

impl<'a> Files<'a> {
    /// Creates the folder for an organization's files.
    fn create(
        root: &Path,
        organization_id: &str,
        encode: EncodeFile<'a>,
        events_per_file: usize,
    ) -> Result<Self, FilesError> {
        let folder = root.join(organization_id);
        fs::create_dir_all(&folder).map_err(|source| FilesError::Write { path: folder.clone(), source })?;
        let events_per_file = events_per_file.max(1);
        Ok(Self { folder, encode, events_per_file, bodies: Vec::new(), written: Written::default() })
    }

    /// Adds an event, and writes the file if it is then full.
    fn push(&mut self, event: &Event) -> Result<(), FilesError> {
        self.bodies.push((event.payload.kind(), body::encode(event)));
        self.written.events += 1;
        if self.bodies.len() < self.events_per_file { Ok(()) } else { self.flush() }
    }

    /// Writes the remaining events, and returns the totals of all files.
    fn finish(mut self) -> Result<Written, FilesError> {
        if !self.bodies.is_empty() {
            self.flush()?;
        }
        Ok(self.written)
    }

    fn flush(&mut self) -> Result<(), FilesError> {
        let path = self.folder.join(format!("{:04}.avro", self.written.files));
        let bodies: Vec<(EventKind, &[u8])> =
            self.bodies.iter().map(|(kind, body)| (*kind, body.as_slice())).collect();
        let file =
            (self.encode)(&bodies).map_err(|source| FilesError::Encode { path: path.clone(), source })?;
        self.written.bytes += u64::try_from(file.len()).unwrap_or(u64::MAX);
        fs::write(&path, file).map_err(|source| FilesError::Write { path, source })?;
        self.written.files += 1;
        self.bodies.clear();
        Ok(())
    }
}
