//! Faults at effects: every write, delete and commit is counted, and one of them may go wrong.

use std::sync::{Arc, Mutex, PoisonError};

/// What goes wrong, and at which effect, counted from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The process dies before the effect: nothing answers any more.
    CrashBefore(u64),
    /// The process dies after the effect.
    CrashAfter(u64),
    /// The effect happens, but its answer is an error.
    LoseAnswer(u64),
    /// The effect does not happen, and its answer is an error.
    Refuse(u64),
    /// From this effect on no write has room.
    Full(u64),
}

/// Counts effects, and fails where told; shared by the twins of one process.
#[derive(Clone, Debug, Default)]
pub struct Faults(Arc<Mutex<Counter>>);

#[derive(Debug, Default)]
struct Counter {
    effects: u64,
    fault: Option<Fault>,
    dead: bool,
}

/// What becomes of one effect.
pub(super) enum Fate {
    /// It happens.
    Happens,
    /// It happens, but the answer is this error.
    HappensUnanswered(&'static str),
    /// It does not happen, and the answer is this error.
    Fails(&'static str),
}

const DEAD: &str = "the process is dead";

impl Faults {
    /// With one fault.
    pub fn with(fault: Fault) -> Self {
        let counter = Counter { fault: Some(fault), ..Counter::default() };
        Self(Arc::new(Mutex::new(counter)))
    }

    /// Effects so far.
    pub fn effects(&self) -> u64 {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).effects
    }

    /// Whether the process still lives: reads fail, too, when it does not.
    pub(super) fn alive(&self) -> Result<(), &'static str> {
        let counter = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if counter.dead { Err(DEAD) } else { Ok(()) }
    }

    /// Counts an effect and says what becomes of it.
    pub(super) fn effect(&self) -> Fate {
        let mut counter = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if counter.dead {
            return Fate::Fails(DEAD);
        }
        let number = counter.effects;
        counter.effects += 1;
        match counter.fault {
            Some(Fault::CrashBefore(at)) if at == number => {
                counter.dead = true;
                Fate::Fails(DEAD)
            }
            Some(Fault::CrashAfter(at)) if at == number => {
                counter.dead = true;
                Fate::HappensUnanswered(DEAD)
            }
            Some(Fault::LoseAnswer(at)) if at == number => Fate::HappensUnanswered("the answer was lost"),
            Some(Fault::Refuse(at)) if at == number => Fate::Fails("service unavailable"),
            Some(Fault::Full(at)) if at <= number => Fate::Fails("no space left on device"),
            _ => Fate::Happens,
        }
    }
}
