//! Table files of hand-made rows, read back with the Parquet reader.

mod cost;
mod day;
mod digest;
mod files;
mod gpus;
mod read;
mod splice;
