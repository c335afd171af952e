//! Intervals of usage, from one round to the next.

use std::collections::BTreeMap;

use prorata_schemas::Text;
use prorata_schemas::event::{Event, Payload, PodUsage};
use prorata_schemas::ids::OrganizationId;
use prorata_schemas::time::{HOUR_MICROS, Timestamp};

use super::UsageRound;
use super::sources::Reading;

/// Turns rounds into intervals.
#[derive(Debug)]
pub struct UsageTiles {
    organization_id: OrganizationId,
    /// Maximum length of an interval, in microseconds.
    most_micros: i64,
    /// End of the last round.
    last: Option<Timestamp>,
    /// CPU seconds of each pod, and the time at which they were counted.
    counted: BTreeMap<Text, (f64, Timestamp)>,
    /// Pods with GPU readings, and the time of their last reading. The pods stay while a source of GPU
    /// metrics fails.
    with_gpus: BTreeMap<Text, Timestamp>,
    totals: UsageTotals,
}

/// Counters since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UsageTotals {
    /// Number of intervals sent.
    pub intervals: u64,
    /// Number of readings of unknown pods.
    pub unknown_pods: u64,
    /// Number of readings of pods without CPU and memory, or without GPUs. These pods have no interval.
    pub incomplete: u64,
    /// Number of pauses longer than the longest interval. No sample covers the time of a pause.
    pub pauses: u64,
}

impl UsageTiles {
    /// Creates intervals for rounds that are usually `period_micros` apart. A gap of more than twice this
    /// period, or of more than an hour, is a pause.
    pub fn new(organization_id: OrganizationId, period_micros: i64) -> Self {
        let most_micros = period_micros.saturating_mul(2).clamp(1, HOUR_MICROS);
        let (last, counted, with_gpus, totals) = Default::default();
        Self { organization_id, most_micros, last, counted, with_gpus, totals }
    }

    /// Closes a round at an instant. Returns one event for each pod that the round has read and that `uid_of`
    /// knows by namespace and name. A pod that was read only in part has no event, because its usage is not
    /// known. A round that is not later than the previous one is left out.
    pub fn close(
        &mut self,
        round: &UsageRound,
        at: Timestamp,
        uid_of: impl Fn(&str, &str) -> Option<Text>,
    ) -> Vec<Event> {
        self.remember_gpus(round, at, &uid_of);
        let Some(since) = self.last.replace(at) else {
            self.count_all(round, at, &uid_of);
            return Vec::new();
        };
        if at <= since {
            self.last = Some(since);
            return Vec::new();
        }
        if at.0.saturating_sub(since.0) > self.most_micros {
            self.totals.pauses += 1;
            self.count_all(round, at, &uid_of);
            return Vec::new();
        }
        let mut events = Vec::new();
        let before = std::mem::take(&mut self.counted);
        for ((namespace, name), reading) in &round.pods {
            let Some(uid) = uid_of(namespace, name) else {
                self.totals.unknown_pods += 1;
                continue;
            };
            let cpu = self.count(&uid, reading, at, before.get(&uid));
            let (memory, gpu) = (reading.memory_bytes, reading.gpu_millis());
            let lacks_gpus = round.lacks_gpus && gpu.is_none() && self.with_gpus.contains_key(&uid);
            if lacks_gpus || (cpu.is_none() && memory.is_none()) {
                self.totals.incomplete += 1;
                continue;
            }
            let usage = PodUsage {
                pod_uid: uid.into(),
                interval_end: at,
                cpu_millis: whole(cpu),
                memory_bytes: whole(memory),
                gpu_millis: whole(gpu),
                gpu_memory_bytes: reading.gpu_memory_bytes().map(|bytes| whole(Some(bytes))),
            };
            let organization_id = self.organization_id.clone();
            events.push(Event::new(organization_id, since, Payload::PodUsage(usage)));
        }
        // A pod that this round did not read keeps its counters for one more round.
        let kept = before.into_iter().filter(|(_, (_, counted))| counted.0 >= at.0 - 2 * self.most_micros);
        for (uid, counted) in kept {
            self.counted.entry(uid).or_insert(counted);
        }
        self.totals.intervals += events.len() as u64;
        events
    }

    /// Returns the counters since the start.
    pub const fn totals(&self) -> UsageTotals {
        self.totals
    }

    /// Records which pods use GPUs, for rounds in which not all GPUs can be read.
    fn remember_gpus(
        &mut self,
        round: &UsageRound,
        at: Timestamp,
        uid_of: impl Fn(&str, &str) -> Option<Text>,
    ) {
        let mut before = std::mem::take(&mut self.with_gpus);
        for ((namespace, name), reading) in &round.pods {
            let Some(uid) = uid_of(namespace, name) else { continue };
            let had = before.remove(&uid).is_some();
            if reading.gpu_millis().is_some() || (round.lacks_gpus && had) {
                self.with_gpus.insert(uid, at);
            }
        }
        if round.lacks_gpus {
            before.retain(|_, last| at.0.saturating_sub(last.0) <= HOUR_MICROS);
            self.with_gpus.append(&mut before);
        }
    }

    /// Records the counters without making intervals.
    fn count_all(&mut self, round: &UsageRound, at: Timestamp, uid_of: impl Fn(&str, &str) -> Option<Text>) {
        self.counted.clear();
        for ((namespace, name), reading) in &round.pods {
            if let Some(uid) = uid_of(namespace, name) {
                self.count(&uid, reading, at, None);
            }
        }
    }

    /// Returns CPU in thousandths of a vCPU: the source's own value, or the seconds counted since the last
    /// count. Returns `None` if the pod was not counted before, or if a counter has restarted.
    fn count(
        &mut self,
        uid: &Text,
        reading: &Reading,
        at: Timestamp,
        before: Option<&(f64, Timestamp)>,
    ) -> Option<f64> {
        let Some((seconds, counted)) = reading.cpu_seconds else { return reading.cpu_millis };
        let counted = counted.unwrap_or(at);
        self.counted.insert(uid.clone(), (seconds, counted));
        let (seconds_before, counted_before) = before?;
        let micros = counted.0.saturating_sub(counted_before.0);
        (seconds >= *seconds_before && micros > 0).then(|| (seconds - seconds_before) * 1e9 / micros as f64)
    }
}

/// Rounds to the nearest whole number. Returns 0 if the value was not measured, or is impossible for any
/// machine.
fn whole(value: Option<f64>) -> i64 {
    const MOST: f64 = 1e18;
    value.filter(|value| (0.0..MOST).contains(value)).map_or(0, |value| value.round() as i64)
}
