//! Tests that the fake keeps the promises, and that topics that break a promise are caught.

use std::collections::BTreeMap;

use async_trait::async_trait;
use prorata_worker::ports::{DeadLetter, Origin};
use prorata_worker::source::{DeadLetterTopic, Header, Message, SourceError};

use super::{DeadLetterPlace, Harness, dead_letter_topic};
use crate::conformance::fault_double::{FaultDouble, assert_caught};
use crate::fakes::FakeDeadLetterTopic;

/// Size of the largest value that the fake takes.
const LIMIT: usize = 1_000;

/// Makes places with the fake topic; the topic breaks a promise if there is a defect.
struct FakeTopicHarness(Option<TopicDefect>);

struct FakeTopicPlace {
    topic: FakeDeadLetterTopic,
    defect: Option<TopicDefect>,
}

#[async_trait(?Send)]
impl Harness for FakeTopicHarness {
    type Place = dyn DeadLetterPlace;

    async fn place(&self) -> Result<Box<dyn DeadLetterPlace>, String> {
        let topic = FakeDeadLetterTopic::default();
        topic.set_largest(Some(LIMIT));
        Ok(Box::new(FakeTopicPlace { topic, defect: self.0 }))
    }
}

#[async_trait(?Send)]
impl DeadLetterPlace for FakeTopicPlace {
    async fn topic(&self) -> Result<Box<dyn DeadLetterTopic>, String> {
        let honest = self.topic.clone();
        Ok(match self.defect {
            Some(defect) => Box::new(FaultDouble { honest, defect, memory: () }),
            None => Box::new(honest),
        })
    }

    async fn messages(&self) -> Result<Vec<Message>, String> {
        let mut messages = self.topic.messages();
        if let Some(defect) = self.defect {
            messages.iter_mut().for_each(|message| tamper(defect, message));
        }
        Ok(messages)
    }

    fn large(&self) -> (usize, usize) {
        (LIMIT / 2, 100)
    }

    fn too_large(&self) -> Option<usize> {
        Some(LIMIT + 1)
    }

    async fn set_available(&self, available: bool) -> Result<bool, String> {
        // The topic takes some letters of a call, and then no more.
        self.topic.set_room((!available).then_some(3));
        Ok(true)
    }
}

/// A promise that a topic breaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TopicDefect {
    /// Drops the keys of letters.
    DropsKey,
    /// Treats an empty key as no key.
    DropsEmptyKey,
    /// Changes bytes that are not text.
    TakesBytesForText,
    /// Sends nothing if there are no bytes.
    DropsEmptyBytes,
    /// Drops all headers except prorata's.
    DropsHeaders,
    /// Treats a header without a value as a header with an empty value.
    FillsHeaders,
    /// Keeps only the last of several headers with one name.
    MergesHeaders,
    /// Sorts the headers.
    SortsHeaders,
    /// Treats a foreign header as one of prorata's.
    DropsTooMany,
    /// Omits the reason.
    HidesReason,
    /// Reports the same reason for all letters.
    SaysOneReason,
    /// Omits the message.
    HidesMessage,
    /// Reports another offset.
    Miscounts,
    /// Omits the version.
    HidesVersion,
    /// Omits the place in a file.
    HidesPlace,
    /// Keeps prorata's headers of an earlier rejection.
    PilesUp,
    /// Sends every letter twice.
    Repeats,
    /// Loses the last letter.
    LosesLast,
    /// Sends a letter for a call without letters.
    SendsForNothing,
    /// Sends the last letter first.
    Disorders,
    /// Returns before the brokers have the letters.
    AnswersEarly,
    /// Cuts large values.
    CutsLarge,
    /// Sends no more letters after a letter that was too large.
    StaysBroken,
    /// Does not report letters that are too large.
    TakesAll,
    /// Does not report brokers that do not respond.
    HidesDown,
    /// Reports brokers that do not respond as an error in the configuration.
    BlamesConfiguration,
    /// Sends letters again that were sent before an error.
    StartsOver,
    /// Does not resend the letters of a failed call.
    ForgetsFailed,
}

/// Every defect, and the promise that it breaks.
const DEFECTS: [(TopicDefect, &str); 28] = [
    (TopicDefect::DropsKey, "letter 0: the key"),
    (TopicDefect::DropsEmptyKey, "letter 6: the key"),
    (TopicDefect::TakesBytesForText, "letter 0: the bytes"),
    (TopicDefect::DropsEmptyBytes, "letter 1: the bytes"),
    (TopicDefect::DropsHeaders, "letter 0: the headers that came"),
    (TopicDefect::FillsHeaders, "letter 0: the headers that came"),
    (TopicDefect::MergesHeaders, "letter 0: the headers that came"),
    (TopicDefect::SortsHeaders, "letter 0: the headers that came"),
    (TopicDefect::DropsTooMany, "letter 0: the headers that came"),
    (TopicDefect::HidesReason, "letter 0: how many headers of ours there are"),
    (TopicDefect::SaysOneReason, "letter 1: our headers"),
    (TopicDefect::HidesMessage, "letter 0: how many headers of ours there are"),
    (TopicDefect::Miscounts, "letter 0: our headers"),
    (TopicDefect::HidesVersion, "letter 0: headers with the version"),
    (TopicDefect::HidesPlace, "a letter out of a file names the file: how many headers of ours there are"),
    (TopicDefect::PilesUp, "a letter that comes back says why it was rejected last"),
    (TopicDefect::Repeats, "messages of one letter: found 2"),
    (TopicDefect::LosesLast, "messages of one letter: found 0"),
    (
        TopicDefect::SendsForNothing,
        "letters are sent once per call, those of a key in their order: letters that are there",
    ),
    (TopicDefect::Disorders, "letters are sent once per call, those of a key in their order: letters by key"),
    (TopicDefect::AnswersEarly, "calls at the same time each wait for their own letters"),
    (TopicDefect::CutsLarge, "large letters are sent whole, however many"),
    (TopicDefect::StaysBroken, "no other letter's: Kafka is unavailable: broken"),
    (TopicDefect::TakesAll, "a letter of 1001 bytes is answered by Ok"),
    (TopicDefect::HidesDown, "while nobody answers, the answer is Ok"),
    (TopicDefect::BlamesConfiguration, "while nobody answers, the answer is Err(Configuration"),
    (TopicDefect::StartsOver, "letters from before"),
    (TopicDefect::ForgetsFailed, "letters that were sent again, and are lost: found 7"),
];

fn tamper(defect: TopicDefect, message: &mut Message) {
    let is = |name: &'static str| move |(found, _): &mut Header| found != name;
    match defect {
        TopicDefect::DropsEmptyBytes => {
            message.value = message.value.take().filter(|value| !value.is_empty())
        }
        TopicDefect::DropsTooMany => message.headers.retain_mut(is("prorata")),
        TopicDefect::HidesReason => message.headers.retain_mut(is("prorata.reason")),
        TopicDefect::HidesMessage => message.headers.retain_mut(is("prorata.message")),
        TopicDefect::HidesVersion => message.headers.retain_mut(is("prorata.version")),
        TopicDefect::HidesPlace => message.headers.retain_mut(is("prorata.position")),
        TopicDefect::SaysOneReason => {
            for (_, value) in message.headers.iter_mut().filter(|(name, _)| name == "prorata.reason") {
                *value = Some(b"malformed".to_vec());
            }
        }
        TopicDefect::PilesUp
            if message.headers.iter().any(|(_, value)| value.as_deref() == Some(b"it came too late")) =>
        {
            message.headers.push(("prorata.reason".into(), Some(b"malformed".to_vec())));
        }
        TopicDefect::CutsLarge => {
            if let Some(value) = &mut message.value {
                value.truncate(300);
            }
        }
        _ => {}
    }
}

type Double = FaultDouble<FakeDeadLetterTopic, TopicDefect>;

impl Double {
    fn change(&self, letter: &mut DeadLetter) {
        if let TopicDefect::TakesBytesForText = self.defect {
            let text = String::from_utf8_lossy(&letter.rejected.bytes).into_owned();
            letter.rejected.bytes = text.into_bytes();
        }
        let Origin::Message { key, headers, offset, .. } = &mut letter.origin else { return };
        match self.defect {
            TopicDefect::DropsKey => *key = None,
            TopicDefect::DropsEmptyKey => *key = key.take().filter(|key| !key.is_empty()),
            TopicDefect::DropsHeaders => headers.clear(),
            TopicDefect::FillsHeaders => headers.iter_mut().for_each(|(_, value)| {
                value.get_or_insert_default();
            }),
            TopicDefect::MergesHeaders => {
                let last: BTreeMap<String, Option<Vec<u8>>> = headers.drain(..).collect();
                headers.extend(last);
            }
            TopicDefect::SortsHeaders => headers.sort(),
            TopicDefect::Miscounts => *offset += 1,
            _ => {}
        }
    }

    /// Returns the letters that the double sends for these letters.
    fn sent(&self, letters: &[DeadLetter]) -> Vec<DeadLetter> {
        let mut sent = letters.to_vec();
        sent.iter_mut().for_each(|letter| self.change(letter));
        match self.defect {
            TopicDefect::Repeats => sent.extend(sent.clone()),
            TopicDefect::LosesLast => drop(sent.pop()),
            TopicDefect::SendsForNothing if sent.is_empty() => {
                sent.extend(self.honest.letters().first().cloned())
            }
            TopicDefect::Disorders if !sent.is_empty() => sent.rotate_right(1),
            _ => {}
        }
        sent
    }
}

#[async_trait]
impl DeadLetterTopic for Double {
    async fn send(&self, letters: &[DeadLetter]) -> Result<(), SourceError> {
        let broken = || SourceError::Unavailable("broken".into());
        let too_large = letters.iter().any(|letter| letter.rejected.bytes.len() > LIMIT);
        match self.defect {
            TopicDefect::StaysBroken if too_large => {
                let refused = self.honest.send(letters).await;
                self.honest.set_room(Some(0));
                return refused;
            }
            TopicDefect::StaysBroken => return self.honest.send(letters).await.map_err(|_| broken()),
            TopicDefect::AnswersEarly if letters.len() == 300 => {
                let (honest, letters) = (self.honest.clone(), letters.to_vec());
                tokio::spawn(async move { honest.send(&letters).await });
                return Ok(());
            }
            TopicDefect::ForgetsFailed if self.honest.letters().len() == 13 => return Ok(()),
            _ => {}
        }
        let outcome = self.honest.send(&self.sent(letters)).await;
        match (self.defect, outcome) {
            (TopicDefect::HidesDown, Err(SourceError::Unavailable(_)))
            | (TopicDefect::TakesAll, Err(SourceError::TooLarge(_))) => Ok(()),
            (TopicDefect::BlamesConfiguration, Err(SourceError::Unavailable(cause))) => {
                Err(SourceError::Configuration(cause))
            }
            (TopicDefect::StartsOver, Ok(())) if self.honest.letters().len() == 23 => {
                let before: Vec<DeadLetter> = self.honest.letters().drain(..10).collect();
                self.honest.send(&before).await
            }
            (_, outcome) => outcome,
        }
    }
}

#[tokio::test]
async fn the_fake_of_the_dead_letter_topic_keeps_its_promises() {
    assert_eq!(dead_letter_topic(&FakeTopicHarness(None)).await.unwrap(), [""; 0]);
}

#[tokio::test]
async fn a_topic_that_breaks_any_promise_is_caught() {
    assert_caught(&DEFECTS, async |defect| dead_letter_topic(&FakeTopicHarness(Some(defect))).await).await;
}
