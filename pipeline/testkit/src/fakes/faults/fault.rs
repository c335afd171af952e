//! Kinds of faults, the effects and reads that they strike, and their probabilities.

use crate::fakes::random::Random;

/// A fault, and the number of the effect or read that it strikes, counted from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The process dies before the effect, and nothing responds any more.
    CrashBefore(u64),
    /// The process dies after the effect.
    CrashAfter(u64),
    /// The effect happens, but its response is an error.
    LoseAnswer(u64),
    /// The effect does not happen, and its response is an error.
    Refuse(u64),
    /// From this effect on, storage has no room for writes.
    Full(u64),
    /// The effect waits until [`super::Faults::resume`] decides its outcome. So the effect may happen long
    /// after its process has died.
    Pause(u64),
    /// The effect happens, but the client loses the response, repeats the request, and returns the second
    /// response. The second response to a write is `Exists`; to a commit, that the version is taken. A sent
    /// letter exists twice.
    Retry(u64),
    /// The read's response is an error.
    ReadFails(u64),
    /// The object ends early.
    Truncated(u64),
    /// One bit of the object is wrong.
    Flipped(u64),
    /// The object seems not to exist.
    Missing(u64),
}

impl Fault {
    /// Returns the fault's class, by which faults are counted.
    pub const fn class(self) -> &'static str {
        match self {
            Self::CrashBefore(_) => "crash_before",
            Self::CrashAfter(_) => "crash_after",
            Self::LoseAnswer(_) => "lose_answer",
            Self::Refuse(_) => "refuse",
            Self::Full(_) => "full",
            Self::Pause(_) => "pause",
            Self::Retry(_) => "retry",
            Self::ReadFails(_) => "read_fails",
            Self::Truncated(_) => "truncated",
            Self::Flipped(_) => "flipped",
            Self::Missing(_) => "missing",
        }
    }

    /// Returns whether the fault strikes this effect.
    pub(super) const fn strikes_effect(self, number: u64) -> bool {
        match self {
            Self::CrashBefore(at)
            | Self::CrashAfter(at)
            | Self::LoseAnswer(at)
            | Self::Refuse(at)
            | Self::Pause(at)
            | Self::Retry(at) => at == number,
            Self::Full(from) => from <= number,
            Self::ReadFails(_) | Self::Truncated(_) | Self::Flipped(_) | Self::Missing(_) => false,
        }
    }

    /// Returns whether the fault strikes this read.
    pub(super) const fn strikes_read(self, number: u64) -> bool {
        match self {
            Self::ReadFails(at) | Self::Truncated(at) | Self::Flipped(at) | Self::Missing(at) => at == number,
            _ => false,
        }
    }
}

/// Probabilities of random faults, in millionths. A fault of effects has this probability for each effect; a
/// fault of reads, for each read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(missing_docs, reason = "each is documented by the fault of the same name")]
pub struct Rates {
    pub crash_before: u32,
    pub crash_after: u32,
    pub lose_answer: u32,
    pub refuse: u32,
    pub pause: u32,
    pub retry: u32,
    pub read_fails: u32,
    pub truncated: u32,
    pub flipped: u32,
    pub missing: u32,
}

impl Rates {
    /// Returns the fault of the effect with this number, if any.
    pub(super) fn draw_effect(&self, random: &mut Random, number: u64) -> Option<Fault> {
        let chances = [
            (self.crash_before, Fault::CrashBefore(number)),
            (self.crash_after, Fault::CrashAfter(number)),
            (self.lose_answer, Fault::LoseAnswer(number)),
            (self.refuse, Fault::Refuse(number)),
            (self.pause, Fault::Pause(number)),
            (self.retry, Fault::Retry(number)),
        ];
        chances.into_iter().find_map(|(rate, fault)| random.happens(rate).then_some(fault))
    }

    /// Returns the fault of the read with this number, if any.
    pub(super) fn draw_read(&self, random: &mut Random, number: u64) -> Option<Fault> {
        let chances = [
            (self.read_fails, Fault::ReadFails(number)),
            (self.truncated, Fault::Truncated(number)),
            (self.flipped, Fault::Flipped(number)),
            (self.missing, Fault::Missing(number)),
        ];
        chances.into_iter().find_map(|(rate, fault)| random.happens(rate).then_some(fault))
    }
}

/// The outcome of an effect that waited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resume {
    /// The effect happens now.
    Happen,
    /// The effect happens now, but its response is an error.
    HappenUnanswered,
    /// The effect never happens, and its response is an error.
    Fail,
}

/// Kinds of effects.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Effect {
    /// An object is created.
    Write,
    /// An object is deleted.
    Delete,
    /// A table's log grows.
    Commit,
    /// Dead letters are sent.
    Send,
}
