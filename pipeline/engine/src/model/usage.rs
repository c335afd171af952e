//! Measured use of pods, packed as its events arrive: a sample takes about 20 bytes instead of an event's
//! 200.
//!
//! Usage changes nothing that other events see, so it needs no place in the order of events. Only its figures
//! are kept, as the variable-length integers of an event's body. Duplicates are removed after all samples
//! have arrived: see `timeline/order.rs`. Of two samples with the same pod and start, the sample recorded
//! last stands. If the recordings are equal, the sample whose body sorts last stands.

use std::cmp::Ordering;

use prorata_schemas::body::PodUsageRef;
use prorata_schemas::body::wire::{Wire, put_long, put_longs};
use prorata_schemas::event::Recording;
use prorata_schemas::ids::PodUid;
use prorata_schemas::time::Timestamp;
use rayon::prelude::{ParallelIterator, ParallelSliceMut};

use crate::model::per_resource::PerResource;
use crate::model::state::Sample;

/// The number of pods in one part of the work, which is done on all cores.
const PODS_OF_A_PART: usize = 1024;

/// The value for a figure that the event lacks. Figures are zero or more.
const NOT_MEASURED: i64 = -1;

/// Maximum number of bytes that are reserved at once for a new pod. The samples of an hour, one a minute,
/// take about 1,200 bytes.
const FIRST_ROOM_MAX: usize = 2048;

#[expect(
    clippy::disallowed_types,
    reason = "only looked up, once an event, and never walked: no order in it"
)]
type Places = std::collections::HashMap<PodUid, usize>;

/// Usage of an organization's pods, in any order, duplicates included.
#[derive(Clone, Debug, Default)]
pub(crate) struct Usage {
    /// The time to which packed times are relative.
    base: Timestamp,
    pods: Vec<(PodUid, PackedSamples)>,
    /// The index of each pod.
    places: Places,
    /// The index of the last sample's pod. In the archive, the next sample usually has the same pod.
    last: usize,
}

/// Samples of one pod, packed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PackedSamples {
    base: Timestamp,
    bytes: Vec<u8>,
    /// The number of samples.
    count: usize,
    /// Whether each sample begins after the sample before it and none has a recording. If so, all samples
    /// stand.
    is_settled: bool,
    /// The start of the last sample.
    last: Option<Timestamp>,
    /// The latest end of a sample; 1970 if there are no samples.
    pub(crate) ended: Timestamp,
}

/// A sample with the figures of its event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Measured {
    from: Timestamp,
    to: Timestamp,
    figures: [i64; 3],
    /// Bytes of GPU memory. [`NOT_MEASURED`] if it was not measured.
    gpu_memory: i64,
    recording: Recording,
}

impl Usage {
    /// Creates empty usage of an hour that starts at `base`.
    pub(crate) fn new(base: Timestamp) -> Self {
        Self { base, ..Self::default() }
    }

    /// Takes one sample.
    pub(crate) fn push(&mut self, from: Timestamp, recording: Recording, usage: PodUsageRef<'_>) {
        let figures = [usage.cpu_millis, usage.memory_bytes, usage.gpu_millis];
        let gpu_memory = usage.gpu_memory_bytes.unwrap_or(NOT_MEASURED);
        let sample = Measured { from, to: usage.interval_end, figures, gpu_memory, recording };
        self.of_pod(usage.pod_uid).push(sample);
    }

    /// Adds all samples of another part of the same hour.
    pub(crate) fn append(&mut self, other: Self) {
        if self.pods.is_empty() {
            *self = other;
            return;
        }
        for (pod_uid, samples) in other.pods {
            let mine = self.of_pod(&pod_uid);
            if mine.bytes.is_empty() {
                *mine = samples;
            } else if mine.base == samples.base {
                mine.append(&samples);
            } else {
                samples.measured().for_each(|sample| mine.push(sample));
            }
        }
    }

    fn of_pod(&mut self, pod_uid: &str) -> &mut PackedSamples {
        if self.pods.get(self.last).is_none_or(|(last, _)| **last != *pod_uid) {
            self.last = self.place(pod_uid);
        }
        &mut self.pods[self.last].1
    }

    fn place(&mut self, pod_uid: &str) -> usize {
        if let Some(place) = self.places.get(pod_uid) {
            return *place;
        }
        let (pod_uid, place) = (PodUid::from(pod_uid), self.pods.len());
        self.places.insert(pod_uid.clone(), place);
        let mut samples = PackedSamples::new(self.base);
        // Pods of an organization have about the same number of samples, and in the archive they come one by
        // one.
        let room = self.pods.get(self.last).map_or(0, |(_, last)| last.bytes.len());
        samples.bytes.reserve_exact(room.min(FIRST_ROOM_MAX));
        self.pods.push((pod_uid, samples));
        place
    }

    /// Removes samples that do not stand. Returns each pod's samples in order of time, and their number.
    pub(crate) fn settle(self) -> (Vec<(PodUid, PackedSamples)>, usize) {
        let Self { mut pods, places, .. } = self;
        drop(places);
        let settle = |pods: &mut [(PodUid, PackedSamples)]| -> usize {
            let mut sorted = Vec::new();
            pods.iter_mut().map(|(_, samples)| samples.settle(&mut sorted)).sum()
        };
        let standing = pods.par_chunks_mut(PODS_OF_A_PART).map(settle).sum();
        (pods, standing)
    }
}

impl Default for PackedSamples {
    fn default() -> Self {
        Self::new(Timestamp::default())
    }
}

impl PackedSamples {
    /// Creates an empty list of samples whose times are relative to `base`.
    const fn new(base: Timestamp) -> Self {
        Self { base, bytes: Vec::new(), count: 0, is_settled: true, last: None, ended: Timestamp(0) }
    }

    /// Appends samples whose times are relative to the same `base`.
    fn append(&mut self, other: &Self) {
        let Some(first) = other.measured().next() else { return };
        self.is_settled &= other.is_settled && self.last < Some(first.from);
        self.bytes.extend_from_slice(&other.bytes);
        self.count += other.count;
        self.last = other.last;
        self.ended = self.ended.max(other.ended);
    }

    fn push(&mut self, sample: Measured) {
        let Measured { from, to, figures: [cpu, memory, gpu], gpu_memory, recording } = sample;
        let is_recorded = recording != Recording::NONE;
        self.is_settled &= self.last < Some(from) && !is_recorded;
        self.count += 1;
        self.last = Some(from);
        self.ended = self.ended.max(to);
        // A length is never negative, so its complement marks that a recording follows. Few samples have one.
        let length = to.0.wrapping_sub(from.0).max(0);
        let length = if is_recorded { !length } else { length };
        let from = from.0.wrapping_sub(self.base.0);
        put_longs(&mut self.bytes, [from, length, cpu, memory, gpu, gpu_memory]);
        if is_recorded {
            put_long(&mut self.bytes, recording.to_bits());
        }
    }

    fn measured(&self) -> impl Iterator<Item = Measured> {
        let mut wire = Wire::new(&self.bytes);
        std::iter::from_fn(move || {
            // The bytes are our own, so they end after a whole sample.
            let mut next = || wire.long().ok();
            let from = Timestamp(next()?.wrapping_add(self.base.0));
            let length = next()?;
            let figures = [next()?, next()?, next()?];
            let gpu_memory = next()?;
            let recording = if length < 0 { Recording::from_bits(next()?) } else { Recording::NONE };
            let to = Timestamp(from.0.wrapping_add(if length < 0 { !length } else { length }));
            Some(Measured { from, to, figures, gpu_memory, recording })
        })
    }

    /// Returns the samples that are longer than zero.
    pub(crate) fn samples(&self) -> impl Iterator<Item = Sample> {
        let samples = self.measured().filter(|sample| sample.from < sample.to);
        samples.map(|Measured { from, to, figures, gpu_memory, .. }| {
            let [cpu, memory, gpu] = figures.map(|figure| u64::try_from(figure).unwrap_or(0));
            let gpu_memory = u64::try_from(gpu_memory).ok();
            Sample { from, to, use_amounts: PerResource { cpu, memory, gpu }, gpu_memory }
        })
    }

    /// Sorts the samples by time and removes those that do not stand. Returns the number of samples. `sorted`
    /// is a scratch buffer.
    fn settle(&mut self, sorted: &mut Vec<Measured>) -> usize {
        if self.is_settled {
            self.bytes.shrink_to_fit();
            return self.count;
        }
        sorted.clear();
        sorted.extend(self.measured());
        let place = |sample: &Measured| (sample.from, sample.recording);
        sorted.sort_unstable_by(|a, b| place(a).cmp(&place(b)).then_with(|| in_body_order(a, b)));
        // `dedup_by` keeps the earlier of two neighbours, so the later is copied over it.
        sorted.dedup_by(|later, earlier| {
            let same = later.from == earlier.from;
            if same {
                *earlier = *later;
            }
            same
        });
        *self = Self { bytes: std::mem::take(&mut self.bytes), ..Self::new(self.base) };
        self.bytes.clear();
        let standing = sorted.iter().filter(|sample| !sample.recording.is_retraction());
        standing.for_each(|sample| self.push(Measured { recording: Recording::NONE, ..*sample }));
        self.bytes.shrink_to_fit();
        self.count
    }
}

/// Compares the bodies of two samples with the same pod, start and recording. Compares field by field in the
/// order of the schema, and each field by its bytes.
fn in_body_order(a: &Measured, b: &Measured) -> Ordering {
    let body = |sample: &Measured| {
        let mut body = Vec::with_capacity(50);
        let [cpu, memory, gpu] = sample.figures;
        put_longs(&mut body, [sample.to.0, cpu, memory, gpu]);
        match sample.gpu_memory {
            NOT_MEASURED => put_long(&mut body, 0),
            bytes => put_longs(&mut body, [1, bytes]),
        }
        body
    };
    body(a).cmp(&body(b))
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use super::*;
    use crate::model::samples::Samples;
    use proptest::prelude::*;
    use prorata_schemas::body;
    use prorata_schemas::event::{Event, Payload, PodUsage};

    const BASE: i64 = 7 * 3_600_000_000;

    /// Generates few distinct values, so that samples coincide. Some values take several bytes, which do not
    /// sort like the numbers.
    fn figure() -> impl Strategy<Value = i64> {
        prop_oneof![0..3_i64, 60..70_i64, Just(i64::MAX)]
    }

    type Figures = ([i64; 3], Option<i64>);

    fn event(pod: u8, minute: i64, length: i64, (figures, gpu_memory_bytes): Figures) -> Event {
        let [cpu_millis, memory_bytes, gpu_millis] = figures;
        let event_time = Timestamp(BASE + minute * 60_000_000);
        let usage = PodUsage {
            pod_uid: format!("pod-{pod}").into(),
            interval_end: Timestamp(event_time.0 + length),
            cpu_millis,
            memory_bytes,
            gpu_millis,
            gpu_memory_bytes,
        };
        Event::new("o".into(), event_time, Payload::PodUsage(usage))
    }

    fn events() -> impl Strategy<Value = Vec<Event>> {
        // Some samples end after samples that begin later.
        let length = prop_oneof![0..300_i64, 60_000_000..200_000_000_i64];
        let instant = prop_oneof![Just(None), (0..2_i64).prop_map(|micros| Some(Timestamp(micros)))];
        let recording = prop_oneof![
            3 => Just(Recording::NONE),
            1 => (instant, any::<bool>()).prop_map(|(at, is_retraction)| Recording::new(at, is_retraction)),
        ];
        let figures = ([figure(), figure(), figure()], proptest::option::of(figure()));
        let of = (0..3_u8, 0..5_i64, length, figures, recording);
        let any = of.prop_map(|(pod, minute, length, figures, recording)| {
            event(pod, minute, length, figures).recorded(recording)
        });
        proptest::collection::vec(any, 0..60)
    }

    /// Applies the rule literally: each whole body counts once. Of the samples with one pod and start, the
    /// last by recording and body stands, unless it is a retraction.
    fn by_bodies(events: &[Event]) -> (BTreeMap<PodUid, Vec<Sample>>, usize) {
        let mut bodies: BTreeSet<(PodUid, Timestamp, Recording, Vec<u8>)> = BTreeSet::new();
        for event in events {
            let Payload::PodUsage(usage) = &event.payload else { continue };
            bodies.insert((usage.pod_uid.clone(), event.event_time, event.recording, body::encode(event)));
        }
        let last: BTreeMap<_, _> =
            bodies.into_iter().map(|(uid, from, _, body)| ((uid, from), body)).collect();
        let mut pods: BTreeMap<PodUid, Vec<Sample>> = BTreeMap::new();
        let mut standing = 0;
        for ((uid, from), body) in last {
            let kind = prorata_schemas::event::EventKind::PodUsage;
            let event = body::decode(kind, &body).unwrap();
            let Payload::PodUsage(usage) = event.payload else { continue };
            let figures = [usage.cpu_millis, usage.memory_bytes, usage.gpu_millis];
            let [cpu, memory, gpu] = figures.map(|figure| u64::try_from(figure).unwrap());
            let samples = pods.entry(uid).or_default();
            let stands = !event.recording.is_retraction();
            standing += usize::from(stands);
            if from < usage.interval_end && stands {
                let use_amounts = PerResource { cpu, memory, gpu };
                let gpu_memory = usage.gpu_memory_bytes.map(|bytes| u64::try_from(bytes).unwrap());
                samples.push(Sample { from, to: usage.interval_end, use_amounts, gpu_memory });
            }
        }
        (pods, standing)
    }

    fn taken(base: i64, events: &[Event]) -> Usage {
        let mut usage = Usage::new(Timestamp(base));
        push_all(&mut usage, events);
        usage
    }

    fn push_all(usage: &mut Usage, events: &[Event]) {
        for event in events {
            let Payload::PodUsage(measured) = &event.payload else { continue };
            usage.push(event.event_time, event.recording, measured.into());
        }
    }

    fn settled(usage: Usage) -> (BTreeMap<PodUid, Vec<Sample>>, usize) {
        let (pods, standing) = usage.settle();
        let samples = pods.into_iter().map(|(uid, packed)| (uid, packed.samples().collect()));
        (samples.collect(), standing)
    }

    /// Returns the samples of settled usage that end after an instant.
    fn left_after(usage: Usage, instant: Timestamp) -> BTreeMap<PodUid, Vec<Sample>> {
        let pods = usage.settle().0.into_iter();
        pods.map(|(uid, measured)| (uid, Samples { carried: Vec::new(), measured }.after(instant))).collect()
    }

    /// Returns the samples that end after an instant, except samples that a later sample covers to the end.
    fn later(mut pods: BTreeMap<PodUid, Vec<Sample>>, instant: Timestamp) -> BTreeMap<PodUid, Vec<Sample>> {
        for samples in pods.values_mut() {
            let all = samples.clone();
            let hides = |later: &Sample, sample: &Sample| later.from > sample.from && later.to >= sample.to;
            let counts = |sample: &Sample| !all.iter().any(|later| hides(later, sample));
            samples.retain(|sample| sample.to > instant && counts(sample));
        }
        pods
    }

    #[test]
    fn parts_are_put_in_order_whichever_comes_first() {
        for minutes in [[0, 1, 2], [0, 2, 1], [1, 0, 2], [0, 2, 2], [2, 2, 0]] {
            // The first sample ends after samples that begin later.
            let length = |minute| if minute == 0 { 130_000_000 } else { 300 };
            let events = minutes.map(|minute| event(0, minute, length(minute), ([1, 2, 3], Some(4))));
            let mut usage = Usage::new(Timestamp(BASE));
            events.chunks(1).for_each(|part| usage.append(taken(BASE, part)));
            for instant in [0, 60_000_150, 120_000_150, 130_000_000].map(|micros| Timestamp(BASE + micros)) {
                let left = left_after(usage.clone(), instant);
                assert_eq!(left, later(by_bodies(&events).0, instant), "{minutes:?}");
            }
            assert_eq!(settled(usage), by_bodies(&events), "{minutes:?}");
        }
    }

    #[test]
    fn pods_after_a_pod_of_many_samples_get_little_room() {
        let many = |length: i64| event(0, 0, length, ([i64::MAX; 3], None));
        let mut usage = taken(BASE, &(0..300).map(many).collect::<Vec<_>>());
        push_all(&mut usage, &[event(1, 0, 1, ([1, 1, 1], None))]);
        let room: Vec<usize> = usage.pods.iter().map(|(_, samples)| samples.bytes.capacity()).collect();
        assert!(room[0] > 2 * FIRST_ROOM_MAX && room[1] <= FIRST_ROOM_MAX, "{room:?}");
    }

    proptest! {
        #[test]
        fn packed_samples_are_those_of_bodies(
            events in events(),
            cuts in [0..60_usize, 0..60, 0..60],
            base in 0..2_i64,
        ) {
            let mut cuts = cuts.map(|cut| cut.min(events.len()));
            cuts.sort_unstable();
            let [first, second, third] = cuts;
            // Parts of the same base and of another one, and samples after them.
            let mut usage = taken(BASE, &events[..first]);
            usage.append(taken(BASE + base, &events[first..second]));
            usage.append(taken(BASE, &events[second..third]));
            push_all(&mut usage, &events[third..]);
            for minute in 0..5 {
                let instant = Timestamp(BASE + minute * 60_000_000 + 150);
                prop_assert_eq!(left_after(usage.clone(), instant), later(by_bodies(&events).0, instant));
            }
            prop_assert_eq!(settled(usage), by_bodies(&events));
        }
    }
}
