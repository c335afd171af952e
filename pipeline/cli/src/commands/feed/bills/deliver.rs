//! Where the events of a bill go: to a file, a folder or URL, or Kafka.
//!
//! All events are in a temporary file before the first leaves it. So an import that fails writes nothing.

use std::fs::File;
use std::io::{self, BufReader, BufWriter, Read, Seek, Write};
use std::path::PathBuf;

use prorata_connectors::archive::EventFileWriter;
use prorata_schemas::body;
use prorata_schemas::event::{Event, EventKind};
use prorata_worker::ports::ObjectStore;

use crate::archive_file::{archive_file_of, borrowed};
use crate::commands::feed::prices::replace;
use crate::commands::generate::kafka::{EventSender, KafkaArgs};
use crate::failure::Failure;
use crate::wiring;

/// Number of bytes of events that are in memory together.
const CHUNK_BYTES: usize = 16 << 20;

/// Events of one kind on their way to a destination.
pub struct Spool {
    kind: EventKind,
    file: BufWriter<File>,
    count: u64,
}

impl Spool {
    /// Creates an empty spool for events of a kind.
    ///
    /// # Errors
    /// If there is no room for a temporary file.
    pub fn create(kind: EventKind) -> io::Result<Self> {
        Ok(Self { kind, file: BufWriter::new(tempfile::tempfile()?), count: 0 })
    }

    /// Adds an event.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn push(&mut self, event: &Event) -> io::Result<()> {
        let body = body::encode(event);
        self.count += 1;
        self.file.write_all(&u64::try_from(body.len()).unwrap_or(u64::MAX).to_le_bytes())?;
        self.file.write_all(&body)
    }

    /// Passes all bodies to `each`, some megabytes at a time.
    fn drain(
        self,
        mut each: impl FnMut(&[(EventKind, Vec<u8>)]) -> anyhow::Result<()>,
    ) -> anyhow::Result<()> {
        let mut file = self.file.into_inner().map_err(io::IntoInnerError::into_error)?;
        file.rewind()?;
        let mut file = BufReader::new(file);
        let (mut bodies, mut bytes) = (Vec::new(), 0);
        for _ in 0..self.count {
            let mut length = [0; 8];
            file.read_exact(&mut length)?;
            let mut body = vec![0; usize::try_from(u64::from_le_bytes(length))?];
            file.read_exact(&mut body)?;
            bytes += body.len();
            bodies.push((self.kind, body));
            if bytes >= CHUNK_BYTES {
                each(&bodies)?;
                (bodies, bytes) = (Vec::new(), 0);
            }
        }
        if bodies.is_empty() { Ok(()) } else { each(&bodies) }
    }
}

/// Where the events of a bill go.
pub enum BillDestination<'a> {
    /// Nowhere: the files are only checked.
    Nowhere,
    /// One Avro file.
    File(PathBuf),
    /// A folder or URL.
    Store(&'a str),
    /// Topics.
    Kafka(&'a KafkaArgs),
}

impl<'a> BillDestination<'a> {
    /// Returns the destination that the arguments name. `inputs` are the files that the command reads.
    ///
    /// # Errors
    /// If the arguments contradict each other, or the destination is one of the inputs.
    pub fn of<'i>(
        output: Option<&'a str>,
        kafka: &'a KafkaArgs,
        inputs: impl IntoIterator<Item = &'i PathBuf>,
    ) -> Result<Self, Failure> {
        if output != Some("kafka") && *kafka != KafkaArgs::default() {
            let message =
                "--config, --bootstrap-servers, --topic and --rate are for --output kafka; leave them out";
            return Err(Failure::usage(message));
        }
        Ok(match output {
            None => Self::Nowhere,
            Some("kafka") => Self::Kafka(kafka),
            Some(name) if name.ends_with(".avro") && !name.contains("://") => {
                let path = PathBuf::from(name);
                if inputs.into_iter().any(|input| *input == path) {
                    return Err(Failure::usage("--output names one of the files; name another file"));
                }
                Self::File(path)
            }
            Some(name) => Self::Store(name),
        })
    }

    /// Writes or sends the events. Returns the place, for the report.
    ///
    /// # Errors
    /// If they cannot be written or sent.
    pub fn deliver(self, organization_id: &str, spool: Spool) -> anyhow::Result<String> {
        match self {
            Self::Nowhere => Ok("only checked, not written".to_owned()),
            Self::File(to) => {
                replace(&to, |file| write_events(file, spool)).map_err(|error| {
                    Failure::storage(format!("failed to write '{}': {error}", to.display()))
                })?;
                Ok(format!("in '{}'", to.display()))
            }
            Self::Store(to) => store(to, organization_id, spool),
            Self::Kafka(args) => {
                let mut sender = EventSender::open(args)?;
                spool.drain(|bodies| {
                    for (kind, body) in bodies {
                        sender.send(*kind, organization_id, body)?;
                    }
                    Ok(())
                })?;
                Ok(sender.finish()?)
            }
        }
    }
}

fn write_events(file: &File, spool: Spool) -> anyhow::Result<()> {
    let mut events = EventFileWriter::new(BufWriter::new(file));
    spool.drain(|bodies| Ok(events.append(&borrowed(bodies))?))?;
    events.finish()?.into_inner().map_err(io::IntoInnerError::into_error)?;
    Ok(())
}

/// Writes files that are named by a hash of their content, so that equal events give equal files.
fn store(to: &str, organization_id: &str, spool: Spool) -> anyhow::Result<String> {
    let store = wiring::store(to)?;
    let runtime = wiring::small_runtime()?;
    let mut files = 0_u64;
    spool.drain(|bodies| {
        let (name, file) = archive_file_of(bodies)?;
        let path = format!("{organization_id}/bills-{name}.avro");
        let written = runtime.block_on(store.put_if_absent(&path, file.into()));
        written.map_err(|error| {
            let fix = "run the command again, with the same --recorded-at";
            Failure::storage(format!("{error}; {files} files are written: {fix}"))
        })?;
        files += 1;
        Ok(())
    })?;
    Ok(format!("in {files} files of {to}"))
}
