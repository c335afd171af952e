//! The rules of a run: plain rules, and rules under which greedy events cannot be folded.

use prorata_schemas::rules::{Allocation, Rules};

use super::plan::Plan;
use crate::world::greed;

/// Number of versions of plain rules.
pub const RULES: u32 = 3;

/// Returns the first rules of a run.
pub fn first(plan: &Plan) -> Rules {
    numbered(if plan.chances.greed > 0 { RULES } else { 0 })
}

/// Returns the rules with this number. The first [`RULES`] numbers are plain rules. As many further numbers
/// are rules under which greedy events cannot be folded. The versions of the rules are numbers from 1.
pub fn numbered(number: u32) -> Rules {
    let plain = match number % RULES {
        0 => Rules::default(),
        1 => Rules { allocation: Allocation::Requests, ..Rules::default() },
        _ => Rules { gpu_memory_gb: 16, ..Rules::default() },
    };
    let rules = if number < RULES { plain } else { greed::protected(&plain) };
    Rules { version: (number + 1).to_string().into(), ..rules }
}
