//! The commands of the program: arguments, the work itself, and what is printed at the end.

pub mod generate;
