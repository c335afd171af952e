//! Claim: takes a shard.
//!
//! A claim reads the latest checkpoint, publishes it, and creates the next one, with the same content and a
//! new owner. A backfill first claims its lead shard, the lowest of its shards. Before each further claim, it
//! checks that it still owns the lead shard. So if several backfills compete for the same shards, the last
//! backfill to claim the lead shard gets all of them, and the others stop.

use prorata_schemas::Text;

use super::draft::Decided;
use super::log::{self, Appended, Log};
use super::model::OwnerKind;
use super::publish::{self, Published};
use crate::backoff;
use crate::error::{Result, WorkerError};
use crate::names::{self, Shard};
use crate::ports::ObjectStore;
use crate::ports::Ports;

/// A future owner of shards, and the conditions of its claims.
#[derive(Clone, Debug)]
pub struct Claimant {
    /// Random id of the future owner.
    pub owner: Text,
    /// The kind of the owner.
    pub kind: OwnerKind,
    /// Whether a shard may be taken from a worker that has not released it.
    pub take_over: bool,
}

/// Claims a shard, and returns the checkpoint that records the claim. `lead` is a backfill's checkpoint of
/// the lead shard. It is `None` for a worker, and while a backfill claims the lead shard itself.
///
/// # Errors
/// If a worker holds the shard, another owner took it or the lead shard, a table is ahead of the log, or
/// storage is unavailable.
pub async fn claim(
    ports: &Ports,
    claimant: &Claimant,
    shard: Shard,
    lead: Option<&Decided>,
) -> Result<Decided> {
    let store = &*ports.store;
    for _ in backoff::CLAIM.attempts() {
        let latest = log::latest(store, shard).await?;
        refuse_held(&latest, claimant)?;
        if !publish_latest(ports, &latest, claimant).await? {
            continue;
        }
        if let Some(lead) = lead {
            still_leads(store, lead).await?;
        }
        let mut next = latest.next_draft();
        next.note_published(&latest);
        next.set_owner(claimant.owner.clone(), claimant.kind);
        let mut log = Log::new(latest);
        log.seal(next, ports.clock.now());
        if log.append(store).await? == Appended::Ours {
            return Ok(log.decided().clone());
        }
    }
    Err(WorkerError::Taken { shard })
}

/// Checks that the lead shard has no checkpoint after ours.
///
/// # Errors
/// Returns [`WorkerError::Taken`] if there is a later checkpoint, or an error if storage is unavailable.
async fn still_leads(store: &dyn ObjectStore, lead: &Decided) -> Result<()> {
    match store.get(&names::checkpoint(lead.shard, lead.next_seq())).await? {
        Some(_) => Err(WorkerError::Taken { shard: lead.shard }),
        None => Ok(()),
    }
}

fn refuse_held(latest: &Decided, claimant: &Claimant) -> Result<()> {
    match &latest.owner {
        // Between workers, the consumer group decides which one has the shard.
        Some(owner)
            if claimant.kind == OwnerKind::Backfill
                && owner.kind == OwnerKind::Worker
                && !owner.released
                && !claimant.take_over =>
        {
            Err(WorkerError::Held { shard: latest.shard, owner: owner.id.to_string() })
        }
        _ => Ok(()),
    }
}

/// Publishes everything that the previous owner may have left unpublished. Returns `false` if the log has
/// grown meanwhile.
async fn publish_latest(ports: &Ports, latest: &Decided, claimant: &Claimant) -> Result<bool> {
    let published = publish::publish_at_claim(ports, latest, &claimant.owner).await?;
    let Published { fenced, .. } = published;
    let Some(fence) = fenced.get(&latest.shard) else { return Ok(true) };
    let newest = log::latest(&*ports.store, latest.shard).await?;
    if newest.seq > latest.seq {
        return Ok(false);
    }
    Err(WorkerError::StateBehindTables {
        known_by: format!("table {}", fence.table.name()),
        shard: latest.shard,
        known_seq: fence.seq,
        state_seq: latest.seq,
    })
}
