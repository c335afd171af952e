//! One copy of texts that a stored state repeats: most pods of an organization have the same cluster, labels
//! and quantities.
//!
//! What is derived from `Deserialize` cannot be given a place to look texts up in: it is the thread's own.

use std::collections::BTreeMap;
use std::fmt;
use std::marker::PhantomData;

use serde::de::{Deserialize, Deserializer, Error, MapAccess, Visitor};

use super::Quantities;
use crate::Text;
use crate::body::NAMES;

/// From here on, what this thread reads shares texts with nothing that it has read before: organizations are
/// folded on different threads, which would contend for the counts of references.
pub fn share_anew() {
    NAMES.with_borrow_mut(|names| names.enter_another());
}

/// A text, shared with equal ones that were read lately.
struct SharedText(Text);

impl<'de> Deserialize<'de> for SharedText {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Shared;

        impl Visitor<'_> for Shared {
            type Value = SharedText;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("a text")
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<SharedText, E> {
                Ok(SharedText(NAMES.with_borrow_mut(|names| names.text(text))))
            }
        }

        deserializer.deserialize_str(Shared)
    }
}

impl From<SharedText> for Text {
    fn from(text: SharedText) -> Self {
        text.0
    }
}

/// Reads a text.
pub(crate) fn text<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Text, D::Error> {
    SharedText::deserialize(deserializer).map(Text::from)
}

/// Reads a text or null.
pub(super) fn text_or_null<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Text>, D::Error> {
    Ok(Option::<SharedText>::deserialize(deserializer)?.map(Text::from))
}

/// Reads texts by name.
pub(super) fn texts<'de, D: Deserializer<'de>>(deserializer: D) -> Result<BTreeMap<Text, Text>, D::Error> {
    deserializer.deserialize_map(ByName::<SharedText, Text>(PhantomData))
}

/// Reads quantities by name.
pub(super) fn quantities<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Quantities, D::Error> {
    deserializer.deserialize_map(ByName::<crate::quantity::Quantity, _>(PhantomData))
}

/// Reads values of one form as those of another, by name.
struct ByName<Read, Kept>(PhantomData<(Read, Kept)>);

impl<'de, Read: Deserialize<'de> + Into<Kept>, Kept> Visitor<'de> for ByName<Read, Kept> {
    type Value = BTreeMap<Text, Kept>;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("values by name")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut values = BTreeMap::new();
        while let Some((name, value)) = map.next_entry::<SharedText, Read>()? {
            values.insert(name.into(), value.into());
        }
        Ok(values)
    }
}
