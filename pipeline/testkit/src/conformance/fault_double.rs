//! Doubles that each break one promise. They prove that a suite catches the broken promise.

use std::fmt::Debug;

/// A port that keeps all but one of its promises. Each suite implements its own port for this type.
pub(super) struct FaultDouble<P, D, M = ()> {
    /// The port that keeps the promises.
    pub(super) honest: P,
    /// The promise that the double breaks, and the way in which it breaks the promise.
    pub(super) defect: D,
    /// State that the double needs to break the promise.
    pub(super) memory: M,
}

/// Fails unless the suite catches every defect and names the promise that it breaks.
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
