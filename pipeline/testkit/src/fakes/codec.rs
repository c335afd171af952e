//! Archive files in memory, without Avro.

use std::io::Read;
use std::time::Duration;

use async_trait::async_trait;
use prorata_schemas::body::{self, EventRecordRef};
use prorata_schemas::event::EventKind;
use prorata_schemas::reject::{Reason, Reject};
use prorata_schemas::time::WallTime;
use prorata_worker::ports::{
    Archive, Clock, DeadLetter, EachRecord, FormatError, Origin, Position, Rejected,
};
use prorata_worker::source::Header;
use serde::{Deserialize, Serialize};

use sha2::{Digest, Sha256};

/// Archive files that consist of a digest and a list of kinds and bodies. The digest detects all damage.
#[derive(Clone, Copy, Debug, Default)]
pub struct FakeArchive;

impl Archive for FakeArchive {
    fn read(&self, file: &mut dyn Read, each: EachRecord<'_>) -> std::io::Result<()> {
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes)?;
        let records = match unseal::<Vec<(EventKind, Vec<u8>)>>(&bytes) {
            Ok(records) => records,
            Err(cause) => {
                each(None, Err(Rejected { reject: Reject::malformed(cause), bytes }));
                return Ok(());
            }
        };
        for (record, (kind, body)) in records.into_iter().enumerate() {
            let position = Position { block: 0, byte: 0, record: Some(record as u64) };
            let decoded = body::decode_ref(kind, &body);
            let record = decoded.map(|event| EventRecordRef { event, body: body.clone().into() });
            each(Some(position), record.map_err(|reject| Rejected { reject, bytes: body.clone() }));
        }
        Ok(())
    }

    fn write(&self, events: &[(EventKind, &[u8])]) -> Result<Vec<u8>, FormatError> {
        seal("encode events", events)
    }

    fn write_dead_letters(&self, letters: &[DeadLetter]) -> Result<Vec<u8>, FormatError> {
        let letters: Vec<Letter> = letters.iter().cloned().map(Letter::from).collect();
        seal("encode dead letters", &letters)
    }

    fn read_dead_letters(&self, bytes: &[u8]) -> Result<Vec<DeadLetter>, FormatError> {
        let letters: Vec<Letter> =
            unseal(bytes).map_err(|cause| FormatError::new("decode dead letters", cause))?;
        Ok(letters.into_iter().map(DeadLetter::from).collect())
    }
}

/// Length of a digest, in bytes.
const DIGEST: usize = 32;

fn seal<T: Serialize + ?Sized>(operation: &'static str, content: &T) -> Result<Vec<u8>, FormatError> {
    let bytes = postcard::to_stdvec(content).map_err(|error| FormatError::new(operation, error))?;
    Ok([&Sha256::digest(&bytes)[..], &bytes].concat())
}

fn unseal<T: for<'de> Deserialize<'de>>(sealed: &[u8]) -> Result<T, String> {
    let (digest, bytes) =
        sealed.split_first_chunk::<DIGEST>().ok_or("the file is too short for its digest")?;
    if Sha256::digest(bytes)[..] != digest[..] {
        return Err("the file does not match its digest".into());
    }
    postcard::from_bytes(bytes).map_err(|error| error.to_string())
}

/// A dead letter in files of the fake.
#[derive(Serialize, Deserialize)]
struct Letter {
    reason: Reason,
    message: String,
    bytes: Vec<u8>,
    place: Place,
}

#[derive(Serialize, Deserialize)]
enum Place {
    File(String, Option<(u64, u64, Option<u64>)>),
    Message(String, i32, i64, i64, Option<Vec<u8>>, Vec<Header>),
}

impl From<DeadLetter> for Letter {
    fn from(letter: DeadLetter) -> Self {
        let place = match letter.origin {
            Origin::File { path, position } => {
                Place::File(path, position.map(|at| (at.block, at.byte, at.record)))
            }
            Origin::Message { topic, partition, offset, timestamp_millis, key, headers } => {
                Place::Message(topic, partition, offset, timestamp_millis, key, headers)
            }
        };
        let Rejected { reject: Reject { reason, message }, bytes } = letter.rejected;
        Self { reason, message, bytes, place }
    }
}

impl From<Letter> for DeadLetter {
    fn from(letter: Letter) -> Self {
        let origin = match letter.place {
            Place::File(path, at) => {
                let position = at.map(|(block, byte, record)| Position { block, byte, record });
                Origin::File { path, position }
            }
            Place::Message(topic, partition, offset, timestamp_millis, key, headers) => {
                Origin::Message { topic, partition, offset, timestamp_millis, key, headers }
            }
        };
        let reject = Reject::new(letter.reason, letter.message);
        Self { origin, rejected: Rejected { reject, bytes: letter.bytes } }
    }
}

/// A clock that always shows the same time.
#[derive(Clone, Copy, Debug)]
pub struct StoppedClock(pub WallTime);

#[async_trait]
impl Clock for StoppedClock {
    fn now(&self) -> WallTime {
        self.0
    }

    fn monotonic(&self) -> Duration {
        Duration::ZERO
    }

    async fn pause(&self, _duration: Duration) {}
}
