//! Commands that create input for prorata: events of a cluster, price lists, and agreements.

pub mod agreements;
pub mod collect;
pub mod prices;
