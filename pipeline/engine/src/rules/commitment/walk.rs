//! The walk of one commitment over nodes, for one resource (RULES.md, section 3).
//!
//! **Decides** how much of each node the commitment covers. From the first node of the walk, it covers all
//! that is left of each node, until the total is used up.
//!
//! Only what a change affects is decided again: nodes before the change, and nodes far after it, keep their
//! cover. So if many nodes start within an hour, each costs about as much as one that starts alone.

use std::collections::{BTreeMap, BTreeSet};

use dashu_int::UBig;

/// The amount of a node that is available to a walk, and the amount that the walk covers.
#[derive(Debug, Default)]
pub(crate) struct Share {
    pub(crate) rest: UBig,
    pub(crate) covered: UBig,
}

/// A walk over nodes in the order of their places.
#[derive(Debug)]
pub(crate) struct Walk<P> {
    total: UBig,
    /// The part of the total that covers nothing.
    left: UBig,
    /// Nodes that have anything to cover.
    shares: BTreeMap<P, Share>,
    /// Nodes that are not wholly covered.
    short: BTreeSet<P>,
    /// Nodes that are covered at least in part.
    covered: BTreeSet<P>,
}

impl<P: Ord + Clone> Walk<P> {
    /// Creates a walk over no nodes.
    pub(crate) fn new(total: UBig) -> Self {
        let (left, shares) = (total.clone(), BTreeMap::new());
        Self { total, left, shares, short: BTreeSet::new(), covered: BTreeSet::new() }
    }

    /// Returns whether the walk never covers anything, so it can be skipped.
    pub(crate) fn is_empty(&self) -> bool {
        self.total.is_zero()
    }

    /// Sets the amount of a node that is available to cover, which may be zero. Call [`Self::settle`]
    /// afterwards.
    pub(crate) fn set_rest(&mut self, place: P, rest: UBig) {
        let before = self.shares.remove(&place).unwrap_or_default();
        let kept = before.covered.clone().min(rest.clone());
        self.left += before.covered - &kept;
        self.put(place, Share { rest, covered: kept });
    }

    /// Covers the first nodes of the walk, and adds the places whose cover has changed to `changed`.
    pub(crate) fn settle(&mut self, changed: &mut BTreeSet<P>) {
        while let Some(first) = self.short.first().cloned() {
            if self.left.is_zero() {
                // Later nodes give back what an earlier one lacks.
                let Some(last) = self.covered.last().filter(|last| **last > first).cloned() else { break };
                let share = self.shares.remove(&last).unwrap_or_default();
                self.left += share.covered;
                changed.insert(last.clone());
                self.put(last, Share { rest: share.rest, covered: UBig::ZERO });
            } else {
                let Share { rest, covered } = self.shares.remove(&first).unwrap_or_default();
                let taken = (&rest - &covered).min(self.left.clone());
                self.left -= &taken;
                changed.insert(first.clone());
                self.put(first, Share { rest, covered: covered + taken });
            }
        }
    }

    /// Returns the amount that the walk covers of a node.
    pub(crate) fn covered_of(&self, place: &P) -> UBig {
        self.shares.get(place).map(|share| share.covered.clone()).unwrap_or_default()
    }

    /// Returns the amount of a node that is available to the walk.
    pub(crate) fn rest_of(&self, place: &P) -> UBig {
        self.shares.get(place).map(|share| share.rest.clone()).unwrap_or_default()
    }

    /// Returns the nodes that the walk covers at least in part.
    pub(crate) fn covered_shares(&self) -> impl Iterator<Item = (&P, &Share)> {
        self.covered.iter().filter_map(|place| self.shares.get_key_value(place))
    }

    /// Returns the amount that the walk covers of all nodes.
    pub(crate) fn covered(&self) -> UBig {
        &self.total - &self.left
    }

    fn put(&mut self, place: P, share: Share) {
        set(&mut self.short, &place, share.covered < share.rest);
        set(&mut self.covered, &place, !share.covered.is_zero());
        if !share.rest.is_zero() {
            self.shares.insert(place, share);
        }
    }
}

/// Adds a place to a set if `is_in` is true, and removes it otherwise.
fn set<P: Ord + Clone>(places: &mut BTreeSet<P>, place: &P, is_in: bool) {
    if is_in {
        places.insert(place.clone());
    } else {
        places.remove(place);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Computes the cover of each node by a whole walk, from the first node to the last.
    fn from_the_first(total: u64, rests: &BTreeMap<u8, u64>) -> BTreeMap<u8, u64> {
        let mut left = total;
        let walk = rests.iter().map(|(place, rest)| {
            let taken = left.min(*rest);
            left -= taken;
            (*place, taken)
        });
        walk.collect()
    }

    fn settled(walk: &mut Walk<u8>) -> BTreeSet<u8> {
        let mut changed = BTreeSet::new();
        walk.settle(&mut changed);
        changed
    }

    #[test]
    fn a_node_that_comes_late_but_is_first_takes_from_the_last() {
        let mut walk = Walk::new(UBig::from(10_u8));
        for place in [2, 3, 4, 5] {
            walk.set_rest(place, UBig::from(4_u8));
        }
        settled(&mut walk);
        assert_eq!([2, 3, 4, 5].map(|place| walk.covered_of(&place)), [4_u8, 4, 2, 0].map(UBig::from));
        walk.set_rest(1, UBig::from(1_u8));
        assert_eq!(settled(&mut walk), BTreeSet::from([1, 4]), "2, 3 and 5 are as they were");
        assert_eq!([1, 2, 3, 4, 5].map(|place| walk.covered_of(&place)), [1_u8, 4, 4, 1, 0].map(UBig::from));
        walk.set_rest(2, UBig::ZERO);
        assert_eq!(settled(&mut walk), BTreeSet::from([4, 5]));
        assert_eq!(walk.covered(), UBig::from(10_u8));
    }

    proptest! {
        /// For any changes in any order, the cover equals the cover of a walk from the first node, and every
        /// change is reported.
        #[test]
        fn a_partial_walk_decides_like_a_whole_walk(
            total in 0_u64..60,
            instants in prop::collection::vec(prop::collection::vec((0_u8..12, 0_u64..12), 1..5), 1..30),
        ) {
            let mut walk = Walk::new(UBig::from(total));
            let mut rests: BTreeMap<u8, u64> = BTreeMap::new();
            let mut before = BTreeMap::new();
            for instant in instants {
                let set: BTreeSet<u8> = instant.iter().map(|(place, _)| *place).collect();
                for (place, rest) in instant {
                    rests.insert(place, rest);
                    walk.set_rest(place, UBig::from(rest));
                }
                let changed = settled(&mut walk);
                let expected = from_the_first(total, &rests);
                for (place, covered) in &expected {
                    prop_assert_eq!(walk.covered_of(place), UBig::from(*covered), "place {}", place);
                    let is_reported = set.contains(place) || changed.contains(place);
                    prop_assert!(is_reported || before.get(place) == Some(covered), "place {}", place);
                    prop_assert_eq!(walk.rest_of(place), UBig::from(rests[place]));
                }
                prop_assert_eq!(walk.covered(), UBig::from(expected.values().sum::<u64>()));
                before = expected;
            }
        }
    }
}
