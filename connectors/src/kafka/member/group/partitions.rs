//! Partitions that are added to topics while the topics are read. The library refreshes its topics only every
//! few minutes, and until then nobody would read messages on new partitions.

use std::collections::BTreeMap;
use std::sync::mpsc::{self, Receiver, Sender};
use std::time::{Duration, Instant};

use prorata_schemas::Text;
use prorata_worker::source::SourceEvent;

use super::Group;

/// The interval at which the brokers are asked.
const COUNT_EVERY: Duration = Duration::from_secs(3);

/// The longest wait for an answer before the brokers are asked again.
const ANSWER_MAX: Duration = Duration::from_secs(60);

type Counts = BTreeMap<Text, u32>;

/// The topics' numbers of partitions, as last reported to the worker.
pub(super) struct PartitionCounts {
    reported: Counts,
    answers: (Sender<Counts>, Receiver<Counts>),
    /// The time of the last request to the brokers, and whether they have answered since.
    asked: Option<(Instant, bool)>,
}

impl PartitionCounts {
    /// Starts with the numbers that the brokers reported before the member joined the group.
    pub(super) fn new(reported: Counts) -> Self {
        Self { reported, answers: mpsc::channel(), asked: None }
    }

    fn is_due(&self) -> bool {
        self.asked
            .is_none_or(|(at, answered)| at.elapsed() >= if answered { COUNT_EVERY } else { ANSWER_MAX })
    }

    /// Records an answer. Returns the topics whose number of partitions has changed, with the new number.
    fn take(&mut self, counts: Counts) -> Vec<(Text, u32)> {
        if let Some((_, answered)) = &mut self.asked {
            *answered = true;
        }
        let changed =
            |(topic, count): &(Text, u32)| self.reported.insert(topic.clone(), *count) != Some(*count);
        counts.into_iter().filter(changed).collect()
    }
}

impl Group<'_> {
    /// Reports topics with a changed number of partitions to the worker, and asks the brokers again when it
    /// is time.
    pub(super) fn count_partitions(&mut self) {
        while let Ok(counts) = self.counts.answers.1.try_recv() {
            for (topic, partitions) in self.counts.take(counts) {
                self.queue.push(SourceEvent::Partitions { topic, partitions });
            }
        }
        if !self.counts.is_due() {
            return;
        }
        let topics: Vec<Text> = self.settings.topics.iter().map(|topic| Text::from(topic.as_str())).collect();
        let answers = self.counts.answers.0.clone();
        let submitted = self.probe.submit(move |client| {
            // The thread that asked may have ended in the meantime.
            let _ = answers.send(client.partitions_now(&topics));
        });
        self.counts.asked = Some((Instant::now(), !submitted));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_changed_number_is_reported() {
        let of = |count: u32| BTreeMap::from([(Text::from("a"), count), ("b".into(), 4)]);
        let mut counts = PartitionCounts::new(of(4));
        assert_eq!(counts.take(of(4)), []);
        assert_eq!(counts.take(BTreeMap::new()), [], "no broker has answered");
        assert_eq!(counts.take(of(8)), [("a".into(), 8)]);
        assert_eq!(counts.take(of(8)), []);
    }
}
