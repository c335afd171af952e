//! Texts and maps that events or a stored state repeat are kept only once.

use prorata_samples::typical::typical;
use prorata_schemas::event::{Event, EventKind, Payload, PodStarted};
use prorata_schemas::quantity::Quantity;
use prorata_schemas::reject::Reason;
use prorata_schemas::sharing::restart_sharing;
use prorata_schemas::{Text, body};

fn pod() -> PodStarted {
    let Payload::PodStarted(pod) = typical(EventKind::PodStarted).payload else { unreachable!() };
    *pod
}

#[test]
fn a_record_shares_texts_with_earlier_records_until_sharing_restarts() {
    let pod = pod();
    let bytes = postcard::to_stdvec(&pod).unwrap();
    let read = || -> PodStarted { postcard::from_bytes(&bytes).unwrap() };
    let texts = |pod: &PodStarted| -> Vec<Text> {
        let labels = pod.labels.iter().flat_map(|(name, value)| [name.clone(), value.clone()]);
        let requests = pod.requests.iter().flat_map(|(name, value)| [name.clone(), value.text.clone()]);
        let own = [pod.namespace.clone(), pod.cluster_id.clone().into()];
        own.into_iter().chain(pod.workload_name.clone()).chain(labels).chain(requests).collect()
    };
    let are_shared = |a: &PodStarted, b: &PodStarted| -> Vec<bool> {
        texts(a).iter().zip(&texts(b)).map(|(a, b)| Text::ptr_eq(a, b)).collect()
    };
    restart_sharing();
    let (first, second) = (read(), read());
    restart_sharing();
    let third = read();
    assert_eq!((&first, &second, &third), (&pod, &pod, &pod));
    assert!(texts(&pod).len() > 6, "labels and requests, too");
    assert_eq!(are_shared(&first, &second), vec![true; texts(&pod).len()]);
    assert_eq!(are_shared(&second, &third), vec![false; texts(&pod).len()]);
    assert_eq!(places(&first), places(&second));
    assert!(places(&second).iter().all(|place| !places(&third).contains(place)));
}

/// Returns the addresses of a pod's maps in memory: labels, requests and limits.
fn places(pod: &PodStarted) -> [*const (); 3] {
    [pod.labels.as_ptr(), pod.requests.as_ptr(), pod.limits.as_ptr()]
}

#[test]
fn events_of_an_organization_share_equal_maps() {
    let read = |organization: &str, change: fn(&mut PodStarted)| -> PodStarted {
        let mut pod = pod();
        change(&mut pod);
        let event = Event { organization_id: organization.into(), ..typical(EventKind::PodStarted) };
        let body = body::encode(&Event { payload: Payload::PodStarted(Box::new(pod.clone())), ..event });
        let Payload::PodStarted(read) = body::decode(EventKind::PodStarted, &body).unwrap().payload else {
            unreachable!()
        };
        assert_eq!(*read, pod);
        *read
    };
    let acme = read("acme", |_| {});
    assert_eq!(acme.requests.as_ptr(), acme.limits.as_ptr(), "limits are what is requested");
    assert_eq!(places(&acme), places(&read("acme", |pod| pod.pod_uid = "another".into())));
    let changed = read("acme", |pod| drop(pod.labels.insert("team".into(), "another".into())));
    assert_ne!(changed.labels.as_ptr(), acme.labels.as_ptr());
    assert_eq!(changed.requests.as_ptr(), acme.requests.as_ptr());
    let stored: PodStarted = postcard::from_bytes(&postcard::to_stdvec(&acme).unwrap()).unwrap();
    assert!(places(&acme).iter().all(|place| !places(&stored).contains(place)), "a state is not judged");
    let bird = read("bird", |_| {});
    assert!(places(&acme).iter().all(|place| !places(&bird).contains(place)));
    assert_eq!(acme, bird);
}

#[test]
fn a_change_of_a_map_leaves_its_copies() {
    let original = pod().labels;
    let mut changed = original.clone();
    assert_eq!(changed.as_ptr(), original.as_ptr());
    changed.insert("team".into(), "another".into());
    assert_eq!(original, pod().labels);
    assert_ne!(changed, original);
}

#[test]
fn a_map_with_a_fault_is_judged_each_time() {
    let mut pod = pod();
    pod.requests.insert("cpu".into(), Quantity { text: "-1".into(), amount: 0 });
    let event = Event { payload: Payload::PodStarted(Box::new(pod)), ..typical(EventKind::PodStarted) };
    let body = body::encode(&event);
    for _ in 0..2 {
        let reject = body::decode(EventKind::PodStarted, &body).unwrap_err();
        assert_eq!(reject.reason, Reason::InvalidField, "{reject:?}");
    }
}
