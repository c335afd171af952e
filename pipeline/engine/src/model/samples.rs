//! The sample of a pod that counts at each instant (RULES.md, section 1). Among the samples that cover the
//! instant, it is the sample that started last.

use prorata_schemas::time::Timestamp;

use crate::model::state::Sample;
use crate::model::usage::PackedSamples;

/// Samples of one pod that may overlap the hour, in order of their starts.
#[derive(Clone, Debug, Default)]
pub(crate) struct Samples {
    /// Samples that began before the hour.
    pub(crate) carried: Vec<Sample>,
    /// Samples of the hour.
    pub(crate) measured: PackedSamples,
}

impl Samples {
    /// Creates samples that began before the hour.
    pub(crate) fn carried(carried: Vec<Sample>) -> Self {
        Self { carried, ..Self::default() }
    }

    /// Calls `take` with the parts of samples that count, in order of time; some parts are empty. Samples
    /// that do not overlap are passed on as they are. Most pods have only such samples.
    pub(crate) fn for_each_part(&self, mut take: impl FnMut(Sample)) {
        // The rest of the sample that counts now.
        let mut current: Option<Sample> = None;
        // Samples that a later one has interrupted, the last on top.
        let mut interrupted: Vec<Sample> = Vec::new();
        for next in self.carried.iter().copied().chain(self.measured.samples()) {
            while let Some(sample) = current {
                if sample.to > next.from {
                    take(Sample { to: next.from, ..sample });
                    if sample.to > next.to {
                        interrupted.push(sample);
                    }
                    break;
                }
                take(sample);
                current = resume(&mut interrupted, sample.to);
            }
            current = Some(next);
        }
        while let Some(sample) = current {
            take(sample);
            current = resume(&mut interrupted, sample.to);
        }
    }

    /// Returns the parts of samples that count, in order of time.
    pub(crate) fn parts(&self) -> Vec<Sample> {
        let mut parts = Vec::new();
        self.for_each_part(|part| parts.push(part));
        parts
    }

    /// Returns the samples that count at some time after an instant. No sample may start after this instant.
    pub(crate) fn after(&self, instant: Timestamp) -> Vec<Sample> {
        // Most pods have none, and reading their samples once more takes time.
        let measured = (self.measured.ended > instant).then(|| self.measured.samples());
        let all = self.carried.iter().copied().chain(measured.into_iter().flatten());
        let mut after: Vec<Sample> = Vec::new();
        for sample in all.filter(|sample| sample.to > instant) {
            while after.pop_if(|earlier| earlier.to <= sample.to).is_some() {}
            after.push(sample);
        }
        after
    }
}

/// Returns the rest of the interrupted sample that counts after another sample ends at this instant; `None`
/// if there is none.
fn resume(interrupted: &mut Vec<Sample>, instant: Timestamp) -> Option<Sample> {
    while let Some(sample) = interrupted.pop() {
        if sample.to > instant {
            return Some(Sample { from: instant, ..sample });
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::per_resource::PerResource;
    use proptest::prelude::*;

    fn sample(from: i64, to: i64, cpu: u64) -> Sample {
        let use_amounts = PerResource { cpu, memory: 0, gpu: 0 };
        Sample { from: Timestamp(from), to: Timestamp(to), use_amounts, gpu_memory: None }
    }

    /// Returns the parts that are not empty, as start, end and CPU.
    fn parts(samples: &[Sample]) -> Vec<(i64, i64, u64)> {
        let parts = Samples::carried(samples.to_vec()).parts().into_iter();
        let parts = parts.filter(|part| part.from < part.to);
        parts.map(|part| (part.from.0, part.to.0, part.use_amounts.cpu)).collect()
    }

    #[test]
    fn two_scrapers_half_a_minute_apart_measure_a_pod_once() {
        let minutes = |shift: i64| (0..60).map(move |minute| (minute * 60 + shift, minute * 60 + shift + 60));
        let mut spans: Vec<_> = minutes(0).chain(minutes(30)).collect();
        spans.sort_unstable();
        let samples: Vec<_> = spans.into_iter().map(|(from, to)| sample(from, to, 2_000)).collect();
        let used = parts(&samples).into_iter().map(|(from, to, cpu)| u64::try_from(to - from).unwrap() * cpu);
        assert_eq!(used.sum::<u64>(), 2_000 * 3_630);
    }

    #[test]
    fn samples_that_do_not_overlap_are_taken_as_they_are() {
        assert_eq!(
            parts(&[sample(0, 5, 1), sample(5, 9, 2), sample(11, 12, 3)]),
            [(0, 5, 1), (5, 9, 2), (11, 12, 3)]
        );
    }

    #[test]
    fn a_sample_counts_again_after_those_inside_it() {
        let samples =
            [sample(0, 20, 1), sample(2, 12, 2), sample(4, 6, 3), sample(5, 9, 4), sample(15, 20, 5)];
        let expected = [(0, 2, 1), (2, 4, 2), (4, 5, 3), (5, 9, 4), (9, 12, 2), (12, 15, 1), (15, 20, 5)];
        assert_eq!(parts(&samples), expected);
    }

    proptest! {
        #[test]
        fn at_each_instant_the_sample_that_started_last_counts(
            lengths in proptest::collection::btree_map(0..40_i64, 0..25_i64, 0..20),
            edge in 0..40_i64,
        ) {
            let of = |(from, length): (&i64, &i64)| sample(*from, from + length, from.unsigned_abs());
            let samples: Vec<_> = lengths.iter().map(of).collect();
            let counts = |samples: &[Sample], at: i64| {
                let mut covering = samples.iter().filter(|sample| sample.from.0 <= at && at < sample.to.0);
                covering.next_back().map(|sample| sample.use_amounts.cpu)
            };
            let parts = parts(&samples);
            prop_assert!(parts.windows(2).all(|pair| pair[0].1 <= pair[1].0));
            // The samples that the hour before the edge leaves to the next hour.
            let before: Vec<_> = samples.iter().filter(|sample| sample.from.0 < edge).copied().collect();
            let left = Samples::carried(before.clone()).after(Timestamp(edge));
            for at in 0..70 {
                let part = parts.iter().find(|(from, to, _)| *from <= at && at < *to);
                prop_assert_eq!(part.map(|(_, _, cpu)| *cpu), counts(&samples, at));
                if at >= edge {
                    prop_assert_eq!(counts(&left, at), counts(&before, at));
                }
            }
            let is_needed =
                |left: &Sample| (edge..70).any(|at| counts(&before, at) == Some(left.use_amounts.cpu));
            prop_assert!(left.iter().all(is_needed));
        }
    }
}
