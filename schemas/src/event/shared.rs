//! Sharing of values that a stored state repeats: most pods of an organization have the same cluster, labels
//! and quantities.
//!
//! A derived `Deserialize` takes no context, so the cache of texts belongs to the thread.

use std::fmt;
use std::marker::PhantomData;

use serde::de::{Deserialize, Deserializer, Error, Visitor};

use super::by_name::Values;
use super::{ByName, Labels, Quantities};
use crate::Text;
use crate::body::NAMES;
use crate::body::maps::Maps;
use crate::body::names::Names;
use crate::body::write::Out;
use crate::quantity::Quantity;

/// Stops sharing earlier texts: what this thread reads from here on shares no text with what it has read
/// before. Organizations are folded on different threads, which would contend for the reference counts.
pub fn share_anew() {
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

/// Reads a text.
pub(crate) fn text<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Text, D::Error> {
    SharedText::deserialize(deserializer).map(Text::from)
}

/// Reads a text or null.
pub(super) fn text_or_null<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Text>, D::Error> {
    Ok(Option::<SharedText>::deserialize(deserializer)?.map(Text::from))
}

/// Reads labels.
pub(super) fn labels<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Labels, D::Error> {
    let labels = deserializer.deserialize_map(Values::<SharedText, SharedText, _>(PhantomData))?;
    Ok(shared(labels, |names| &mut names.labels, |out, label| out.text(label)))
}

/// Reads quantities.
pub(super) fn quantities<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Quantities, D::Error> {
    let quantities = deserializer.deserialize_map(Values::<SharedText, Quantity, _>(PhantomData))?;
    Ok(shared(quantities, |names| &mut names.quantities, |out, quantity| out.text(&quantity.text)))
}

/// Returns the map, or an equal map that was read recently.
fn shared<V: PartialEq>(
    map: ByName<V>,
    maps: fn(&mut Names) -> &mut Maps<V>,
    write: fn(&mut Out, &V),
) -> ByName<V> {
    let mut out = Out(Vec::with_capacity(128));
    out.map(&map, write);
    NAMES.with_borrow_mut(|names| {
        // Kept apart from maps of events, whose bytes have been validated.
        let organization = !names.organization();
        let maps = maps(names);
        if let Some(kept) = maps.kept(organization, &out.0).filter(|kept| *kept == map) {
            return kept;
        }
        maps.keep(organization, &out.0, &map);
        map
    })
}
