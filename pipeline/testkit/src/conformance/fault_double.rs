//! Doubles that break one promise each, to prove that a suite catches it.

use std::fmt::Debug;

/// A port that keeps all its promises but one. Each suite implements its port for it.
pub(super) struct FaultDouble<P, D, M = ()> {
    /// What keeps the promises.
    pub(super) honest: P,
    /// The promise that is broken, and how.
    pub(super) defect: D,
    /// What it remembers for that.
    pub(super) memory: M,
}

/// Fails unless the suite catches every defect, and blames the promise that it breaks.
pub(super) async fn assert_caught<D: Copy + Debug>(
    defects: &[(D, &str)],
    mut suite: impl AsyncFnMut(D) -> Result<Vec<&'static str>, String>,
) {
    for (defect, broken) in defects {
        match suite(*defect).await {
            Ok(_) => panic!("{defect:?} is not caught"),
            Err(caught) => assert!(caught.contains(broken), "{defect:?}: {caught}"),
        }
    }
}
