//! Conformance suites of the ports: each promise is a check that the fake and the real thing both pass.

pub mod dead_letters;
pub mod files;
pub mod messages;
pub mod source;
pub mod store;

/// A promise is kept, or how it is broken.
pub(crate) type Checked = Result<(), String>;

/// What was found is what was expected.
pub(crate) fn equal<T: PartialEq + std::fmt::Debug>(what: &str, found: T, expected: T) -> Checked {
    if found == expected { Ok(()) } else { Err(format!("{what}: found {found:?}, expected {expected:?}")) }
}
