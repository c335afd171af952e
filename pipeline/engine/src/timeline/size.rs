//! Sizes from quantities: CPU, memory, and GPUs of every kind counted alike (RULES.md, section 1).

use std::ops::Bound;

use prorata_schemas::event::Quantities;
use prorata_schemas::quantity::{CPU, MEMORY};
use prorata_schemas::rules::Rules;

use crate::per_resource::PerResource;

/// Amounts of the three resources that cost is split by: thousandths of vCPU and GPU, bytes of memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Shape {
    /// Thousandths of a vCPU.
    pub cpu: u128,
    /// Bytes.
    pub memory: u128,
    /// Thousandths of a GPU: whole GPUs of every vendor, and MIG slices as sevenths.
    pub gpu: u128,
}

impl Shape {
    /// Reads cpu, memory and GPUs from quantities.
    pub fn of(quantities: &Quantities, rules: &Rules) -> Self {
        let whole: u128 = rules.gpu_resources.iter().map(|name| amount(quantities, name)).sum();
        let sevenths: u128 = mig_profiles(quantities).map(|profile| profile.sevenths * profile.amount).sum();
        Self {
            cpu: amount(quantities, CPU),
            memory: amount(quantities, MEMORY),
            gpu: whole + round_half_even(sevenths, 7),
        }
    }

    /// The three amounts.
    pub const fn amounts(self) -> PerResource<u128> {
        PerResource { cpu: self.cpu, memory: self.memory, gpu: self.gpu }
    }
}

/// The amount of a resource, zero when it is not named.
pub fn amount(quantities: &Quantities, resource: &str) -> u128 {
    quantities.get(resource).map_or(0, |quantity| quantity.amount)
}

/// GPU memory of MIG slices, in thousandths of a GB.
pub fn gpu_memory_of_mig(quantities: &Quantities) -> u128 {
    mig_profiles(quantities).map(|profile| profile.gigabytes * profile.amount).sum()
}

/// A MIG resource in a map of quantities.
struct MigProfile {
    /// Compute slices of seven.
    sevenths: u128,
    /// Memory in GB.
    gigabytes: u128,
    /// Thousandths of such a slice.
    amount: u128,
}

fn mig_profiles(quantities: &Quantities) -> impl Iterator<Item = MigProfile> + '_ {
    let from_mig = (Bound::Included("nvidia.com/mig-"), Bound::Unbounded);
    let named = quantities.range::<str, _>(from_mig);
    let named = named.map_while(|(name, quantity)| Some((name.strip_prefix("nvidia.com/mig-")?, quantity)));
    named.filter_map(|(profile, quantity)| parse_mig(profile, quantity.amount))
}

/// Parses `<n>g.<m>gb` with an optional `.suffix`.
fn parse_mig(profile: &str, amount: u128) -> Option<MigProfile> {
    let (compute, rest) = profile.split_once("g.")?;
    let (memory, suffix) = rest.split_once("gb")?;
    let named = suffix.strip_prefix('.').is_some_and(|name| !name.is_empty());
    if !(suffix.is_empty() || named) {
        return None;
    }
    Some(MigProfile { sevenths: digits(compute)?, gigabytes: digits(memory)?, amount })
}

/// A plain number of at most six digits: no profile has more, and products with it stay in range.
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
    use prorata_schemas::Text;
    use prorata_schemas::quantity::Quantity;

    fn quantities(entries: &[(&str, u128)]) -> Quantities {
        entries
            .iter()
            .map(|(name, amount)| (Text::from(*name), Quantity { text: "".into(), amount: *amount }))
            .collect()
    }

    #[test]
    fn mig_slices_are_added_before_they_are_rounded() {
        let two = quantities(&[("nvidia.com/mig-1g.5gb", 1000), ("nvidia.com/mig-2g.10gb", 1000)]);
        assert_eq!(Shape::of(&two, &Rules::default()).gpu, 429);
        let whole = quantities(&[("nvidia.com/mig-7g.80gb", 1000), ("amd.com/gpu", 2000)]);
        assert_eq!(Shape::of(&whole, &Rules::default()).gpu, 3000);
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
