//! The task that follows one kind: lists it, then watches it from the list's version. The kind is listed
//! again when the server no longer has the later changes, or on request. After a fault, the task reports the
//! fault and keeps trying.
//!
//! Every few hours the kind is checked. It is listed as of the exact version up to which the watch has
//! reported everything. So the list must show exactly what is already known. The watch continues from this
//! version.
//!
//! After a restart, pods are watched from the stored version. If pods were waiting at that version, pods are
//! first listed as of it, because a watch would not show the waiting pods again.
//!
//! A list that breaks off begins again; only a list that reached its last page counts as complete. Pods wait
//! until every other kind was listed, because they name nodes, claims and volumes.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures::{Stream, TryStreamExt};
use kube::core::WatchEvent;
use kube::core::params::{ListParams, VersionMatch, WatchParams};
use prorata_collector::object::{NodeObject, ObjectKind, PersistentVolumeObject, PodObject};
use prorata_collector::{Change, PodsVersion};
use prorata_schemas::Text;
use prorata_schemas::time::Timestamp;
use serde::Deserialize;
use serde_json::Value;
use tokio::sync::{Notify, mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until, timeout};

use super::KubeFault;
use super::client::{KubeCluster, fault, missing};
use super::discovery::{self, Found};
use super::kinds::{self, WireObject};
use super::waits::{RETRY_FIRST, RETRY_MAX, longer, minutes};

/// Number of objects in a page of a list. A pod may have 13 kB of JSON.
const PAGE_OBJECTS: u32 = 200;
/// The silence after which a watch is opened again. Its connection may be dead, and the server forgets later
/// changes after 75 seconds. Bookmarks come every minute, except while the version has not changed since the
/// watch began, as for a kind without changes.
const SILENCE: Duration = Duration::from_secs(70);
/// The wait before a kind that may not be listed is tried again.
const REFUSED_WAIT: Duration = Duration::from_secs(600);

/// The reason why a kind is not followed.
const ABSENT: &str = "the API server does not have this kind";

/// A change, with the API server's time at its arrival.
#[derive(Clone, Debug)]
pub struct Observation {
    /// The change.
    pub change: Change,
    /// The time of the arrival.
    pub at: Timestamp,
}

/// The state of following a kind.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KindStatus {
    /// The number of complete lists.
    pub lists: u64,
    /// The number of changes that a watch reported.
    pub changes: u64,
    /// The time at which the server last reported anything, or opened a watch that then showed no change.
    /// `None` before the first contact.
    pub last_contact: Option<Timestamp>,
    /// Whether the server does not have the kind, or the kind may not be listed.
    pub is_absent: bool,
    /// The present error.
    pub error: Option<String>,
}

/// The tasks that follow the kinds of a cluster. The tasks end when this is dropped.
pub struct Watches {
    tasks: JoinSet<()>,
    relists: BTreeMap<ObjectKind, Arc<Notify>>,
    status: Arc<Mutex<BTreeMap<ObjectKind, KindStatus>>>,
}

impl Watches {
    /// Begins to follow these kinds. Pods continue from `pods_version` if it is known; if pods were waiting
    /// at this version, pods are first listed as of it. Changes go to `queue`; while it is full, nothing is
    /// read. Each kind is checked every `relist_interval`.
    pub fn start(
        cluster: &KubeCluster,
        watched: &[ObjectKind],
        pods_version: Option<PodsVersion>,
        queue: &mpsc::Sender<Observation>,
        relist_interval: Duration,
    ) -> Self {
        let mut tasks = JoinSet::new();
        let mut relists = BTreeMap::new();
        let status = Arc::<Mutex<BTreeMap<_, _>>>::default();
        // Each kind but pods holds a sender until it was listed.
        let (held, mut all_listed) = watch::channel(());
        let held = Arc::new(held);
        let (found, served) = watch::channel(None);
        tasks.spawn(cluster.clone().keep_time(minutes));
        tasks.spawn(discovery::discover(cluster.clone(), watched.to_vec(), found));
        for kind in watched.iter().copied() {
            let relist = Arc::new(Notify::new());
            relists.insert(kind, Arc::clone(&relist));
            let mut follower = Follower {
                cluster: cluster.clone(),
                kind,
                served: served.clone(),
                queue: queue.clone(),
                relist,
                relist_interval,
                list_due: Instant::now() + relist_interval,
                version: None,
                resumes: false,
                status: Arc::clone(&status),
                unlisted: (kind != ObjectKind::Pod).then(|| Arc::clone(&held)),
            };
            match kind {
                ObjectKind::Pod => {
                    follower.version = pods_version.as_ref().map(|pods| pods.version.to_string());
                    follower.resumes = pods_version.as_ref().is_some_and(|pods| pods.has_waiting);
                    let mut others = all_listed.clone();
                    tasks.spawn(async move {
                        // An error means that nobody holds a sender any more.
                        while others.changed().await.is_ok() {}
                        follower.follow::<PodObject>().await;
                    })
                }
                ObjectKind::Node => tasks.spawn(async move { follower.follow::<NodeObject>().await }),
                ObjectKind::PersistentVolume => {
                    tasks.spawn(async move { follower.follow::<PersistentVolumeObject>().await })
                }
                _ => tasks.spawn(async move { follower.follow::<Value>().await }),
            };
        }
        drop(held);
        all_listed.mark_unchanged();
        Self { tasks, relists, status }
    }

    /// Lists a kind again, after a wait.
    pub fn list_again(&mut self, kind: ObjectKind, after: Duration) {
        if let Some(relist) = self.relists.get(&kind).cloned() {
            self.tasks.spawn(async move {
                sleep(after).await;
                relist.notify_one();
            });
        }
        // Removes finished waits; followers never end on their own.
        while self.tasks.try_join_next().is_some() {}
    }

    /// Returns the state of following each kind.
    pub fn status(&self) -> BTreeMap<ObjectKind, KindStatus> {
        self.status.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// Returns the next change of a watch; `None` if the watch has ended, or is silent for too long.
async fn next<T>(
    events: &mut (impl Stream<Item = kube::Result<T>> + Unpin),
    silence: Duration,
) -> kube::Result<Option<T>> {
    timeout(silence, events.try_next()).await.unwrap_or(Ok(None))
}

/// The reason why following pauses.
enum Pause {
    /// The server no longer has the changes after the version.
    Expired,
    /// The server has no such kind.
    Absent,
    /// The kind may not be listed.
    Refused,
    /// Any other fault.
    Fault(KubeFault),
    /// Nobody takes changes any more.
    Ended,
}

impl From<kube::Error> for Pause {
    fn from(error: kube::Error) -> Self {
        match &error {
            kube::Error::Api(status) if status.code == 410 => Self::Expired,
            kube::Error::Api(status) if status.code == 404 => Self::Absent,
            kube::Error::Api(status) if status.code == 403 => Self::Refused,
            error => Self::Fault(fault(error)),
        }
    }
}

/// A page of a list.
#[derive(Deserialize)]
#[serde(bound = "T: WireObject")]
struct Page<T> {
    #[serde(default)]
    metadata: PageMeta,
    // Go writes null for an empty list.
    items: Option<Vec<T>>,
}

/// The metadata of a page.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct PageMeta {
    resource_version: String,
    /// The start of the next page; `None` or empty if there is none.
    pub(super) r#continue: Option<String>,
}

/// A task that follows one kind.
struct Follower {
    cluster: KubeCluster,
    kind: ObjectKind,
    served: watch::Receiver<Found>,
    queue: mpsc::Sender<Observation>,
    relist: Arc<Notify>,
    relist_interval: Duration,
    list_due: Instant,
    /// The version from which a watch continues; `None` to list first.
    version: Option<String>,
    /// Whether a list as of the version must show the pods that waited before a restart.
    resumes: bool,
    status: Arc<Mutex<BTreeMap<ObjectKind, KindStatus>>>,
    /// Held until the kind was listed, or is known not to be listable.
    unlisted: Option<Arc<watch::Sender<()>>>,
}

impl Follower {
    async fn follow<T: WireObject>(mut self) {
        let mut wait = RETRY_FIRST;
        if !self.is_needed() && self.until_served().await.is_err() {
            return;
        }
        loop {
            let (began, had_version) = (Instant::now(), self.version.is_some());
            let outcome = match self.version.clone() {
                None => self.list::<T>(Change::ListBegins, None).await,
                Some(version) if self.resumes => self.list::<T>(Change::ResumeBegins, Some(version)).await,
                Some(version) if Instant::now() >= self.list_due => {
                    self.list::<T>(Change::CheckBegins, Some(version)).await
                }
                Some(version) => self.watch::<T>(&version).await,
            };
            let pause = match outcome {
                Ok(()) => {
                    self.note(|status| status.error = None);
                    wait = RETRY_FIRST;
                    // A server that ends each watch at once must not be asked without a pause.
                    if began.elapsed() < RETRY_FIRST && had_version { RETRY_FIRST } else { Duration::ZERO }
                }
                Err(Pause::Ended) => return,
                // Lists at once, unless versions expire as soon as the server gives them.
                Err(Pause::Expired) => {
                    tracing::info!(kind = ?self.kind, "watch expired; listing again");
                    self.version = None;
                    if began.elapsed() > RETRY_FIRST { Duration::ZERO } else { longer(&mut wait) }
                }
                Err(Pause::Absent) if self.is_needed() => self.ask_soon(ABSENT.to_owned()),
                Err(Pause::Absent) => {
                    self.skip(ABSENT);
                    // The last discovery was earlier than this answer.
                    self.served.mark_unchanged();
                    if self.served.changed().await.is_err() || self.until_served().await.is_err() {
                        return;
                    }
                    Duration::ZERO
                }
                Err(Pause::Refused) if self.is_needed() => self.ask_soon(missing(self.kind)),
                Err(Pause::Refused) => {
                    self.skip(&missing(self.kind));
                    REFUSED_WAIT
                }
                Err(Pause::Fault(fault)) => {
                    // If the watch lasted for a while, its fault is unrelated to the previous one.
                    if began.elapsed() > RETRY_MAX {
                        wait = RETRY_FIRST;
                    }
                    tracing::warn!(kind = ?self.kind, %fault, "watch failed; trying again in {wait:?}");
                    self.note(|status| status.error = Some(fault.to_string()));
                    longer(&mut wait)
                }
            };
            sleep(pause).await;
        }
    }

    fn note(&self, change: impl FnOnce(&mut KindStatus)) {
        change(self.status.lock().unwrap_or_else(PoisonError::into_inner).entry(self.kind).or_default());
    }

    /// Returns whether the kind is required, because nothing is collected without nodes and pods.
    const fn is_needed(&self) -> bool {
        matches!(self.kind, ObjectKind::Node | ObjectKind::Pod)
    }

    fn ask_soon(&mut self, problem: String) -> Duration {
        self.version = None;
        tracing::warn!(kind = ?self.kind, error = problem, "trying again");
        self.note(|status| status.error = Some(problem));
        RETRY_MAX
    }

    fn skip(&mut self, problem: &str) {
        self.version = None;
        tracing::info!(kind = ?self.kind, problem, "kind skipped; trying again later");
        self.note(|status| {
            status.is_absent = true;
            status.error = None;
        });
        self.unlisted = None;
    }

    /// Waits until a discovery finds the kind.
    async fn until_served(&mut self) -> Result<(), watch::error::RecvError> {
        loop {
            let found = self.served.borrow_and_update().as_ref().map(|kinds| kinds.contains(&self.kind));
            match found {
                Some(true) => return Ok(()),
                Some(false) => self.skip(ABSENT),
                None => {}
            }
            self.served.changed().await?;
        }
    }

    async fn report(&self, change: Change) -> Result<(), Pause> {
        let at = self.cluster.now();
        self.queue.send(Observation { change, at }).await.map_err(|_| Pause::Ended)
    }

    async fn report_object<T: WireObject>(&self, object: T, is_gone: bool) -> Result<Option<String>, Pause> {
        match object.object(self.kind) {
            Ok(object) => {
                let version = object.metadata().resource_version.clone();
                self.report(if is_gone { Change::Gone(object) } else { Change::Seen(object) }).await?;
                Ok(Some(version))
            }
            Err(fault) => {
                tracing::warn!(kind = ?self.kind, fault, "object skipped: it cannot be read");
                Ok(None)
            }
        }
    }

    /// Lists all objects page by page, as of the version `exact` if it is given.
    async fn list<T: WireObject>(
        &mut self,
        begins: fn(ObjectKind) -> Change,
        exact: Option<String>,
    ) -> Result<(), Pause> {
        let mut params = ListParams::default().limit(PAGE_OBJECTS);
        if let Some(version) = &exact {
            params = params.at(version).matching(VersionMatch::Exact);
        }
        params.field_selector = kinds::field_selector(self.kind).map(str::to_owned);
        // The time at which the list begins must not be later than its content.
        self.cluster.learn_time().await.map_err(Pause::Fault)?;
        let mut is_begun = false;
        loop {
            let request = kube::core::Request::new(kinds::path(self.kind)).list(&params);
            let request = request.map_err(|error| Pause::from(kube::Error::BuildRequest(error)))?;
            let began = begins(self.kind);
            let at = self.cluster.now();
            let page: Page<T> = self.cluster.client().request(request).await?;
            // A kind that does not exist has no list.
            if !is_begun {
                is_begun = true;
                let observation = Observation { change: began, at };
                self.queue.send(observation).await.map_err(|_| Pause::Ended)?;
            }
            for object in page.items.unwrap_or_default() {
                self.report_object(object, false).await?;
            }
            params.continue_token = page.metadata.r#continue.filter(|token| !token.is_empty());
            if params.continue_token.is_none() {
                let version = page.metadata.resource_version;
                self.report(Change::ListEnds(self.kind, Text::from(version.as_str()))).await?;
                self.version = exact.or(Some(version));
                break;
            }
        }
        self.list_due = Instant::now() + self.relist_interval;
        self.resumes = false;
        self.unlisted = None;
        let heard = self.cluster.now();
        self.note(|status| {
            status.lists += 1;
            status.last_contact = Some(heard);
            status.is_absent = false;
            status.error = None;
        });
        Ok(())
    }

    /// Watches until the server ends the watch or is silent, or a list is due.
    async fn watch<T: WireObject>(&mut self, version: &str) -> Result<(), Pause> {
        // A watch that ends resumes from the last bookmark, which the server still remembers.
        let mut params = WatchParams { bookmarks: true, ..WatchParams::default() };
        params.timeout = u32::try_from(minutes().as_secs()).ok();
        params.field_selector = kinds::field_selector(self.kind).map(str::to_owned);
        let request = kube::core::Request::new(kinds::path(self.kind)).watch(&params, version);
        let request = request.map_err(|error| Pause::from(kube::Error::BuildRequest(error)))?;
        let client = self.cluster.client().clone();
        let mut events = std::pin::pin!(client.request_events::<T>(request).await?);
        let (opened, mut is_silent) = (self.cluster.now(), true);
        self.note(|status| status.error = None);
        let (relist, list_due) = (Arc::clone(&self.relist), self.list_due);
        loop {
            let event = tokio::select! {
                biased;
                () = relist.notified() => {
                    self.version = None;
                    return Ok(());
                }
                () = sleep_until(list_due) => return Ok(()),
                event = next(&mut events, SILENCE) => match event {
                    Ok(None) => {
                        if is_silent {
                            self.note(|status| status.last_contact = status.last_contact.max(Some(opened)));
                        }
                        return Ok(());
                    }
                    Ok(Some(event)) => event,
                    // One object of an unexpected shape must not hold up all others.
                    Err(kube::Error::SerdeError(fault)) => {
                        tracing::warn!(kind = ?self.kind, %fault, "change skipped: it cannot be read");
                        continue;
                    }
                    Err(error) => return Err(error.into()),
                },
            };
            let version = match event {
                WatchEvent::Added(object) | WatchEvent::Modified(object) => {
                    self.report_object(object, false).await?
                }
                WatchEvent::Deleted(object) => self.report_object(object, true).await?,
                WatchEvent::Bookmark(bookmark) => {
                    let version = bookmark.metadata.resource_version;
                    self.report(Change::Bookmark(self.kind, Text::from(version.as_str()))).await?;
                    Some(version)
                }
                WatchEvent::Error(status) => return Err(kube::Error::Api(status).into()),
            };
            let heard = self.cluster.now();
            is_silent = false;
            self.note(|status| {
                status.last_contact = Some(heard);
                status.changes += 1;
            });
            self.version = version.or_else(|| self.version.take());
        }
    }
}

#[cfg(test)]
mod tests {
    use futures::{StreamExt, stream};

    use super::*;

    #[tokio::test]
    async fn a_silent_watch_ends_without_a_fault() {
        let mut silent = stream::iter([Ok(1)]).chain(stream::pending::<kube::Result<_>>());
        assert_eq!(next(&mut silent, SILENCE).await.unwrap(), Some(1));
        assert_eq!(next(&mut silent, RETRY_FIRST).await.unwrap(), None);
    }
}
