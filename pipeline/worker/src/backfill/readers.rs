//! Threads that each read and decode one foreign file at a time, and feed a bounded queue.

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZero;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use prorata_schemas::body::EventRecordRef;
use prorata_schemas::event::EventKind;
use prorata_schemas::reject::{Reason, Reject};
use prorata_schemas::rules::Rules;
use prorata_schemas::time::Hour;
use tokio::runtime::Handle;
use tokio::sync::mpsc::{self, Receiver, Sender};

use crate::names::{ObjectId, Shard};
use crate::ports::{
    Archive, DeadLetter, ErrorKind, Input, InputFile, Origin, Position, Rejected, StoreError,
};
use crate::root::Root;
use crate::root::organizations::AllowedOrganizations;
use crate::shard::clock::{ClockLimit, HistoryLimit};
use crate::shard::rules::RulesByHour;

/// Number of events at which a message of the queue is complete.
const BATCH_EVENTS: usize = 1_024;

/// Maximum number of messages in the queue.
const QUEUE_BATCHES: usize = 16;

/// Maximum number of dead letters in one file.
pub(super) const DEAD_LETTERS_MAX: usize = 1_000;

/// Bytes of dead letters at which a file is complete.
const DEAD_LETTERS_BYTES: usize = 4 << 20;

/// Maximum number of dead letters of one block with the same reason. One more dead letter covers the rest of
/// the block, because a block of a few bytes may unpack to millions of records.
const REPEATED_MAX: u64 = 1_000;

/// An event on its way to the archive.
pub(super) struct Arrival {
    pub shard: Shard,
    pub hour: Hour,
    pub kind: EventKind,
    pub body: Box<[u8]>,
}

/// A message of a reader.
pub(super) enum Read {
    /// Events, in the order of their file.
    Events(Vec<Arrival>),
    /// Rejected records of one file, in file order. A second read of the file gives the same messages.
    DeadLetters(Vec<DeadLetter>),
    /// The end of a file.
    Done,
    /// A file that was listed but no longer exists.
    Gone(InputFile),
    /// An error of storage: a file's bytes could not be read.
    Failed(StoreError),
}

/// The context that readers share.
pub(super) struct Reading {
    pub input: Arc<dyn Input>,
    pub archive: Arc<dyn Archive>,
    pub root: Root,
    pub files: Vec<InputFile>,
    /// Rules that define the currencies of organizations, by shard; `default_rules` for all other shards.
    pub rules: BTreeMap<Shard, RulesByHour>,
    pub default_rules: Arc<Rules>,
    /// The only shards whose events are judged; all others belong to another run. `None` for all shards.
    pub only: Option<BTreeSet<Shard>>,
    /// Shards whose events are not judged, because they are left out.
    pub left_out: BTreeSet<Shard>,
    /// The organizations whose events files may bring; `None` if any organization is allowed.
    pub organizations: Option<AllowedOrganizations>,
    /// The limit on how far in the future an event may lie. A worker has rejected later events or will reject
    /// them, and a copy of its topic must not restore them.
    pub clock_limit: ClockLimit,
    /// The age limit of events, by shard; `default_history` for all other shards.
    pub history: BTreeMap<Shard, HistoryLimit>,
    pub default_history: HistoryLimit,
}

/// Starts `threads` readers over all files, or one per core if `threads` is 0. Returns the queue of their
/// messages.
pub(super) fn start(reading: Reading, threads: usize) -> Receiver<Read> {
    let (sender, receiver) = mpsc::channel(QUEUE_BATCHES);
    let reading = Arc::new(reading);
    let next = Arc::new(AtomicUsize::new(0));
    let threads = match threads {
        0 => thread::available_parallelism().map_or(1, NonZero::get),
        threads => threads,
    };
    for _ in 0..threads {
        let (reading, next, sender) = (Arc::clone(&reading), Arc::clone(&next), sender.clone());
        let runtime = Handle::current();
        tokio::task::spawn_blocking(move || {
            while let Some(file) = reading.files.get(next.fetch_add(1, Ordering::Relaxed)) {
                if read_file(&reading, file, &runtime, &sender).is_err() {
                    return;
                }
            }
        });
    }
    receiver
}

/// The error that the receiver of the queue is gone.
struct Stopped;

fn read_file(
    reading: &Reading,
    file: &InputFile,
    runtime: &Handle,
    sender: &Sender<Read>,
) -> Result<(), Stopped> {
    let mut taker = Taker {
        reading,
        file,
        sender,
        events: Vec::new(),
        dead_letters: Vec::new(),
        dead_letter_bytes: 0,
        block: None,
        rejected: BTreeMap::new(),
        stopped: false,
    };
    match runtime.block_on(reading.input.open(file)) {
        Ok(mut source) => {
            let read =
                reading.archive.read(&mut *source, &mut |position, record| taker.take(position, record));
            if let Err(error) = read {
                let failed = match StoreError::io("read", &file.path, error) {
                    error if is_gone(&error, file) => Read::Gone(file.clone()),
                    error => Read::Failed(error),
                };
                return sender.blocking_send(failed).map_err(|_| Stopped);
            }
        }
        Err(error) if is_gone(&error, file) => {
            return sender.blocking_send(Read::Gone(file.clone())).map_err(|_| Stopped);
        }
        Err(error) => {
            let reject = Reject::malformed(format!("the file cannot be opened: {}", error.source));
            taker.take(None, Err(Rejected { reject, bytes: Vec::new() }));
        }
    }
    taker.send_events();
    taker.end_block();
    taker.send_dead_letters();
    taker.send(Read::Done);
    if taker.stopped { Err(Stopped) } else { Ok(()) }
}

/// Returns whether an error means that a file of a root's archive is missing. The owner of the root may have
/// merged it meanwhile.
fn is_gone(error: &StoreError, file: &InputFile) -> bool {
    error.kind == ErrorKind::Missing && folder_of_archive(&file.path).is_some()
}

/// Returns the folder of an archive file, whose other files belong to the same hour. Returns `None` if `path`
/// is not the path of an archive file.
pub(super) fn folder_of_archive(path: &str) -> Option<&str> {
    let (folder, name) = path.rsplit_once('/')?;
    ObjectId::parse(name.strip_suffix(".avro")?)?;
    Some(folder)
}

struct Taker<'a> {
    reading: &'a Reading,
    file: &'a InputFile,
    sender: &'a Sender<Read>,
    events: Vec<Arrival>,
    dead_letters: Vec<DeadLetter>,
    dead_letter_bytes: usize,
    /// The current block.
    block: Option<u64>,
    /// The rejected records of the current block.
    rejected: BTreeMap<Reason, Repeated>,
    stopped: bool,
}

/// Rejected records of one block and reason.
#[derive(Default)]
struct Repeated {
    count: u64,
    /// The first record without a dead letter of its own.
    first: Option<DeadLetter>,
}

impl Taker<'_> {
    fn take(&mut self, position: Option<Position>, record: Result<EventRecordRef<'_>, Rejected>) {
        if self.stopped {
            return;
        }
        match record.and_then(|record| self.judge(record)) {
            Ok(arrival) => {
                self.events.push(arrival);
                if self.events.len() >= BATCH_EVENTS {
                    self.send_events();
                }
            }
            Err(rejected) => self.reject(position, rejected),
        }
    }

    fn reject(&mut self, position: Option<Position>, rejected: Rejected) {
        let block = position.map(|position| position.block);
        if self.block != block {
            self.end_block();
            self.block = block;
        }
        let repeated = self.rejected.entry(rejected.reject.reason).or_default();
        repeated.count += 1;
        if repeated.count > REPEATED_MAX && repeated.first.is_some() {
            return;
        }
        let origin = Origin::File { path: self.file.path.clone(), position };
        let letter = DeadLetter { origin, rejected };
        if repeated.count > REPEATED_MAX {
            repeated.first = Some(letter);
        } else {
            self.push_dead_letter(letter);
        }
    }

    /// Adds the dead letters that cover the rest of a block.
    fn end_block(&mut self) {
        for (_, Repeated { count, first }) in std::mem::take(&mut self.rejected) {
            let Some(mut letter) = first else { continue };
            let others = count - REPEATED_MAX - 1;
            if others > 0 {
                let message = &mut letter.rejected.reject.message;
                message.push_str(&format!(
                    "; {others} more records of this block are rejected for the same reason, and only the \
                     file has them: fix it, and run the backfill again"
                ));
            }
            self.push_dead_letter(letter);
        }
    }

    fn push_dead_letter(&mut self, letter: DeadLetter) {
        self.dead_letter_bytes += letter.rejected.bytes.len();
        self.dead_letters.push(letter);
        if self.dead_letters.len() >= DEAD_LETTERS_MAX || self.dead_letter_bytes >= DEAD_LETTERS_BYTES {
            self.send_dead_letters();
        }
    }

    /// Judges a record by the configuration and the clock. An organization's prices must be in its own
    /// currency, and no event may lie in the future or be too old. Events of shards that this run leaves
    /// alone are not judged.
    fn judge(&self, record: EventRecordRef<'_>) -> Result<Arrival, Rejected> {
        let EventRecordRef { event, body } = record;
        let (event_time, kind) = (event.event_time(), event.kind());
        let hour = event_time.hour();
        let shard = self.reading.root.shard_of(event.organization_id());
        let listed = self.reading.rules.get(&shard).and_then(|rules| rules.of(hour));
        let rules = listed.unwrap_or(&self.reading.default_rules);
        let history = self.reading.history.get(&shard).unwrap_or(&self.reading.default_history);
        let foreign = || match &self.reading.organizations {
            Some(organizations) if !organizations.contains(event.organization_id()) => {
                let id = event.organization_id();
                let message = format!("organization '{id}' is not one of --organization");
                Err(Reject::new(Reason::ForeignOrganization, message))
            }
            _ => Ok(()),
        };
        let in_time = || {
            self.reading.clock_limit.check(event_time)?;
            history.check(event_time)
        };
        let is_ours = self.reading.only.as_ref().is_none_or(|only| only.contains(&shard))
            && !self.reading.left_out.contains(&shard);
        let judged = match is_ours {
            true => foreign().and_then(|()| rules.check_ref(&event)).and_then(|()| in_time()),
            false => Ok(()),
        };
        match judged {
            Err(reject) => Err(Rejected { reject, bytes: body.into_vec() }),
            Ok(()) => Ok(Arrival { shard, hour, kind, body }),
        }
    }

    fn send_events(&mut self) {
        let events = std::mem::take(&mut self.events);
        if !events.is_empty() {
            self.send(Read::Events(events));
        }
    }

    fn send_dead_letters(&mut self) {
        let dead_letters = std::mem::take(&mut self.dead_letters);
        self.dead_letter_bytes = 0;
        if !dead_letters.is_empty() {
            self.send(Read::DeadLetters(dead_letters));
        }
    }

    fn send(&mut self, read: Read) {
        self.stopped = self.stopped || self.sender.blocking_send(read).is_err();
    }
}
