//! Random histories of a cluster: the collector's events for each pod are compared with the pod's life.
//!
//! The cluster writes a log of revisions, like an API server. The collector follows it in pieces and dies at
//! any step. It then continues from its stored version, or loses part of the log and lists.

mod cluster;
mod follow;

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use prorata_schemas::body;
use prorata_schemas::event::{Event, Payload};

use cluster::Cluster;
use follow::{Follower, Gap};

/// One step of a history: its action, and two numbers that choose the details.
type Step = (u8, u8, u8);

fn steps(most: usize) -> impl Strategy<Value = Vec<Step>> {
    prop::collection::vec((any::<u8>(), any::<u8>(), any::<u8>()), 1..most)
}

/// Steps that are mostly crashes, and changes and new volumes of a few pods.
fn crashes(most: usize) -> impl Strategy<Value = Vec<Step>> {
    // Creates, relabels or recreates a pod, adds a node, or binds a volume.
    let change = prop::sample::select(vec![0_u8, 5, 9, 10, 11]);
    // `3 * action` is an action of the cluster, and an even number gives a new pod a volume.
    let change = (change, any::<u8>()).prop_map(|(action, a)| (3 * action, a & !1));
    let follow = prop::sample::select(vec![0_u8, 3, 4, 5, 6, 7]).prop_map(|a| (2, a));
    let step = (prop_oneof![change, follow], any::<u8>()).prop_map(|((action, a), b)| (action, a, b));
    prop::collection::vec(step, 1..most)
}

/// Performs the action of a step in the cluster.
fn act(cluster: &mut Cluster, (action, a, b): Step, may_lose_nodes: bool) {
    cluster.pass_seconds(i64::from(b % 4) * 7);
    match action % 14 {
        0..=3 => cluster.create(a),
        4 => cluster.resize(a, b),
        5 => cluster.relabel(a, b),
        6 | 7 => cluster.end(a, b),
        8 => cluster.remove(a),
        9 => cluster.recreate(a),
        10 => cluster.add_node(),
        11 => cluster.bind_volume(a, b),
        12 => cluster.remove_volume(),
        _ if may_lose_nodes => cluster.lose_node(a),
        _ => {}
    }
}

/// Returns the distinct events, as the engine counts them.
fn distinct(events: &[Event]) -> BTreeSet<(i64, Vec<u8>)> {
    events.iter().map(|event| (event.event_time.0, body::encode(event))).collect()
}

/// Returns the interval of each pod: from its first start to its first stop, or to the stop of its node.
fn intervals(events: &[Event]) -> BTreeMap<String, (i64, Option<i64>)> {
    let mut intervals: BTreeMap<String, (i64, Option<i64>)> = BTreeMap::new();
    let mut node_of = BTreeMap::new();
    for event in events {
        if let Payload::PodStarted(pod) = &event.payload {
            let at = event.event_time.0;
            let entry = intervals.entry(pod.pod_uid.to_string()).or_insert((at, None));
            entry.0 = entry.0.min(at);
            node_of.insert(pod.pod_uid.to_string(), pod.node_id.clone().unwrap());
        }
    }
    let mut stops: Vec<(i64, &Payload)> =
        events.iter().map(|event| (event.event_time.0, &event.payload)).collect();
    stops.sort_by_key(|(at, _)| *at);
    for (at, payload) in stops {
        for (uid, (start, stop)) in &mut intervals {
            let ends = match payload {
                Payload::PodStopped(pod) => *pod.pod_uid == **uid,
                Payload::NodeStopped(node) => node_of[uid] == node.node_id,
                _ => false,
            };
            if ends && stop.is_none() && at >= *start {
                *stop = Some(at);
            }
        }
    }
    intervals
}

/// Asserts that no start of a pod is later than its first stop, because the pod would then run again.
fn assert_never_restarted(events: &[Event]) {
    let intervals = intervals(events);
    for event in events {
        if let Payload::PodStarted(pod) = &event.payload {
            let (start, stop) = intervals[&*pod.pod_uid];
            let at = event.event_time.0;
            let never_ran = stop == Some(start) && at == start;
            assert!(never_ran || stop.is_none_or(|stop| at < stop), "{} starts again", pod.pod_uid);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    /// Wherever it is cut, a collector that continues from its stored version sends the same set of events.
    #[test]
    fn cuts_change_nothing(actions in steps(60), cuts in steps(40)) {
        let mut cluster = Cluster::new();
        for step in &actions {
            act(&mut cluster, *step, false);
        }
        let mut whole = Follower::new();
        whole.follow_all(&cluster);
        let mut cut = Follower::new();
        for (action, a, b) in cuts {
            cut.deliver_pods(&cluster, usize::from(a % 8));
            match action % 4 {
                0 => cut.commit(),
                _ => cut.die(&cluster, b, false),
            }
        }
        cut.follow_all(&cluster);
        prop_assert_eq!(distinct(&whole.rig.sent), distinct(&cut.rig.sent));
        assert_never_restarted(&whole.rig.sent);
        prop_assert_eq!(cut.rig.stored.announced.len(), whole.rig.stored.announced.len());
    }

    /// A collector that loses parts of the log gives each pod its interval, except for changes that a gap
    /// hides.
    #[test]
    fn gaps_lose_no_more_than_they_hide(story in prop_oneof![steps(120), crashes(60)]) {
        let mut cluster = Cluster::new();
        let mut follower = Follower::new();
        for (action, a, b) in story {
            match action % 3 {
                0 | 1 => act(&mut cluster, (action / 3, a, b), true),
                _ => match a % 8 {
                    0..=2 => follower.deliver_pods(&cluster, usize::from(b % 8)),
                    3 => follower.deliver_others(&cluster),
                    4 => follower.commit(),
                    5 => follower.die(&cluster, b, true),
                    6 => follower.relist(&cluster, b % 4 == 0),
                    _ => follower.die(&cluster, b, false),
                },
            }
        }
        follower.follow_all(&cluster);
        assert_never_restarted(&follower.rig.sent);
        check_intervals(&cluster, &follower);
        // Volumes that were bound while no collector ran are known once their pods are seen again.
        follower.relist(&cluster, false);
        follower.commit();
        check_descriptions(&cluster, &follower.rig.sent);
    }
}

/// Compares each running pod's last description with its CPU, its label and its volumes in the cluster.
fn check_descriptions(cluster: &Cluster, events: &[Event]) {
    let mut last = BTreeMap::new();
    for event in events {
        if let Payload::PodStarted(pod) = &event.payload {
            // Of two descriptions for one instant, the one recorded last counts, then the one whose body
            // sorts last.
            let order = (event.event_time, event.recording.recorded_at(), body::encode(event));
            let described = (order, pod);
            let known = last.entry(&*pod.pod_uid).or_insert_with(|| described.clone());
            if known.0 < described.0 {
                *known = described;
            }
        }
    }
    for (uid, _) in cluster.lives().iter().filter(|(_, life)| life.ended.is_none()) {
        let pod = &last[uid.as_str()].1;
        let cpu = pod.requests.get("cpu").map(|cpu| &*cpu.text);
        let label = pod.labels.get("app").map(|label| &**label);
        assert_eq!((cpu, label), (cluster.word_of(uid, "cpu"), cluster.word_of(uid, "label.app")), "{uid}");
        let keys: Vec<&str> = pod.volume_keys.iter().map(|key| &**key).collect();
        assert_eq!(keys, cluster.volumes_of(uid), "{uid}");
    }
}

/// Compares each pod's interval in the events with its life in the cluster.
fn check_intervals(cluster: &Cluster, follower: &Follower) {
    let said = intervals(&follower.rig.sent);
    let hides = |gap: &Gap, revision: usize| gap.revisions.contains(&revision);
    // A restart may send the stop of a node again, for a later instant.
    let node_stops: BTreeSet<(String, i64)> = (follower.rig.sent.iter())
        .filter_map(|event| match &event.payload {
            Payload::NodeStopped(node) => Some((node.node_id.to_string(), event.event_time.0)),
            _ => None,
        })
        .collect();
    for (uid, life) in cluster.lives() {
        let gone_in = |gap: &&Gap| life.removed_in.is_some_and(|removed| hides(gap, removed));
        let Some((start, stop)) = said.get(uid).copied() else {
            let hidden = (follower.gaps.iter()).any(|gap| gone_in(&gap) && hides(gap, life.bound_in));
            assert!(hidden, "{uid} was never sent");
            continue;
        };
        assert_eq!(start, life.bound, "{uid} starts when it was bound");
        let ends = |(node, at): &&(String, i64)| *node == life.node && *at >= start;
        let node_stop = node_stops.iter().find(ends).map(|(_, at)| *at);
        let Some(stop) = stop else {
            assert!(life.ended.is_none() && node_stop.is_none(), "{uid} has no stop");
            continue;
        };
        let exact = life.ended.map(|ended| ended.max(start));
        let bounded = || {
            // Each crash after a stop moves the next stop by a microsecond.
            let within = |gap: &Gap| (gap.caught_up..gap.began + 20).contains(&stop);
            let ended_unseen =
                |gap: &&Gap| gone_in(gap) || life.ended_in.is_some_and(|ended| hides(gap, ended));
            follower.gaps.iter().filter(ended_unseen).any(within)
        };
        let by_node = node_stop == Some(stop);
        // A change within the second of the end is sent first, and the stop a microsecond after it.
        let soon_after = |exact: i64| (exact..exact + 20).contains(&stop);
        assert!(
            by_node || exact.is_some_and(soon_after) || bounded(),
            "{uid} stops at {stop}, ended at {exact:?}, its node at {node_stop:?}"
        );
    }
    let running: BTreeSet<&String> =
        said.iter().filter(|(_, (_, stop))| stop.is_none()).map(|(uid, _)| uid).collect();
    for uid in running {
        assert!(cluster.lives()[uid].removed_in.is_none(), "{uid} is gone and was never stopped");
    }
}
