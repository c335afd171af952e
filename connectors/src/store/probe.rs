//! A check of the promise on which everything depends: exactly one of several writers creates an object.

use std::time::{SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use prorata_worker::ports::{ObjectStore, PutOutcome, StoreError};

const FIRST: &[u8] = b"first";
const SECOND: &[u8] = b"second";

/// Creates an object twice and returns whether the second attempt changed nothing. Removes the object.
///
/// # Errors
/// If the store cannot be written or read.
pub(super) async fn creates_once(store: &dyn ObjectStore) -> Result<bool, StoreError> {
    let nanoseconds = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos());
    let path = format!("probe-{}-{nanoseconds}", std::process::id());
    // Whether the first answer is "created" or "exists" is ignored: if an answer was lost, the client has
    // tried again, and found its own object.
    store.put_if_absent(&path, Bytes::from_static(FIRST)).await?;
    let second = store.put_if_absent(&path, Bytes::from_static(SECOND)).await?;
    let held = store.get(&path).await?;
    store.delete(&path).await?;
    Ok(second == PutOutcome::Exists && held.as_deref() == Some(FIRST))
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use async_trait::async_trait;
    use prorata_worker::ports::ObjectMeta;

    use super::*;

    /// The fault of a store with one object.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    enum Way {
        Well,
        /// The answer to the first write is lost, and the client writes again.
        LosesTheFirstAnswer,
        /// The store accepts every write.
        TakesAll,
        /// The store accepts every write, but reports that the object exists.
        TakesAllAndDenies,
    }

    struct One(Way, Mutex<Option<Bytes>>);

    #[async_trait]
    impl ObjectStore for One {
        async fn get(&self, _: &str) -> Result<Option<Bytes>, StoreError> {
            Ok(self.1.lock().unwrap().clone())
        }

        async fn put_if_absent(&self, _: &str, bytes: Bytes) -> Result<PutOutcome, StoreError> {
            let mut held = self.1.lock().unwrap();
            let existed = held.is_some();
            if !existed || matches!(self.0, Way::TakesAll | Way::TakesAllAndDenies) {
                *held = Some(bytes);
            }
            let reports_existing = match self.0 {
                Way::Well | Way::TakesAllAndDenies => existed,
                Way::LosesTheFirstAnswer => true,
                Way::TakesAll => false,
            };
            Ok(if reports_existing { PutOutcome::Exists } else { PutOutcome::Created })
        }

        async fn list(&self, _: &str) -> Result<Vec<ObjectMeta>, StoreError> {
            Ok(Vec::new())
        }

        async fn stat(&self, _: &str) -> Result<Option<ObjectMeta>, StoreError> {
            Ok(None)
        }

        async fn delete(&self, _: &str) -> Result<(), StoreError> {
            *self.1.lock().unwrap() = None;
            Ok(())
        }
    }

    #[tokio::test]
    async fn a_store_is_judged_by_the_second_write_alone() {
        for (way, good) in [
            (Way::Well, true),
            (Way::LosesTheFirstAnswer, true),
            (Way::TakesAll, false),
            (Way::TakesAllAndDenies, false),
        ] {
            let store = One(way, Mutex::default());
            assert_eq!(creates_once(&store).await.unwrap(), good, "{way:?}");
            assert_eq!(store.get("").await.unwrap(), None, "{way:?}: what is left");
        }
    }
}
