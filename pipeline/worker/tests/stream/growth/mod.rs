//! Limits of everything that grows over months and years of operation: requests, checkpoints, objects, files,
//! memory, and the cost of late events.

mod claims;
mod files;
mod late;
mod leftovers;
mod maintain;
mod names;
mod organizations;
mod owners;
mod parts;
mod snapshots;
mod watched;
mod years;
