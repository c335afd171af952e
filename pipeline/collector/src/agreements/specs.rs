//! Specs of capacity reservations, such as `P16EN x2`, from `specs.txt`. The head of the file explains its
//! format.

use std::collections::BTreeMap;

use prorata_schemas::Text;
use prorata_schemas::event::names;

use crate::object::QuantityText;

/// The table of units.
const TABLE: &str = include_str!("specs.txt");

/// Returns the GPU model and the capacity of the unit that a spec stands for.
///
/// # Errors
/// If the table does not have the spec. The message lists the specs of the card, or the known cards.
pub fn unit(spec: &str) -> Result<(Text, BTreeMap<Text, QuantityText>), String> {
    let (wanted, gpus) = spec.trim().rsplit_once(' ').unwrap_or((spec, ""));
    let (mut cards, mut of_card) = (Vec::new(), Vec::new());
    for line in TABLE.lines().filter(|line| !line.starts_with('#')) {
        let &[card, count, vcpu, gib] = line.split(' ').collect::<Vec<_>>().as_slice() else { continue };
        cards.push(card);
        if !names::same(card, wanted.trim(), names::gpu_model) {
            continue;
        }
        if gpus.strip_prefix('x') == Some(count) {
            let memory = format!("{gib}Gi");
            let capacity = [("cpu", vcpu), ("memory", memory.as_str()), ("nvidia.com/gpu", count)];
            let capacity = capacity.map(|(name, amount)| (name.into(), QuantityText(amount.to_owned())));
            return Ok((card.into(), capacity.into()));
        }
        of_card.push(format!("{card} x{count}"));
    }
    cards.dedup();
    let known = if of_card.is_empty() {
        format!("cards {}, as in 'P16EN x2'", cards.join(", "))
    } else {
        of_card.join(", ")
    };
    Err(format!("the spec '{spec}' is not in the table of units, which has {known}"))
}
