//! Commands that make input for prorata: a cluster's events, price lists, agreements.

pub mod agreements;
pub mod collect;
pub mod prices;
