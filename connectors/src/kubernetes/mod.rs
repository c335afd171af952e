//! A Kubernetes cluster as the collector follows it: by kubeconfig or from within, each kind listed and
//! watched, every change with the API server's time.
//!
//! Reading order: [`KubeCluster`] connects; `kinds` says where each kind is; `discovery` asks which of them
//! the server has; `watch` lists and watches one kind and never gives up; `usage` reads what pods use; `time`
//! is the API server's clock. Only fields that decide are ever decoded, pages of lists are small, and the
//! queue of changes is bounded: while it is full, nothing is read.

mod client;
mod discovery;
mod kinds;
mod time;
mod usage;
mod watch;

pub use client::{KubeCluster, KubeSettings, Listable};
pub use usage::{GpuExporters, UsageRead, UsageReader, UsageSource};
pub use watch::{KindStatus, Observation, Watches};

/// Why a cluster did not do what was asked; variants by what helps.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KubeFault {
    /// It is down, slow or overloaded: ask again later.
    #[error("the Kubernetes API server is unavailable: {0}")]
    Unavailable(String),
    /// It refuses the credentials, or a permission is missing.
    #[error("the Kubernetes cluster cannot be used: {0}")]
    Permission(String),
    /// The kubeconfig is wrong. The message says what to change.
    #[error("the Kubernetes cluster cannot be used: {0}")]
    Configuration(String),
}
