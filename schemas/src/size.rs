//! Sizes: the CPU, memory and GPU that a map of quantities represents. Nodes, pods and reservation units are
//! all counted here, and so are the sizes in the tables.

use crate::Text;
use crate::quantity::{CPU, MEMORY, NVIDIA_GPU, Quantity};
use crate::sharing::ByName;

/// Quantities by Kubernetes resource name, such as `cpu` or `nvidia.com/gpu`. A resource that is not named is
/// zero.
pub type Quantities = ByName<Quantity>;

/// Prefix of the resource names of MIG slices, `nvidia.com/mig-<n>g.<m>gb` with an optional `.suffix`. A
/// slice has n of a GPU's seven compute slices, and m GB of its memory.
pub const MIG_PREFIX: &str = "nvidia.com/mig-";

/// Resource name under which NVIDIA's device plugin offers replicas of GPUs if it renames them. A replica is
/// a part of a GPU, and the name does not say which part.
pub const GPU_REPLICA: &str = "nvidia.com/gpu.shared";

/// Number of compute slices of a whole GPU.
const SLICES_PER_GPU: u128 = 7;

/// Amounts of the three resources over which cost is split.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Size {
    /// Thousandths of a vCPU.
    pub cpu_millis: u128,
    /// Bytes of memory.
    pub memory_bytes: u128,
    /// Thousandths of a GPU: whole GPUs of every vendor, and MIG slices.
    pub gpu_millis: u128,
}

impl Size {
    /// Returns the size of `quantities`. Whole GPUs are the sum of `gpu_resources`, which the rules name. MIG
    /// slices are summed over all profiles and rounded once to the thousandth of a GPU, half to even.
    pub fn of(quantities: &Quantities, gpu_resources: &[Text]) -> Self {
        let (mut size, mut slices) = (Self::default(), 0);
        for (name, quantity) in quantities {
            match &**name {
                CPU => size.cpu_millis = quantity.amount,
                MEMORY => size.memory_bytes = quantity.amount,
                _ => {}
            }
            let named = gpu_resources.iter().filter(|resource| *resource == name).count();
            size.gpu_millis += quantity.amount * named as u128;
            if let Some(profile) = MigProfile::of(name, quantity) {
                slices += profile.slices * profile.amount;
            }
        }
        size.gpu_millis += round_half_even(slices, SLICES_PER_GPU);
        size
    }

    /// Returns the size with a number of physical GPUs in place of the counted GPUs, if such a number is
    /// given.
    #[must_use]
    pub fn with_gpus(self, gpus: Option<&Quantity>) -> Self {
        Self { gpu_millis: gpus.map_or(self.gpu_millis, |gpus| gpus.amount), ..self }
    }
}

/// Returns the replicas of GPUs, in thousandths of a replica; zero if the rules count them as whole GPUs.
pub fn replicas(quantities: &Quantities, gpu_resources: &[Text]) -> u128 {
    let is_counted = gpu_resources.iter().any(|resource| **resource == *GPU_REPLICA);
    if is_counted { 0 } else { amount(quantities, GPU_REPLICA) }
}

/// Returns the amount of a resource in bytes or thousandths; zero if it is not named.
pub fn amount(quantities: &Quantities, resource: &str) -> u128 {
    quantities.get(resource).map_or(0, |quantity| quantity.amount)
}

/// Returns `nos.nebuly.com/gpu-memory` in thousandths of a GB: `gb_per_gpu` for each `nvidia.com/gpu`, plus
/// the memory of MIG slices. It is always computed; a request that names the resource is ignored.
pub fn gpu_memory(quantities: &Quantities, gb_per_gpu: u32) -> u128 {
    let memory = |(name, quantity): (&Text, &Quantity)| match &**name {
        NVIDIA_GPU => quantity.amount * u128::from(gb_per_gpu),
        _ => MigProfile::of(name, quantity).map_or(0, |profile| profile.gigabytes * profile.amount),
    };
    quantities.iter().map(memory).sum()
}

/// A MIG resource in a map of quantities.
struct MigProfile {
    /// Number of compute slices, out of [`SLICES_PER_GPU`].
    slices: u128,
    /// Memory in GB.
    gigabytes: u128,
    /// Amount of the resource, in thousandths.
    amount: u128,
}

impl MigProfile {
    fn of(name: &str, quantity: &Quantity) -> Option<Self> {
        parse_mig(name.strip_prefix(MIG_PREFIX)?, quantity.amount)
    }
}

fn parse_mig(profile: &str, amount: u128) -> Option<MigProfile> {
    let (compute, rest) = profile.split_once("g.")?;
    let (memory, suffix) = rest.split_once("gb")?;
    let named = suffix.strip_prefix('.').is_some_and(|name| !name.is_empty());
    if !(suffix.is_empty() || named) {
        return None;
    }
    Some(MigProfile { slices: digits(compute)?, gigabytes: digits(memory)?, amount })
}

/// Parses a plain number of at most six digits; `None` if the text is anything else. No profile has more
/// digits, and a product with such a number stays in range.
fn digits(text: &str) -> Option<u128> {
    let plain = !text.is_empty() && text.len() <= 6 && text.bytes().all(|byte| byte.is_ascii_digit());
    if plain { text.parse().ok() } else { None }
}

fn round_half_even(over: u128, under: u128) -> u128 {
    let (floor, rest) = (over / under, over % under);
    let up = rest * 2 > under || (rest * 2 == under && floor % 2 == 1);
    floor + u128::from(up)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rules::Rules;

    fn quantities(entries: &[(&str, u128)]) -> Quantities {
        entries
            .iter()
            .map(|(name, amount)| (Text::from(*name), Quantity { text: "".into(), amount: *amount }))
            .collect()
    }

    fn gpu_millis(entries: &[(&str, u128)]) -> u128 {
        Size::of(&quantities(entries), &Rules::default().gpu_resources).gpu_millis
    }

    #[test]
    fn mig_slices_are_added_before_they_are_rounded() {
        assert_eq!(gpu_millis(&[("nvidia.com/mig-1g.5gb", 1000), ("nvidia.com/mig-2g.10gb", 1000)]), 429);
        assert_eq!(gpu_millis(&[("nvidia.com/mig-7g.80gb", 1000), ("amd.com/gpu", 2000)]), 3000);
    }

    #[test]
    fn whole_gpus_are_those_that_the_rules_name() {
        let accelerators = quantities(&[("example.com/npu", 2000), ("nvidia.com/gpu", 4000), ("cpu", 500)]);
        let size = Size::of(&accelerators, &["example.com/npu".into()]);
        assert_eq!(size, Size { cpu_millis: 500, memory_bytes: 0, gpu_millis: 2000 });
    }

    #[test]
    fn gpu_memory_is_that_of_whole_gpus_and_of_slices() {
        let mixed = quantities(&[("nvidia.com/gpu", 2000), ("nvidia.com/mig-1g.5gb.me", 3000)]);
        assert_eq!(gpu_memory(&mixed, 32), 2 * 32_000 + 3 * 5_000);
    }

    #[test]
    fn only_the_mig_form_with_an_optional_suffix_counts() {
        for (profile, counts) in [
            ("1g.5gb", true),
            ("1g.5gb.me", true),
            ("1g.5gb.", false),
            ("1g.5gbme", false),
            ("g.5gb", false),
            ("1g.gb", false),
            ("1ga5gb", false),
        ] {
            assert_eq!(parse_mig(profile, 1).is_some(), counts, "{profile}");
        }
    }
}
