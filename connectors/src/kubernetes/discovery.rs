//! Discovery of the kinds that the API server has: one request per API group, for all kinds.

use std::collections::{BTreeMap, BTreeSet};

use http::Request;
use prorata_collector::object::ObjectKind;
use serde::Deserialize;
use tokio::sync::watch;
use tokio::time::sleep;

use super::client::{KubeCluster, fault};
use super::waits::{RETRY_FIRST, longer, minutes};
use super::{KubeFault, kinds};
use crate::store::causes;

/// The kinds that the API server has; `None` until it has answered.
pub(super) type Found = Option<BTreeSet<ObjectKind>>;

/// Asks at once, and then every few minutes, which of these kinds exist.
pub(super) async fn discover(cluster: KubeCluster, wanted: Vec<ObjectKind>, found: watch::Sender<Found>) {
    let mut wait = RETRY_FIRST;
    loop {
        match cluster.served(&wanted).await {
            Ok(kinds) => {
                wait = RETRY_FIRST;
                found.send_replace(Some(kinds));
                sleep(minutes()).await;
            }
            Err(fault) => {
                tracing::warn!(%fault, "discovery of kinds failed; trying again in {wait:?}");
                sleep(longer(&mut wait)).await;
            }
        }
    }
}

/// The resources of an API group in one version.
#[derive(Debug, Deserialize)]
struct GroupResources {
    #[serde(default)]
    resources: Vec<Resource>,
}

#[derive(Debug, Deserialize)]
struct Resource {
    name: String,
}

impl KubeCluster {
    /// Returns the kinds out of `wanted` that the API server has. Every server has nodes and pods. A group
    /// that this client may not discover counts as present; a list then shows whether the kind exists.
    ///
    /// # Errors
    /// If the server does not answer, or refuses the credentials.
    pub async fn served(&self, wanted: &[ObjectKind]) -> Result<BTreeSet<ObjectKind>, KubeFault> {
        let (mut served, mut groups) = (BTreeSet::new(), BTreeMap::<_, Vec<_>>::new());
        for kind in wanted.iter().copied() {
            match kinds::group(kind) {
                None => drop(served.insert(kind)),
                Some(group) => groups.entry(group).or_default().push(kind),
            }
        }
        for (group, of_group) in groups {
            let request = Request::get(group)
                .body(Vec::new())
                .map_err(|error| KubeFault::Configuration(causes(&error)))?;
            match self.client().request::<GroupResources>(request).await {
                Ok(found) => served.extend(of_group.into_iter().filter(|kind| {
                    let (name, _) = kinds::resource(*kind);
                    found.resources.iter().any(|resource| resource.name == name)
                })),
                Err(kube::Error::Api(status)) if status.code == 404 => {}
                Err(kube::Error::Api(status)) if status.code == 403 => served.extend(of_group),
                Err(error) => return Err(fault(&error)),
            }
        }
        Ok(served)
    }
}
