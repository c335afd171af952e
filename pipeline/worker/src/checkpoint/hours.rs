//! Sets and maps of hours, and their stored form.

mod dirty;

use std::collections::{BTreeMap, BTreeSet};

use prorata_schemas::time::{Hour, HourRange};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

pub use dirty::Dirty;

/// A set of hours, written as ranges.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HourSet {
    hours: BTreeSet<Hour>,
    /// The number of runs of consecutive hours. It is kept up to date because it bounds the number of dirty
    /// marks.
    runs: usize,
}

impl HourSet {
    /// Adds an hour.
    pub fn insert(&mut self, hour: Hour) {
        if self.hours.insert(hour) {
            // The hour begins a run, continues one, or joins two.
            let neighbours = [hour.previous(), hour.next()].into_iter().filter(|hour| self.contains(*hour));
            self.runs = self.runs + 1 - neighbours.count();
        }
    }

    /// Adds all hours from the first to the last, inclusive.
    pub fn insert_range(&mut self, first: Hour, last: Hour) {
        (first.0..=last.0).for_each(|hour| self.insert(Hour(hour)));
    }

    /// Returns the earliest hour.
    pub fn first(&self) -> Option<Hour> {
        self.hours.first().copied()
    }

    /// Returns the latest hour.
    pub fn last(&self) -> Option<Hour> {
        self.hours.last().copied()
    }

    /// Returns the earliest hour after `hour`.
    pub fn first_after(&self, hour: Hour) -> Option<Hour> {
        self.hours.range(hour.next()..).next().copied()
    }

    /// Drops every hour up to and including `hour`.
    pub fn clear_through(&mut self, hour: Hour) {
        self.hours = self.hours.split_off(&hour.next());
        self.runs = self.ranges().len();
    }

    /// Drops the hours from `first` to `last`, both inclusive.
    pub fn clear(&mut self, first: Hour, last: Hour) {
        self.hours.retain(|hour| !(first..=last).contains(hour));
        self.runs = self.ranges().len();
    }

    /// Drops the hours for which `stays` returns `false`.
    pub fn retain(&mut self, stays: impl Fn(Hour) -> bool) {
        self.hours.retain(|hour| stays(*hour));
        self.runs = self.ranges().len();
    }

    /// Returns the hours in ascending order.
    pub fn iter(&self) -> impl Iterator<Item = Hour> {
        self.hours.iter().copied()
    }

    /// Adds the hours of another set.
    pub fn extend(&mut self, other: &Self) {
        other.iter().for_each(|hour| self.insert(hour));
    }

    /// Returns the runs of consecutive hours.
    pub fn ranges(&self) -> Vec<HourRange> {
        let mut ranges: Vec<HourRange> = Vec::new();
        for hour in &self.hours {
            match ranges.last_mut() {
                Some(range) if range.last.next() == *hour => range.last = *hour,
                _ => ranges.push(HourRange::new(*hour, *hour)),
            }
        }
        ranges
    }

    /// Returns the number of runs of consecutive hours.
    pub const fn runs(&self) -> usize {
        self.runs
    }

    /// Returns whether the set has the hour.
    pub fn contains(&self, hour: Hour) -> bool {
        self.hours.contains(&hour)
    }

    /// Returns whether the set is empty.
    pub fn is_empty(&self) -> bool {
        self.hours.is_empty()
    }
}

impl FromIterator<Hour> for HourSet {
    fn from_iter<I: IntoIterator<Item = Hour>>(hours: I) -> Self {
        let mut set = Self::default();
        hours.into_iter().for_each(|hour| set.insert(hour));
        set
    }
}

impl Serialize for HourSet {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let ranges = self.ranges();
        serializer.collect_seq(ranges.iter().map(|range| [range.first.to_string(), range.last.to_string()]))
    }
}

impl<'de> Deserialize<'de> for HourSet {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut hours = Self::default();
        for [first, last] in Vec::<[String; 2]>::deserialize(deserializer)? {
            hours.insert_range(hour_text::parse(&first)?, hour_text::parse(&last)?);
        }
        Ok(hours)
    }
}

/// Hours as text such as `2026-11-20T13`.
pub(super) mod hour_text {
    use super::{Deserialize, Deserializer, Hour, Serializer};

    pub fn parse<E: serde::de::Error>(text: &str) -> Result<Hour, E> {
        text.parse().map_err(|_| E::custom(format!("'{text}' is not an hour such as 2026-11-20T13")))
    }

    pub fn serialize<S: Serializer>(hour: &Hour, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(hour)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Hour, D::Error> {
        parse(&String::deserialize(deserializer)?)
    }
}

/// An hour or null.
pub(super) mod hour_option {
    use super::{Deserialize, Deserializer, Hour, Serialize, Serializer, hour_text};

    pub fn serialize<S: Serializer>(hour: &Option<Hour>, serializer: S) -> Result<S::Ok, S::Error> {
        hour.map(|hour| hour.to_string()).serialize(serializer)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Hour>, D::Error> {
        Option::<String>::deserialize(deserializer)?.map(|text| hour_text::parse(&text)).transpose()
    }
}

/// A map by hour.
pub(in crate::checkpoint) mod hour_map {
    use super::{BTreeMap, Deserialize, Deserializer, Hour, Serialize, Serializer, hour_text};

    pub fn serialize<S: Serializer, T: Serialize>(
        map: &BTreeMap<Hour, T>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        serializer.collect_map(map.iter().map(|(hour, value)| (hour.to_string(), value)))
    }

    pub fn deserialize<'de, D: Deserializer<'de>, T: Deserialize<'de>>(
        deserializer: D,
    ) -> Result<BTreeMap<Hour, T>, D::Error> {
        let named = BTreeMap::<String, T>::deserialize(deserializer)?;
        named.into_iter().map(|(hour, value)| Ok((hour_text::parse(&hour)?, value))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Adds and clears many hours, close enough together for ranges to join and part.
    #[test]
    fn runs_are_counted_as_they_change() {
        let mut set = HourSet::default();
        for n in 0..2_000_i64 {
            // Spread over a few hours, so that most runs touch.
            let hour = Hour(n * 7_919 % 61);
            match n % 9 {
                0 => set.clear(hour, Hour(hour.0 + n % 4)),
                1 => set.insert_range(hour, Hour(hour.0 + n % 5)),
                2 => set.extend(&[hour, Hour(hour.0 + 2)].into_iter().collect()),
                3 if n % 90 == 3 => set.clear_through(Hour(hour.0 / 4)),
                _ => set.insert(hour),
            }
            assert_eq!(set.runs(), set.ranges().len(), "after {n}: {set:?}");
        }
        assert!(!set.is_empty());
    }
}
