//! Hours whose table files are cut, days whose table files are joined, and hours whose archive files are
//! merged.

mod cut;
mod days;
mod merging;
