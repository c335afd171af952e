//! Sums and maxima of quantities by resource name.
//!
//! A quantity without additions keeps the text of the API. A sum is written in whole bytes, or in units or
//! thousandths.

use prorata_schemas::Text;
use prorata_schemas::event::Quantities;
use prorata_schemas::quantity::{AmountUnit, Quantity, QuantityError};

use crate::object::ResourceList;

/// Parses the quantities that count. Hugepages, volumes, numbers of pods and zero amounts are left out.
///
/// # Errors
/// If a quantity does not parse.
pub fn parse(list: &ResourceList) -> Result<Quantities, QuantityError> {
    let mut quantities = Quantities::new();
    for (name, text) in list.iter().filter(|(name, _)| counts(name)) {
        let quantity = Quantity::parse(name, &text.0)?;
        if quantity.amount > 0 {
            quantities.insert(name.clone(), quantity);
        }
    }
    Ok(quantities)
}

fn counts(name: &str) -> bool {
    !(name.starts_with("hugepages-") || name.starts_with("attachable-volumes-") || name == "pods")
}

/// Adds quantities to each resource.
pub fn add(to: &mut Quantities, more: &Quantities) {
    for (name, quantity) in more {
        add_one(to, name, quantity);
    }
}

/// Adds a quantity to one resource.
pub fn add_one(to: &mut Quantities, name: &Text, quantity: &Quantity) {
    match to.get_mut(name) {
        None => drop(to.insert(name.clone(), quantity.clone())),
        Some(sum) => *sum = of_amount(name, sum.amount.saturating_add(quantity.amount)),
    }
}

/// Raises each resource to at least these quantities.
pub fn raise(to: &mut Quantities, least: &Quantities) {
    for (name, quantity) in least {
        match to.get_mut(name) {
            Some(amount) if amount.amount >= quantity.amount => {}
            _ => drop(to.insert(name.clone(), quantity.clone())),
        }
    }
}

/// Returns the quantity of an amount: whole bytes or thousandths, by the resource's name.
pub fn of_amount(name: &str, amount: u128) -> Quantity {
    let text = match (AmountUnit::of(name), amount % 1000) {
        (AmountUnit::Bytes, _) => amount.to_string(),
        (AmountUnit::Thousandths, 0) => (amount / 1000).to_string(),
        (AmountUnit::Thousandths, _) => format!("{amount}m"),
    };
    Quantity { text: text.into(), amount }
}
