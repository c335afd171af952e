//! Windows of a shard's hours: what folding them takes, read as far as it fits, and the fold itself off the async
//! threads.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use prorata_schemas::rules::Rules;
use prorata_schemas::time::Hour;

use super::StreamPorts;
use super::shard::LiveShard;
use crate::error::Result;
use crate::fold::{self, FoldedShard, Window};
use crate::names::{self, Shard};
use crate::objects;
use crate::rules::RuleBook;

/// How many times the bytes of an archive file its events take in memory as bodies, about: files are compressed.
const ARCHIVE_FACTOR: u64 = 8;

/// Hours with their rules, and archive files of them.
pub(super) type Read = (Vec<(Hour, Arc<Rules>)>, Vec<(Hour, Bytes)>);

/// Reads hours from the first on, as many as fit, and always one.
pub(super) struct Reader<'a> {
    pub ports: &'a StreamPorts,
    pub rules: &'a RuleBook,
    /// Bytes of events to hold in memory at a time, with those of open hours.
    pub bytes_in_flight: u64,
}

impl Reader<'_> {
    /// Rules of hours, and the archive files of those of them that are wanted.
    pub async fn read(
        &self,
        shard: &mut LiveShard,
        (first, last): (Hour, Hour),
        wanted: impl Fn(Hour) -> bool,
    ) -> Result<Read> {
        let store = &*self.ports.shared.store;
        shard.archive.ensure(store, &shard.draft, (first, last)).await?;
        let (mut hours, mut paths, mut bytes) = (Vec::new(), Vec::new(), 0_u64);
        for hour in (first.0..=last.0).map(Hour) {
            let files = if wanted(hour) { shard.archive.files(hour) } else { &[] };
            let in_files = files.iter().map(|file| file.bytes).sum::<u64>().saturating_mul(ARCHIVE_FACTOR);
            let in_memory = shard.open.get(&hour).map_or(0, |open| open.bytes);
            bytes = bytes.saturating_add(in_files).saturating_add(in_memory);
            if bytes > self.bytes_in_flight && !hours.is_empty() {
                break;
            }
            hours.push((hour, self.rules.of(&shard.draft, hour)?));
            paths.extend(files.iter().map(|file| (hour, names::archive(shard.shard, hour, &file.stamp))));
        }
        let (of, paths): (Vec<Hour>, Vec<String>) = paths.into_iter().unzip();
        let files = objects::get_all(store, paths).await?;
        Ok((hours, of.into_iter().zip(files).collect()))
    }
}

/// Folds a shard's window.
pub(super) async fn fold(ports: &StreamPorts, shard: Shard, window: Window) -> Result<FoldedShard> {
    let archive = Arc::clone(&ports.shared.archive);
    let fold = move || fold::fold(&*archive, BTreeMap::from([(shard, window)]));
    let folded = tokio::task::spawn_blocking(fold).await;
    let folded = folded?;
    Ok(folded?.remove(&shard).unwrap_or_default())
}
