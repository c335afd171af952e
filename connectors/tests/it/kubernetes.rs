//! The requests of a collector to an API server: watches that last minutes, no lists of absent kinds, and how
//! pods resume after a restart.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use prorata_collector::object::ObjectKind;
use prorata_collector::{Change, PodsVersion};
use prorata_connectors::kubernetes::{KubeCluster, KubeSettings, Observation, Watches};
use prorata_testkit::wait::eventually;
use tokio::runtime::Runtime;
use tokio::sync::mpsc::{self, Receiver};

const KINDS: [ObjectKind; 7] = [
    ObjectKind::Node,
    ObjectKind::Pod,
    ObjectKind::ElasticQuota,
    ObjectKind::GpuPool,
    ObjectKind::ResourceClaim,
    ObjectKind::ResourceSlice,
    ObjectKind::PersistentVolume,
];
const LIST: &str = r#"{"metadata":{"resourceVersion":"7"},"items":[]}"#;
const BOOKMARK: &str =
    r#"{"type":"BOOKMARK","object":{"kind":"Node","apiVersion":"v1","metadata":{"resourceVersion":"9"}}}"#;

/// An API server that has nodes, pods and resource claims, all empty. It refuses discovery of one group, and
/// lists of volumes. The first watch of nodes ends after a bookmark, and watches from version 5 end without a
/// change; no other watch ends.
#[derive(Clone, Default)]
struct Played(Arc<Mutex<Vec<String>>>);

impl Played {
    fn start() -> (Self, String) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let played = Self::default();
        let serving = played.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let (played, stream) = (serving.clone(), stream.unwrap());
                // A client that hangs up is not a fault.
                std::thread::spawn(move || played.serve(stream).ok());
            }
        });
        (played, url)
    }

    fn serve(&self, mut stream: TcpStream) -> std::io::Result<()> {
        let mut asked = BufReader::new(stream.try_clone()?);
        loop {
            let mut head = String::new();
            while !head.ends_with("\r\n\r\n") {
                if asked.read_line(&mut head)? == 0 {
                    return Ok(());
                }
            }
            let target = head.split(' ').nth(1).unwrap().to_owned();
            self.0.lock().unwrap().push(target.clone());
            if target.contains("watch=true") {
                write!(stream, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")?;
                if target.contains("resourceVersion=5") {
                    write!(stream, "0\r\n\r\n")?;
                }
                if target.starts_with("/api/v1/nodes") && target.contains("resourceVersion=7") {
                    write!(stream, "{:x}\r\n{BOOKMARK}\n\r\n0\r\n\r\n", BOOKMARK.len() + 1)?;
                }
                continue;
            }
            let (status, body) = match target.split('?').next().unwrap() {
                "/version" => ("200 OK", "{}"),
                "/apis/resource.k8s.io/v1" => ("200 OK", r#"{"resources":[{"name":"resourceclaims"}]}"#),
                "/apis/tensor-fusion.ai/v1" | "/api/v1/persistentvolumes" => ("403 Forbidden", "no"),
                "/api/v1/nodes" | "/api/v1/pods" | "/apis/resource.k8s.io/v1/resourceclaims" => {
                    ("200 OK", LIST)
                }
                _ => ("404 Not Found", "none"),
            };
            write!(stream, "HTTP/1.1 {status}\r\nContent-Length: {}\r\n\r\n{body}", body.len())?;
        }
    }

    /// Returns the queries of the requests so far in order, by path. Requests for the time are left out.
    fn asked(&self) -> BTreeMap<String, Vec<String>> {
        let mut asked = BTreeMap::<_, Vec<_>>::new();
        for target in self.0.lock().unwrap().iter().filter(|target| *target != "/version") {
            let (path, query) = target.split_once('?').unwrap_or((target, ""));
            asked.entry(path.to_owned()).or_default().push(query.to_owned());
        }
        asked
    }
}

/// Watches of a played API server. They end when this is dropped.
struct Followed {
    played: Played,
    watches: Watches,
    observations: Receiver<Observation>,
    _runtime: Runtime,
}

fn follow(pods_version: Option<PodsVersion>) -> Followed {
    let (played, url) = Played::start();
    let folder = tempfile::tempdir().unwrap();
    let kubeconfig = folder.path().join("kubeconfig");
    let text = format!(
        "current-context: c\nclusters: [{{name: c, cluster: {{server: '{url}'}}}}]\n\
         users: [{{name: u, user: {{}}}}]\ncontexts: [{{name: c, context: {{cluster: c, user: u}}}}]\n"
    );
    std::fs::write(&kubeconfig, text).unwrap();
    let runtime = Runtime::new().unwrap();
    let entered = runtime.enter();
    let settings = KubeSettings { kubeconfig: Some(kubeconfig), context: None };
    let cluster = runtime.block_on(KubeCluster::open(&settings)).unwrap();
    let (queue, observations) = mpsc::channel(64);
    let watches = Watches::start(&cluster, &KINDS, pods_version, &queue, Duration::from_secs(3_600));
    drop(entered);
    Followed { played, watches, observations, _runtime: runtime }
}

/// Returns the first two requests for pods after a restart at version 5, and the changes of pods.
fn resumed(has_waiting: bool) -> (Vec<String>, Vec<String>) {
    let mut followed = follow(Some(PodsVersion { version: "5".into(), has_waiting }));
    let wanted = if has_waiting { 2 } else { 1 };
    let asked = eventually("pods are watched", || {
        let asked = followed.played.asked().remove("/api/v1/pods").unwrap_or_default();
        if asked.len() >= wanted { Ok(asked) } else { Err(format!("{asked:?}")) }
    });
    eventually("a watch that showed no change counts as contact", || {
        followed.watches.status().get(&ObjectKind::Pod).and_then(|status| status.last_contact)
    });
    let mut changes = Vec::new();
    while let Ok(observation) = followed.observations.try_recv() {
        if matches!(
            observation.change,
            Change::ListBegins(ObjectKind::Pod)
                | Change::CheckBegins(ObjectKind::Pod)
                | Change::ResumeBegins(ObjectKind::Pod)
                | Change::ListEnds(ObjectKind::Pod, _)
        ) {
            changes.push(format!("{:?}", observation.change));
        }
    }
    (asked, changes)
}

#[test]
fn pods_resume_from_the_stored_version() {
    let (asked, changes) = resumed(false);
    assert!(asked[0].contains("watch=true") && asked[0].contains("resourceVersion=5"), "{asked:?}");
    assert!(changes.is_empty(), "{changes:?}");
}

#[test]
fn pods_that_waited_are_listed_as_of_the_stored_version() {
    let (asked, changes) = resumed(true);
    let exact = ["limit=", "resourceVersion=5", "resourceVersionMatch=Exact"];
    assert!(exact.iter().all(|part| asked[0].contains(part)), "{asked:?}");
    assert!(asked[1].contains("watch=true") && asked[1].contains("resourceVersion=5"), "{asked:?}");
    assert_eq!(changes, ["ResumeBegins(Pod)", "ListEnds(Pod, \"7\")"]);
}

#[test]
fn watches_are_long_and_absent_kinds_are_not_listed() {
    let Followed { played, watches, mut observations, _runtime } = follow(None);
    let paths = ["/api/v1/nodes", "/api/v1/pods", "/apis/resource.k8s.io/v1/resourceclaims"];
    let asked = eventually("all kinds are watched", || {
        let asked = played.asked();
        let count = |path: &str| asked.get(path).map_or(0, Vec::len);
        // Pods wait for all others, so everything else was requested before.
        if paths.map(count) == [3, 2, 2] { Ok(asked) } else { Err(format!("{asked:?}")) }
    });
    for path in paths {
        let (list, watches) = asked[path].split_first().unwrap();
        assert!(list.contains("limit=") && watches.iter().all(|query| query.contains("watch=true")));
        for query in watches {
            let seconds = query.split('&').find_map(|pair| pair.strip_prefix("timeoutSeconds=")).unwrap();
            assert!((300..=600).contains(&seconds.parse::<u32>().unwrap()), "{query}");
            assert!(query.contains("allowWatchBookmarks=true"), "{query}");
        }
    }
    assert!(asked["/api/v1/nodes"][2].contains("resourceVersion=9"), "it resumes from the bookmark");
    // Each group was discovered once. Only a kind that could not be discovered, and one that may not be
    // listed, were listed in vain.
    let others: Vec<_> = asked.iter().filter(|(path, _)| !paths.contains(&path.as_str())).collect();
    let once = [
        "/api/v1/persistentvolumes",
        "/apis/nos.nebuly.com/v1alpha1",
        "/apis/resource.k8s.io/v1",
        "/apis/tensor-fusion.ai/v1",
        "/apis/tensor-fusion.ai/v1/gpupools",
    ];
    assert!(others.iter().map(|(path, _)| path.as_str()).eq(once), "{others:?}");
    assert!(others.iter().all(|(_, queries)| queries.len() == 1), "{others:?}");
    let status = watches.status();
    let absent = [
        ObjectKind::ElasticQuota,
        ObjectKind::GpuPool,
        ObjectKind::ResourceSlice,
        ObjectKind::PersistentVolume,
    ];
    for kind in KINDS {
        assert_eq!(status[&kind].is_absent, absent.contains(&kind), "{kind:?}");
    }
    assert!(observations.try_recv().is_ok());
}
