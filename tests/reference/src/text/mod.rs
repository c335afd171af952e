//! Events as readable one-line text: `10:30 pod p1 ns=a node=n1 cpu=500m gpu=1`. The tables in
//! `testdata/rules` use this form, and small failing cases are printed in it. Times are hours, minutes and
//! seconds since 2026-01-05 (a Monday). Fields that a line leaves out have the defaults of [`parse`].

mod bill;
mod division;
mod fields;
mod parse;
mod print;

pub use division::parse_division;
pub use fields::{BASE_HOUR, parse_duration, parse_time, print_time, resource};
pub use parse::parse;
pub use print::print;

/// The organization of every event in a text.
pub const ORGANIZATION: &str = "org";
