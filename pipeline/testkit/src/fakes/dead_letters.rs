//! The topic of dead letters in memory.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use bytes::Bytes;
use prorata_worker::dead_letters::{message_headers, message_key};
use prorata_worker::ports::DeadLetter;
use prorata_worker::source::{DeadLetterTopic, Message, SourceError};

use super::faults::{Effect, Faults};

/// The topic of dead letters in memory. Clones share the topic; each process has its own faults.
#[derive(Clone, Debug, Default)]
pub struct FakeDeadLetterTopic {
    topic: Arc<Mutex<Topic>>,
    faults: Faults,
}

#[derive(Debug, Default)]
struct Topic {
    letters: Vec<DeadLetter>,
    /// Number of letters that the topic takes before it stops responding; `None` if there is no limit.
    room: Option<usize>,
    /// Maximum size of a value that the topic takes, in bytes; `None` if there is no limit.
    largest: Option<usize>,
}

impl FakeDeadLetterTopic {
    /// Returns this topic for a process with these faults.
    pub fn with_faults(&self, faults: Faults) -> Self {
        Self { topic: Arc::clone(&self.topic), faults }
    }

    /// Returns all letters sent so far. A letter that was sent twice appears twice.
    pub fn letters(&self) -> Vec<DeadLetter> {
        lock(&self.topic).letters.clone()
    }

    /// Returns all letters sent so far, as messages of one partition.
    pub fn messages(&self) -> Vec<Message> {
        let message = |(offset, letter): (i64, &DeadLetter)| Message {
            topic: "dead-letters".into(),
            partition: 0,
            offset,
            timestamp_millis: -1,
            key: message_key(letter).map(Bytes::copy_from_slice),
            value: Some(letter.rejected.bytes.clone().into()),
            headers: message_headers(letter),
        };
        (0..).zip(&lock(&self.topic).letters).map(message).collect()
    }

    /// Makes the topic fail after this many more letters, even in the middle of a call; `None` if it does not
    /// fail.
    pub fn set_room(&self, letters: Option<usize>) {
        lock(&self.topic).room = letters;
    }

    /// Makes the topic refuse letters whose value has more bytes than this; `None` removes the limit.
    pub fn set_largest(&self, bytes: Option<usize>) {
        lock(&self.topic).largest = bytes;
    }
}

#[async_trait]
impl DeadLetterTopic for FakeDeadLetterTopic {
    async fn send(&self, letters: &[DeadLetter]) -> Result<(), SourceError> {
        let (topic, letters) = (Arc::clone(&self.topic), letters.to_vec());
        let send = move || lock(&topic).take(&letters);
        let sent = self.faults.effect(Effect::Send, "dead letters", send).await;
        let unavailable = |cause: &str| SourceError::Unavailable(cause.to_owned());
        match sent.map_err(|failed| unavailable(failed.cause))? {
            Sent::All => Ok(()),
            Sent::AllButLarge => Err(SourceError::TooLarge("a letter is too large".into())),
            Sent::NotAll => Err(unavailable("no broker answers")),
        }
    }
}

/// The outcome of sending.
#[derive(Clone, Copy, Debug)]
enum Sent {
    All,
    AllButLarge,
    NotAll,
}

impl Topic {
    /// Keeps as many letters as there is room for.
    fn take(&mut self, letters: &[DeadLetter]) -> Sent {
        let fits = |letter: &&DeadLetter| self.largest.is_none_or(|most| letter.rejected.bytes.len() <= most);
        let fitting: Vec<DeadLetter> = letters.iter().filter(fits).cloned().collect();
        let taken = self.room.map_or(fitting.len(), |room| room.min(fitting.len()));
        self.room = self.room.map(|room| room - taken);
        let all = taken == fitting.len();
        let fit = fitting.len() == letters.len();
        self.letters.extend(fitting.into_iter().take(taken));
        match (all, fit) {
            (false, _) => Sent::NotAll,
            (true, false) => Sent::AllButLarge,
            (true, true) => Sent::All,
        }
    }
}

fn lock(topic: &Mutex<Topic>) -> MutexGuard<'_, Topic> {
    topic.lock().unwrap_or_else(PoisonError::into_inner)
}
