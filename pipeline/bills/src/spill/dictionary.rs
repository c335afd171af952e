//! Texts that many charges repeat, such as services and SKUs. Each is stored once, and charges have its
//! number.

use std::collections::HashMap;

use prorata_schemas::Text;

/// Number of bytes up to which the dictionary grows. Charges keep further texts themselves.
const BYTES_MAX: usize = 64 << 20;

/// Approximate number of bytes that a text takes besides its own: its counts, and its places in both lists.
const TEXT_BYTES: usize = 96;

/// The number of a text in a [`Dictionary`].
pub type TextId = u32;

/// The number of the empty text.
pub const EMPTY: TextId = 0;

/// Texts by number.
#[derive(Debug)]
pub struct Dictionary {
    ids: HashMap<Text, TextId>,
    texts: Vec<Text>,
    bytes: usize,
}

impl Dictionary {
    /// Creates a dictionary with the empty text.
    pub fn new() -> Self {
        let empty = Text::from("");
        Self { ids: HashMap::from([(empty.clone(), EMPTY)]), texts: vec![empty], bytes: 0 }
    }

    /// Returns the number of a text, which is added if there is room; `None` if there is none.
    pub fn id(&mut self, text: &str) -> Option<TextId> {
        if text.is_empty() {
            return Some(EMPTY);
        }
        if let Some(id) = self.ids.get(text) {
            return Some(*id);
        }
        if self.bytes + TEXT_BYTES + text.len() > BYTES_MAX {
            return None;
        }
        self.insert(text)
    }

    /// Returns the number of a text, which is added even if the dictionary is full; `None` if there are no
    /// more numbers.
    pub fn id_of_any(&mut self, text: &str) -> Option<TextId> {
        match self.ids.get(text) {
            Some(id) => Some(*id),
            None => self.insert(text),
        }
    }

    fn insert(&mut self, text: &str) -> Option<TextId> {
        let id = TextId::try_from(self.texts.len()).ok()?;
        let text = Text::from(text);
        self.bytes += TEXT_BYTES + text.len();
        self.texts.push(text.clone());
        self.ids.insert(text, id);
        Some(id)
    }

    /// Returns a text.
    pub fn text(&self, id: TextId) -> Text {
        self.texts.get(usize::try_from(id).unwrap_or(usize::MAX)).cloned().unwrap_or_default()
    }

    /// Returns the number of bytes of a text.
    pub fn bytes_of(&self, id: TextId) -> usize {
        self.texts.get(usize::try_from(id).unwrap_or(usize::MAX)).map_or(0, |text| text.len())
    }

    /// Returns the number of texts.
    pub fn len(&self) -> usize {
        self.texts.len()
    }

    /// Removes the texts after the first `count`.
    pub fn truncate(&mut self, count: usize) {
        for text in self.texts.drain(count.min(self.texts.len())..) {
            self.bytes -= TEXT_BYTES + text.len();
            self.ids.remove(&text);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_stored_once_and_can_be_removed() {
        let mut dictionary = Dictionary::new();
        let one = dictionary.id("one").unwrap();
        assert_eq!((dictionary.id("one"), dictionary.id("")), (Some(one), Some(EMPTY)));
        assert_eq!(&*dictionary.text(one), "one");
        let long = "x".repeat(BYTES_MAX);
        assert_eq!(dictionary.id(&long), None);
        let count = dictionary.len();
        let id = dictionary.id_of_any(&long).unwrap();
        assert_eq!(dictionary.text(id).len(), BYTES_MAX);
        dictionary.truncate(count);
        assert_eq!((dictionary.len(), &*dictionary.text(id), dictionary.id("one")), (count, "", Some(one)));
        assert!(dictionary.id("two").is_some());
    }
}
