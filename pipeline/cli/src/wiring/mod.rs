//! Wiring: the real ports, runtimes and clients, as the configuration describes them. Every command takes
//! them here.

pub mod kafka;
pub mod lake;
pub mod registry;

use std::num::NonZero;
use std::sync::Arc;

use prorata_connectors::SystemClock;
use prorata_connectors::archive::AvroArchive;
use prorata_connectors::store::Store;
use prorata_connectors::{DeltaTables, ParquetEncoder};
use prorata_schemas::Text;
use prorata_worker::Ports;
use prorata_worker::WorkerError;
use tokio::runtime::{Builder, Runtime};

use crate::config;
use crate::failure::Failure;

/// A runtime with this many threads (0: one per core), and their number. Rayon gets as many for folding and
/// encoding.
///
/// # Errors
/// When threads cannot be started.
pub fn runtime(threads: usize) -> anyhow::Result<(Runtime, usize)> {
    let threads = match threads {
        0 => std::thread::available_parallelism().map_or(1, NonZero::get),
        threads => threads,
    };
    rayon::ThreadPoolBuilder::new().num_threads(threads).build_global()?;
    Ok((Builder::new_multi_thread().worker_threads(threads).enable_all().build()?, threads))
}

/// A runtime for a few requests, without threads of its own.
///
/// # Errors
/// When it cannot be built.
pub fn small_runtime() -> anyhow::Result<Runtime> {
    Ok(Builder::new_current_thread().enable_all().build()?)
}

/// The object store of a lake.
///
/// # Errors
/// When the name is wrong.
pub fn store(lake: &str) -> Result<Store, Failure> {
    if let Some(exposed) = config::exposed::store() {
        tracing::warn!("{exposed}");
    }
    Store::open(lake).map_err(Failure::usage)
}

/// The ports of backfill and stream worker, after checking that the store can do what they need.
///
/// # Errors
/// When the store is unavailable or lacks create-if-absent.
pub async fn ports(store: Store) -> Result<Ports, WorkerError> {
    store.probe().await.map_err(WorkerError::Store)?;
    Ok(look_ports(store))
}

/// The same without the check, which writes: for those who only look.
pub fn look_ports(store: Store) -> Ports {
    Ports {
        store: Arc::new(store.clone()),
        tables: Arc::new(DeltaTables::new(store)),
        archive: Arc::new(AvroArchive),
        encoder: Arc::new(ParquetEncoder),
        clock: Arc::new(SystemClock),
    }
}

/// A random id of this process, as owner of shards.
pub fn owner() -> Text {
    format!("{:016x}", rand::random::<u64>()).into()
}
