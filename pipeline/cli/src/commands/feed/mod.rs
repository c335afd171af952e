//! Commands that create input for prorata: events of a cluster, price lists, agreements, and bills.

pub mod agreements;
pub mod bills;
pub mod collect;
pub mod prices;
