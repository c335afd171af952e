//! Everything that grows has an end: what the review of the protocol found growing, asserted.

mod claims;
mod files;
mod late;
mod leftovers;
mod maintain;
mod merging;
mod organizations;
mod owners;
mod parts;
mod snapshots;
mod watched;
mod years;
