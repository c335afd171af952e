//! One value for each of the three resources that a node's cost divides over: CPU, memory and GPU.
//!
//! Fields have names instead of positions, so no rule can confuse bytes with GPUs. A step that is the same
//! for all three resources is written once.

use std::ops::AddAssign;

use serde::{Deserialize, Serialize};

/// Parts in one unit of each resource: thousandths of a vCPU, bytes of a GiB, thousandths of a GPU.
pub(crate) const PARTS_PER_UNIT: PerResource<u64> = PerResource { cpu: 1000, memory: 1 << 30, gpu: 1000 };

/// A value for each resource.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct PerResource<T> {
    /// The value of CPU. An amount of the engine is in thousandths of a vCPU.
    pub cpu: T,
    /// The value of memory. An amount is in bytes.
    pub memory: T,
    /// The value of GPUs. An amount is in thousandths.
    pub gpu: T,
}

impl<T> PerResource<T> {
    /// Creates the same value for every resource.
    pub(crate) fn all(value: T) -> Self
    where
        T: Clone,
    {
        Self { cpu: value.clone(), memory: value.clone(), gpu: value }
    }

    /// Returns each value by reference.
    pub const fn as_ref(&self) -> PerResource<&T> {
        PerResource { cpu: &self.cpu, memory: &self.memory, gpu: &self.gpu }
    }

    /// Returns each value by mutable reference.
    pub(crate) const fn as_mut(&mut self) -> PerResource<&mut T> {
        PerResource { cpu: &mut self.cpu, memory: &mut self.memory, gpu: &mut self.gpu }
    }

    /// Applies `f` to each value.
    pub fn map<U>(self, mut f: impl FnMut(T) -> U) -> PerResource<U> {
        PerResource { cpu: f(self.cpu), memory: f(self.memory), gpu: f(self.gpu) }
    }

    /// Applies `f` to each value. Returns the results, or the first error.
    pub(crate) fn try_map<U, E>(self, mut f: impl FnMut(T) -> Result<U, E>) -> Result<PerResource<U>, E> {
        Ok(PerResource { cpu: f(self.cpu)?, memory: f(self.memory)?, gpu: f(self.gpu)? })
    }

    /// Pairs the values of each resource.
    pub fn zip<U>(self, other: PerResource<U>) -> PerResource<(T, U)> {
        PerResource {
            cpu: (self.cpu, other.cpu),
            memory: (self.memory, other.memory),
            gpu: (self.gpu, other.gpu),
        }
    }

    /// Returns the values in the order cpu, memory, gpu.
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        [&self.cpu, &self.memory, &self.gpu].into_iter()
    }

    /// Returns the sum over the resources.
    pub(crate) fn sum(&self) -> T
    where
        T: Default + for<'a> AddAssign<&'a T>,
    {
        let mut sum = T::default();
        for value in self.iter() {
            sum += value;
        }
        sum
    }
}

impl<T: AddAssign<U>, U> AddAssign<PerResource<U>> for PerResource<T> {
    fn add_assign(&mut self, other: PerResource<U>) {
        self.cpu += other.cpu;
        self.memory += other.memory;
        self.gpu += other.gpu;
    }
}

impl<T> IntoIterator for PerResource<T> {
    type Item = T;
    type IntoIter = std::array::IntoIter<T, 3>;

    fn into_iter(self) -> Self::IntoIter {
        [self.cpu, self.memory, self.gpu].into_iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_keep_their_resource() {
        let amounts = PerResource { cpu: 1_u128, memory: 20, gpu: 300 };
        assert_eq!(amounts.sum(), 321);
        assert_eq!(amounts.iter().copied().collect::<Vec<_>>(), [1, 20, 300]);
        let doubled = amounts.zip(PerResource::all(2)).map(|(amount, factor)| amount * factor);
        assert_eq!(doubled, PerResource { cpu: 2, memory: 40, gpu: 600 });
        let failed: Result<PerResource<u128>, &str> =
            amounts.try_map(|amount| if amount == 20 { Err("memory") } else { Ok(amount) });
        assert_eq!(failed, Err("memory"));
    }
}
