//! Random choices from a seed, which are equal on every machine.

/// SplitMix64.
#[derive(Clone, Debug)]
pub struct Dice(u64);

impl Dice {
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub const fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Returns a number in [0, bound).
    pub fn below(&mut self, bound: usize) -> usize {
        usize::try_from(self.bits() % bound.max(1) as u64).unwrap()
    }

    /// Returns a number in [from, to).
    pub fn between(&mut self, from: i64, to: i64) -> i64 {
        from + i64::try_from(self.bits() % u64::try_from(to - from).unwrap()).unwrap()
    }

    /// Returns whether an event with this chance, in thousandths, happens.
    pub fn happens(&mut self, thousandths: u32) -> bool {
        self.bits() % 1_000 < u64::from(thousandths)
    }

    pub fn pick<T: Copy>(&mut self, items: &[T]) -> T {
        items[self.below(items.len())]
    }
}
