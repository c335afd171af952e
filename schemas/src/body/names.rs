//! One copy of texts that the events of an organization repeat: clusters, namespaces, resource names,
//! quantities.
//!
//! A small direct-mapped cache: a text either shares the copy in its slot or takes the slot. So the cost is
//! bounded whatever comes, and what repeats is neither allocated nor kept twice. Organizations share nothing:
//! they are folded on different threads, which would contend for the count of references.

use crate::Text;

/// Slots; a power of two.
const SLOTS: usize = 4096;

/// Longer texts are rarely repeated and not kept.
const LENGTH_MAX: usize = 64;

/// Texts seen lately.
pub struct Names {
    slots: Vec<Option<(u64, Text)>>,
    organization: u64,
}

impl Names {
    /// None yet.
    pub const fn new() -> Self {
        Self { slots: Vec::new(), organization: 0 }
    }

    /// From here on texts are those of this organization.
    pub fn enter(&mut self, organization: &str) {
        self.organization = hash(0, organization.as_bytes());
    }

    /// `text`, shared with the last equal one of the organization if that is still kept.
    pub fn text(&mut self, text: &str) -> Text {
        if text.len() > LENGTH_MAX {
            return text.into();
        }
        if self.slots.is_empty() {
            self.slots.resize(SLOTS, None);
        }
        let place = (hash(self.organization, text.as_bytes()) >> 40) as usize % SLOTS;
        let Some(slot) = self.slots.get_mut(place) else { return text.into() };
        match slot {
            Some((organization, kept)) if *organization == self.organization && **kept == *text => {
                Text::clone(kept)
            }
            _ => {
                let kept = Text::from(text);
                *slot = Some((self.organization, Text::clone(&kept)));
                kept
            }
        }
    }
}

/// Spreads texts over slots. Quality decides speed alone.
fn hash(seed: u64, bytes: &[u8]) -> u64 {
    const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;
    let mut words = bytes.chunks_exact(8);
    let mut hash = seed ^ bytes.len() as u64;
    let mut mix = |word: u64| hash = (hash.rotate_left(23) ^ word).wrapping_mul(FACTOR);
    for word in &mut words {
        mix(word.first_chunk().map_or(0, |word| u64::from_le_bytes(*word)));
    }
    mix(words.remainder().iter().fold(0, |word, byte| word << 8 | u64::from(*byte)));
    hash
}

#[cfg(test)]
mod tests {
    use super::*;

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
