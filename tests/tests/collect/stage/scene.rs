//! The fixture of most tests. It gives a test its own namespace and nodes, an undisturbed watch of its pods,
//! and a room for collectors. At the end, the watch, the collected events and the table must agree.

use std::collections::BTreeMap;
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use prorata_testkit::wait::eventually;
use prorata_tests::program::Program;

use super::cluster::{Cluster, pod};
use super::collector::Room;
use super::lives::{Lives, Watcher, events, running_seconds, said, seconds_of};

/// A lock that watches hold for reading. A test that stops a server, and so ends all watches, holds it for
/// writing.
static CALM: RwLock<()> = RwLock::new(());

/// The right to watch.
pub type Shared = RwLockReadGuard<'static, ()>;

/// The right to stop servers.
pub type Alone = RwLockWriteGuard<'static, ()>;

/// Waits until no server is being stopped.
pub fn shared() -> Shared {
    CALM.read().unwrap_or_else(PoisonError::into_inner)
}

/// Waits until nobody watches.
pub fn alone() -> Alone {
    CALM.write().unwrap_or_else(PoisonError::into_inner)
}

/// The setting of a test, in a namespace with its name.
pub struct Scene<Calm> {
    pub name: &'static str,
    pub cluster: Cluster,
    /// Path of the namespace's pods.
    pub pods: String,
    pub watcher: Watcher,
    pub room: Room,
    _calm: Calm,
}

impl<Calm> Scene<Calm> {
    /// Opens a scene with this many nodes, which run no pods of other tests.
    pub fn open(calm: Calm, name: &'static str, nodes: usize, room: Room) -> Self {
        let cluster = Cluster::open();
        let pods = cluster.namespace(name);
        for number in 0..nodes {
            cluster.node(&format!("{name}-{number}"), name);
        }
        let watcher = Watcher::start(&cluster, &pods);
        Self { name, cluster, pods, watcher, room, _calm: calm }
    }

    /// Creates this many pods, named from `prefix-0`.
    pub fn create(&self, prefix: &str, count: usize) {
        let pods = (0..count).map(|number| pod(&format!("{prefix}-{number}"), self.name)).collect();
        self.cluster.create_all(&self.pods, pods);
    }

    /// Deletes a pod, with this grace period in seconds if there is one.
    pub fn delete(&self, pod: &str, grace: Option<u32>) {
        self.cluster.delete(&format!("{}/{pod}", self.pods), grace);
    }

    /// Waits until a pod runs.
    pub fn runs(&self, pod: &str) {
        eventually("it runs", || {
            let pod = self.cluster.get(&format!("{}/{pod}", self.pods)).unwrap();
            if pod["status"]["phase"] == "Running" { Ok(()) } else { Err(pod["status"].to_string()) }
        });
    }

    /// Deletes all pods, and waits until they are gone.
    pub fn clear(&self) {
        for left in self.cluster.list(&self.pods) {
            self.delete(left["metadata"]["name"].as_str().unwrap(), None);
        }
        self.cluster.emptied(&self.pods);
    }

    /// Waits until the events report all that the watcher saw. A restarted collector reads what it has
    /// missed.
    pub fn wait_until_reported(&self) {
        let lives = self.watcher.lives();
        eventually("all is reported", || {
            let reported = said(&events(&self.room.events()), self.name);
            let same = lives.iter().filter(|(uid, life)| reported.get(*uid) == Some(life)).count();
            if same == lives.len() { Ok(()) } else { Err(format!("{same} of {} are", lives.len())) }
        });
    }

    /// Deletes all pods, and stops the collector once it has reported all ends. Fails unless the three
    /// accounts agree. Returns the lives of the pods.
    pub fn end(&self, program: Program) -> Lives {
        self.clear();
        self.wait_until_reported();
        Room::stop(program).succeeded();
        self.assert_accounts_agree()
    }

    /// Fails unless the three accounts agree on all pods, which must have ended. Returns the lives of the
    /// pods.
    pub fn assert_accounts_agree(&self) -> Lives {
        let lives = self.watcher.lives();
        let all = events(&self.room.events());
        let reported = said(&all, self.name);
        for (uid, life) in &lives {
            let of_pod: Vec<_> = all.iter().filter(|event| format!("{event:?}").contains(uid)).collect();
            assert_eq!(reported.get(uid), Some(life), "events, and what {uid} did: {of_pod:#?}");
        }
        assert_eq!(reported.len(), lives.len(), "pods that nobody saw");
        assert_eq!(costed_seconds(&self.room, self.name), ran_seconds(&lives), "seconds in the table");
        lives
    }
}

/// Folds the collected events, and returns the seconds of each pod of a namespace in the table.
pub fn costed_seconds(room: &Room, namespace: &str) -> BTreeMap<String, u64> {
    let lake = room.fold();
    let mut costed = running_seconds(&lake, namespace);
    // A pod that started and ended within one second costs nothing, and may have no row.
    costed.retain(|_, seconds| *seconds > 0);
    costed
}

/// Returns the seconds that pods ran.
pub fn ran_seconds(lives: &Lives) -> BTreeMap<String, u64> {
    let ran = lives.iter().map(|(uid, life)| (uid.clone(), seconds_of(life).unwrap()));
    ran.filter(|(_, seconds)| *seconds > 0).collect()
}
