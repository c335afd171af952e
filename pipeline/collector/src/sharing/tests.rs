//! Expressions, containers, and hostile numbers.

use serde_json::json;

use super::*;
use crate::options::CollectorOptions;

fn options() -> CollectorOptions {
    CollectorOptions::new("o".into(), "c".into(), "USD".into())
}

fn node(labels: serde_json::Value, annotations: serde_json::Value, capacity: serde_json::Value) -> NodeGpus {
    let metadata = json!({"labels": labels, "annotations": annotations});
    let node: NodeObject =
        serde_json::from_value(json!({"metadata": metadata, "status": {"capacity": capacity}})).unwrap();
    let capacity = parse_list(&node.status.capacity).unwrap();
    NodeGpus::read(&node, &capacity, options().gpus())
}

fn share(spec: serde_json::Value, node: &NodeGpus) -> Option<String> {
    let pod: PodObject = serde_json::from_value(json!({"spec": spec})).unwrap();
    let options = options();
    let share = PodGpus::read(&pod, options.gpus())?.share(node, options.gpus())?;
    Some(share.gpus.map_or_else(|fault| fault.reason.name().to_owned(), |gpus| gpus.text.to_string()))
}

fn container(requests: serde_json::Value) -> serde_json::Value {
    json!({"resources": {"requests": requests}})
}

#[test]
fn every_default_text_is_an_expression() {
    let shares: usize = schemes().iter().map(|scheme| scheme.shares.len()).sum();
    assert_eq!((schemes().len(), shares), (15, 26), "a text that does not parse is left out");
    assert!(schemes().iter().all(|scheme| scheme.scheme.contains("kai") || !scheme.shares.is_empty()));
    let written = serde_json::to_string(&schemes()).unwrap();
    assert_eq!(serde_json::from_str::<Vec<GpuScheme>>(&written).unwrap(), schemes());
}

#[test]
fn invalid_expressions_are_refused() {
    for text in ["", "request", "request a /", "a", "request a + 1", "label / 2", "-1", "1 request a"] {
        assert!(Expression::try_from(text.to_owned()).is_err(), "{text}");
    }
    for text in ["", "label", "label a =", "taint a", "capacity a = b"] {
        assert!(Condition::try_from(text.to_owned()).is_err(), "{text}");
    }
}

#[test]
fn each_container_holds_its_own_part_and_init_containers_run_alone() {
    let register = json!({"hami.io/node-nvidia-register": "GPU-a,10,16384,100,T4,0,true:GPU-b,10,16384,100"});
    let node = node(json!({}), register, json!({"cpu": "4", "nvidia.com/gpu": "20"}));
    let quarter = container(json!({"nvidia.com/gpu": "1", "nvidia.com/gpumem": "4096"}));
    let half = container(json!({"nvidia.com/gpu": "1", "nvidia.com/gpucores": "50"}));
    let both = json!({"containers": [quarter, half]});
    assert_eq!(share(both, &node).as_deref(), Some("750m"), "not two cards of the sum of the requests");
    let mut sidecar = half.clone();
    sidecar["restartPolicy"] = json!("Always");
    let whole = container(json!({"nvidia.com/gpu": "1"}));
    let spec = json!({"containers": [quarter], "initContainers": [sidecar, whole]});
    assert_eq!(share(spec, &node).as_deref(), Some("1"), "the larger of a card and three quarters");
}

#[test]
fn the_pod_that_reserves_a_shared_card_holds_nothing_of_it() {
    let node = node(json!({}), json!({}), json!({"nvidia.com/gpu": "2"}));
    assert_eq!(node.cards, None, "the capacity counts");
    let held = |namespace: &str| {
        let spec = json!({"containers": [container(json!({"nvidia.com/gpu": "1"}))]});
        let metadata = json!({"name": "gpu-reservation-n1-x", "namespace": namespace});
        let pod: PodObject = serde_json::from_value(json!({"metadata": metadata, "spec": spec})).unwrap();
        let share = PodGpus::read(&pod, options().gpus())?.share(&node, options().gpus())?;
        Some((share.scheme.to_string(), share.gpus.unwrap().text.to_string()))
    };
    assert_eq!(held("kai-resource-reservation"), Some(("kai-reservation".to_owned(), "0".to_owned())));
    assert_eq!(held("runai-reservation"), Some(("kai-reservation".to_owned(), "0".to_owned())));
    assert_eq!(held("team"), None, "a whole card");
}

#[test]
fn hostile_numbers_are_faults_and_no_panic() {
    let strategy = |replicas: &str| {
        let labels = json!({
            "nvidia.com/gpu.sharing-strategy": "mps", "nvidia.com/gpu.replicas": replicas,
            "nvidia.com/gpu.count": "1",
        });
        node(labels, json!({}), json!({"nvidia.com/gpu": "4"}))
    };
    let pod = |gpus: &str| json!({"containers": [container(json!({"nvidia.com/gpu": gpus}))]});
    assert_eq!(share(pod("1"), &strategy("4")).as_deref(), Some("250m"));
    for replicas in ["0", "", "-4", "4 of 8", "99999999999999999999999"] {
        assert_eq!(share(pod("1"), &strategy(replicas)).as_deref(), Some("unreadable"), "{replicas}");
    }
    assert_eq!(share(pod("9E"), &strategy("1")).as_deref(), Some("above_card"));
    assert_eq!(share(pod("9E"), &strategy("0.000000000001")).as_deref(), Some("above_card"));
    for register in ["GPU-a", "GPU-a,1,x", "[{]", "[{\"devmem\": -1}]", "GPU-a,1,0", ""] {
        let annotations = json!({"hami.io/node-nvidia-register": register});
        let node = node(json!({}), annotations, json!({"nvidia.com/gpu": "4"}));
        let pod = container(json!({"nvidia.com/gpu": "1", "nvidia.com/gpumem": "1"}));
        let share = share(json!({"containers": [pod]}), &node);
        assert_eq!(share.as_deref(), Some("missing_label"), "{register}");
    }
}
