//! The commands of the program: arguments, the work, and the output at the end.

pub mod backfill;
pub mod check;
pub mod dead_letters;
pub mod feed;
pub mod generate;
pub mod look;
pub mod maintain;
pub mod ready;
pub mod replay;
pub mod schemas;
pub mod work;
