//! Files of generated events: `<folder>/<organization>/<number>.avro`, each with at most a set number of events.

use std::path::{Path, PathBuf};
use std::{fs, io};

use prorata_schemas::body;
use prorata_schemas::event::{Event, EventKind};

/// Makes one archive file of canonical bodies.
pub type EncodeFile<'a> = &'a (dyn Fn(&[(EventKind, &[u8])]) -> io::Result<Vec<u8>> + Sync);

/// Why files could not be written.
#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    /// The file system refused.
    #[error("failed to write '{path}': {cause}", path = .path.display())]
    File { path: PathBuf, cause: io::Error },
    /// The archive format refused; its message says why.
    #[error("failed to encode '{path}': {cause}", path = .path.display())]
    Encode { path: PathBuf, cause: io::Error },
}

/// What was written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Written {
    pub events: u64,
    pub files: u64,
    pub bytes: u64,
}

impl Written {
    /// Both together.
    pub const fn and(self, other: Self) -> Self {
        Self {
            events: self.events + other.events,
            files: self.files + other.files,
            bytes: self.bytes + other.bytes,
        }
    }
}

/// Files of one organization under construction. Bodies are kept for one file only.
pub struct Files<'a> {
    folder: PathBuf,
    encode: EncodeFile<'a>,
    events_per_file: usize,
    bodies: Vec<(EventKind, Vec<u8>)>,
    written: Written,
}

impl<'a> Files<'a> {
    /// Creates the folder for an organization's files.
    ///
    /// # Errors
    /// [`WriteError::File`] when the folder cannot be created.
    pub fn create(
        root: &Path,
        organization_id: &str,
        encode: EncodeFile<'a>,
        events_per_file: usize,
    ) -> Result<Self, WriteError> {
        let folder = root.join(organization_id);
        fs::create_dir_all(&folder).map_err(|cause| WriteError::File { path: folder.clone(), cause })?;
        let events_per_file = events_per_file.max(1);
        Ok(Self { folder, encode, events_per_file, bodies: Vec::new(), written: Written::default() })
    }

    /// Adds an event; writes a file when it is full.
    ///
    /// # Errors
    /// Those of [`Files::finish`].
    pub fn push(&mut self, event: &Event) -> Result<(), WriteError> {
        self.bodies.push((event.payload.kind(), body::encode(event)));
        self.written.events += 1;
        if self.bodies.len() < self.events_per_file { Ok(()) } else { self.flush() }
    }

    /// Writes what is left and answers how much was written in all.
    ///
    /// # Errors
    /// [`WriteError`] when a file cannot be encoded or written; files before it stay.
    pub fn finish(mut self) -> Result<Written, WriteError> {
        if !self.bodies.is_empty() {
            self.flush()?;
        }
        Ok(self.written)
    }

    fn flush(&mut self) -> Result<(), WriteError> {
        let path = self.folder.join(format!("{:04}.avro", self.written.files));
        let bodies: Vec<(EventKind, &[u8])> =
            self.bodies.iter().map(|(kind, body)| (*kind, body.as_slice())).collect();
        let file =
            (self.encode)(&bodies).map_err(|cause| WriteError::Encode { path: path.clone(), cause })?;
        self.written.bytes += u64::try_from(file.len()).unwrap_or(u64::MAX);
        fs::write(&path, file).map_err(|cause| WriteError::File { path, cause })?;
        self.written.files += 1;
        self.bodies.clear();
        Ok(())
    }
}
