//! One tenant or one broken shard never stops the others.

mod ancient;
mod broken;
mod names;
mod schemas;
mod unreadable;
mod versions;
