//! JSON documents, read element by element.

use std::cell::Cell;
use std::fmt;
use std::io::BufRead;

use prorata_schemas::reject::excerpt;
use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::Value;

use super::bounded::{Bounded, ELEMENT_BYTES_MAX};
use super::{AgreementsImporter, DAMAGED, aws, azure, google, plans, text};
use crate::prices::json::NumbersAsText;

/// Keys whose values are lists of commitments.
const LISTS: [&str; 6] =
    ["ReservedInstances", "CapacityReservations", "savingsPlans", "searchResults", "items", "value"];
/// Key that names the savings plan of all rates of a document.
const PLAN: &str = "savingsPlanId";
/// Keys whose values name the next page.
const TOKENS: [&str; 4] = ["NextToken", "nextToken", "nextPageToken", "nextLink"];
/// Maximum number of keys that a message names.
const KEYS_MAX: usize = 8;

/// Reason for an object without a list, which names the keys of [`LISTS`].
const NO_LIST: &str = "an object without a list; expected is a list of commitments, or an object with \
                       ReservedInstances, CapacityReservations, savingsPlans, searchResults, items or \
                       value";

/// Reads a document.
pub fn read(import: &mut AgreementsImporter, name: &str, from: impl BufRead) {
    let left = Cell::new(ELEMENT_BYTES_MAX);
    let bounded = Bounded { from: NumbersAsText::new(from), left: &left };
    let mut deserializer = serde_json::Deserializer::from_reader(bounded);
    let listing = Listing { import, name, left: &left };
    let read = listing.deserialize(&mut deserializer).and_then(|()| deserializer.end());
    if let Err(error) = read {
        import.skip(DAMAGED, || format!("'{name}': {error}"));
    }
}

fn take(import: &mut AgreementsImporter, value: &Value) {
    let has = |key: &str| value.get(key).is_some();
    if has("ReservedInstancesId") {
        aws::take(import, value);
    } else if has(PLAN) {
        plans::take(import, value);
    } else if has("rate") && has("usageType") {
        plans::take_rate(import, value);
    } else if has("CapacityReservationId") {
        let reason = "a reservation of machines: idle machines are nodes, or give a reservation by hand";
        import.skip(reason, || text(value, "CapacityReservationId").to_owned());
    } else if has("resources") || has("plan") {
        google::take(import, value);
    } else if has("properties") && has("sku") {
        azure::take(import, value);
    } else {
        import.skip("not a commitment of a known document", || value.to_string());
    }
}

/// The lists of a document.
struct Listing<'i> {
    import: &'i mut AgreementsImporter,
    name: &'i str,
    left: &'i Cell<usize>,
}

impl<'de> DeserializeSeed<'de> for Listing<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Listing<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of commitments")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<(), A::Error> {
        self.left.set(ELEMENT_BYTES_MAX);
        while let Some(value) = list.next_element()? {
            take(self.import, &value);
            self.left.set(ELEMENT_BYTES_MAX);
        }
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let Self { import, name, left } = self;
        let (mut has_list, mut keys, mut plan) = (false, Vec::new(), None);
        while let Some(key) = map.next_key::<String>()? {
            left.set(ELEMENT_BYTES_MAX);
            if LISTS.contains(&key.as_str()) {
                has_list = true;
                map.next_value_seed(Listing { import: &mut *import, name, left })?;
            } else if key == PLAN {
                plan = map.next_value::<Value>()?.as_str().map(str::to_owned);
            } else if TOKENS.contains(&key.as_str()) {
                if map.next_value::<Value>()?.as_str().is_some_and(|token| !token.is_empty()) {
                    let reason = "further pages of a list that is not complete; fetch and add them";
                    import.skip(reason, || format!("'{name}': {key}"));
                }
            } else {
                map.next_value::<IgnoredAny>()?;
                if keys.len() < KEYS_MAX {
                    keys.push(excerpt(&key));
                }
            }
            left.set(ELEMENT_BYTES_MAX);
        }
        plans::rates_of(import, name, plan);
        if !has_list {
            import.skip(NO_LIST, || format!("'{name}': an object with {}", keys.join(", ")));
        }
        Ok(())
    }
}
