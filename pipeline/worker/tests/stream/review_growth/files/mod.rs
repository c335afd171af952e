//! Table files of hours that are cut, and of days that are joined.

mod cut;
mod days;
