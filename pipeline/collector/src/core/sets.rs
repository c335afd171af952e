//! Events of quotas and pools.

use prorata_schemas::event::{Payload, PoolDeleted, QuotaDeleted, QuotaKind};
use prorata_schemas::time::Timestamp;

use super::Collector;
use super::announce::{Named, Since};
use crate::describe::sets;
use crate::object::{ElasticQuotaObject, GpuPoolObject, ObjectKind, ObjectMeta};
use crate::state::{Announced, Key};

impl Collector {
    pub(super) fn quota_seen(&mut self, quota: &ElasticQuotaObject, is_composite: bool, now: Timestamp) {
        let (kind, quota_kind) = match is_composite {
            true => (ObjectKind::CompositeElasticQuota, QuotaKind::CompositeElasticQuota),
            false => (ObjectKind::ElasticQuota, QuotaKind::ElasticQuota),
        };
        self.note_seen(kind, &quota.metadata.uid);
        match sets::quota(quota, quota_kind, &self.options) {
            Ok(set) => self.set(
                kind,
                quota.metadata.uid.as_str(),
                &quota.metadata,
                Payload::QuotaSet(Box::new(set)),
                now,
            ),
            Err(fault) => self.unreadable(kind, name_of(&quota.metadata), vec![fault]),
        }
    }

    pub(super) fn quota_gone(&mut self, quota: &ElasticQuotaObject, kind: ObjectKind, now: Timestamp) {
        let key = Key { kind, id: quota.metadata.uid.as_str().into() };
        self.stop_set(&key, quota.metadata.removed().unwrap_or(now).min(now));
    }

    pub(super) fn pool_seen(&mut self, pool: &GpuPoolObject, now: Timestamp) {
        let id = sets::id_of_pool(pool, &self.options);
        self.note_seen(ObjectKind::GpuPool, &id);
        match sets::pool(pool, &self.options) {
            Ok(set) => {
                let runs = |known: &Announced| known.phase.is_running();
                let key = Key { kind: ObjectKind::GpuPool, id: id.clone() };
                let was_known = self.state.announced.get(&key).is_some_and(runs);
                self.set(ObjectKind::GpuPool, &id, &pool.metadata, Payload::PoolSet(Box::new(set)), now);
                if !was_known {
                    self.look_again_at_pools(now);
                }
            }
            Err(fault) => self.unreadable(ObjectKind::GpuPool, name_of(&pool.metadata), vec![fault]),
        }
    }

    pub(super) fn pool_gone(&mut self, pool: &GpuPoolObject, now: Timestamp) {
        let key = Key { kind: ObjectKind::GpuPool, id: sets::id_of_pool(pool, &self.options) };
        self.stop_set(&key, pool.metadata.removed().unwrap_or(now).min(now));
        self.look_again_at_pools(now);
    }

    fn set(&mut self, kind: ObjectKind, id: &str, meta: &ObjectMeta, payload: Payload, now: Timestamp) {
        let created = meta.creation_timestamp.map_or(now, |time| time.0);
        let start = created.max(self.since()).min(now);
        let recorded = meta.changed();
        let change = recorded.unwrap_or(now).min(now);
        let key = Key { kind, id: id.into() };
        self.announce(key, Named::default(), payload, Since { start, change, recorded, is_current: true });
    }

    /// Deletes an announced quota or pool.
    pub(super) fn stop_set(&mut self, key: &Key, at: Timestamp) {
        let cluster_id = self.options.cluster_id.clone();
        let payload = match key.kind {
            ObjectKind::GpuPool => Payload::PoolDeleted(PoolDeleted { pool_id: key.id.clone().into() }),
            _ => Payload::QuotaDeleted(QuotaDeleted { cluster_id, quota_id: key.id.clone().into() }),
        };
        self.announce_stop(key, at, payload);
    }
}

fn name_of(meta: &ObjectMeta) -> String {
    match meta.namespace.as_str() {
        "" => meta.name.clone(),
        namespace => format!("{namespace}/{}", meta.name),
    }
}
