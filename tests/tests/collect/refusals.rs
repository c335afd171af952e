//! A collector's permissions, and its messages if it lacks any.

use std::path::Path;

use serde_json::{Value, json};

use super::cluster::Cluster;
use super::collector::Room;
use super::scene::shared;

/// Returns the rules of the chart's ClusterRole in this file.
pub fn rules(file: &str) -> Value {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy/helm/prorata").join(file);
    serde_saphyr::from_str(&std::fs::read_to_string(file).unwrap()).unwrap()
}

/// Creates a ClusterRole with these rules, and binds a user of the kubeconfig to it.
pub fn allow(cluster: &Cluster, user: &str, name: &str, rules: &Value) {
    let role = json!({ "metadata": { "name": name }, "rules": rules });
    cluster.create("/apis/rbac.authorization.k8s.io/v1/clusterroles", role);
    cluster.bind(user, name);
}

#[test]
fn the_charts_role_is_enough_and_no_more() {
    let _calm = shared();
    let cluster = Cluster::open();
    allow(&cluster, "certificate", "prorata-collector", &rules("collector-rules.yaml"));
    let limited = Cluster::as_user("certificate");
    let pods = cluster.namespace("limits");
    cluster.create(&pods, super::pod("one", "nowhere"));
    assert_eq!(limited.get(&format!("{pods}/one")).unwrap_err(), 403);
    assert_eq!(limited.get("/api/v1/secrets").unwrap_err(), 403);
    assert_eq!(limited.get("/api/v1/namespaces/limits").unwrap_err(), 403);
    let room = Room::new("certificate", &[]);
    let program = room.collect();
    let kinds = room.status()["kinds"].clone();
    for kind in ["Node", "Pod", "ResourceClaim", "ResourceSlice", "DeviceClass", "PersistentVolume"] {
        assert_eq!(kinds[kind]["absent"], false, "{kinds}");
        assert_eq!(kinds[kind]["error"], Value::Null, "{kinds}");
    }
    assert_eq!(kinds["GpuPool"]["absent"], true, "its CRD is not there");
    assert!(room.metrics().contains("prorata_collector_ready 1"), "{}", room.metrics());
    Room::stop(program).succeeded();
    cluster.delete(&format!("{pods}/one"), Some(0));
}

#[test]
fn an_error_names_the_missing_setting() {
    let _calm = shared();
    let to = |room: &Room| room.events().to_str().unwrap().to_owned();
    let room = Room::new("nobody", &[]);
    let ended = room.start(&["--output", &to(&room)]).wait();
    assert_eq!(ended.code, Some(2), "{}", ended.log);
    assert!(ended.log.contains("set collect.cluster_id or --cluster"), "{}", ended.log);
    let ended = room.start(&["--output", &to(&room), "--cluster", "c"]).wait();
    assert_eq!(ended.code, Some(2), "{}", ended.log);
    assert!(ended.log.contains("list and watch of nodes are forbidden"), "{}", ended.log);
    let room = Room::new("no-such-context", &[]);
    let ended = room.start(&["--output", &to(&room)]).wait();
    assert_eq!(ended.code, Some(2), "{}", ended.log);
    assert!(ended.log.contains("no-such-context"), "{}", ended.log);
    let room = Room::new("token", &["price_list: no-such-list.csv"]);
    let ended = room.start(&["--output", &to(&room)]).wait();
    assert_eq!(ended.code, Some(2), "{}", ended.log);
    assert!(ended.log.contains("the price list 'no-such-list.csv' cannot be used"), "{}", ended.log);
    let ended = room.start(&[]).wait();
    assert_eq!(ended.code, Some(2), "{}", ended.log);
    assert!(
        ended.log.contains("kafka.bootstrap_servers is not set: name a folder with --output"),
        "{}",
        ended.log
    );
}
