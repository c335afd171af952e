//! Hours whose table files are cut, and days whose table files are joined.

mod cut;
mod days;
