//! Sharing of maps that the events of an organization repeat: the pods of a workload have the same labels and
//! requests. A kept map is recognized by its bytes and is not read again.
//!
//! A small direct-mapped cache, like the cache of texts in `texts.rs`.

use crate::sharing::ByName;
use crate::sharing::hash;

/// Number of slots; a power of two.
const SLOTS: usize = 1024;

/// Longest map that is kept, in bytes. So the bytes in the slots are at most 1 MiB, plus the maps read from
/// them.
const BYTES_MAX: usize = 1024;

/// Maps seen recently.
pub struct Maps<V>(Vec<Option<Kept<V>>>);

struct Kept<V> {
    organization: u64,
    bytes: Box<[u8]>,
    map: ByName<V>,
}

impl<V> Maps<V> {
    /// Creates an empty cache.
    pub const fn new() -> Self {
        Self(Vec::new())
    }

    /// Returns the organization's map that was read from these bytes; `None` if it is not kept.
    pub fn kept(&self, organization: u64, bytes: &[u8]) -> Option<ByName<V>> {
        let kept = self.0.get(place(organization, bytes))?.as_ref();
        let kept = kept.filter(|kept| kept.organization == organization && *kept.bytes == *bytes)?;
        Some(kept.map.clone())
    }

    /// Keeps a map that was read from these bytes, unless there are more than `BYTES_MAX` bytes.
    pub fn keep(&mut self, organization: u64, bytes: &[u8], map: &ByName<V>) {
        if bytes.len() > BYTES_MAX {
            return;
        }
        if self.0.is_empty() {
            self.0.resize_with(SLOTS, || None);
        }
        if let Some(slot) = self.0.get_mut(place(organization, bytes)) {
            *slot = Some(Kept { organization, bytes: bytes.into(), map: map.clone() });
        }
    }
}

fn place(organization: u64, bytes: &[u8]) -> usize {
    (hash(organization, bytes) >> 40) as usize % SLOTS
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Text;

    #[test]
    fn equal_bytes_of_an_organization_share_one_map_and_others_never_do() {
        let mut maps = Maps::<Text>::new();
        let map = |value: &str| ByName::from([("app".into(), value.into())]);
        assert_eq!(maps.kept(1, b"web"), None);
        let web = map("web");
        maps.keep(1, b"web", &web);
        assert_eq!(maps.kept(1, b"web").unwrap().as_ptr(), web.as_ptr());
        let others = 2..10 * SLOTS as u64;
        assert!(others.into_iter().all(|other| maps.kept(other, b"web").is_none()), "they share nothing");
        for index in 0..10 * SLOTS {
            let text = format!("{index}");
            maps.keep(1, text.as_bytes(), &map(&text));
            assert_eq!(maps.kept(1, text.as_bytes()), Some(map(&text)));
        }
        let kept = (0..10 * SLOTS).filter(|index| maps.kept(1, format!("{index}").as_bytes()).is_some());
        assert!(kept.count() <= SLOTS);
        let long = [b'x'; BYTES_MAX + 1];
        maps.keep(1, &long, &web);
        assert_eq!(maps.kept(1, &long), None);
    }
}
