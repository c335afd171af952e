//! Prices of nodes: the price list, the documents that it is made from, and rates by capacity.
//!
//! A price list is one CSV file. [`Importer`] makes it from the documents that providers publish. No price is
//! ever a float: numbers in documents are read as text, and text as decimals.

mod book;
mod documents;
mod list;

pub(crate) use book::priced_region;
pub use book::{CapacityRates, PriceBook, PricedNode};
pub use documents::{ImportError, Imported, Importer, LeftOut, PriceDocument};
pub(crate) use documents::{decimal, json};
pub use list::{PriceList, PriceListError, PricedType, read_price_list, write_price_list};
