//! Limits of everything that grows. The tests assert a limit for each kind of growth that the review of the
//! protocol found.

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
