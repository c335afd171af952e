//! Conformance of [`DeadLetterTopic`]. Each promise is a check that both the fake and the real implementation
//! pass.
//!
//! The checks read sent letters as messages, as a consumer of the topic does.

mod letters;
mod sending;

use async_trait::async_trait;
use futures::FutureExt;
use prorata_worker::ports::DeadLetter;
use prorata_worker::source::{DeadLetterTopic, Message};

use super::{Check, Checked, Harness, Suite, equal};

/// A topic of dead letters.
#[async_trait(?Send)]
pub trait DeadLetterPlace {
    /// Returns the topic, as a new process sends to it.
    async fn topic(&self) -> Result<Box<dyn DeadLetterTopic>, String>;

    /// Returns all messages that the brokers have now. Messages of one partition are in order.
    async fn messages(&self) -> Result<Vec<Message>, String>;

    /// Returns the size in bytes of a large value that the topic takes, and the number of such values to send
    /// in one call. Together, the values exceed any queue if the topic can take that many.
    fn large(&self) -> (usize, usize);

    /// Returns the size in bytes of a value that the topic never takes; `None` if it takes any size.
    fn too_large(&self) -> Option<usize>;

    /// Stops or restarts the responses of the brokers, even in the middle of a call. Returns `false` if they
    /// always respond.
    async fn set_available(&self, available: bool) -> Result<bool, String>;
}

type LetterStage = super::Stage<dyn DeadLetterPlace>;

/// Runs the suite, and returns what the harness could not do.
///
/// # Errors
/// Returns the first broken promise.
pub async fn dead_letter_topic(
    harness: &impl Harness<Place = dyn DeadLetterPlace>,
) -> Result<Vec<&'static str>, String> {
    let promises: Vec<(&'static str, Check<dyn DeadLetterPlace>)> = vec![
        ("a letter has the bytes, key and headers that came, and says why and where from", |stage| {
            letters::as_they_came(stage).boxed_local()
        }),
        ("a letter out of a file names the file", |stage| letters::files(stage).boxed_local()),
        ("a letter that comes back says why it was rejected last, and nothing of the time before", |stage| {
            letters::again(stage).boxed_local()
        }),
        ("letters are sent once per call, those of a key in their order", |stage| {
            sending::once(stage).boxed_local()
        }),
        ("calls at the same time each wait for their own letters", |stage| {
            sending::at_once(stage).boxed_local()
        }),
        ("large letters are sent whole, however many", |stage| sending::large(stage).boxed_local()),
        ("a letter that is too large is an error, and no other letter's", |stage| {
            sending::too_large(stage).boxed_local()
        }),
        ("brokers that do not answer are an error, and no letter is lost that is sent again", |stage| {
            sending::unavailable(stage).boxed_local()
        }),
    ];
    Suite(promises).run(harness).await
}

impl LetterStage {
    /// Sends letters in one call, as a new process does, and returns the messages that the topic then has.
    async fn sent(&self, letters: &[DeadLetter]) -> Result<Vec<Message>, String> {
        let topic = self.place.topic().await?;
        topic.send(letters).await.map_err(|error| error.to_string())?;
        self.place.messages().await
    }

    /// Sends one letter, and returns its message.
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
