//! Conformance of [`DeadLetterTopic`]: each promise is a check that the fake and the real thing both pass.
//!
//! What is sent is looked at as messages, as a consumer of the topic finds them.

mod letters;
mod sending;

use async_trait::async_trait;
use prorata_worker::ports::DeadLetter;
use prorata_worker::source::{DeadLetterTopic, Message};

use crate::conformance::{Checked, equal};

/// Where the suite runs.
#[async_trait]
pub trait Harness: Send + Sync {
    /// A topic that no check has used before.
    async fn place(&self) -> Result<Box<dyn Place>, String>;
}

/// A topic of dead letters.
#[async_trait]
pub trait Place: Send + Sync {
    /// The topic, as a new process sends to it.
    async fn topic(&self) -> Result<Box<dyn DeadLetterTopic>, String>;

    /// All messages that the brokers have now, those of each partition in their order.
    async fn messages(&self) -> Result<Vec<Message>, String>;

    /// Bytes of a large value that the topic takes, and how many of them in one call: more than any queue
    /// holds, where the topic can.
    fn large(&self) -> (usize, usize);

    /// Bytes of a value that the topic never takes. None: it takes any.
    fn too_large(&self) -> Option<usize>;

    /// The brokers answer no more, in the midst of a call or not; or they answer again. False: they always
    /// answer.
    async fn set_available(&self, available: bool) -> Result<bool, String>;
}

/// A check's place and what it had to leave out.
struct Stage {
    place: Box<dyn Place>,
    left_out: Vec<&'static str>,
}

/// Runs the suite, and returns what the harness could not do.
///
/// # Errors
/// The first promise that is not kept.
pub async fn dead_letter_topic(harness: &dyn Harness) -> Result<Vec<&'static str>, String> {
    let mut left_out = Vec::new();
    for check in Check::ALL {
        let mut stage = Stage { place: harness.place().await?, left_out: Vec::new() };
        check.run(&mut stage).await.map_err(|broken| format!("{}: {broken}", check.name()))?;
        left_out.append(&mut stage.left_out);
    }
    Ok(left_out)
}

/// The promises.
#[derive(Clone, Copy, Debug)]
enum Check {
    AsTheyCame,
    Files,
    Again,
    Once,
    AtOnce,
    Large,
    TooLarge,
    Unavailable,
}

impl Check {
    const ALL: [Self; 8] = [
        Self::AsTheyCame,
        Self::Files,
        Self::Again,
        Self::Once,
        Self::AtOnce,
        Self::Large,
        Self::TooLarge,
        Self::Unavailable,
    ];

    const fn name(self) -> &'static str {
        match self {
            Self::AsTheyCame => {
                "a letter has the bytes, key and headers that came, and says why and where from"
            }
            Self::Files => "a letter out of a file names the file",
            Self::Again => {
                "a letter that comes back says why it was rejected last, and nothing of the time before"
            }
            Self::Once => "letters are sent once per call, those of a key in their order",
            Self::AtOnce => "calls at the same time each wait for their own letters",
            Self::Large => "large letters are sent whole, however many",
            Self::TooLarge => "a letter that is too large is an error, and no other letter's",
            Self::Unavailable => {
                "brokers that do not answer are an error, and no letter is lost that is sent again"
            }
        }
    }

    async fn run(self, stage: &mut Stage) -> Checked {
        match self {
            Self::AsTheyCame => letters::as_they_came(stage).await,
            Self::Files => letters::files(stage).await,
            Self::Again => letters::again(stage).await,
            Self::Once => sending::once(stage).await,
            Self::AtOnce => sending::at_once(stage).await,
            Self::Large => sending::large(stage).await,
            Self::TooLarge => sending::too_large(stage).await,
            Self::Unavailable => sending::unavailable(stage).await,
        }
    }
}

impl Stage {
    /// Sends letters as a new process does, in one call, and returns what the topic then has.
    async fn sent(&self, letters: &[DeadLetter]) -> Result<Vec<Message>, String> {
        let topic = self.place.topic().await?;
        topic.send(letters).await.map_err(|error| error.to_string())?;
        self.place.messages().await
    }

    /// Sends one letter, and returns the message that it became.
    async fn sent_alone(&self, letter: &DeadLetter) -> Result<Message, String> {
        let before = self.place.messages().await?;
        let mut messages = self.sent(std::slice::from_ref(letter)).await?;
        messages.retain(|message| !before.contains(message));
        equal("messages of one letter", messages.len(), 1)?;
        messages.pop().ok_or_else(|| "no message".into())
    }
}

#[cfg(test)]
mod tests;
