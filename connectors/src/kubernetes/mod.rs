//! A Kubernetes cluster as the collector follows it, with a kubeconfig or from within the cluster. Each kind
//! is listed and watched, and every change has the API server's time.
//!
//! Reading order: [`KubeCluster`] connects; `kinds` has the path of each kind; `discovery` asks which kinds
//! the server has; `watch` lists and watches one kind and never gives up; `usage` reads the usage of pods;
//! `time` is the API server's clock. Only fields that decide something are ever decoded, pages of lists are
//! small, and the queue of changes is bounded: while it is full, nothing is read.

mod client;
mod discovery;
mod kinds;
mod time;
mod usage;
mod waits;
mod watch;

pub use client::{KubeCluster, KubeSettings, Listable};
pub use usage::{GpuExporters, UsageRead, UsageReader, UsageSource};
pub use watch::{KindStatus, Observation, Watches};

/// The reason why a request to a cluster failed. The variants differ in the remedy.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KubeFault {
    /// The server is down, slow or overloaded: ask again later.
    #[error("the Kubernetes API server is unavailable: {0}")]
    Unavailable(String),
    /// The server refuses the credentials, or a permission is missing.
    #[error("the Kubernetes cluster cannot be used: {0}")]
    Permission(String),
    /// The kubeconfig is wrong. The message says what to change.
    #[error("the Kubernetes cluster cannot be used: {0}")]
    Configuration(String),
}
