//! Polled items that are not taken yet, by topic partition. A topic partition that waits for a schema or for
//! the clock does not hold up other topic partitions.
//!
//! If waiting messages take too much memory, the topic partition with the most waiting bytes is *parked*. It
//! is no longer read, and the items read ahead are dropped. Reading starts again once its need is met.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use prorata_schemas::Text;
use prorata_schemas::time::WallTime;

use crate::names::Shard;
use crate::source::{DecodeFailure, Message, MessageDecoder};

/// The number of messages of a topic partition, besides the first, that are searched for schemas to request.
/// The same number of schemas is requested at once.
const LOOK_AHEAD: usize = 16;

/// A topic partition.
pub(super) type Place = (Shard, Text);

/// The reason that a topic partition waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Need {
    /// The schema with this id.
    Schema(u32),
    /// Wall clock and witness that agree.
    Clock,
}

impl Need {
    const fn schema(self) -> Option<u32> {
        match self {
            Self::Schema(id) => Some(id),
            Self::Clock => None,
        }
    }
}

/// A topic partition that is not read for now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Parked {
    /// The need that the topic partition waits for.
    pub need: Need,
    /// The earliest time at which the topic partition is read again.
    pub until: WallTime,
}

/// Kafka's answer about an offset that it does not have.
#[derive(Debug)]
pub(super) struct Loss {
    /// The earliest existing offset, if the lost offset is known to lie before it.
    pub earliest: Option<i64>,
    pub cause: String,
}

impl Loss {
    /// Returns the loss of an offset because the log differs from the log that was read before.
    pub fn of_another_log(cause: String) -> Self {
        Self { earliest: None, cause }
    }
}

/// An item polled from a topic partition.
#[derive(Debug)]
pub(super) enum Item {
    /// Messages in order.
    Messages(VecDeque<Message>),
    /// The confirmed end of the partition.
    End(i64),
    /// The next offset is lost.
    Lost(Loss),
    /// A batch that begins at this offset cannot be read.
    Unreadable { offset: i64, cause: String },
}

#[derive(Debug, Default)]
struct Queue {
    items: VecDeque<Item>,
    /// The need of the first message, if it was examined.
    need: Option<Need>,
}

impl Queue {
    fn messages(&self) -> impl Iterator<Item = &Message> {
        let messages = self.items.iter().filter_map(|item| match item {
            Item::Messages(messages) => Some(messages),
            Item::End(_) | Item::Lost(_) | Item::Unreadable { .. } => None,
        });
        messages.flatten()
    }

    fn bytes(&self) -> u64 {
        self.messages().map(Message::bytes).sum()
    }
}

/// All items that wait to be taken.
#[derive(Debug, Default)]
pub(super) struct Backlog {
    queues: BTreeMap<Place, Queue>,
    parked: BTreeMap<Place, Parked>,
}

impl Backlog {
    /// Adds a polled item.
    pub fn push(&mut self, place: Place, item: Item) {
        let items = &mut self.queues.entry(place).or_default().items;
        match (items.back_mut(), item) {
            // Ends are reported repeatedly.
            (Some(Item::End(last)), Item::End(end)) => *last = end,
            (_, item) => items.push_back(item),
        }
    }

    /// Returns the topic partitions that have items to take.
    pub fn places(&self) -> Vec<Place> {
        self.queues.keys().cloned().collect()
    }

    /// Removes and returns the first item of a topic partition; `None` if no item waits.
    pub fn pop(&mut self, place: &Place) -> Option<Item> {
        let queue = self.queues.get_mut(place)?;
        queue.need = None;
        let item = queue.items.pop_front();
        if item.is_none() {
            self.queues.remove(place);
        }
        item
    }

    /// Puts messages back at the front, because the first of them waits for `need`.
    pub fn wait(&mut self, place: Place, messages: VecDeque<Message>, need: Need) {
        let queue = self.queues.entry(place).or_default();
        queue.items.push_front(Item::Messages(messages));
        queue.need = Some(need);
    }

    /// Drops the waiting items of a shard, and unparks all of its topic partitions.
    pub fn drop_shard(&mut self, shard: Shard) {
        self.queues.retain(|(of, _), _| *of != shard);
        self.parked.retain(|(of, _), _| *of != shard);
    }

    /// Returns the bytes of waiting messages.
    pub fn bytes(&self) -> u64 {
        self.queues.values().map(Queue::bytes).sum()
    }

    /// Returns the topic partition with the most waiting bytes among all with a need, and that need. `None`
    /// if no topic partition has a need.
    pub fn largest(&self) -> Option<(Place, Need)> {
        let waiting = self.queues.iter().filter_map(|(place, queue)| Some((place, queue, queue.need?)));
        let largest = waiting.max_by_key(|(_, queue, _)| queue.bytes());
        largest.map(|(place, _, need)| (place.clone(), need))
    }

    /// Parks topic partitions of a shard.
    pub fn park(&mut self, parked: impl IntoIterator<Item = (Place, Parked)>) {
        self.parked.extend(parked);
    }

    /// Returns the parked topic partitions of a shard.
    pub fn parked_of(&self, shard: Shard) -> Vec<(Place, Parked)> {
        let parked = self.parked.iter().filter(|((of, _), _)| *of == shard);
        parked.map(|(place, parked)| (place.clone(), *parked)).collect()
    }

    /// Returns whether a topic partition is parked.
    pub fn is_parked(&self, shard: Shard, topic: &Text) -> bool {
        self.parked.contains_key(&(shard, topic.clone()))
    }

    /// Returns the shards with a parked topic partition that matches.
    pub fn shards_parked(&self, is_one: impl Fn(&Parked) -> bool) -> BTreeSet<Shard> {
        self.parked.iter().filter(|(_, parked)| is_one(parked)).map(|((shard, _), _)| *shard).collect()
    }

    /// Returns whether anything waits for a schema.
    pub fn needs_schema(&self) -> bool {
        let parked = self.parked.values().map(|parked| parked.need);
        parked.chain(self.needs()).any(|need| need.schema().is_some())
    }

    /// Returns the schemas to request: first the schemas that topic partitions wait for, then the schemas of
    /// the next messages of these partitions.
    pub fn schemas(&self, decoder: &dyn MessageDecoder, now: WallTime) -> Vec<u32> {
        let rested = self.parked.values().filter(|parked| parked.until <= now).map(|parked| parked.need);
        let needed = self.needs().chain(rested).filter_map(Need::schema);
        let waiting = self.queues.values().filter(|queue| queue.need.and_then(Need::schema).is_some());
        let ahead = waiting.flat_map(|queue| queue.messages().skip(1).take(LOOK_AHEAD));
        let ahead = ahead.filter_map(|message| match decoder.decode(message.event_bytes().ok()?) {
            Err(DecodeFailure::NeedsSchema(id)) => Some(id),
            _ => None,
        });
        let mut seen = BTreeSet::new();
        needed.chain(ahead).filter(|id| seen.insert(*id)).collect()
    }

    fn needs(&self) -> impl Iterator<Item = Need> {
        self.queues.values().filter_map(|queue| queue.need)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(offset: i64) -> Message {
        Message {
            topic: "t".into(),
            partition: 1,
            offset,
            timestamp_millis: -1,
            key: None,
            value: Some(vec![0; 100].into()),
            headers: Vec::new(),
        }
    }

    fn place(shard: Shard) -> Place {
        (shard, "t".into())
    }

    #[test]
    fn messages_put_back_come_first_and_only_the_last_end_waits() {
        let mut backlog = Backlog::default();
        let messages: VecDeque<Message> = [message(0), message(1)].into();
        backlog.push(place(1), Item::Messages(messages));
        backlog.push(place(1), Item::Messages([message(2)].into()));
        (2..1_000).for_each(|end| backlog.push(place(1), Item::End(end)));
        let Some(Item::Messages(mut first)) = backlog.pop(&place(1)) else { panic!("no messages") };
        first.pop_front();
        backlog.wait(place(1), first, Need::Clock);
        assert_eq!(backlog.bytes(), 2 * message(1).bytes());
        let mut offsets = Vec::new();
        while let Some(item) = backlog.pop(&place(1)) {
            match item {
                Item::Messages(messages) => offsets.extend(messages.iter().map(|message| message.offset)),
                Item::End(end) => offsets.push(end),
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(offsets, [1, 2, 999]);
        assert!(backlog.places().is_empty());
    }

    #[test]
    fn the_largest_that_waits_is_parked_until_its_shard_starts_again() {
        let mut backlog = Backlog::default();
        backlog.wait(place(1), [message(0)].into(), Need::Schema(7));
        backlog.wait(place(2), [message(0), message(1)].into(), Need::Schema(8));
        backlog.push(place(3), Item::Messages((0..9).map(message).collect()));
        assert_eq!(backlog.largest(), Some((place(2), Need::Schema(8))), "the third does not wait");
        backlog.drop_shard(2);
        let parked = Parked { need: Need::Schema(8), until: WallTime(5) };
        backlog.park([(place(2), parked)]);
        assert!(backlog.is_parked(2, &"t".into()) && backlog.needs_schema());
        assert_eq!(backlog.shards_parked(|parked| parked.need == Need::Schema(7)), BTreeSet::new());
        assert_eq!(backlog.shards_parked(|parked| parked.need == Need::Schema(8)), BTreeSet::from([2]));
        assert_eq!(backlog.parked_of(2), [(place(2), parked)]);
        backlog.drop_shard(2);
        assert_eq!(backlog.parked_of(2), []);
    }
}
