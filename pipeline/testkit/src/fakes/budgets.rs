//! The topic of exceeded budgets in memory.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use prorata_worker::ports::{BudgetTopic, ExceededBudget};
use prorata_worker::source::SourceError;
use tokio::sync::Notify;

use super::faults::{Effect, Faults};

/// The topic of exceeded budgets in memory. Clones share the topic; each process has its own faults.
#[derive(Clone, Debug, Default)]
pub struct FakeBudgetTopic {
    taken: Arc<Mutex<Vec<ExceededBudget>>>,
    is_missing: Arc<AtomicBool>,
    is_silent: Arc<AtomicBool>,
    answers: Arc<Notify>,
    faults: Faults,
}

impl FakeBudgetTopic {
    /// Returns this topic for a process with these faults.
    pub fn with_faults(&self, faults: Faults) -> Self {
        Self { faults, ..self.clone() }
    }

    /// Returns all messages sent so far. A message that was sent twice appears twice.
    pub fn taken(&self) -> Vec<ExceededBudget> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Sets whether the topic refuses all messages.
    pub fn set_missing(&self, is_missing: bool) {
        self.is_missing.store(is_missing, Ordering::Relaxed);
    }

    /// Sets whether the topic does not respond.
    pub fn set_silent(&self, is_silent: bool) {
        self.is_silent.store(is_silent, Ordering::Relaxed);
        self.answers.notify_waiters();
    }
}

#[async_trait]
impl BudgetTopic for FakeBudgetTopic {
    async fn send(&self, exceeded: &[ExceededBudget]) -> Result<(), SourceError> {
        while self.is_silent.load(Ordering::Relaxed) {
            self.answers.notified().await;
        }
        if self.is_missing.load(Ordering::Relaxed) {
            return Err(SourceError::Configuration("there is no such topic; create it".into()));
        }
        let (taken, exceeded) = (Arc::clone(&self.taken), exceeded.to_vec());
        let take = move || taken.lock().unwrap_or_else(PoisonError::into_inner).extend(exceeded.clone());
        let sent = self.faults.effect(Effect::Send, "exceeded budgets", take).await;
        sent.map_err(|failed| SourceError::Unavailable(failed.cause.to_owned()))
    }
}
