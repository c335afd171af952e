//! Wiring: the real ports, runtimes and clients, as configured, and the signals of the process. Every command
//! takes them from here.

pub mod kafka;
pub mod lake;
pub mod registry;

use std::num::NonZero;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use prorata_connectors::SystemClock;
use prorata_connectors::archive::AvroArchive;
use prorata_connectors::store::Store;
use prorata_connectors::{DeltaTables, ParquetEncoder};
use prorata_schemas::Text;
use prorata_worker::Ports;
use prorata_worker::WorkerError;
use tokio::runtime::{Builder, Runtime};
use tokio::signal::unix::{SignalKind, signal};

use crate::config;
use crate::failure::Failure;

/// Builds a runtime with this many threads, or with one per core if 0. Returns the runtime and the number of
/// threads. Rayon gets as many threads for folding and encoding.
///
/// # Errors
/// If threads cannot be started.
pub fn runtime(threads: usize) -> anyhow::Result<(Runtime, usize)> {
    let threads = match threads {
        0 => std::thread::available_parallelism().map_or(1, NonZero::get),
        threads => threads,
    };
    rayon::ThreadPoolBuilder::new().num_threads(threads).build_global()?;
    Ok((Builder::new_multi_thread().worker_threads(threads).enable_all().build()?, threads))
}

/// Builds a runtime for a few requests, without threads of its own.
///
/// # Errors
/// If the runtime cannot be built.
pub fn small_runtime() -> anyhow::Result<Runtime> {
    Ok(Builder::new_current_thread().enable_all().build()?)
}

/// Opens the object store of a lake.
///
/// # Errors
/// If the name is wrong.
pub fn store(lake: &str) -> Result<Store, Failure> {
    if let Some(exposed) = config::exposed::store() {
        tracing::warn!("{exposed}");
    }
    Store::open(lake).map_err(Failure::usage)
}

/// Returns the ports of backfill and stream worker, after checking that the store supports what they need.
///
/// # Errors
/// If the store is unavailable or lacks create-if-absent.
pub async fn ports(store: Store) -> Result<Ports, WorkerError> {
    store.probe().await.map_err(WorkerError::Store)?;
    Ok(look_ports(store))
}

/// Returns the ports of backfill and stream worker without checking the store. The check writes, so read-only
/// commands use this function.
pub fn look_ports(store: Store) -> Ports {
    Ports {
        store: Arc::new(store.clone()),
        tables: Arc::new(DeltaTables::new(store)),
        archive: Arc::new(AvroArchive),
        encoder: Arc::new(ParquetEncoder),
        clock: Arc::new(SystemClock),
    }
}

/// Creates a random id under which this process owns shards.
pub fn owner() -> Text {
    format!("{:016x}", rand::random::<u64>()).into()
}

/// Sets up the signals: the first SIGTERM or SIGINT requests a clean stop, and the second ends the process.
///
/// # Errors
/// If signals cannot be received.
pub fn stop_on_signals(stop: &Arc<AtomicBool>) -> anyhow::Result<()> {
    let (mut terminate, mut interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    let stop = Arc::clone(stop);
    tokio::spawn(async move {
        for _ in 0..2 {
            tokio::select! {
                _ = terminate.recv() => {}
                _ = interrupt.recv() => {}
            }
            if stop.swap(true, Ordering::Relaxed) {
                std::process::exit(130);
            }
            tracing::info!("stopping cleanly; signal again to stop at once");
        }
    });
    Ok(())
}
