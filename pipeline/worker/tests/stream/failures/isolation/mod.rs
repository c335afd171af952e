//! One organization, one broken shard or one unreadable batch of messages never stops the others.

mod ancient;
mod broken;
mod held;
mod poison;
mod schemas;
mod unreadable;
