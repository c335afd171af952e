//! The `prorata` program on folders: exit codes, sentences, and tables that do not depend on how they came about.

mod bad_input;
mod harness;
mod runs;
mod usage;
