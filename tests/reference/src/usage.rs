//! Measured use: the figures of samples for a stretch of time.

use std::collections::BTreeSet;

use prorata_schemas::event::{Event, Payload};
use prorata_schemas::ids::PodUid;

use crate::resources::{GIB, Three, add, none};
use crate::rounding::{Exact, hours, ratio, whole, zero};

/// One sample: average use over [from, to).
pub struct Sample {
    /// The pod.
    pub pod_uid: PodUid,
    /// The first instant.
    pub from: i64,
    /// The first instant after it.
    pub to: i64,
    /// vCPU, GiB and GPUs in use.
    pub average: Three,
    /// Bytes of GPU memory in use. `None` if they were not measured.
    pub gpu_memory: Option<Exact>,
}

/// Returns all samples.
pub fn samples(events: &[&Event]) -> Vec<Sample> {
    let mut samples = Vec::new();
    for event in events {
        if let Payload::PodUsage(usage) = &event.payload {
            samples.push(Sample {
                pod_uid: usage.pod_uid.clone(),
                from: event.event_time.0,
                to: usage.interval_end.0,
                average: [
                    ratio(usage.cpu_millis, 1000),
                    ratio(usage.memory_bytes, GIB),
                    ratio(usage.gpu_millis, 1000),
                ],
                gpu_memory: usage.gpu_memory_bytes.map(whole),
            });
        }
    }
    samples
}

/// Returns the resource-hours that a pod used in [from, to), or `None` if no sample overlaps.
pub fn used(samples: &[Sample], pod_uid: &str, from: i64, to: i64) -> Option<Three> {
    let mut used = None;
    for (sample, micros) in counted(samples, pod_uid, from, to) {
        add(used.get_or_insert_with(none), &sample.average, &hours(micros));
    }
    used
}

/// Returns the byte-hours of GPU memory that a pod used in [from, to), or `None` if no sample that counts
/// measured it.
pub fn used_gpu_memory(samples: &[Sample], pod_uid: &str, from: i64, to: i64) -> Option<Exact> {
    let mut used = None;
    for (sample, micros) in counted(samples, pod_uid, from, to) {
        if let Some(bytes) = &sample.gpu_memory {
            *used.get_or_insert_with(zero) += bytes * hours(micros);
        }
    }
    used
}

/// Returns the samples of a pod that count in [from, to), each with its microseconds. If several samples
/// cover an instant, the sample that started last counts.
fn counted<'s>(samples: &'s [Sample], pod_uid: &str, from: i64, to: i64) -> Vec<(&'s Sample, i64)> {
    let samples: Vec<&Sample> = samples.iter().filter(|sample| *sample.pod_uid == *pod_uid).collect();
    let edges = samples.iter().flat_map(|sample| [sample.from, sample.to]).chain([from, to]);
    let edges: BTreeSet<i64> = edges.filter(|edge| (from..=to).contains(edge)).collect();
    let mut counted = Vec::new();
    for (&at, &next) in edges.iter().zip(edges.iter().skip(1)) {
        let here = samples.iter().filter(|sample| sample.from <= at && at < sample.to);
        if let Some(sample) = here.max_by_key(|sample| sample.from) {
            counted.push((*sample, next - at));
        }
    }
    counted
}
