//! Prices of nodes: the price list, the documents from which it is built, and rates by capacity.
//!
//! A price list is one CSV file. [`Importer`] builds it from the documents that providers publish. No price
//! is ever a float: numbers in documents are read as text, and the text is parsed as a decimal.

mod book;
mod documents;
mod list;

pub(crate) use book::priced_region;
pub use book::{CapacityRates, PriceBook, PricedNode};
pub use documents::{ImportError, Imported, Importer, LeftOut, PriceDocument};
pub(crate) use documents::{decimal, json};
pub use list::{PriceList, PriceListError, PricedType, read_price_list, write_price_list};
