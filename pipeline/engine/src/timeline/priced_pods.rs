//! Pods by the rate or the pool that prices them. For a new price, only these pods are examined, and not all
//! pods of an organization.

use std::collections::{BTreeMap, BTreeSet};

use prorata_schemas::ids::{PodUid, PoolId};

use crate::model::spec::PodSpec;
use crate::model::state::RateKey;

/// Pods by the rate that serves them and by the pool that they name. A pod that has stopped or runs under
/// another description stays here: its price is computed again, and does not change.
#[derive(Debug, Default)]
pub(super) struct PricedPods {
    rates: BTreeMap<RateKey, BTreeSet<PodUid>>,
    pools: BTreeMap<PoolId, BTreeSet<PodUid>>,
}

impl PricedPods {
    /// Notes that a pod runs under this description.
    pub(super) fn add(&mut self, uid: &PodUid, spec: &PodSpec) {
        if let Some(key) = spec.rate_key() {
            self.rates.entry(key).or_default().insert(uid.clone());
        }
        if let Some(id) = &spec.description.pool_id {
            self.pools.entry(id.clone()).or_default().insert(uid.clone());
        }
    }

    /// Returns the pods that a rate may serve.
    pub(super) fn of_rate(&self, key: &RateKey) -> BTreeSet<PodUid> {
        self.rates.get(key).cloned().unwrap_or_default()
    }

    /// Returns the pods that may name a pool.
    pub(super) fn of_pool(&self, id: &PoolId) -> BTreeSet<PodUid> {
        self.pools.get(id).cloned().unwrap_or_default()
    }
}
