//! Commands that feed prorata: a cluster's events, price lists, agreements.

pub mod agreements;
pub mod collect;
pub mod import;
pub mod prices;
