//! One tenant, and one broken shard, never stop the others.

mod ancient;
mod broken;
mod names;
mod schemas;
mod unreadable;
mod versions;
