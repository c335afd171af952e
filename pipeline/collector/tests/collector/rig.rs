//! A correct shell: it stores intents, sends, and stores changes, and may die in between.

use std::sync::Arc;

use prorata_collector::prices::PriceBook;
use prorata_collector::{Batch, Change, Collector, CollectorOptions, CollectorState, Notice};
use prorata_schemas::body;
use prorata_schemas::event::Event;
use prorata_schemas::time::Timestamp;

/// The point at which a shell dies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cut {
    /// Before any part of the batch is stored.
    BeforeIntents,
    /// Before any event is sent.
    BeforeEvents,
    /// After this many events are sent.
    AfterEvents(usize),
}

/// A collector with the events that it sent and the state that it stored.
pub struct Rig {
    pub options: CollectorOptions,
    pub prices: Arc<PriceBook>,
    pub collector: Collector,
    /// The state that a restart finds.
    pub stored: CollectorState,
    /// The sent events, in order, with repeats.
    pub sent: Vec<Event>,
    pub notices: Vec<Notice>,
}

impl Rig {
    pub fn new(options: CollectorOptions) -> Self {
        let prices = Arc::new(PriceBook::default());
        let stored = CollectorState::default();
        let collector = Collector::new(options.clone(), prices.clone(), stored.clone());
        Self { options, prices, collector, stored, sent: Vec::new(), notices: Vec::new() }
    }

    pub fn apply(&mut self, change: Change, now: i64) {
        self.collector.apply(change, Timestamp(now));
    }

    /// Sends and stores the next batch, in the order of `CollectorState`.
    pub fn commit(&mut self) {
        let batch = self.collector.take_batch();
        self.store_intents(&batch);
        self.send(&batch, batch.events.len());
        self.store_changes(&batch);
    }

    /// Dies in the middle of a batch, and restarts from the stored state.
    pub fn cut(&mut self, cut: Cut) {
        let batch = self.collector.take_batch();
        match cut {
            Cut::BeforeIntents => {}
            Cut::BeforeEvents => self.store_intents(&batch),
            Cut::AfterEvents(count) => {
                self.store_intents(&batch);
                self.send(&batch, count.min(batch.events.len()));
            }
        }
        self.restart();
    }

    pub fn restart(&mut self) {
        let text = serde_json::to_string(&self.stored).unwrap();
        self.stored = serde_json::from_str(&text).unwrap();
        self.collector = Collector::new(self.options.clone(), self.prices.clone(), self.stored.clone());
    }

    fn store_intents(&mut self, batch: &Batch) {
        self.stored.since = batch.since;
        for (key, intent) in &batch.intents {
            self.stored.announced.insert(key.clone(), intent.clone());
        }
    }

    fn send(&mut self, batch: &Batch, count: usize) {
        for event in &batch.events[..count] {
            let body = body::encode(event);
            let read = body::decode(event.payload.kind(), &body);
            assert_eq!(read.as_ref(), Ok(event), "every event is valid");
            self.sent.push(event.clone());
        }
        self.notices.extend(batch.notices.iter().cloned());
    }

    fn store_changes(&mut self, batch: &Batch) {
        for (key, change) in &batch.changes {
            match change {
                Some(announced) => drop(self.stored.announced.insert(key.clone(), announced.clone())),
                None => drop(self.stored.announced.remove(key)),
            }
        }
        self.stored.caught_up.clone_from(&batch.caught_up);
        self.stored.pods_version.clone_from(&batch.pods_version);
        assert_eq!(&self.stored, self.collector.state(), "what is stored is what the collector has");
    }
}
