//! Events as words for the tables.

use prorata_schemas::event::{Event, Payload, PoolSet, Quantities};

use crate::objects::BASE_SECONDS;

/// Formats a time as in the tables.
pub fn time(micros: i64) -> String {
    let since = micros - BASE_SECONDS * 1_000_000;
    let (seconds, fraction) = (since.div_euclid(1_000_000), since.rem_euclid(1_000_000));
    let mut text = format!("{:02}:{:02}", seconds.div_euclid(3_600), seconds.rem_euclid(3_600) / 60);
    if seconds % 60 != 0 || fraction != 0 {
        text += &format!(":{:02}", seconds.rem_euclid(60));
    }
    if fraction != 0 {
        text += &format!(".{fraction:06}");
    }
    text
}

/// Formats an event as `time Kind id key=value ..`, with every field that is set.
pub fn event(event: &Event) -> Vec<String> {
    let mut words = vec![time(event.event_time.0), event.payload.kind().name().to_owned()];
    match &event.payload {
        Payload::NodeStarted(node) => {
            words.push(node.node_id.to_string());
            words.extend(quantities("", &node.capacity));
            let capacity_type = format!("{:?}", node.capacity_type);
            words.extend([
                format!("name={}", node.node_name),
                format!("provider={}", node.provider),
                format!("region={}", node.region),
                format!("type={}", node.instance_type),
                format!("family={}", node.instance_family),
                format!("capacity={capacity_type}"),
                format!("cost={}", node.hourly_cost),
            ]);
            words.extend(optional("zone", &node.zone));
            words.extend(optional("model", &node.gpu_model));
            words.extend(optional("pool", &node.pool_id));
            words.extend(node.gpus.as_ref().map(|gpus| format!("gpus={}", gpus.text)));
            words.extend(optional("resource", &node.resource_key));
            words.extend(optional("account", &node.account_id));
        }
        Payload::NodeStopped(node) => words.push(node.node_id.to_string()),
        Payload::PodStarted(pod) => {
            words.push(pod.pod_uid.to_string());
            words.extend(quantities("", &pod.requests));
            words.extend(quantities("limit.", &pod.limits));
            words.push(format!("qos={}", pod.qos));
            words.push(format!("priority={}", pod.priority));
            words.extend(optional("node", &pod.node_id));
            words.extend(optional("region", &pod.region));
            words.extend(optional("zone", &pod.zone));
            words.extend(optional("pool", &pod.pool_id));
            words.extend(optional("model", &pod.gpu_model));
            words.extend(pod.gpus.as_ref().map(|gpus| format!("gpus={}", gpus.text)));
            words.extend(optional("sharing", &pod.gpu_sharing));
            let volumes = (!pod.volume_keys.is_empty()).then(|| pod.volume_keys.join(","));
            words.extend(optional("volumes", &volumes));
            let workload = pod.workload_kind.as_ref().zip(pod.workload_name.as_ref());
            words.extend(workload.map(|(kind, name)| format!("workload={kind}/{name}")));
            words.extend(pod.labels.iter().map(|(name, value)| format!("label.{name}={value}")));
            words.extend(pod.eviction_protected_until.map(|until| format!("until={}", time(until.0))));
        }
        Payload::PodStopped(pod) => {
            words.push(pod.pod_uid.to_string());
            words.extend(optional("reason", &pod.reason));
        }
        Payload::QuotaSet(quota) => {
            words.push(quota.quota_id.to_string());
            words.push(format!("ns={}", quota.namespaces.join(",")));
            words.push(format!("{:?}", quota.kind));
            words.extend(quantities("min.", &quota.min));
            words.extend(quota.max.iter().flat_map(|max| quantities("max.", max)));
        }
        Payload::QuotaDeleted(quota) => words.push(quota.quota_id.to_string()),
        Payload::PoolSet(pool) => words.extend(pool_words(pool)),
        Payload::PoolDeleted(pool) => words.push(pool.pool_id.to_string()),
        other => panic!("a collector sends no {:?}", other.kind()),
    }
    words.extend(event.recording.recorded_at().map(|at| format!("recorded={}", time(at.0))));
    words
}

fn pool_words(pool: &PoolSet) -> Vec<String> {
    let mut words = vec![pool.pool_id.to_string()];
    words.push(format!("default={}", pool.default_qos));
    words.push(format!("oversell={}", pool.tflops_oversell_percent));
    words.extend(quantities("max.", &pool.max_capacity));
    words.extend(quantities("min.", &pool.min_capacity));
    words.extend(quantities("warm.", &pool.warm_capacity));
    words.push(format!("strategy={}", pool.budget_exceed_strategy.name()));
    words.extend(pool.budget_per_day.map(|day| format!("day={day}")));
    words.extend(pool.qos_pricing.iter().map(|qos| {
        let (tflop, gib) = (qos.per_fp16_tflop_hour, qos.per_vram_gib_hour);
        format!("qos={}:{tflop}:{gib}:{}", qos.qos, qos.limits_over_requests)
    }));
    words
}

fn optional(name: &str, value: &Option<impl std::fmt::Display>) -> Option<String> {
    value.as_ref().map(|value| format!("{name}={value}"))
}

pub fn quantities(beginning: &str, quantities: &Quantities) -> Vec<String> {
    let word = |(name, quantity): (&prorata_schemas::Text, &prorata_schemas::quantity::Quantity)| {
        let name = match &**name {
            "nvidia.com/gpu" => "gpu",
            "ephemeral-storage" => "disk",
            "tensor-fusion.ai/tflops" => "tflops",
            "tensor-fusion.ai/vram" => "vram",
            name => name,
        };
        format!("{beginning}{name}={}", quantity.text)
    };
    quantities.iter().map(word).collect()
}
