//! Where a fold may start: the newest snapshot before it that no dirty hour precedes, and that can be read.

use prorata_schemas::time::Hour;

use crate::checkpoint::Checkpoint;
use crate::error::Result;
use crate::ports::ObjectStore;
use crate::snapshot::{self, ShardState};

/// The newest usable base for folding `hour`: the hour at whose end it stands, and its state; none: start empty,
/// before the shard's first event.
///
/// # Errors
/// When storage is unavailable.
pub async fn nearest(
    store: &dyn ObjectStore,
    checkpoint: &Checkpoint,
    hour: Hour,
) -> Result<Option<(Hour, ShardState)>> {
    for (hour, object) in checkpoint.snapshots_before(hour) {
        if let Some(states) = load(store, object).await? {
            return Ok(Some((hour, states)));
        }
    }
    Ok(None)
}

/// A snapshot's state, none when it is not usable: then an older one is.
///
/// # Errors
/// When storage is unavailable.
pub async fn load(store: &dyn ObjectStore, object: &str) -> Result<Option<ShardState>> {
    let Some(bytes) = store.get(object).await? else {
        tracing::warn!(object, "a snapshot is not there, an older one is used");
        return Ok(None);
    };
    match snapshot::decode(&bytes) {
        Ok(states) => Ok(Some(states)),
        Err(error) => {
            tracing::warn!(object, %error, "a snapshot cannot be used, an older one is");
            Ok(None)
        }
    }
}
