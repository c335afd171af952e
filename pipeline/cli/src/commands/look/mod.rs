//! Commands that look at a lake and print what it holds. They write nothing into it.

pub mod diff;
pub mod explain;
pub mod export;
pub mod report;
pub mod show;
