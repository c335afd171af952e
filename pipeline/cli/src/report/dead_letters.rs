//! The report of `prorata dead-letters`.

use std::collections::BTreeMap;
use std::fmt;

use prorata_inspect::text::PlainText;
use prorata_schemas::reject::Reason;
use prorata_schemas::time::Timestamp;
use prorata_worker::dead_letters::{EXAMPLES_PER_REASON_MAX, Replayed, StoredDeadLetter};
use prorata_worker::names::Shard;
use prorata_worker::ports::Origin;
use serde::Serialize;

/// The counts of a lake's dead letters.
#[derive(Clone, Debug, Default)]
pub struct Listing(BTreeMap<Reason, Counted>);

/// Dead letters with one reason.
#[derive(Clone, Debug, Default, Serialize)]
struct Counted {
    count: u64,
    #[serde(rename = "already_replayed")]
    replayed: u64,
    examples: Vec<Example>,
}

#[derive(Clone, Debug, Serialize)]
struct Example {
    origin: String,
    /// The message's timestamp.
    time: Option<String>,
    message: String,
}

impl Listing {
    /// Counts a dead letter.
    pub fn add(&mut self, letter: &StoredDeadLetter) {
        let rejected = &letter.letter.rejected;
        let counted = self.0.entry(rejected.reject.reason).or_default();
        counted.count += 1;
        counted.replayed += u64::from(letter.replayed);
        // Examples come only from dead letters that were not replayed yet.
        if !letter.replayed && counted.examples.len() < EXAMPLES_PER_REASON_MAX {
            counted.examples.push(Example {
                origin: letter.letter.origin.to_string(),
                time: time(&letter.letter.origin),
                message: rejected.reject.message.clone(),
            });
        }
    }

    fn count(&self) -> u64 {
        self.0.values().map(|counted| counted.count).sum()
    }

    fn replayed(&self) -> u64 {
        self.0.values().map(|counted| counted.replayed).sum()
    }
}

fn time(origin: &Origin) -> Option<String> {
    match origin {
        Origin::Message { timestamp_millis, .. } if *timestamp_millis >= 0 => {
            Some(Timestamp(timestamp_millis.saturating_mul(1_000)).to_string())
        }
        _ => None,
    }
}

/// The content of the report.
#[derive(Clone, Debug)]
pub struct DeadLetterReport<'a> {
    /// The lake, as the user named it.
    pub lake: &'a str,
    /// The dead letters that the lake held.
    pub listing: Listing,
    /// The result of a replay; `None` if there was none.
    pub replayed: Option<Replayed>,
}

impl DeadLetterReport<'_> {
    /// Formats the report as one JSON document with sorted keys.
    ///
    /// # Errors
    /// If the report cannot be serialized.
    pub fn json(&self) -> serde_json::Result<String> {
        super::document(&LettersDocument {
            lake: self.lake,
            dead_letters: self.listing.count(),
            already_replayed: self.listing.replayed(),
            reasons: self.listing.0.iter().map(|(reason, counted)| (reason.code(), counted)).collect(),
            replay: self.replayed.as_ref().map(replay_document),
        })
    }

    /// Formats the report as lines for people.
    pub fn text(&self) -> String {
        let mut text = PlainText::default();
        // Writing to a string never fails.
        let _infallible = self.write_text(&mut text);
        text.as_str().to_owned()
    }

    fn write_text(&self, out: &mut PlainText) -> fmt::Result {
        let (count, before) = (self.listing.count(), self.listing.replayed());
        if count == 0 {
            writeln!(out, "No dead letters in {}.", self.lake)?;
        } else {
            let counts = self.listing.0.iter().map(|(reason, counted)| (reason.code(), counted.count));
            let replayed = match before {
                0 => String::new(),
                before => format!(" {before} of them were replayed before."),
            };
            writeln!(out, "{count} dead letters in {}: {}.{replayed}", self.lake, named(counts))?;
        }
        match &self.replayed {
            None => self.write_examples(out),
            Some(replayed) => write_replay(out, replayed),
        }
    }

    fn write_examples(&self, out: &mut PlainText) -> fmt::Result {
        for (reason, counted) in &self.listing.0 {
            let left = counted.count - counted.replayed;
            if left == 0 {
                continue;
            }
            writeln!(out)?;
            writeln!(out, "{reason}: {left}")?;
            for Example { origin, time, message } in &counted.examples {
                let time = time.as_ref().map_or(String::new(), |time| format!(", {time}"));
                writeln!(out, "  {origin}{time}: {message}")?;
            }
            write_more(out, left, counted.examples.len())?;
        }
        Ok(())
    }
}

/// The report as a document.
#[derive(Serialize)]
struct LettersDocument<'a> {
    lake: &'a str,
    dead_letters: u64,
    already_replayed: u64,
    reasons: BTreeMap<&'static str, &'a Counted>,
    replay: Option<ReplayDocument<'a>>,
}

/// The result of a replay.
#[derive(Serialize)]
struct ReplayDocument<'a> {
    sent: &'a BTreeMap<String, u64>,
    folded: Option<FoldedDocument>,
    failing: BTreeMap<&'static str, FailingDocument<'a>>,
    shards_left_out: &'a BTreeMap<Shard, String>,
}

/// Events that were folded.
#[derive(Serialize)]
struct FoldedDocument {
    events: u64,
    new: u64,
    hours_restated: u64,
}

/// Dead letters with one reason that still fail.
#[derive(Serialize)]
struct FailingDocument<'a> {
    count: u64,
    examples: Vec<FailingExample<'a>>,
}

#[derive(Serialize)]
struct FailingExample<'a> {
    origin: &'a str,
    message: &'a str,
}

fn replay_document(replayed: &Replayed) -> ReplayDocument<'_> {
    let failing = replayed.failing.iter().map(|(reason, failing)| {
        let examples = failing.examples.iter();
        let examples = examples.map(|(origin, message)| FailingExample { origin, message }).collect();
        (reason.code(), FailingDocument { count: failing.count, examples })
    });
    ReplayDocument {
        sent: &replayed.sent,
        folded: replayed.folded.as_ref().map(|folded| FoldedDocument {
            events: folded.events,
            new: folded.new,
            hours_restated: folded.hours_restated,
        }),
        failing: failing.collect(),
        shards_left_out: &replayed.left_out,
    }
}

fn write_replay(out: &mut PlainText, replayed: &Replayed) -> fmt::Result {
    if replayed.sent.is_empty() && replayed.folded.is_none() {
        writeln!(out, "Nothing was replayed.")?;
    }
    if !replayed.sent.is_empty() {
        let topics = replayed.sent.iter().map(|(topic, count)| (topic.as_str(), *count));
        writeln!(out, "Sent back to their topics: {}.", named(topics))?;
    }
    if let Some(folded) = &replayed.folded {
        let (events, new, hours) = (folded.events, folded.new, folded.hours_restated);
        writeln!(out, "Folded: {events} events, {new} of them new; {hours} published hours have changed.")?;
    }
    for (shard, why) in &replayed.left_out {
        writeln!(out, "Shard {shard} was left out: {why}. Then run the same command again.")?;
    }
    if replayed.failing.is_empty() {
        return Ok(());
    }
    let counts = replayed.failing.iter().map(|(reason, failing)| (reason.code(), failing.count));
    writeln!(out, "{} still fail: {}.", replayed.failing_all(), named(counts))?;
    for (reason, failing) in &replayed.failing {
        writeln!(out)?;
        writeln!(out, "{reason}: {}", failing.count)?;
        for (origin, why) in &failing.examples {
            writeln!(out, "  {origin}: {why}")?;
        }
        write_more(out, failing.count, failing.examples.len())?;
    }
    Ok(())
}

fn write_more(out: &mut PlainText, all: u64, shown: usize) -> fmt::Result {
    match all - (shown as u64).min(all) {
        0 => Ok(()),
        more => writeln!(out, "  … and {more} more"),
    }
}

fn named<'a>(counts: impl Iterator<Item = (&'a str, u64)>) -> String {
    counts.map(|(name, count)| format!("{name} {count}")).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use prorata_schemas::reject::Reject;
    use prorata_worker::dead_letters::{Failing, FoldedEvents};
    use prorata_worker::ports::{DeadLetter, Rejected};
    use serde_json::Value;

    use super::*;

    fn letter(
        index: u64,
        reason: Reason,
        timestamp_millis: i64,
        message: &str,
        replayed: bool,
    ) -> StoredDeadLetter {
        let origin = Origin::Message {
            topic: "pods".into(),
            partition: 3,
            offset: 17,
            timestamp_millis,
            key: None,
            headers: Vec::new(),
        };
        let rejected = Rejected { reject: Reject::new(reason, message), bytes: Vec::new() };
        StoredDeadLetter { index, letter: DeadLetter { origin, rejected }, replayed }
    }

    fn listing() -> Listing {
        let mut listing = Listing::default();
        for index in 0..8 {
            listing.add(&letter(index, Reason::TooLate, -1, "hour 2026-10-01T00 is closed", index == 0));
        }
        listing.add(&letter(8, Reason::Malformed, 1_763_643_600_000, "bell\u{7} and \u{1b}[2J", false));
        listing
    }

    #[test]
    fn letters_are_listed_by_reason_with_some_examples() {
        let text = DeadLetterReport { lake: "lake", listing: listing(), replayed: None }.text();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(
            lines[0],
            "9 dead letters in lake: malformed 1, too_late 8. 1 of them were replayed before."
        );
        assert!(
            text.contains(
                "\nmalformed: 1\n  topic pods, partition 3, offset 17, 2025-11-20T13:00:00.000000Z: \
                 bell\u{fffd} and \u{fffd}[2J\n"
            ),
            "{text}"
        );
        assert!(text.contains("\ntoo_late: 7\n  topic pods, partition 3, offset 17: hour "), "{text}");
        assert_eq!(lines.last(), Some(&"  … and 2 more"));
        let none = DeadLetterReport { lake: "lake", listing: Listing::default(), replayed: None };
        assert_eq!(none.text(), "No dead letters in lake.");
    }

    #[test]
    fn a_replay_says_what_it_did_and_what_still_fails() {
        let failing = Failing { count: 7, examples: vec![("a.avro".to_owned(), "fix the file".to_owned())] };
        let replayed = Replayed {
            sent: BTreeMap::from([("pods".to_owned(), 2), ("nodes".to_owned(), 1)]),
            folded: Some(FoldedEvents { events: 3, new: 2, hours_restated: 4 }),
            failing: BTreeMap::from([(Reason::InvalidField, failing)]),
            left_out: BTreeMap::from([(3, "'state/x' is damaged".to_owned())]),
        };
        let report = DeadLetterReport { lake: "lake", listing: listing(), replayed: Some(replayed) };
        let text = report.text();
        for line in [
            "Sent back to their topics: nodes 1, pods 2.",
            "Folded: 3 events, 2 of them new; 4 published hours have changed.",
            "Shard 3 was left out: 'state/x' is damaged. Then run the same command again.",
            "7 still fail: invalid_field 7.",
            "  a.avro: fix the file",
            "  … and 6 more",
        ] {
            assert!(text.lines().any(|found| found == line), "{line}: {text}");
        }
        let json: Value = serde_json::from_str(&report.json().unwrap()).unwrap();
        assert_eq!(json["reasons"]["too_late"]["count"], 8);
        assert_eq!(json["reasons"]["too_late"]["already_replayed"], 1);
        assert_eq!(json["reasons"]["malformed"]["examples"][0]["time"], "2025-11-20T13:00:00.000000Z");
        assert_eq!(json["replay"]["sent"]["pods"], 2);
        assert_eq!(json["replay"]["folded"]["new"], 2);
        assert_eq!(json["replay"]["failing"]["invalid_field"]["count"], 7);
        let nothing = DeadLetterReport {
            lake: "lake",
            listing: Listing::default(),
            replayed: Some(Replayed::default()),
        };
        assert!(nothing.text().ends_with("Nothing was replayed."), "{}", nothing.text());
    }
}
