//! The choice of the charges to import.

use std::collections::{BTreeSet, HashSet};

use prorata_schemas::event::resource_key;

use crate::line::Charge;

/// Reason for charges of a resource that is not known.
const UNKNOWN_RESOURCE: &str = "a resource that is not in --key-file";

/// Reason for charges of no resource.
const NO_RESOURCE: &str = "no resource, and an account that --account does not name";

/// The choice of the charges to import.
#[derive(Clone, Debug, Default)]
pub struct BillFilter {
    /// Whether all charges are imported.
    has_all: bool,
    /// Accounts, projects and subscriptions whose charges are all imported.
    accounts: BTreeSet<String>,
    /// Keys of known machines.
    keys: HashSet<Box<str>>,
}

impl BillFilter {
    /// Creates a choice of all charges, or of the charges of these accounts.
    pub fn new(has_all: bool, accounts: BTreeSet<String>) -> Self {
        Self { has_all, accounts, keys: HashSet::new() }
    }

    /// Adds the key of a machine. Azure ignores case in its ids.
    pub fn add_key(&mut self, key: &str) {
        let is_azure = key.get(..15).is_some_and(|start| start.eq_ignore_ascii_case("/subscriptions/"));
        let key = if is_azure { resource_key::azure(key) } else { key.into() };
        self.keys.insert(Box::from(&*key));
    }

    /// Returns whether a key is the key of a known machine.
    pub fn has_key(&self, key: &str) -> bool {
        self.keys.contains(key)
    }

    /// Returns the reason for which a charge is left out; `None` if it is imported. A charge is imported if
    /// its resource is known, if it names a commitment or a capacity reservation, or if its account is named.
    pub fn left_out(&self, charge: &Charge<'_>) -> Option<&'static str> {
        let has_agreement = !charge.commitment.is_empty() || !charge.reservation.is_empty();
        let has_account = || self.accounts.contains(charge.account);
        if self.has_all || has_agreement || self.has_key(&charge.resource_key) || has_account() {
            return None;
        }
        Some(if charge.resource_key.is_empty() { NO_RESOURCE } else { UNKNOWN_RESOURCE })
    }
}
