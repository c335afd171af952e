//! The formats of providers' bills: which columns they have, and what a line means.

mod azure;
mod cur;
mod focus;
mod gcp;
mod keys;
mod units;

use crate::cells::{Column, Row};
use crate::fault::LineFault;
use crate::line::Found;

/// A format of bills.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BillFormat {
    /// FOCUS 1.0 to 1.4.
    Focus,
    /// Version 2.0 of AWS's Cost and Usage Report.
    Cur2,
    /// The legacy Cost and Usage Report of AWS.
    Cur,
    /// Azure's cost details.
    Azure,
    /// Google's detailed export.
    Gcp,
}

impl BillFormat {
    /// Returns the columns that the format reads.
    pub const fn columns(self) -> &'static [Column] {
        match self {
            Self::Focus => focus::COLUMNS,
            Self::Cur2 | Self::Cur => cur::COLUMNS,
            Self::Azure => azure::COLUMNS,
            Self::Gcp => gcp::COLUMNS,
        }
    }

    /// Returns whether documents may be JSON, one object a line.
    pub const fn has_json(self) -> bool {
        matches!(self, Self::Gcp)
    }

    /// Reads one line. `scratch` is memory for a text that is read in another form.
    ///
    /// # Errors
    /// If a cell is wrong.
    pub fn read<'r>(self, row: &'r Row, scratch: &'r mut String) -> Result<Vec<Found<'r>>, LineFault> {
        match self {
            Self::Focus => focus::read(row),
            Self::Cur2 | Self::Cur => cur::read(row),
            Self::Azure => azure::read(row),
            Self::Gcp => gcp::read(row, scratch),
        }
    }
}
