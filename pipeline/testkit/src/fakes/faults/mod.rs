//! Faults of one process. Every effect (write, delete, commit, send) and every read is counted, and some of
//! them fail.
//!
//! The fakes of one process share one [`Faults`], so that they die together. Faults are set beforehand by
//! number, or drawn at random. Either way, the same run has the same faults.

mod fault;

use std::collections::BTreeMap;
use std::fmt;
use std::future::poll_fn;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Waker};

use bytes::Bytes;
use prorata_worker::ports::ErrorKind;

use super::random::Random;
pub use fault::{Effect, Fault, Rates, Resume};

/// A counter of the effects and reads of one process, which makes some of them fail. The fakes of the process
/// share the counter.
#[derive(Clone, Default)]
pub struct Faults(Arc<Mutex<Counter>>);

#[derive(Default)]
struct Counter {
    /// Every effect so far, with the object that it acts on.
    trail: Vec<(Effect, String)>,
    reads: u64,
    schedule: Vec<Fault>,
    random: Option<(Random, Rates)>,
    dead: bool,
    storage_down: Option<ErrorKind>,
    counts: BTreeMap<&'static str, u64>,
    paused: BTreeMap<u64, Paused>,
    wakers: BTreeMap<u64, Waker>,
}

/// A paused effect. A call of this function decides the outcome. The effect may happen even if its caller no
/// longer waits.
type Paused = Box<dyn FnOnce(Resume) + Send>;

/// The reason why an effect or a read has failed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Failed {
    pub(super) kind: ErrorKind,
    pub(super) cause: &'static str,
}

impl Failed {
    const fn transient(cause: &'static str) -> Self {
        Self { kind: ErrorKind::Transient, cause }
    }

    /// Returns a storage error of this kind, with a cause that a person can read.
    const fn of_storage(kind: ErrorKind) -> Self {
        let cause = match kind {
            ErrorKind::Transient => "503 slow down",
            ErrorKind::Permission => "403 access denied",
            ErrorKind::Missing => "404 no such bucket",
            ErrorKind::Conflict => "409 conflict",
            ErrorKind::Invalid => "501 not implemented",
        };
        Self { kind, cause }
    }
}

const DEAD: Failed = Failed::transient("the process is dead");
const LOST: Failed = Failed::transient("the answer was lost");
const REFUSED: Failed = Failed::transient("service unavailable");

impl fmt::Debug for Faults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let counter = self.lock();
        let mut shown = f.debug_struct("Faults");
        shown.field("schedule", &counter.schedule).field("random", &counter.random);
        shown.field("effects", &counter.trail.len()).field("counts", &counter.counts).finish()
    }
}

impl Faults {
    /// Creates faults with one fault.
    pub fn with(fault: Fault) -> Self {
        Self::schedule([fault])
    }

    /// Creates a schedule of several faults. If several faults strike the same effect or read, the first
    /// counts.
    pub fn schedule(faults: impl IntoIterator<Item = Fault>) -> Self {
        let new = Self::default();
        new.lock().schedule.extend(faults);
        new
    }

    /// Creates random faults at these rates.
    pub fn random(seed: u64, rates: Rates) -> Self {
        let new = Self::default();
        new.lock().random = Some((Random::new(seed), rates));
        new
    }

    /// Adds a fault that strikes a later effect or read.
    pub fn add(&self, fault: Fault) {
        self.lock().schedule.push(fault);
    }

    /// Removes all faults. A dead process stays dead, and a waiting effect still waits.
    pub fn calm(&self) {
        let mut counter = self.lock();
        counter.schedule.clear();
        counter.random = None;
    }

    /// Returns the number of effects so far, which is the number of the next effect.
    pub fn effects(&self) -> u64 {
        self.lock().trail.len() as u64
    }

    /// Returns the number of reads so far, which is the number of the next read.
    pub fn reads(&self) -> u64 {
        self.lock().reads
    }

    /// Returns every effect so far with the object that it acts on, in order of their numbers.
    pub fn trail(&self) -> Vec<(Effect, String)> {
        self.lock().trail.clone()
    }

    /// Returns how often each class of faults has struck.
    pub fn counts(&self) -> BTreeMap<&'static str, u64> {
        self.lock().counts.clone()
    }

    /// Makes storage answer every request with an error of this kind from now on; `None` ends the outage.
    pub fn set_storage_down(&self, kind: Option<ErrorKind>) {
        self.lock().storage_down = kind;
    }

    /// Kills the process. From now on, no call gets a response, and waiting calls fail. Waiting effects may
    /// still happen.
    pub fn kill(&self) {
        let wakers = {
            let mut counter = self.lock();
            counter.dead = true;
            std::mem::take(&mut counter.wakers)
        };
        wakers.into_values().for_each(Waker::wake);
    }

    /// Returns whether the process is dead.
    pub fn dead(&self) -> bool {
        self.lock().dead
    }

    /// Returns the numbers of the effects that wait.
    pub fn paused(&self) -> Vec<u64> {
        self.lock().paused.keys().copied().collect()
    }

    /// Ends the wait of an effect, even if its process is dead. Returns whether the effect waited.
    pub fn resume(&self, effect: u64, how: Resume) -> bool {
        let (paused, waker) = {
            let mut counter = self.lock();
            (counter.paused.remove(&effect), counter.wakers.remove(&effect))
        };
        let waited = paused.is_some();
        if let Some(paused) = paused {
            paused(how);
        }
        if let Some(waker) = waker {
            waker.wake();
        }
        waited
    }

    /// Counts an effect on an object. The fault of this effect decides whether it is applied, once or twice,
    /// and now or later.
    pub(super) async fn effect<T: Send + 'static>(
        &self,
        effect: Effect,
        object: &str,
        apply: impl Fn() -> T + Send + 'static,
    ) -> Result<T, Failed> {
        let (number, fault) = self.lock().count_effect(effect, object)?;
        match fault {
            None => Ok(apply()),
            Some(Fault::CrashBefore(_)) => Err(DEAD),
            Some(Fault::CrashAfter(_)) => {
                apply();
                Err(DEAD)
            }
            Some(Fault::LoseAnswer(_)) => {
                apply();
                Err(LOST)
            }
            Some(Fault::Retry(_)) => {
                apply();
                Ok(apply())
            }
            Some(Fault::Pause(_)) => self.wait(number, apply).await,
            Some(Fault::Full(_)) => Err(Failed::transient("no space left on device")),
            Some(_) => Err(REFUSED),
        }
    }

    /// Waits for [`Self::resume`]. If the caller stops waiting, the effect may still happen.
    async fn wait<T: Send + 'static>(
        &self,
        number: u64,
        apply: impl Fn() -> T + Send + 'static,
    ) -> Result<T, Failed> {
        let answer = Arc::new(Mutex::new(None));
        let slot = Arc::clone(&answer);
        let paused = move |how| {
            let outcome = match how {
                Resume::Happen => Ok(apply()),
                Resume::HappenUnanswered => {
                    apply();
                    Err(LOST)
                }
                Resume::Fail => Err(REFUSED),
            };
            *slot.lock().unwrap_or_else(PoisonError::into_inner) = Some(outcome);
        };
        self.lock().paused.insert(number, Box::new(paused));
        poll_fn(|context| {
            let mut counter = self.lock();
            if counter.dead {
                return Poll::Ready(Err(DEAD));
            }
            if let Some(outcome) = answer.lock().unwrap_or_else(PoisonError::into_inner).take() {
                return Poll::Ready(outcome);
            }
            counter.wakers.insert(number, context.waker().clone());
            Poll::Pending
        })
        .await
    }

    /// Counts a read of something other than an object.
    pub(super) fn look(&self) -> Result<(), Failed> {
        match self.lock().count_read(false)? {
            Some(_) => Err(REFUSED),
            None => Ok(()),
        }
    }

    /// Counts a read of an object, and returns the object as the read sees it.
    pub(super) fn read(&self, object: Option<Bytes>) -> Result<Option<Bytes>, Failed> {
        let fault = self.lock().count_read(object.as_ref().is_some_and(|bytes| !bytes.is_empty()))?;
        let (Some(fault), Some(bytes)) = (fault, &object) else { return Ok(object) };
        Ok(match fault {
            Fault::Truncated(number) => Some(bytes.slice(..Random::new(number).below(bytes.len()))),
            Fault::Flipped(number) => Some(flipped(bytes, number)),
            Fault::Missing(_) => None,
            _ => return Err(REFUSED),
        })
    }

    fn lock(&self) -> MutexGuard<'_, Counter> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Counter {
    fn count_effect(&mut self, effect: Effect, object: &str) -> Result<(u64, Option<Fault>), Failed> {
        if self.dead {
            return Err(DEAD);
        }
        if let Some(kind) = self.storage_down.filter(|_| effect != Effect::Send) {
            return Err(Failed::of_storage(kind));
        }
        let number = self.trail.len() as u64;
        self.trail.push((effect, object.to_owned()));
        let scheduled = self.schedule.iter().copied().find(|fault| fault.strikes_effect(number));
        let drawn = self.random.as_mut().and_then(|(random, rates)| rates.draw_effect(random, number));
        let fault = scheduled.or(drawn);
        self.dead |= matches!(fault, Some(Fault::CrashBefore(_) | Fault::CrashAfter(_)));
        self.count(fault);
        Ok((number, fault))
    }

    /// Counts a read, and returns its fault, if any. `damageable` says whether a fault can damage the result.
    fn count_read(&mut self, damageable: bool) -> Result<Option<Fault>, Failed> {
        if self.dead {
            return Err(DEAD);
        }
        if let Some(kind) = self.storage_down {
            return Err(Failed::of_storage(kind));
        }
        let number = self.reads;
        self.reads += 1;
        let scheduled = self.schedule.iter().copied().find(|fault| fault.strikes_read(number));
        let drawn = self.random.as_mut().and_then(|(random, rates)| rates.draw_read(random, number));
        let fault = scheduled.or(drawn).filter(|fault| damageable || matches!(fault, Fault::ReadFails(_)));
        self.count(fault);
        Ok(fault)
    }

    fn count(&mut self, fault: Option<Fault>) {
        if let Some(fault) = fault {
            *self.counts.entry(fault.class()).or_default() += 1;
        }
    }
}

fn flipped(bytes: &Bytes, number: u64) -> Bytes {
    let mut random = Random::new(number);
    let (at, bit) = (random.below(bytes.len()), random.below(8));
    let flip = |(index, byte): (usize, &u8)| if index == at { byte ^ (1 << bit) } else { *byte };
    bytes.iter().enumerate().map(flip).collect()
}
