//! The time of each stretch of a node within a span (RULES.md, section 1).
//!
//! A node may change its price often while many pods run on it. The times of 2, 4, 8 and more neighbouring
//! changes are added up once. So a pod takes a few steps for each price of its time, and not one for each
//! change.

use std::collections::BTreeMap;

use prorata_schemas::time::Timestamp;

use crate::model::span::Span;

/// Microseconds of some stretches, by the index of the stretch.
pub(crate) type Times = BTreeMap<usize, u128>;

/// The stretches of a node over the hour.
#[derive(Clone, Debug, Default)]
pub(crate) struct StretchTimes {
    /// The instants from which stretches hold, each with the index of its stretch.
    changes: Vec<(Timestamp, usize)>,
    /// The times of `2^n` neighbouring changes on level `n`. An incomplete block at the end is left out.
    levels: Vec<Vec<Vec<(usize, u128)>>>,
}

impl StretchTimes {
    /// Adds up the times. `changes` are the instants from which stretches hold, in order.
    pub(crate) fn new(changes: Vec<(Timestamp, usize)>) -> Self {
        let spans = changes.iter().zip(changes.iter().skip(1));
        let spans = spans.filter_map(|((from, stretch), (to, _))| Some((*stretch, Span::new(*from, *to)?)));
        let mut level: Vec<_> = spans.map(|(stretch, span)| vec![(stretch, span.micros())]).collect();
        let mut levels = Vec::new();
        while !level.is_empty() {
            let next = level.chunks_exact(2).map(|pair| {
                let mut times = Times::new();
                pair.iter().for_each(|block| add(&mut times, block));
                times.into_iter().collect()
            });
            let next = next.collect();
            levels.push(std::mem::replace(&mut level, next));
        }
        Self { changes, levels }
    }

    /// Returns the time of each stretch within a span in which the node runs.
    pub(crate) fn within(&self, span: Span) -> Times {
        let first = self.changes.partition_point(|(from, _)| *from <= span.from).saturating_sub(1);
        let last = self.changes.partition_point(|(from, _)| *from < span.to).saturating_sub(1);
        let mut times = Times::new();
        self.add_part(&mut times, first, span);
        if first < last {
            self.add_whole(&mut times, first + 1, last);
            self.add_part(&mut times, last, span);
        }
        times
    }

    /// Adds the part of the span in which one change holds.
    fn add_part(&self, times: &mut Times, change: usize, span: Span) {
        let Some((from, stretch)) = self.changes.get(change) else { return };
        let to = self.changes.get(change + 1).map_or(span.to, |(to, _)| *to);
        if let Some(part) = Span::new(*from, to).and_then(|part| part.overlap(span)) {
            add(times, &[(*stretch, part.micros())]);
        }
    }

    /// Adds the times of the changes from `first` up to, not including, `end`, in the largest blocks.
    fn add_whole(&self, times: &mut Times, mut first: usize, mut end: usize) {
        for level in &self.levels {
            if first < end && first % 2 == 1 {
                add(times, &level[first]);
                first += 1;
            }
            if first < end && end % 2 == 1 {
                end -= 1;
                add(times, &level[end]);
            }
            (first, end) = (first / 2, end / 2);
        }
    }
}

fn add(times: &mut Times, more: &[(usize, u128)]) {
    for (stretch, micros) in more {
        *times.entry(*stretch).or_default() += micros;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_span_is_divided_where_the_stretch_changes() {
        let times = StretchTimes::new(vec![(Timestamp(10), 1), (Timestamp(20), 0), (Timestamp(30), 1)]);
        let within = |from: i64, to: i64| -> Vec<(usize, u128)> {
            let span = Span::new(Timestamp(from), Timestamp(to)).unwrap();
            times.within(span).into_iter().collect()
        };
        assert_eq!(within(10, 20), [(1, 10)]);
        assert_eq!(within(12, 15), [(1, 3)]);
        assert_eq!(within(15, 35), [(0, 10), (1, 10)]);
        assert_eq!(within(20, 21), [(0, 1)]);
        assert_eq!(within(40, 50), [(1, 10)]);
    }

    proptest! {
        #[test]
        fn blocks_hold_the_time_of_each_instant(
            changes in prop::collection::btree_map(0_i64..200, 0_usize..4, 1..60),
            (from, length) in (0_i64..200, 1_i64..200),
        ) {
            let first = *changes.keys().next().unwrap();
            let (from, to) = (first + from, first + from + length);
            let mut expected = Times::new();
            for at in from..to {
                let (_, stretch) = changes.range(..=at).next_back().unwrap();
                *expected.entry(*stretch).or_default() += 1;
            }
            let changes = changes.into_iter().map(|(at, stretch)| (Timestamp(at), stretch));
            let times = StretchTimes::new(changes.collect());
            let span = Span::new(Timestamp(from), Timestamp(to)).unwrap();
            prop_assert_eq!(times.within(span), expected);
        }
    }
}
