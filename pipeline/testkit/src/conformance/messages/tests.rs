//! Tests that the fake keeps the promises, and that decoders that break a promise are caught.

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use prorata_schemas::body::{EventRecordRef, EventRef};
use prorata_schemas::event::{EventKind, EventRecord};
use prorata_schemas::reject::{Reason, Reject};
use prorata_worker::source::{DecodeFailure, MessageDecoder, RegistryError};

use super::{Answering, Harness, MessagePlace, PlaceMessage, Written, message_decoder};
use crate::conformance::fault_double::{FaultDouble, assert_caught};
use crate::fakes::{FakeMessages, FakeRegistry};

/// An id of a schema that is not registered at first.
const UNKNOWN: u32 = 1_000;
/// The first id of schemas of another version.
const EVOLVED: u32 = 100;

/// Makes places with the fake decoder; the decoder breaks a promise if there is a defect.
struct FakeMessageHarness(Option<DecoderDefect>);

struct FakeMessagePlace {
    registry: FakeRegistry,
    defect: Option<DecoderDefect>,
}

#[async_trait(?Send)]
impl Harness for FakeMessageHarness {
    type Place = dyn MessagePlace;

    async fn place(&self) -> Result<Box<dyn MessagePlace>, String> {
        let ids = (0..).take(EventKind::ALL.len()).flat_map(|id| [id, EVOLVED + id]);
        Ok(Box::new(FakeMessagePlace { registry: FakeRegistry::with(ids), defect: self.0 }))
    }
}

#[async_trait(?Send)]
impl MessagePlace for FakeMessagePlace {
    fn decoder(&self) -> Result<Box<dyn MessageDecoder>, String> {
        let honest = self.registry.decoder();
        Ok(match self.defect {
            Some(defect) => Box::new(FaultDouble { honest, defect, memory: Memory::default() }),
            None => Box::new(honest),
        })
    }

    async fn message(&self, kind: EventKind, body: &[u8], written: Written) -> PlaceMessage {
        let id = match written {
            Written::Newest | Written::Foreign => kind as u32,
            Written::Evolved => EVOLVED + kind as u32,
            Written::Unknown => UNKNOWN,
        };
        let kind = if written == Written::Foreign { u8::MAX } else { kind as u8 };
        Ok(Some([&id.to_be_bytes()[..], &[kind], body].concat()))
    }

    async fn register_unknown(&self) -> Result<bool, String> {
        self.registry.register(UNKNOWN);
        Ok(true)
    }

    async fn answer(&self, how: Answering) -> Result<bool, String> {
        self.registry.set_down(how == Answering::Failing);
        Ok(how != Answering::Silent)
    }

    fn asked(&self) -> Option<u64> {
        Some(self.registry.fetches())
    }

    fn strange(&self) -> Vec<Vec<u8>> {
        vec![vec![1], vec![0, 0, 0]]
    }

    fn settles_within(&self) -> Duration {
        Duration::ZERO
    }

    fn events(&self) -> Vec<EventRecord> {
        Vec::new()
    }
}

/// A promise that a decoder breaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum DecoderDefect {
    /// Decodes a message to another event.
    Misreads,
    /// Returns the body as it was sent.
    KeepsBody,
    /// Rejects schemas of other versions.
    RefusesEvolved,
    /// Decodes a cut message to an event.
    Completes,
    /// Rejects a cut message for another reason.
    Misjudges,
    /// Asks for a schema that a cut message cannot name.
    Guesses,
    /// Ignores bytes after the end.
    IgnoresTail,
    /// Asks for the schema of bytes that are not a message.
    AsksForNothing,
    /// Rejects without a message.
    SaysNothing,
    /// Reports every rejection as malformed.
    CallsAllMalformed,
    /// Needs a schema again after it was fetched.
    Forgets,
    /// Waits for the registry while it decodes.
    AsksByItself,
    /// Never stops needing a schema that the registry does not know.
    WaitsForUnknown,
    /// Asks twice.
    AsksTwice,
    /// Treats a registry that is down as a registry that does not know the schema.
    TakesDownForUnknown,
    /// Does not report that the registry is down.
    HidesDown,
    /// Never asks for a schema again after one failed request.
    GivesUp,
    /// Does not report the reason why the registry is unavailable.
    ComplainsWithoutWords,
}

/// Every defect, and the promise that it breaks.
const DEFECTS: [(DecoderDefect, &str); 18] = [
    (DecoderDefect::Misreads, "every event is read as it was sent: NodeStopped, the first time"),
    (DecoderDefect::KeepsBody, "the body of an event is the canonical one"),
    (DecoderDefect::RefusesEvolved, "an event is the same whichever compatible schema it was written with"),
    (DecoderDefect::Completes, "a message that is cut is malformed"),
    (DecoderDefect::Misjudges, "expected malformed"),
    (DecoderDefect::Guesses, "instead of"),
    (DecoderDefect::IgnoresTail, "a message that continues after its end is malformed"),
    (DecoderDefect::AsksForNothing, "nobody is asked: the value [01] needs schema 0"),
    (DecoderDefect::SaysNothing, "is rejected without a message"),
    (
        DecoderDefect::CallsAllMalformed,
        "what cannot be an event is rejected with its reason: an empty node_id",
    ),
    (DecoderDefect::Forgets, "is still needed after it was fetched"),
    (DecoderDefect::AsksByItself, "a message whose schema was never fetched became"),
    (DecoderDefect::WaitsForUnknown, "a schema that nobody knows rejects its messages"),
    (DecoderDefect::AsksTwice, "questions to the registry by fetching"),
    (DecoderDefect::TakesDownForUnknown, "no verdict on a message: Failing: no error, and then Err(Reject"),
    (DecoderDefect::HidesDown, "no verdict on a message: Failing: no error, and then Err(NeedsSchema"),
    (DecoderDefect::GivesUp, "no verdict on a message: the schema registry is unavailable: for ever"),
    (DecoderDefect::ComplainsWithoutWords, "an error without words"),
];

type Double = FaultDouble<FakeMessages, DecoderDefect, Memory>;

/// State of a double.
#[derive(Default)]
struct Memory {
    /// Schemas that could not be fetched.
    failed: Mutex<BTreeSet<u32>>,
    /// The event of the previous message.
    last: Mutex<Option<EventRecordRef<'static>>>,
}

fn kept<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn reject<T>(reason: Reason) -> Result<T, DecodeFailure> {
    Err(DecodeFailure::Reject(Reject::new(reason, "so it is")))
}

impl Double {
    fn alter_reject<'a>(
        &self,
        original: Reject,
        value: &'a [u8],
    ) -> Result<EventRecordRef<'a>, DecodeFailure> {
        let is_cut = original.reason == Reason::Malformed && value.len() > 4;
        match self.defect {
            DecoderDefect::Completes if is_cut => {
                let last = kept(&self.memory.last).clone();
                last.map_or_else(|| reject(Reason::Malformed), Ok)
            }
            DecoderDefect::Misjudges if is_cut => reject(Reason::InvalidField),
            DecoderDefect::IgnoresTail if is_cut => self.shorter(value),
            DecoderDefect::SaysNothing => Err(DecodeFailure::Reject(Reject::new(original.reason, " "))),
            DecoderDefect::CallsAllMalformed => {
                Err(DecodeFailure::Reject(Reject::malformed(original.message)))
            }
            DecoderDefect::WaitsForUnknown if original.reason == Reason::UnknownSchema => {
                Err(DecodeFailure::NeedsSchema(UNKNOWN))
            }
            _ => Err(DecodeFailure::Reject(original)),
        }
    }

    /// Decodes the beginning of the value to an event.
    fn shorter<'a>(&self, value: &'a [u8]) -> Result<EventRecordRef<'a>, DecodeFailure> {
        let event = (4..value.len()).find_map(|end| self.honest.decode(&value[..end]).ok());
        event.map_or_else(|| reject(Reason::Malformed), Ok)
    }
}

#[async_trait]
impl MessageDecoder for Double {
    fn decode<'a>(&self, value: &'a [u8]) -> Result<EventRecordRef<'a>, DecodeFailure> {
        let id = value.first_chunk::<4>().map_or(0, |id| u32::from_be_bytes(*id));
        match self.defect {
            DecoderDefect::Guesses if (1..4).contains(&value.len()) => {
                return Err(DecodeFailure::NeedsSchema(77));
            }
            DecoderDefect::AsksForNothing if value == [1] => return Err(DecodeFailure::NeedsSchema(0)),
            DecoderDefect::RefusesEvolved if (EVOLVED..UNKNOWN).contains(&id) => {
                return reject(Reason::UnknownEvent);
            }
            DecoderDefect::AsksByItself => {
                let _fetched = futures::executor::block_on(self.honest.fetch(id));
            }
            DecoderDefect::Forgets => return Err(DecodeFailure::NeedsSchema(id)),
            DecoderDefect::TakesDownForUnknown if kept(&self.memory.failed).contains(&id) => {
                return reject(Reason::UnknownSchema);
            }
            _ => {}
        }
        match self.honest.decode(value) {
            Ok(record) => {
                let EventRecord { mut event, mut body } = record.into_owned();
                match self.defect {
                    DecoderDefect::Misreads => event.organization_id = "another".into(),
                    DecoderDefect::KeepsBody => body = value[5..].into(),
                    _ => {}
                }
                let record = EventRecordRef { event: EventRef::Event(event), body };
                *kept(&self.memory.last) = Some(record.clone());
                Ok(record)
            }
            Err(DecodeFailure::Reject(original)) => self.alter_reject(original, value),
            needs => needs,
        }
    }

    async fn fetch(&self, schema_id: u32) -> Result<(), RegistryError> {
        if self.defect == DecoderDefect::GivesUp && kept(&self.memory.failed).contains(&schema_id) {
            return Err(RegistryError::transient("for ever"));
        }
        let fetched = self.honest.fetch(schema_id).await;
        if self.defect == DecoderDefect::AsksTwice {
            self.honest.fetch(schema_id).await?;
        }
        if fetched.is_err() {
            kept(&self.memory.failed).insert(schema_id);
        }
        match self.defect {
            DecoderDefect::TakesDownForUnknown | DecoderDefect::HidesDown => Ok(()),
            DecoderDefect::ComplainsWithoutWords => fetched.map_err(|_| RegistryError::transient("")),
            _ => fetched,
        }
    }
}

#[tokio::test]
async fn the_fake_of_messages_keeps_its_promises() {
    assert_eq!(message_decoder(&FakeMessageHarness(None)).await.unwrap(), ["registries that never answer"]);
}

#[tokio::test]
async fn a_decoder_that_breaks_any_promise_is_caught() {
    assert_caught(&DEFECTS, async |defect| message_decoder(&FakeMessageHarness(Some(defect))).await).await;
}
