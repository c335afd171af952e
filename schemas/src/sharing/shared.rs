//! Reads the shared values of a stored state. A derived `Deserialize` takes no context, so the caches belong
//! to the thread.

use std::fmt;
use std::marker::PhantomData;

use serde::Deserialize;
use serde::de::{Deserializer, Error, Visitor};

use crate::Text;
use crate::quantity::Quantity;
use crate::sharing::by_name::Values;
use crate::sharing::{ByName, Maps, NAMES, Names};

/// Stops sharing earlier texts: values that this thread reads from now on share no text with values read
/// before. Organizations are folded on different threads, which would contend for the reference counts.
pub fn restart_sharing() {
    NAMES.with_borrow_mut(|names| names.enter_another());
}

/// A text, shared with an equal text that was read recently.
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

/// A quantity with a shared text.
#[derive(Deserialize)]
#[serde(rename = "Quantity")]
struct SharedQuantity {
    text: SharedText,
    amount: u128,
}

impl<'de> Deserialize<'de> for Quantity {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let SharedQuantity { text, amount } = SharedQuantity::deserialize(deserializer)?;
        Ok(Self { text: text.into(), amount })
    }
}

/// Reads a text.
pub(crate) fn text<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Text, D::Error> {
    SharedText::deserialize(deserializer).map(Text::from)
}

/// Reads a text or null.
pub(crate) fn text_or_null<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Text>, D::Error> {
    Ok(Option::<SharedText>::deserialize(deserializer)?.map(Text::from))
}

/// Reads labels.
pub(crate) fn labels<'de, D: Deserializer<'de>>(deserializer: D) -> Result<ByName<Text>, D::Error> {
    let labels = deserializer.deserialize_map(Values::<SharedText, SharedText, _>(PhantomData))?;
    Ok(shared(labels, |names| &mut names.labels, |label| label))
}

/// Reads quantities.
pub(crate) fn quantities<'de, D: Deserializer<'de>>(deserializer: D) -> Result<ByName<Quantity>, D::Error> {
    let quantities = deserializer.deserialize_map(Values::<SharedText, Quantity, _>(PhantomData))?;
    Ok(shared(quantities, |names| &mut names.quantities, |quantity| &quantity.text))
}

/// Returns the map, or an equal map that was read recently.
fn shared<V: PartialEq>(
    map: ByName<V>,
    maps: fn(&mut Names) -> &mut Maps<V>,
    text: fn(&V) -> &Text,
) -> ByName<V> {
    let mut key = Vec::with_capacity(128);
    for part in map.iter().flat_map(|(name, value)| [name, text(value)]) {
        key.extend_from_slice(part.as_bytes());
        // No text has this byte, so no two maps of texts have the same key.
        key.push(0xff);
    }
    NAMES.with_borrow_mut(|names| {
        // Kept apart from maps of events, whose bytes have been validated.
        let organization = !names.organization();
        let maps = maps(names);
        if let Some(kept) = maps.kept(organization, &key).filter(|kept| *kept == map) {
            return kept;
        }
        maps.keep(organization, &key, &map);
        map
    })
}
