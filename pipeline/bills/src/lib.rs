//! Turns providers' bills into events: FOCUS, Cost and Usage Reports of AWS, cost details of Azure, and the
//! detailed export of Google.
//!
//! Read in this order:
//! 1. [`BillImporter`] in `importer`: the way of a line from a document to an event.
//! 2. `read`: documents, line by line; `cells`: one line; `formats`: what a line of a format means.
//! 3. `line` and `filter`: charges, and which of them are imported.
//! 4. `spill` and `gather`: charges in partitions, and their sets.
//! 5. `decimal` and `time`: exact amounts and charge periods. `fault` and `report`: what went wrong, and what
//!    was done.
//!
//! Nothing here opens a file or reads a clock. The caller passes documents and empty temporary files, and
//! takes the events. Charges wait in the temporary files, so only a part of a bill is in memory at a time.

mod cells;
mod decimal;
mod fault;
mod filter;
mod formats;
mod gather;
mod importer;
mod line;
mod read;
mod report;
mod spill;
mod time;

pub use decimal::Exact;
pub use fault::BillError;
pub use filter::BillFilter;
pub use formats::BillFormat;
pub use importer::{BillImport, BillImporter};
pub use report::{BillReport, CostSums, LeftOutLines, Rounding};
pub use spill::PARTITIONS;
