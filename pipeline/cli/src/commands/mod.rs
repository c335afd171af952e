//! The commands of the program: arguments, the work itself, and what is printed at the end.

pub mod backfill;
pub mod dead_letters;
pub mod generate;
pub mod schemas;
pub mod work;
