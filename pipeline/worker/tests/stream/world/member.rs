//! A process with a worker in it, run step by step. A step may hang at an effect that waits.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use prorata_testkit::fakes::{FakeSource, Faults};
use prorata_worker::WorkerError;
use prorata_worker::status::Status;
use prorata_worker::stream::Worker;

use crate::world::World;

type Opening = Pin<Box<dyn Future<Output = Result<Worker<FakeSource>, WorkerError>>>>;
type Running = Pin<Box<dyn Future<Output = (Worker<FakeSource>, Result<bool, WorkerError>)>>>;

enum State {
    Opening(Opening),
    Idle(Box<Worker<FakeSource>>),
    Running(Running),
    Gone,
}

/// A process.
pub struct Member {
    pub name: String,
    pub status: Arc<Status>,
    pub faults: Faults,
    state: State,
    stopping: bool,
}

/// The result of a step.
#[derive(Debug)]
pub enum Stepped {
    /// The step is done; `true` if there is more to do at once.
    Done(bool),
    /// The step hangs at an effect that waits.
    Paused,
    /// The process has died.
    Dead,
    /// The process has stopped cleanly, or with an error.
    Stopped(Option<WorkerError>),
}

impl Member {
    pub fn new(name: &str, status: Arc<Status>, faults: Faults, opening: Opening) -> Self {
        let name = name.to_owned();
        Self { name, status, faults, state: State::Opening(opening), stopping: false }
    }

    /// Returns whether a step hangs.
    pub fn hangs(&self) -> bool {
        !self.faults.paused().is_empty()
    }

    /// Returns whether the process has stopped.
    pub fn is_gone(&self) -> bool {
        matches!(self.state, State::Gone)
    }

    /// Runs one step, or the rest of a step that hung.
    pub async fn step(&mut self) -> Stepped {
        let stepped = self.advance().await;
        // Fakes are ready at once, so only this call lets background tasks run.
        tokio::task::yield_now().await;
        if self.faults.dead() {
            self.state = State::Gone;
            return Stepped::Dead;
        }
        stepped
    }

    /// Requests a clean stop after the current step.
    pub fn stop(&mut self) {
        self.stopping = true;
    }

    async fn advance(&mut self) -> Stepped {
        if let State::Opening(opening) = &mut self.state {
            match until_paused(opening.as_mut(), &self.faults).await {
                None => return Stepped::Paused,
                Some(Ok(worker)) => self.state = State::Idle(Box::new(worker)),
                Some(Err(error)) => return self.gone(Some(error)),
            }
        }
        if let State::Idle(_) = self.state
            && let State::Idle(worker) = std::mem::replace(&mut self.state, State::Gone)
        {
            self.state = State::Running(begin(*worker, self.stopping));
        }
        let State::Running(running) = &mut self.state else { return Stepped::Stopped(None) };
        match until_paused(running.as_mut(), &self.faults).await {
            None => Stepped::Paused,
            Some((_, Ok(_))) if self.stopping => self.gone(None),
            Some((worker, Ok(more))) => {
                self.state = State::Idle(Box::new(worker));
                Stepped::Done(more)
            }
            Some((_, Err(error))) => self.gone(Some(error)),
        }
    }

    fn gone(&mut self, error: Option<WorkerError>) -> Stepped {
        self.state = State::Gone;
        Stepped::Stopped(error)
    }

    /// Steps until there has been nothing to do for more than a minute.
    pub async fn settle(&mut self, world: &World) -> Result<(), WorkerError> {
        let mut quiet = 0;
        let mut effects = self.faults.effects();
        for _ in 0..400 {
            match self.step().await {
                Stepped::Done(false) if self.faults.effects() == effects => quiet += 1,
                Stepped::Done(_) => quiet = 0,
                Stepped::Stopped(Some(error)) => return Err(error),
                other => panic!("{other:?}"),
            }
            effects = self.faults.effects();
            world.pass(Duration::from_secs(5));
            if quiet > 14 {
                return Ok(());
            }
        }
        panic!("the worker does not settle");
    }

    /// Stops cleanly.
    pub async fn drain(&mut self) {
        self.stop();
        let stepped = self.step().await;
        assert!(matches!(stepped, Stepped::Stopped(None)), "{stepped:?}");
    }
}

fn begin(mut worker: Worker<FakeSource>, stop: bool) -> Running {
    Box::pin(async move {
        let more = if stop {
            worker.drain().await;
            Ok(false)
        } else {
            worker.step(Duration::ZERO).await
        };
        (worker, more)
    })
}

/// Polls a future until it is ready or hangs at an effect that waits. Returns `None` if it hangs.
async fn until_paused<T>(
    mut running: Pin<&mut (dyn Future<Output = T> + 'static)>,
    faults: &Faults,
) -> Option<T> {
    poll_fn(|context| match running.as_mut().poll(context) {
        Poll::Ready(done) => Poll::Ready(Some(done)),
        Poll::Pending if faults.paused().is_empty() => Poll::Pending,
        Poll::Pending => Poll::Ready(None),
    })
    .await
}
