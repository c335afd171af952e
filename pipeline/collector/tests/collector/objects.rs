//! Objects in the form of the API server, from words such as `cpu=2` and `on=n`.

use prorata_collector::object::KubeObject;
use serde_json::{Map, Value, json};

/// Origin of the times in tables: 2026-01-05T00:00Z.
pub const BASE_SECONDS: i64 = 1_767_571_200;

/// Converts `10:05`, `10:05:07` or `10:05:07.000001`, counted from the base, to microseconds since 1970.
pub fn micros(text: &str) -> i64 {
    let (clock, fraction) = text.split_once('.').unwrap_or((text, "0"));
    let parts: Vec<i64> = clock.split(':').map(|part| part.parse().unwrap()).collect();
    let seconds = parts[0] * 3_600 + parts[1] * 60 + parts.get(2).unwrap_or(&0);
    let fraction: i64 = format!("{fraction:0<6}").parse().unwrap();
    (BASE_SECONDS + seconds) * 1_000_000 + fraction
}

/// Formats a time as Kubernetes does: RFC 3339 in whole seconds.
pub fn rfc3339(micros: i64) -> String {
    let shown = prorata_schemas::time::Timestamp(micros.div_euclid(1_000_000) * 1_000_000).to_string();
    shown.replace(".000000Z", "Z")
}

/// Words `key=value` of an object that was created at `now`.
pub struct Words<'w> {
    words: Vec<(&'w str, &'w str)>,
    now: i64,
}

impl<'w> Words<'w> {
    pub fn new(words: &[&'w str], now: i64) -> Self {
        let split = |word: &&'w str| word.split_once('=').unwrap_or((word, "true"));
        Self { words: words.iter().map(split).collect(), now }
    }

    /// Removes a word, and returns its value.
    fn take(&mut self, key: &str) -> Option<&'w str> {
        let at = self.words.iter().position(|(known, _)| *known == key)?;
        Some(self.words.remove(at).1)
    }

    fn time(&mut self, key: &str) -> Option<String> {
        self.take(key).map(|text| rfc3339(micros(text)))
    }

    /// Removes the words with this prefix, and returns them without the prefix.
    fn starting(&mut self, beginning: &str) -> Map<String, Value> {
        let (with, without) = self.words.iter().partition(|(key, _)| key.starts_with(beginning));
        let with: Vec<(&str, &str)> = with;
        self.words = without;
        with.iter().map(|(key, value)| (resource(&key[beginning.len()..]), json!(value))).collect()
    }

    /// Removes and returns all remaining words, which are quantities.
    fn rest(&mut self) -> Map<String, Value> {
        self.starting("")
    }

    fn metadata(&mut self, name: &str, namespace: &str) -> Value {
        let created = self.time("created").unwrap_or_else(|| rfc3339(self.now));
        let removed = self.time("removed").map(|time| (time, 0));
        let deleted = removed.or_else(|| self.time("deleting").map(|time| (time, 30)));
        let changed = self.time("changed").map(|time| json!([{"time": time, "fieldsV1": {}}]));
        let owners = self.take("owner").map(|owner| {
            let (kind, name) = owner.split_once('/').unwrap();
            json!([{"kind": kind, "name": name, "controller": true, "uid": "o"}])
        });
        json!({
            "name": name,
            "namespace": namespace,
            "uid": self.take("uid").unwrap_or(name),
            "resourceVersion": self.take("version").unwrap_or("1"),
            "creationTimestamp": created,
            "deletionTimestamp": deleted.as_ref().map(|(time, _)| time),
            "deletionGracePeriodSeconds": deleted.map(|(_, grace)| grace),
            "managedFields": changed,
            "ownerReferences": owners,
            "labels": self.starting("label."),
            "annotations": self.starting("annotation."),
        })
    }
}

fn resource(name: &str) -> String {
    match name {
        "gpu" => "nvidia.com/gpu".into(),
        "disk" => "ephemeral-storage".into(),
        "tflops" => "tensor-fusion.ai/tflops".into(),
        "vram" => "tensor-fusion.ai/vram".into(),
        name => name.into(),
    }
}

/// Makes the object of a line from its kind, its name and its words; `None` if there is no such kind.
pub fn object(kind: &str, name: &str, mut words: Words<'_>) -> Option<KubeObject> {
    let parsed = match kind {
        "node" => KubeObject::Node(from(node(name, &mut words))),
        "pod" => KubeObject::Pod(from(pod(name, &mut words))),
        "quota" => KubeObject::ElasticQuota(from(quota(name, &mut words))),
        "composite" => KubeObject::CompositeElasticQuota(from(quota(name, &mut words))),
        "pool" => KubeObject::GpuPool(from(pool(name, &mut words))),
        "gpu-node" => KubeObject::GpuNode(from(gpu_node(name, &mut words))),
        "claim" => KubeObject::ResourceClaim(from(claim(name, &mut words))),
        "slice" => KubeObject::ResourceSlice(from(slice(name, &mut words))),
        "class" => KubeObject::DeviceClass(from(class(name, &mut words))),
        "volume" => KubeObject::PersistentVolume(from(volume(name, &mut words))),
        _ => return None,
    };
    assert!(words.words.is_empty(), "{kind} {name}: not used: {:?}", words.words);
    Some(parsed)
}

fn from<T: serde::de::DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).unwrap()
}

fn node(name: &str, words: &mut Words<'_>) -> Value {
    let mut metadata = words.metadata(name, "");
    let label = |metadata: &mut Value, key: &str, value: Option<&str>| {
        if let Some(value) = value {
            metadata["labels"][key] = json!(value);
        }
    };
    label(&mut metadata, "node.kubernetes.io/instance-type", words.take("type"));
    label(&mut metadata, "topology.kubernetes.io/region", words.take("region"));
    label(&mut metadata, "topology.kubernetes.io/zone", words.take("zone"));
    label(&mut metadata, "nvidia.com/gpu.product", words.take("model"));
    label(&mut metadata, "karpenter.sh/capacity-type", words.take("spot").map(|_| "spot"));
    label(&mut metadata, "type", words.take("virtual").map(|_| "virtual-kubelet"));
    if let Some(price) = words.take("price") {
        metadata["annotations"]["prorata.dev/hourly-cost"] = json!(price);
    }
    let taints = words.take("taint").map(|key| json!([{"key": key, "effect": "NoSchedule"}]));
    let provider_id = words.take("id").unwrap_or("");
    json!({
        "metadata": metadata,
        "spec": {"providerID": provider_id, "taints": taints},
        "status": {"capacity": words.rest(), "conditions": [{"type": "Ready"}]},
    })
}

fn pod(name: &str, words: &mut Words<'_>) -> Value {
    let namespace = words.take("ns").unwrap_or("ns");
    let metadata = words.metadata(name, namespace);
    let mut conditions = Vec::new();
    if let Some(time) = words.time("scheduled") {
        conditions.push(json!({"type": "PodScheduled", "status": "True", "lastTransitionTime": time}));
    }
    if let Some(time) = words.time("not-ready") {
        conditions.push(json!({"type": "Ready", "status": "False", "lastTransitionTime": time}));
    }
    if let Some((time, reason)) = words.take("disrupted").map(|text| text.split_once('/').unwrap()) {
        let time = rfc3339(micros(time));
        let condition = json!({
            "type": "DisruptionTarget", "status": "True", "reason": reason, "lastTransitionTime": time,
        });
        conditions.push(condition);
    }
    let ran = words.time("ran");
    let state = match (words.time("finished"), &ran) {
        (Some(time), _) => {
            let why = words.take("why");
            json!({"terminated": {"finishedAt": time, "startedAt": ran, "reason": why, "exitCode": 0}})
        }
        (None, Some(time)) => json!({"running": {"startedAt": time}}),
        (None, None) => json!({"waiting": {"reason": "ContainerCreating"}}),
    };
    let claims: Vec<&str> = words.take("claims").map(|names| names.split(',').collect()).unwrap_or_default();
    let claims: Vec<Value> =
        claims.iter().map(|name| json!({"name": name, "resourceClaimName": name})).collect();
    let volumes = pod_volumes(words);
    let node_name = words.take("on").unwrap_or("");
    let (phase, reason) = (words.take("phase").unwrap_or("Running"), words.take("reason"));
    let (priority, start_time) = (words.take("priority"), words.time("started"));
    let limits = words.starting("limit.");
    json!({
        "metadata": metadata,
        "spec": {
            "nodeName": node_name,
            "priority": priority.map(|text| text.parse::<i32>().unwrap()),
            "containers": [{"name": "c", "resources": {"requests": words.rest(), "limits": limits}}],
            "resourceClaims": claims,
            "volumes": volumes,
        },
        "status": {
            "phase": phase,
            "reason": reason,
            "startTime": start_time,
            "conditions": conditions,
            "containerStatuses": [{"name": "c", "state": state}],
        },
    })
}

/// Makes the volumes of a pod: `volumes=claim,..`, `ephemeral=name`, and one without a claim.
fn pod_volumes(words: &mut Words<'_>) -> Vec<Value> {
    let mut volumes = vec![json!({"name": "config", "configMap": {}})];
    let claims = words.take("volumes");
    let of_claim = |name: &str| json!({"name": name, "persistentVolumeClaim": {"claimName": name}});
    volumes.extend(claims.iter().flat_map(|claims| claims.split(',')).map(of_claim));
    volumes.extend(words.take("ephemeral").map(|name| json!({"name": name, "ephemeral": {}})));
    volumes
}

fn quota(name: &str, words: &mut Words<'_>) -> Value {
    let namespace = words.take("ns").unwrap_or("ns");
    let metadata = words.metadata(name, namespace);
    let namespaces: Vec<&str> = namespace.split(',').collect();
    let (min, max) = (words.starting("min."), words.starting("max."));
    let max = if max.is_empty() { Value::Null } else { Value::Object(max) };
    json!({"metadata": metadata, "spec": {"namespaces": namespaces, "min": min, "max": max}})
}

fn pool(name: &str, words: &mut Words<'_>) -> Value {
    let metadata = words.metadata(name, "");
    let pricing = words.take("qos").map(|text| {
        let parts: Vec<&str> = text.split(':').collect();
        let requests = json!({"perFP16TFlopsPerHour": parts[1], "perGBOfVRAMPerHour": parts[2]});
        json!([{"qos": parts[0], "requests": requests, "limitsOverRequests": parts.get(3)}])
    });
    let budget = json!({"budgetPerDay": words.take("day"), "budgetExceedStrategy": words.take("strategy")});
    // In a pool, resources have names of their own.
    let mut capacity = |beginning: &str| -> Map<String, Value> {
        let named = words.starting(beginning).into_iter();
        named.map(|(name, value)| (name.trim_start_matches("tensor-fusion.ai/").to_owned(), value)).collect()
    };
    let (most, least, warm) = (capacity("max."), capacity("min."), capacity("warm."));
    let oversell: Option<i32> = words.take("oversell").map(|text| text.parse().unwrap());
    json!({
        "metadata": metadata,
        "spec": {
            "qosConfig": {"defaultQoS": words.take("default"), "pricing": pricing},
            "capacityConfig": {
                "maxResources": most,
                "minResources": least,
                "warmResources": warm,
                "oversubscription": {"tflopsOversellRatio": oversell},
            },
            "nodeManagerConfig": {"nodeProvisioner": {"budget": budget}},
        },
    })
}

fn gpu_node(name: &str, words: &mut Words<'_>) -> Value {
    json!({
        "metadata": words.metadata(name, ""),
        "spec": {"costPerHour": words.take("cost")},
        "status": {
            "totalTFlops": words.take("tflops"),
            "totalVRAM": words.take("vram"),
            "nodeInfo": {"gpuModel": words.take("model")},
        },
    })
}

/// Makes a claim from `got=driver/device:class,..`; `shared=2` is the number of pods that use it.
fn claim(name: &str, words: &mut Words<'_>) -> Value {
    let metadata = words.metadata(name, "ns");
    let (mut requests, mut results) = (Vec::new(), Vec::new());
    let got = words.take("got");
    for (index, text) in got.iter().flat_map(|text| text.split(',')).enumerate() {
        let (device, class) = text.split_once(':').unwrap();
        let (class, memory) = class.split_once(':').map_or((class, None), |(class, of)| (class, Some(of)));
        let (driver, device) = device.split_once('/').unwrap();
        let request = format!("r{index}");
        requests.push(json!({"name": request, "exactly": {"deviceClassName": class}}));
        results.push(json!({
            "request": request, "driver": driver, "pool": "pool", "device": device,
            "consumedCapacity": memory.map(|memory| json!({"memory": memory})),
        }));
    }
    let sharers: usize = words.take("shared").map_or(1, |text| text.parse().unwrap());
    let reserved: Vec<Value> =
        (0..sharers).map(|n| json!({"resource": "pods", "uid": n.to_string()})).collect();
    let allocation = got.map(|_| json!({"devices": {"results": results}}));
    json!({
        "metadata": metadata,
        "spec": {"devices": {"requests": requests}},
        "status": {"allocation": allocation, "reservedFor": reserved},
    })
}

/// Makes a slice from a driver and devices with their MIG profiles: `driver=gpu.nvidia.com d0=1g.10gb`. A
/// device `d0=gpu:80Gi` has memory of its own, `d0=20Gi/80Gi` takes memory of the card `card`.
fn slice(name: &str, words: &mut Words<'_>) -> Value {
    let driver = words.take("driver").unwrap();
    let metadata = words.metadata(name, "");
    let node_name = words.take("on");
    let mut counters = Vec::new();
    let mut device = |(name, profile): (String, Value)| {
        let text = profile.as_str().unwrap_or_default();
        if let Some(memory) = text.strip_prefix("gpu:") {
            return json!({"name": name, "capacity": {"gpu.nvidia.com/memory": {"value": memory}}});
        }
        if let Some((taken, all)) = text.split_once('/') {
            counters = vec![json!({"name": "card", "counters": {"memory": {"value": all}}})];
            let takes = json!([{"counterSet": "card", "counters": {"memory": {"value": taken}}}]);
            return json!({"name": name, "consumesCounters": takes});
        }
        let attributes = json!({"profile": {"string": profile}, "index": {"int": 1}});
        json!({"name": name, "attributes": attributes})
    };
    let devices: Vec<Value> = words.rest().into_iter().map(&mut device).collect();
    json!({"metadata": metadata, "spec": {
        "driver": driver, "pool": {"name": "pool"}, "nodeName": node_name, "devices": devices,
        "sharedCounters": counters,
    }})
}

fn class(name: &str, words: &mut Words<'_>) -> Value {
    json!({"metadata": words.metadata(name, ""), "spec": {"extendedResourceName": words.take("resource")}})
}

/// Makes a volume from `claim=ns/name` and `handle=driver/id`. A volume with a claim is bound, unless `phase`
/// says otherwise.
fn volume(name: &str, words: &mut Words<'_>) -> Value {
    let metadata = words.metadata(name, "");
    let claim = words.take("claim").map(|claim| claim.split_once('/').unwrap());
    let claim = claim.map(|(namespace, name)| json!({"namespace": namespace, "name": name}));
    let handle = words.take("handle").map(|handle| handle.split_once('/').unwrap());
    let csi = handle.map(|(driver, id)| json!({"driver": driver, "volumeHandle": id}));
    let phase = words.take("phase").unwrap_or(if claim.is_some() { "Bound" } else { "Available" });
    json!({"metadata": metadata, "spec": {"claimRef": claim, "csi": csi}, "status": {"phase": phase}})
}
