//! The path of messages and ends of partitions from the library to the queue.

use std::time::Instant;

use bytes::Bytes;
use prorata_schemas::Text;
use prorata_worker::names::Shard;
use prorata_worker::source::{Message, SourceError, SourceEvent, Start};
use rdkafka::error::RDKafkaErrorCode as Code;

use super::{Group, ROUND};
use crate::kafka::client::batch::{Raw, Read};
use crate::kafka::client::failure;
use crate::kafka::member::tracks::Question;

impl Group<'_> {
    /// Reads messages into the queue.
    pub(super) fn read(&mut self) {
        let Self { batch, tracks, queue, settings, stale, .. } = self;
        batch.forward();
        batch.read(ROUND, &mut |topic, partition, read| {
            let Some((topic, track)) = tracks.get_mut(topic, partition) else { return };
            if track.lost || track.again_at.is_some() {
                return;
            }
            let (shard, reading) = (track.shard, track.reading);
            match read {
                Read::Messages(raws) => {
                    let fresh: Vec<&Raw<'_>> = raws.iter().filter(|raw| track.takes(raw.offset())).collect();
                    let messages = messages(&topic, shard, &fresh);
                    let Some(last) = messages.last() else { return };
                    track.next = Start::At(last.offset + 1);
                    (track.end, track.failures, track.unreadable) = (None, 0, None);
                    queue.read(shard, reading, SourceEvent::Messages(messages));
                }
                Read::Event { code: Code::PartitionEOF, offset, .. } => {
                    (track.end, track.asked) = (Some(offset), None);
                    track.failures = 0;
                }
                Read::Event { code: Code::AutoOffsetReset | Code::OffsetOutOfRange, .. }
                    if track.next == Start::Earliest =>
                {
                    // Retention has moved the beginning in the meantime.
                    track.fail(Instant::now());
                }
                Read::Event {
                    code: Code::AutoOffsetReset | Code::OffsetOutOfRange | Code::LogTruncation,
                    reason,
                    ..
                } => {
                    (track.lost, *stale) = (true, true);
                    let signal = SourceEvent::OffsetsLost {
                        topic,
                        partition: shard,
                        // The library does not report it. The brokers are asked when reading starts again.
                        earliest: None,
                        cause: cause(track.next, &reason),
                    };
                    queue.read(shard, reading, signal);
                }
                Read::Event { code, offset, reason } if is_unreadable(code) && track.cannot_read(offset) => {
                    (track.lost, *stale) = (true, true);
                    let signal = SourceEvent::Unreadable { topic, partition: shard, offset, cause: reason };
                    queue.read(shard, reading, signal);
                }
                Read::Event { code, reason, .. } => {
                    // The library may continue after messages that it could not read; we do not.
                    track.fail(Instant::now());
                    let reason = format!("topic {topic}, partition {shard}: {reason}");
                    match failure::running(&settings.connection, code, &reason) {
                        unavailable @ SourceError::Unavailable(_) => queue.set_unavailable(unavailable),
                        failure => queue.fail(failure),
                    }
                }
            }
        });
    }

    /// Reports the ends that the brokers have confirmed, and asks the brokers about further ends.
    pub(super) fn ends(&mut self) {
        while let Ok(answers) = self.answers.1.try_recv() {
            self.asking = false;
            for (question, confirmed) in answers {
                if confirmed && self.tracks.still_ends(&question) {
                    let Question { topic, shard, reading, end } = question;
                    self.queue.read(
                        shard,
                        reading,
                        SourceEvent::End { topic, partition: shard, offset: end },
                    );
                }
            }
        }
        if self.asking || self.tracks.is_empty() {
            return;
        }
        let questions = self.tracks.questions(Instant::now(), self.settings.end_every);
        if questions.is_empty() {
            return;
        }
        let answers = self.answers.0.clone();
        self.asking = self.probe.submit(move |client| {
            let of: Vec<(Text, i32)> =
                questions.iter().map(|one| (one.topic.clone(), i32::from(one.shard))).collect();
            let ends = client.ends(&of);
            let confirmed = questions.into_iter().zip(ends).map(|(question, end)| {
                let confirmed = end == Some(question.end);
                (question, confirmed)
            });
            // The thread that asked may have ended in the meantime.
            let _ = answers.send(confirmed.collect());
        });
    }
}

/// Copies the messages of a topic partition. Their keys and values share one block, which costs less to
/// allocate and free than two blocks for each message.
fn messages(topic: &Text, partition: Shard, raws: &[&Raw<'_>]) -> Vec<Message> {
    let parts = || raws.iter().flat_map(|raw| [raw.key(), raw.value()]).flatten();
    let mut block = Vec::with_capacity(parts().map(<[u8]>::len).sum());
    parts().for_each(|part| block.extend_from_slice(part));
    let mut block = Bytes::from(block);
    let mut part = |of: Option<&[u8]>| of.map(|part| block.split_to(part.len()));
    let message = |raw: &&Raw<'_>| Message {
        topic: topic.clone(),
        partition,
        offset: raw.offset(),
        timestamp_millis: raw.timestamp_millis(),
        key: part(raw.key()),
        value: part(raw.value()),
        headers: raw.headers(),
    };
    raws.iter().map(message).collect()
}

/// Returns whether an error means that a batch is corrupt or cannot be unpacked.
const fn is_unreadable(code: Code) -> bool {
    matches!(
        code,
        Code::BadMessage
            | Code::BadCompression
            | Code::InvalidMessage
            | Code::MessageSizeTooLarge
            | Code::NotImplemented
    )
}

fn cause(next: Start, reason: &str) -> String {
    match next {
        Start::Earliest => reason.to_owned(),
        Start::At(next) => format!("offset {next}: {reason}"),
    }
}
