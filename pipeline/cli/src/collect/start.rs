//! Requests that a collector sends to the API server before it follows the cluster.

use std::collections::BTreeSet;
use std::time::Duration;

use prorata_collector::object::ObjectKind;
use prorata_connectors::kubernetes::{KubeCluster, KubeFault, Listable};
use prorata_schemas::Text;
use tokio::time::{Instant, sleep};

use super::cluster::failure;
use crate::failure::Failure;

/// Maximum time that a start waits for the API server.
const PATIENCE: Duration = Duration::from_secs(30);

/// The kinds that are followed. Kinds that a cluster does not have are requested from time to time.
pub(super) const KINDS: [ObjectKind; 10] = [
    ObjectKind::Node,
    ObjectKind::Pod,
    ObjectKind::ElasticQuota,
    ObjectKind::CompositeElasticQuota,
    ObjectKind::GpuPool,
    ObjectKind::GpuNode,
    ObjectKind::ResourceClaim,
    ObjectKind::ResourceSlice,
    ObjectKind::DeviceClass,
    ObjectKind::PersistentVolume,
];

/// Requests to the API server at a start. A request without a response is repeated until a deadline.
pub(super) struct Start<'c> {
    cluster: &'c KubeCluster,
    deadline: Instant,
}

impl<'c> Start<'c> {
    /// Creates a start whose deadline counts from now.
    pub fn of(cluster: &'c KubeCluster) -> Self {
        Self { cluster, deadline: Instant::now() + PATIENCE }
    }

    async fn answer<T>(&self, ask: impl AsyncFn() -> Result<T, KubeFault>) -> Result<T, KubeFault> {
        loop {
            match ask().await {
                Err(KubeFault::Unavailable(reason)) if Instant::now() < self.deadline => {
                    tracing::warn!(reason, "API server does not answer yet; asking again");
                    sleep(Duration::from_secs(1)).await;
                }
                answer => return answer,
            }
        }
    }

    /// Waits until the API server responds.
    pub async fn reach(&self) -> Result<(), KubeFault> {
        self.answer(async || self.cluster.learn_time().await).await?;
        // The first response was slow because it included the connection setup. A second response gives the
        // server's time more precisely.
        self.answer(async || self.cluster.learn_time().await).await
    }

    /// Returns the id of the cluster: the configured id, or else the uid of its namespace `kube-system`.
    pub async fn cluster_id(&self, configured: &str) -> Result<Text, Failure> {
        if !configured.is_empty() {
            return Ok(configured.into());
        }
        self.answer(async || self.cluster.cluster_id().await).await.map_err(|fault| match fault {
            KubeFault::Permission(reason) => Failure::usage(format!(
                "the cluster has no id: set collect.cluster_id or --cluster, or grant get of the namespace \
                 kube-system ({reason})"
            )),
            fault => failure(fault),
        })
    }

    /// Returns the kinds that can be listed now. Nodes and pods must be among them.
    pub async fn watched(&self) -> Result<BTreeSet<ObjectKind>, KubeFault> {
        let mut watched = BTreeSet::new();
        for kind in self.answer(async || self.cluster.served(&KINDS).await).await? {
            match self.answer(async || self.cluster.listable(kind).await).await? {
                Listable::Yes => drop(watched.insert(kind)),
                Listable::Refused(missing) if matches!(kind, ObjectKind::Node | ObjectKind::Pod) => {
                    return Err(KubeFault::Permission(missing));
                }
                Listable::Refused(missing) => tracing::info!(missing, "kind not followed"),
                Listable::Absent => tracing::debug!(?kind, "the API server does not have this kind"),
            }
        }
        Ok(watched)
    }
}
