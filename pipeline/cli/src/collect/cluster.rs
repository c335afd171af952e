//! The cluster that is followed, as configured.

use std::path::PathBuf;

use prorata_connectors::kubernetes::{KubeCluster, KubeFault, KubeSettings};

use crate::config::CollectConfig;
use crate::failure::Failure;

/// Opens the cluster. No request is sent yet.
pub async fn open(collect: &CollectConfig) -> Result<KubeCluster, Failure> {
    let text = |text: &str| (!text.is_empty()).then(|| text.to_owned());
    let kubeconfig = text(&collect.kubeconfig).map(PathBuf::from);
    let settings = KubeSettings { kubeconfig, context: text(&collect.context) };
    KubeCluster::open(&settings).await.map_err(failure)
}

/// Converts a fault of the cluster to a failure with an exit code.
pub fn failure(fault: KubeFault) -> Failure {
    match fault {
        KubeFault::Unavailable(_) => Failure::storage(fault),
        KubeFault::Permission(_) | KubeFault::Configuration(_) => Failure::usage(fault),
    }
}
