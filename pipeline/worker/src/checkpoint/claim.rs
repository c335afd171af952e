//! Claim: how a shard is taken.
//!
//! Read the latest checkpoint, publish it, then create the next one, which repeats it and appends a new
//! owner. A backfill takes its lead shard, the lowest of its shards, before any other and looks, before each
//! further claim, whether it still leads: so of several backfills on the same shards the last to take the
//! lead gets all of them, and the others stop.

use prorata_schemas::Text;

use super::draft::Decided;
use super::log::{self, Decision};
use super::model::OwnerKind;
use super::publish::{self, Published};
use crate::backoff;
use crate::error::{Result, WorkerError};
use crate::names::{self, Shard};
use crate::ports::ObjectStore;
use crate::ports::Ports;

/// Who claims, and how.
#[derive(Clone, Debug)]
pub struct Claimant {
    /// Random id of the owner to be.
    pub owner: Text,
    /// What it is.
    pub kind: OwnerKind,
    /// Whether a shard may be taken from a worker that has not released it.
    pub take_over: bool,
}

/// Takes a shard, and returns the checkpoint that says so. `lead` is a backfill's checkpoint of the lead
/// shard, none while that is being taken, and for a worker.
///
/// # Errors
/// If a worker holds the shard, another owner took the lead, a table is ahead of the log, or storage is
/// unavailable.
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
        next.add_owner(claimant.owner.clone(), claimant.kind);
        if let Decision::Ours(claimed) = log::decide(store, &next.seal(ports.clock.now())).await? {
            return Ok(claimed);
        }
    }
    Err(WorkerError::Taken { shard })
}

/// Stops when the lead shard has gone on without us.
///
/// # Errors
/// [`WorkerError::Taken`], or unavailable storage.
async fn still_leads(store: &dyn ObjectStore, lead: &Decided) -> Result<()> {
    match store.get(&names::checkpoint(lead.shard, lead.next_seq())).await? {
        Some(_) => Err(WorkerError::Taken { shard: lead.shard }),
        None => Ok(()),
    }
}

fn refuse_held(latest: &Decided, claimant: &Claimant) -> Result<()> {
    match latest.owner() {
        // Between workers the consumer group decides who has the shard.
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

/// Publishes what the owner before may have left unpublished; false when the log has gone on meanwhile.
async fn publish_latest(ports: &Ports, latest: &Decided, claimant: &Claimant) -> Result<bool> {
    let decided = std::slice::from_ref(latest);
    let published = publish::publish(ports, decided, &claimant.owner).await?;
    let Published { fenced, .. } = published;
    let Some(fence) = fenced.get(&latest.shard) else { return Ok(true) };
    let newest = log::latest(&*ports.store, latest.shard).await?;
    if newest.seq > latest.seq {
        return Ok(false);
    }
    Err(WorkerError::StateBehindTables {
        table: fence.table,
        shard: latest.shard,
        table_seq: fence.seq,
        state_seq: latest.seq,
    })
}
