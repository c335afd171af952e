//! Reads the costs of published hours, and sends messages about exceeded budgets.
//!
//! Messages are sent in the background, so a topic that does not answer delays no step. The checkpoint lists
//! the hours whose messages may be missing, so that after a crash the next owner sends these messages.

use prorata_schemas::time::WallTime;
use tokio::task::JoinHandle;

use super::Worker;
use super::tasks::Task;
use crate::names::Shard;
use crate::source::{Source, SourceError};
use crate::status::Dependency;
use crate::stream::shard::HoursRead;

/// Messages of a shard on their way to the topic.
pub(super) struct Sending {
    shard: Shard,
    hours: HoursRead,
    messages: u64,
    task: JoinHandle<Result<(), SourceError>>,
}

impl<S: Source> Worker<S> {
    /// Reads the costs of one shard, if they have changed.
    pub(super) async fn read_costs(&mut self) {
        if !self.setup.options.reads_costs {
            return;
        }
        let now = self.setup.ports.shared.clock.now();
        let Some(live) = self.shards.live_mut().find(|live| live.has_unread_costs(now)) else { return };
        if let Err(error) = live.read_costs(&self.setup.ports.shared, &self.rules, now).await {
            let shard = live.shard();
            tracing::warn!(shard, %error, "metrics of costs and budgets are not up to date");
            self.setup.ports.status.lock().counts.retries += 1;
        }
    }

    /// Starts to send the messages of one shard, unless others are still on their way. Does not wait for the
    /// topic.
    pub(super) async fn send_budgets(&mut self) {
        let Some(topic) = self.setup.ports.budgets.clone() else { return };
        let now = self.setup.ports.shared.clock.now();
        if let Some(sending) = self.sending.take_if(|sending| sending.task.is_finished()) {
            self.note_sent(sending, now).await;
        }
        if self.sending.is_some() || !self.tasks.is_due(Task::SendBudgets, now) {
            return;
        }
        let Some(live) = self.shards.live_mut().find(|live| live.has_unsent_budgets()) else { return };
        let shard = live.shard();
        match live.exceeded_budgets(&self.setup.ports.shared, &self.rules).await {
            Ok((exceeded, hours)) if exceeded.is_empty() => live.note_budgets_sent(&hours),
            Ok((exceeded, hours)) => {
                let messages = exceeded.len() as u64;
                let task = tokio::spawn(async move { topic.send(&exceeded).await });
                self.sending = Some(Sending { shard, hours, messages, task });
            }
            Err(error) => {
                tracing::warn!(shard, %error, "exceeded budgets are waiting for storage");
                self.setup.ports.status.lock().counts.retries += 1;
                self.tasks.note(Task::SendBudgets, false, now);
            }
        }
    }

    /// Notes the result of an attempt to send messages.
    async fn note_sent(&mut self, sending: Sending, now: WallTime) {
        let Sending { shard, hours, messages, task } = sending;
        let sent = match task.await {
            Ok(sent) => sent.map_err(|error| error.to_string()),
            Err(error) => Err(format!("sending ended: {error}")),
        };
        let answer = sent.map_err(|error| format!("the topic of exceeded budgets: {error}"));
        self.tasks.note(Task::SendBudgets, answer.is_ok(), now);
        let mut status = self.setup.ports.status.lock();
        status.note_answer(Dependency::BudgetTopic, &answer);
        match answer {
            Ok(()) => {
                status.counts.budget_messages += messages;
                drop(status);
                self.shards.get_live(shard).into_iter().for_each(|live| live.note_budgets_sent(&hours));
            }
            Err(error) => {
                status.counts.budget_failures += 1;
                drop(status);
                tracing::error!(shard, messages, error, "exceeded budgets are not sent; they are retried");
            }
        }
    }
}
