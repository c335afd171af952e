//! Commands that look at a lake and say what it holds; they write nothing into it.

pub mod diff;
pub mod explain;
pub mod export;
pub mod report;
