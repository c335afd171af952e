//! Seeded choices of the fakes. Equal seeds give equal runs, on every machine and in every release.

/// The SplitMix64 generator.
#[derive(Clone, Debug)]
pub(in crate::fakes) struct Random(u64);

impl Random {
    /// Creates the choices of this seed.
    pub(in crate::fakes) const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Returns the next 64 bits.
    pub(in crate::fakes) const fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Returns a number in [0, `bound`); 0 if `bound` is 0.
    pub(in crate::fakes) fn below(&mut self, bound: usize) -> usize {
        let bound = (bound as u64).max(1);
        usize::try_from(self.bits() % bound).unwrap_or_default()
    }

    /// Returns whether an event of this chance, in millionths, happens.
    pub(in crate::fakes) const fn happens(&mut self, millionths: u32) -> bool {
        self.bits() % 1_000_000 < millionths as u64
    }

    /// Puts items into a random order.
    pub(in crate::fakes) fn shuffle<T>(&mut self, items: &mut [T]) {
        for end in (1..items.len()).rev() {
            items.swap(end, self.below(end + 1));
        }
    }
}
