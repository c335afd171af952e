//! The order of events in an archive file: by organization, then kind, then a sample's pod and time, then
//! body. So equal sets of events give equal files, and a reader of one organization can skip the blocks of
//! all others. The samples of a pod are adjacent, in order of time, so the pod's uid is stored and looked up
//! only once.

use std::borrow::Borrow;
use std::cmp::Ordering;
use std::collections::HashMap;
use std::sync::Arc;

use ahash::RandomState;
use prorata_schemas::body;
use prorata_schemas::event::EventKind;

use super::organizations::Organizations;
use crate::shard::Body;

/// Compares two events by their order.
pub fn archive_order(a: &Body, b: &Body) -> Ordering {
    let organizations = body::organization_of(&a.1).cmp(body::organization_of(&b.1));
    organizations.then_with(|| order_of_organization(a, b))
}

/// Compares two events of one organization by their order.
fn order_of_organization(a: &Body, b: &Body) -> Ordering {
    a.0.cmp(&b.0).then_with(|| pod_and_time(a).cmp(&pod_and_time(b))).then_with(|| a.1.cmp(&b.1))
}

/// Returns the pod and the time of a sample, or empty values for all other kinds.
fn pod_and_time((kind, body): &Body) -> (&[u8], i64) {
    match kind {
        EventKind::PodUsage => body::pod_and_time(body),
        _ => (&[], 0),
    }
}

/// Returns these events in archive order and without duplicates. The order is by organization, then kind,
/// then a sample's pod and time, then body.
///
/// Bodies are in memory in the order of arrival, and are read once, in that order. A second read in sorted
/// order would miss the processor's caches. So each event gets a key, which nearly always decides a
/// comparison.
pub fn in_archive_order<B: Borrow<Body> + Ord>(events: Vec<B>) -> Vec<B> {
    let mut organizations = Organizations::<Arc<[u8]>, Organization<B>>::new();
    let count = events.len();
    let mut events = events.into_iter();
    for at in 0.. {
        body::prefetch(at, events.as_slice().iter().map(|event| &*event.borrow().1));
        let Some(event) = events.next() else { break };
        let (kind, body) = event.borrow();
        let (organization, rest) = body::split_organization(body);
        let of = organizations.of(organization, Organization::new);
        let key = match kind {
            EventKind::PodUsage => {
                let (pod, time) = body::pod_and_time(body);
                of.key_of_sample(pod, time)
            }
            kind => key_of_other(*kind, rest),
        };
        of.events.push((key, event));
    }
    let mut sorted = Vec::with_capacity(count);
    for (_, of) in organizations.into_ascending() {
        sorted.extend(of.sorted().into_iter().map(|(_, event)| event));
    }
    sorted
}

/// Events of one organization, each with its key.
struct Organization<B> {
    events: Vec<(u128, B)>,
    /// Pods, each with its number in the order of arrival.
    pods: HashMap<Box<[u8]>, u32, RandomState>,
}

/// The position of the kind in a key.
const KIND_SHIFT: u32 = 120;

/// The position of the pod's number in the key of a sample. The 64 bits below it are the time.
const POD_SHIFT: u32 = 64;

impl<B: Borrow<Body> + Ord> Organization<B> {
    fn new() -> Self {
        Self { events: Vec::new(), pods: HashMap::default() }
    }

    /// Returns the key of a sample, with the number of its pod. `sorted` later replaces the number by the
    /// pod's rank.
    fn key_of_sample(&mut self, pod: &[u8], time: i64) -> u128 {
        let number = match self.pods.get(pod) {
            Some(number) => *number,
            None => {
                // Each pod has an event in memory, so there are far fewer than 2^32.
                let number = u32::try_from(self.pods.len()).unwrap_or(u32::MAX);
                self.pods.insert(pod.into(), number);
                number
            }
        };
        // As an unsigned number, with the largest time last.
        let time = time.cast_unsigned() ^ (1 << 63);
        (EventKind::PodUsage as u128) << KIND_SHIFT | u128::from(number) << POD_SHIFT | u128::from(time)
    }

    /// Returns the events in archive order and without duplicates. The keys distinguish nearly all events.
    fn sorted(self) -> Vec<(u128, B)> {
        let Self { mut events, pods } = self;
        let mut by_uid: Vec<_> = pods.into_iter().collect();
        by_uid.sort_unstable();
        let mut ranks = vec![0_u32; by_uid.len()];
        for (rank, (_, number)) in (0..).zip(by_uid) {
            ranks[number as usize] = rank;
        }
        for (key, _) in &mut events {
            if *key >> KIND_SHIFT == EventKind::PodUsage as u128 {
                let number = (*key >> POD_SHIFT) as u32;
                *key ^= u128::from(number ^ ranks[number as usize]) << POD_SHIFT;
            }
        }
        events.sort_unstable();
        events.dedup();
        events
    }
}

/// Returns a key from the kind and the first bytes after the organization.
fn key_of_other(kind: EventKind, rest: &[u8]) -> u128 {
    let mut bytes = [0; 16];
    bytes[0] = kind as u8;
    let length = rest.len().min(15);
    bytes[1..=length].copy_from_slice(&rest[..length]);
    u128::from_be_bytes(bytes)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn bodies() -> impl Strategy<Value = Vec<Body>> {
        let organization = prop::sample::select(vec!["", "a", "acme", "acme-2", "b"]);
        let kind = prop::sample::select(EventKind::ALL.to_vec());
        // Few values and many lengths: many bodies share a prefix.
        let bytes = || prop::collection::vec(prop::sample::select(vec![0_u8, 1, 255]), 0..20);
        let pod = prop::sample::select(vec![&b"pod"[..], b"pod-1", b"pod-1 of a longer name", b"a", b""]);
        let sample = prop::option::of((-200..200_i64, pod));
        let body = (organization, kind, sample, bytes()).prop_map(|(organization, kind, sample, rest)| {
            let mut body = Vec::new();
            body::wire::put_bytes(&mut body, organization.as_bytes());
            if let Some((time, pod)) = sample {
                body::wire::put_long(&mut body, time);
                body::wire::put_bytes(&mut body, pod);
            }
            body.extend(rest);
            (kind, body.into_boxed_slice())
        });
        // Each up to three times.
        let bodies = prop::collection::vec((body, 1..4_usize), 0..200);
        bodies.prop_map(|bodies| bodies.into_iter().flat_map(|(body, times)| vec![body; times]).collect())
    }

    proptest! {
        #[test]
        fn events_are_sorted_as_the_order_says_each_once(bodies in bodies()) {
            let mut expected: Vec<&Body> = bodies.iter().collect();
            expected.sort_by(|a, b| archive_order(a, b));
            expected.dedup();
            prop_assert_eq!(in_archive_order(bodies.iter().collect()), expected.clone());
            let owned: Vec<Body> = expected.into_iter().cloned().collect();
            prop_assert_eq!(in_archive_order(bodies), owned);
        }
    }
}
