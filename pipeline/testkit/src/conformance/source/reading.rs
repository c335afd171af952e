//! Checks of the messages that one member receives.

use std::collections::BTreeMap;

use prorata_schemas::Text;
use prorata_worker::names::Shard;
use prorata_worker::source::{Message, SourceError, Start};

use super::listener::Listener;
use super::{Checked, SourceStage};

/// Returns the message with this number. The content differs from other messages. Some messages have no key,
/// and some no value.
pub(super) fn message(topic: &Text, partition: Shard, number: u32) -> Message {
    let text = |what: &str| format!("{what} {number} of {topic} {partition}").into_bytes();
    Message {
        topic: topic.clone(),
        partition,
        offset: 0,
        timestamp_millis: 1_793_000_000_000 + i64::from(number),
        key: (!number.is_multiple_of(3)).then(|| text("key").into()),
        value: (!number.is_multiple_of(5)).then(|| text("value").into()),
        headers: vec![("one".into(), Some(text("header"))), ("none".into(), None)],
    }
}

impl SourceStage {
    /// Produces messages of these numbers, and returns them as they must be reported.
    pub(super) async fn produce(
        &self,
        topic: &Text,
        partition: Shard,
        numbers: std::ops::Range<u32>,
    ) -> Result<Vec<Message>, String> {
        let mut produced = Vec::new();
        for number in numbers {
            let mut message = message(topic, partition, number);
            message.offset = self.place.produce(message.clone()).await?;
            produced.push(message);
        }
        Ok(produced)
    }

    /// Creates two topics with this many partitions, and this many messages in each partition.
    pub(super) async fn topics(&self, partitions: Shard, messages: u32) -> Result<Vec<Text>, String> {
        let mut topics = Vec::new();
        for name in ["pods", "nodes"] {
            topics.push(self.place.create_topic(name, partitions).await?);
        }
        for topic in &topics {
            for partition in 0..partitions {
                self.produce(topic, partition, 0..messages).await?;
            }
        }
        Ok(topics)
    }
}

pub(super) async fn partitions(stage: &mut SourceStage) -> Checked {
    let two = stage.place.create_topic("two", 2).await?;
    let three = stage.place.create_topic("three", 3).await?;
    counted(stage, BTreeMap::from([(two.clone(), 2), (three, 3)])).await?;
    let none = Text::from(format!("{two}-that-is-not-there"));
    let topics = [two.clone(), none.clone()];
    match stage.place.member("b", &topics).await {
        // A source may refuse topics that do not exist.
        Err(_) => Ok(()),
        Ok(mut source) => {
            source.close().await;
            counted(stage, BTreeMap::from([(two, 2), (none, 0)])).await
        }
    }
}

/// Checks that a new member counts as many partitions of each topic as expected.
async fn counted(stage: &SourceStage, expected: BTreeMap<Text, u32>) -> Checked {
    let topics: Vec<Text> = expected.keys().cloned().collect();
    let mut source = stage.place.member("a", &topics).await?;
    let mut bound = stage.bound();
    while bound.next().is_ok() {
        match source.partitions().await {
            Ok(counts) if counts == expected => {
                source.close().await;
                return Ok(());
            }
            Ok(counts) => return Err(format!("{expected:?} is reported as {counts:?}")),
            Err(SourceError::Unavailable(_)) => {}
            Err(error) => return Err(error.to_string()),
        }
    }
    Err("Kafka does not answer".into())
}

pub(super) async fn nothing_before_start(stage: &mut SourceStage) -> Checked {
    let topics = stage.topics(2, 3).await?;
    let mut listener = stage.sole_listener("a", &topics, 2).await?;
    stage.listen(&mut [&mut listener]).await?;
    // A shard next to a started shard reports nothing either.
    listener.start(&topics, 1, Start::Earliest).await?;
    stage.listen(&mut [&mut listener]).await?;
    listener.source.close().await;
    Ok(())
}

pub(super) async fn every_message(stage: &mut SourceStage) -> Checked {
    let topics = stage.topics(2, 0).await?;
    let mut expected = BTreeMap::new();
    for (index, topic) in (1_u32..).zip(&topics) {
        for partition in 0..2 {
            let mut messages = stage.produce(topic, partition, 0..100 * index).await?;
            if stage.place.skip_offsets(topic, partition).await? {
                messages.extend(stage.produce(topic, partition, 1_000..1_003).await?);
                stage.place.skip_offsets(topic, partition).await?;
            } else if partition == 0 {
                stage.left_out.push("offsets with holes");
            }
            expected.insert((topic.clone(), partition), messages);
        }
    }
    let mut listener = stage.sole_listener("a", &topics, 2).await?;
    listener.start_all(&topics).await?;
    for round in 0..3 {
        for ((topic, partition), expected) in &mut expected {
            let end = stage.place.end(topic, *partition).await?;
            let what = format!("the end of {topic}, partition {partition}, twice");
            let reported =
                |one: &[&mut Listener]| one.iter().all(|listener| listener.ends(topic, *partition, end) >= 2);
            stage.until(&mut [&mut listener], &what, reported).await?;
            let reading = listener.readings.get(&(topic.clone(), *partition));
            let found = reading.map(|reading| &reading.messages);
            if found != Some(expected) {
                return Err(first_difference(found.map_or(&[], Vec::as_slice), expected));
            }
            expected.extend(stage.produce(topic, *partition, 2_000 + round..2_001 + round).await?);
        }
    }
    listener.source.close().await;
    Ok(())
}

fn first_difference(found: &[Message], expected: &[Message]) -> String {
    let differs = found.iter().zip(expected).find(|(found, expected)| found != expected);
    match differs {
        Some((found, expected)) if found.offset != expected.offset => {
            format!("offset {} was reported when {} was due", found.offset, expected.offset)
        }
        Some((found, expected)) => format!("what was reported as {found:?} was produced as {expected:?}"),
        None => format!("{} messages were reported before the end, {} were due", found.len(), expected.len()),
    }
}

pub(super) async fn starts(stage: &mut SourceStage) -> Checked {
    let topics = stage.topics(1, 10).await?;
    let topic = topics.first().cloned().unwrap_or_default();
    let mut listener = stage.sole_listener("a", &topics, 1).await?;
    for from in [4, 0, 10, 9] {
        listener.start(&topics, 0, Start::At(from)).await?;
        let reached = |one: &[&mut Listener]| {
            one.iter().all(|listener| topics.iter().all(|topic| listener.ends(topic, 0, 10) > 0))
        };
        stage.until(&mut [&mut listener], "the end after a start at an offset", reached).await?;
        for topic in &topics {
            let (found, expected) = (listener.offsets(topic, 0), (from..10).collect::<Vec<i64>>());
            if found != expected {
                return Err(format!("a start at {from} of 10 reports {found:?}"));
            }
        }
    }
    // Messages that arrive after a release reach no member, and are reported after the next start.
    listener.release(&[0]).await;
    stage.produce(&topic, 0, 10..12).await?;
    stage.listen(&mut [&mut listener]).await?;
    listener.start(&topics, 0, Start::At(10)).await?;
    let heard = |one: &[&mut Listener]| one.iter().all(|listener| listener.offsets(&topic, 0) == [10, 11]);
    stage.until(&mut [&mut listener], "messages after a release and a start", heard).await?;
    // A start replaces the previous start.
    listener.start(&topics, 0, Start::At(11)).await?;
    let heard = |one: &[&mut Listener]| one.iter().all(|listener| listener.offsets(&topic, 0) == [11]);
    stage.until(&mut [&mut listener], "messages after a second start", heard).await?;
    listener.source.close().await;
    Ok(())
}

pub(super) async fn offsets_lost(stage: &mut SourceStage) -> Checked {
    let topics = stage.topics(4, 10).await?;
    let [topic, other] = topics.as_slice() else { return Err("two topics are wanted".into()) };
    for partition in 0..4 {
        stage.place.delete_before(topic, partition, 6).await?;
    }
    let mut listener = stage.sole_listener("a", &topics, 4).await?;
    let starts = [(0, Start::At(5)), (1, Start::At(11)), (2, Start::Earliest), (3, Start::At(6))];
    for (shard, from) in starts {
        listener.start(std::slice::from_ref(topic), shard, from).await?;
    }
    let reported = |one: &[&mut Listener]| {
        one.iter().all(|listener| {
            [0, 1].iter().all(|shard| listener.offsets_lost.contains(&(topic.clone(), *shard)))
                && [2, 3].iter().all(|shard| listener.ends(topic, *shard, 10) > 0)
        })
    };
    stage.until(&mut [&mut listener], "two lost offsets, and two ends", reported).await?;
    for shard in [2, 3] {
        let found = listener.offsets(topic, shard);
        if found != [6, 7, 8, 9] {
            return Err(format!("of the offsets from 6 to 9, {found:?} were reported"));
        }
    }
    // No event follows. A start at an existing offset fixes the loss.
    stage.listen(&mut [&mut listener]).await?;
    listener.start(&[topic.clone(), other.clone()], 0, Start::At(7)).await?;
    let fixed = |one: &[&mut Listener]| {
        one.iter().all(|listener| listener.ends(topic, 0, 10) > 0 && listener.ends(other, 0, 10) > 0)
    };
    stage.until(&mut [&mut listener], "the end after a start past what was lost", fixed).await?;
    listener.source.close().await;
    Ok(())
}

pub(super) async fn commits(stage: &mut SourceStage) -> Checked {
    let topics = stage.topics(1, 5).await?;
    let ended = |one: &[&mut Listener]| {
        one.iter().all(|listener| topics.iter().all(|topic| listener.ends(topic, 0, 5) > 0))
    };
    for name in ["a", "b"] {
        let mut listener = stage.sole_listener(name, &topics, 1).await?;
        listener.start_all(&topics).await?;
        stage.until(&mut [&mut listener], "the end", ended).await?;
        for topic in &topics {
            let found = listener.offsets(topic, 0);
            if found != [0, 1, 2, 3, 4] {
                return Err(format!("a start at the earliest of 5 messages reports {found:?}"));
            }
        }
        let next: BTreeMap<Text, i64> = topics.iter().map(|topic| (topic.clone(), 3)).collect();
        listener.source.commit(0, &next);
        stage.listen(&mut [&mut listener]).await?;
        listener.source.close().await;
    }
    Ok(())
}
