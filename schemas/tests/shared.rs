//! Texts that a stored state repeats are kept once.

use prorata_samples::typical::typical;
use prorata_schemas::Text;
use prorata_schemas::event::shared::share_anew;
use prorata_schemas::event::{EventKind, Payload, PodStarted};

fn pod() -> PodStarted {
    let Payload::PodStarted(pod) = typical(EventKind::PodStarted).payload else { unreachable!() };
    *pod
}

#[test]
fn what_is_read_after_another_shares_its_texts_until_anew() {
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
    share_anew();
    let (first, second) = (read(), read());
    share_anew();
    let third = read();
    assert_eq!((&first, &second, &third), (&pod, &pod, &pod));
    assert!(texts(&pod).len() > 6, "labels and requests, too");
    assert_eq!(are_shared(&first, &second), vec![true; texts(&pod).len()]);
    assert_eq!(are_shared(&second, &third), vec![false; texts(&pod).len()]);
}
