//! Checks of sending letters. Each letter is sent once per call, and a missing letter causes an error.

use std::collections::{BTreeMap, BTreeSet};

use futures::future::try_join_all;
use prorata_worker::ports::DeadLetter;
use prorata_worker::source::{DeadLetterTopic, Message, SourceError};

use super::letters::letter;
use super::{Checked, LetterStage, equal};

/// Returns letters with these numbers as values, under five keys.
fn letters(numbers: std::ops::Range<u32>) -> Vec<DeadLetter> {
    let one =
        |number: u32| letter(number.into(), Some(&[(number % 5) as u8]), &number.to_be_bytes(), Vec::new());
    numbers.map(one).collect()
}

/// Groups values by key, in order.
fn by_key<'m>(messages: impl Iterator<Item = (&'m [u8], &'m [u8])>) -> BTreeMap<&'m [u8], Vec<&'m [u8]>> {
    let mut values: BTreeMap<&[u8], Vec<&[u8]>> = BTreeMap::new();
    messages.for_each(|(key, value)| values.entry(key).or_default().push(value));
    values
}

fn found(messages: &[Message]) -> BTreeMap<&[u8], Vec<&[u8]>> {
    by_key(messages.iter().map(|message| {
        (message.key.as_deref().unwrap_or_default(), message.value.as_deref().unwrap_or_default())
    }))
}

fn expected<'l>(letters: impl Iterator<Item = &'l DeadLetter>) -> BTreeMap<&'l [u8], Vec<&'l [u8]>> {
    by_key(letters.map(|letter| {
        let key = prorata_worker::dead_letters::message_key(letter).unwrap_or_default();
        (key, &letter.rejected.bytes[..])
    }))
}

async fn send(topic: &dyn DeadLetterTopic, letters: &[DeadLetter]) -> Checked {
    topic.send(letters).await.map_err(|error| error.to_string())
}

pub(super) async fn once(stage: &LetterStage) -> Checked {
    let topic = stage.place.topic().await?;
    let mut all = Vec::new();
    // The calls send no letters, many letters, one letter, some earlier letters again, and no letters.
    for part in [0..0, 0..1_000, 1_000..1_001, 500..600, 0..0] {
        let part = letters(part);
        send(&*topic, &part).await?;
        all.extend(part);
        let messages = stage.place.messages().await?;
        equal("letters that are there", messages.len(), all.len())?;
        equal("letters by key", found(&messages), expected(all.iter()))?;
    }
    Ok(())
}

pub(super) async fn at_once(stage: &LetterStage) -> Checked {
    let (one, other) = (stage.place.topic().await?, stage.place.topic().await?);
    let topics = [&*one, &*other, &*one, &*one];
    let calls = (0..).zip(topics).map(|(call, topic)| async move {
        let mine = letters(call * 300..(call + 1) * 300);
        send(topic, &mine).await?;
        let messages = stage.place.messages().await?;
        let is_there = |letter: &&DeadLetter| {
            messages.iter().any(|message| message.value.as_deref() == Some(&letter.rejected.bytes[..]))
        };
        equal(
            "letters that are there when the call returns",
            mine.iter().filter(is_there).count(),
            mine.len(),
        )
    });
    try_join_all(calls).await?;
    equal("letters of all calls", stage.place.messages().await?.len(), 1_200)
}

/// Returns bytes that do not compress.
fn noise(length: usize, seed: u32) -> Vec<u8> {
    let mut state = u64::from(seed) + 0x9e37_79b9_7f4a_7c15;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()
    };
    (0..=length / 8).flat_map(|_| next()).take(length).collect()
}

pub(super) async fn large(stage: &LetterStage) -> Checked {
    let (length, count) = stage.place.large();
    let letters: Vec<DeadLetter> = (0_u32..)
        .take(count)
        .map(|number| letter(number.into(), Some(b"acme"), &noise(length, number), Vec::new()))
        .collect();
    let messages = stage.sent(&letters).await?;
    equal("large letters", messages.len(), count)?;
    let whole: BTreeSet<&[u8]> = messages.iter().filter_map(|message| message.value.as_deref()).collect();
    let lost = letters.iter().filter(|letter| !whole.contains(&letter.rejected.bytes[..])).count();
    equal("letters that are not whole", lost, 0)
}

pub(super) async fn too_large(stage: &mut LetterStage) -> Checked {
    let Some(length) = stage.place.too_large() else {
        stage.left_out.push("letters that are too large");
        return Ok(());
    };
    let topic = stage.place.topic().await?;
    let small = letters(0..10);
    let mut mixed = small.clone();
    mixed.insert(5, letter(99, Some(b"acme"), &noise(length, 0), Vec::new()));
    match topic.send(&mixed).await {
        Err(SourceError::TooLarge(message)) if !message.is_empty() => {}
        other => return Err(format!("a letter of {length} bytes is answered by {other:?}")),
    }
    let before = stage.place.messages().await?.len();
    equal("letters sent with it", before, small.len())?;
    send(&*topic, &small).await?;
    equal("letters sent after it", stage.place.messages().await?.len(), before + small.len())
}

pub(super) async fn unavailable(stage: &mut LetterStage) -> Checked {
    let topic = stage.place.topic().await?;
    let (first, second) = (letters(0..10), letters(10..20));
    send(&*topic, &first).await?;
    if !stage.place.set_available(false).await? {
        stage.left_out.push("brokers that do not answer");
        return Ok(());
    }
    // The brokers never respond, so the call returns only because it has a time limit.
    match topic.send(&second).await {
        Err(SourceError::Unavailable(message)) if !message.is_empty() => {}
        other => return Err(format!("while nobody answers, the answer is {other:?}")),
    }
    stage.place.set_available(true).await?;
    send(&*topic, &second).await?;
    let messages = stage.place.messages().await?;
    let count = |letter: &DeadLetter| {
        messages.iter().filter(|message| message.value.as_deref() == Some(&letter.rejected.bytes[..])).count()
    };
    equal("letters from before", first.iter().map(count).collect(), vec![1; 10])?;
    let lost = second.iter().filter(|letter| count(letter) == 0).count();
    equal("letters that were sent again, and are lost", lost, 0)
}
