//! Backfills on a lake in memory: equal to a plain fold, whatever happens on the way.

mod crash;
mod harness;
mod input;
mod laws;
mod owners;
