//! Conformance suites of the ports. Each promise is a check that both the fake and the real implementation
//! pass.
//!
//! A suite runs on a [`Harness`], which makes a fresh place for each check. If a harness cannot do something,
//! such as stop the brokers, the check leaves this part out and reports it. Tests compare the list of
//! everything that was left out.

use async_trait::async_trait;
use futures::future::LocalBoxFuture;

pub mod dead_letters;
pub mod files;
pub mod messages;
pub mod source;
pub mod store;

#[cfg(test)]
mod fault_double;

/// The environment in which a suite runs.
#[async_trait(?Send)]
pub trait Harness {
    /// Type of the place on which a check runs, such as `dyn SourcePlace`.
    type Place: ?Sized;

    /// Creates a place that no check has used before.
    async fn place(&self) -> Result<Box<Self::Place>, String>;
}

/// The result of a check. An error describes the way in which the promise is broken.
pub(crate) type Checked = Result<(), String>;

/// The place of a check, and the list of everything that the check left out.
pub(crate) struct Stage<P: ?Sized> {
    pub(crate) place: Box<P>,
    pub(crate) left_out: Vec<&'static str>,
}

/// The check of a promise.
pub(crate) type Check<P> = for<'s> fn(&'s mut Stage<P>) -> LocalBoxFuture<'s, Checked>;

/// The promises of a port, by name.
pub(crate) struct Suite<P: ?Sized>(pub(crate) Vec<(&'static str, Check<P>)>);

impl<P: ?Sized> Suite<P> {
    /// Runs every check. Returns what the harness could not do, in order of the checks.
    ///
    /// # Errors
    /// Returns the first broken promise, with the way in which it is broken.
    pub(crate) async fn run(
        self,
        harness: &(impl Harness<Place = P> + ?Sized),
    ) -> Result<Vec<&'static str>, String> {
        let mut left_out = Vec::new();
        for (name, check) in self.0 {
            let mut stage = Stage { place: harness.place().await?, left_out: Vec::new() };
            check(&mut stage).await.map_err(|broken| format!("{name}: {broken}"))?;
            left_out.append(&mut stage.left_out);
        }
        left_out.dedup();
        Ok(left_out)
    }
}

/// Checks that the found value is the expected value.
pub(crate) fn equal<T: PartialEq + std::fmt::Debug>(what: &str, found: T, expected: T) -> Checked {
    if found == expected { Ok(()) } else { Err(format!("{what}: found {found:?}, expected {expected:?}")) }
}
