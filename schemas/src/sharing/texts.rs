//! Sharing of texts that the events of an organization repeat: clusters, namespaces, resource names,
//! quantities. `maps.rs` shares whole maps.
//!
//! A small direct-mapped cache: a text either shares the copy in its slot or takes the slot. So the cost is
//! bounded whatever the input, and a repeated text is neither allocated nor kept twice. Organizations share
//! nothing: they are folded on different threads, which would contend for the reference count.

use crate::Text;
use crate::quantity::Quantity;
use crate::sharing::hash;
use crate::sharing::maps::Maps;

/// Number of slots; a power of two.
const SLOTS: usize = 16_384;

/// Longest text that is kept. Longer texts rarely repeat.
const LENGTH_MAX: usize = 64;

/// Texts and maps seen recently.
pub struct Names {
    slots: Vec<Option<(u64, Text)>>,
    /// Maps of quantities.
    pub quantities: Maps<Quantity>,
    /// Maps of labels.
    pub labels: Maps<Text>,
    organization: u64,
    /// The id of the organization entered last; `None` if it is unnamed. The next event usually has the same
    /// id.
    last: Option<Text>,
    /// Number of unnamed organizations so far.
    unnamed: u64,
}

impl Names {
    /// Creates an empty cache.
    pub const fn new() -> Self {
        Self {
            slots: Vec::new(),
            quantities: Maps::new(),
            labels: Maps::new(),
            organization: 0,
            last: None,
            unnamed: 0,
        }
    }

    /// Returns the organization entered last, as a number that is almost certainly unique.
    pub const fn organization(&self) -> u64 {
        self.organization
    }

    /// Returns the id of the organization entered last if it has these bytes, and `None` otherwise.
    pub fn last(&self, organization: &[u8]) -> Option<Text> {
        self.last.as_ref().filter(|last| last.as_bytes() == organization).cloned()
    }

    /// Enters an organization, to which the texts read from now on belong, and returns its id.
    pub fn enter(&mut self, organization: &str) -> Text {
        self.organization = hash(0, organization.as_bytes());
        let id = self.text(organization);
        self.last = Some(Text::clone(&id));
        id
    }

    /// Returns the kept text that has these bytes; `None` if there is none. The bytes need no second UTF-8
    /// check.
    pub fn kept(&self, bytes: &[u8]) -> Option<Text> {
        match self.slots.get(self.place(bytes)) {
            Some(Some((organization, kept)))
                if *organization == self.organization && kept.as_bytes() == bytes =>
            {
                Some(Text::clone(kept))
            }
            _ => None,
        }
    }

    /// Enters an unnamed organization, which has shared no texts yet.
    pub fn enter_another(&mut self) {
        self.unnamed = self.unnamed.wrapping_add(1);
        self.organization = hash(self.unnamed, b"unnamed");
        self.last = None;
    }

    fn place(&self, bytes: &[u8]) -> usize {
        (hash(self.organization, bytes) >> 40) as usize % SLOTS
    }

    /// Returns `text`, shared with the last equal text of the organization if that text is still kept.
    pub fn text(&mut self, text: &str) -> Text {
        if text.len() > LENGTH_MAX {
            return text.into();
        }
        if let Some(kept) = self.kept(text.as_bytes()) {
            return kept;
        }
        if self.slots.is_empty() {
            self.slots.resize(SLOTS, None);
        }
        let place = self.place(text.as_bytes());
        let own = Text::from(text);
        if let Some(slot) = self.slots.get_mut(place) {
            *slot = Some((self.organization, Text::clone(&own)));
        }
        own
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn organizations_that_are_not_named_share_nothing_either() {
        let mut names = Names::new();
        let texts = [(); 3].map(|()| {
            names.enter("acme");
            names.enter_another();
            [names.text("cpu"), names.text("cpu")]
        });
        assert!(texts.iter().all(|[first, second]| Text::ptr_eq(first, second)));
        assert!(texts.windows(2).all(|pair| !Text::ptr_eq(&pair[0][0], &pair[1][0])));
    }

    #[test]
    fn equal_texts_share_one_copy_and_others_never_do() {
        let mut names = Names::new();
        let first = names.text("cpu");
        assert!(Text::ptr_eq(&first, &names.text("cpu")));
        names.enter("acme");
        assert!(!Text::ptr_eq(&first, &names.text("cpu")), "organizations share nothing");
        for index in 0..10_000 {
            let text = format!("pod-{index}");
            assert_eq!(&*names.text(&text), text);
        }
        let long = "x".repeat(LENGTH_MAX + 1);
        assert_eq!(&*names.text(&long), long);
        assert_eq!(&*names.text(""), "");
    }
}
