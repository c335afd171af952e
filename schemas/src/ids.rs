//! Ids: one type per kind of object, so that the compiler never takes one for another.
//!
//! An id is a [`Text`] as its producer wrote it, never empty in a valid event. It clones as cheaply as a
//! [`Text`], and serializes, compares, sorts and hashes exactly as its text.

use std::borrow::Borrow;
use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::ops::Deref;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::Text;
use crate::event::shared;

/// What every id can do. Its type orders ids as their texts are ordered.
macro_rules! as_text {
    ($($name:ident)+) => {$(
        impl Deref for $name {
            type Target = str;

            fn deref(&self) -> &str {
                &self.text
            }
        }

        impl Borrow<str> for $name {
            fn borrow(&self) -> &str {
                &self.text
            }
        }

        impl AsRef<str> for $name {
            fn as_ref(&self) -> &str {
                &self.text
            }
        }

        impl PartialOrd for $name {
            fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
                Some(self.cmp(other))
            }
        }

        // Maps of ids are asked for texts, too.
        impl Hash for $name {
            fn hash<H: Hasher>(&self, state: &mut H) {
                self.text.hash(state);
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.debug_tuple(stringify!($name)).field(&self.text).finish()
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(&self.text)
            }
        }

        impl From<&str> for $name {
            fn from(text: &str) -> Self {
                Text::from(text).into()
            }
        }

        impl From<String> for $name {
            fn from(text: String) -> Self {
                Text::from(text).into()
            }
        }

        impl From<$name> for Text {
            fn from(id: $name) -> Self {
                id.text
            }
        }

        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                self.text.serialize(serializer)
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                shared::text(deserializer).map(Self::from)
            }
        }
    )+};
}

macro_rules! ids {
    ($($(#[$doc:meta])* $name:ident,)+) => {$(
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq)]
        pub struct $name {
            text: Text,
        }

        impl From<Text> for $name {
            fn from(text: Text) -> Self {
                Self { text }
            }
        }

        impl Ord for $name {
            fn cmp(&self, other: &Self) -> Ordering {
                in_order(&self.text, &other.text)
            }
        }

        as_text!($name);
    )+};
}

ids! {
    /// An organization: the key of every message, and the unit that costs are computed for.
    OrganizationId,
    /// A Kubernetes cluster, unique in its organization.
    ClusterId,
    /// A node, unique in its cluster.
    NodeId,
    /// A capacity reservation, unique in its organization.
    ReservationId,
    /// A commitment, unique in its organization.
    CommitmentId,
    /// An elastic quota, unique in its cluster.
    QuotaId,
    /// A GPU pool, unique in its organization.
    PoolId,
}

/// The uid that Kubernetes gave to a pod, unique in its organization.
///
/// An organization may have a million pods, and each step of a search in a map of them would go to another
/// text, somewhere in memory. Uids are random: their first bytes, kept with the id, decide nearly every step.
#[derive(Clone, PartialEq, Eq)]
pub struct PodUid {
    /// The first bytes as a number, with zeros behind a shorter text: it sorts as they do.
    first: u64,
    text: Text,
}

impl From<Text> for PodUid {
    fn from(text: Text) -> Self {
        let mut first = [0; 8];
        first.iter_mut().zip(text.as_bytes()).for_each(|(first, byte)| *first = *byte);
        Self { first: u64::from_be_bytes(first), text }
    }
}

impl Ord for PodUid {
    fn cmp(&self, other: &Self) -> Ordering {
        self.first.cmp(&other.first).then_with(|| in_order(&self.text, &other.text))
    }
}

as_text!(PodUid);

/// Equal ids most often share one text, which need not be read.
fn in_order(text: &Text, other: &Text) -> Ordering {
    if Text::ptr_eq(text, other) { Ordering::Equal } else { text.cmp(other) }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    /// Texts of any length, alike up to any byte, in order.
    const TEXTS: [&str; 10] = [
        "",
        "\0",
        "a",
        "a\0",
        "a\0\0\0\0\0\0\0\0",
        "aaaaaaaa",
        "aaaaaaaa\0",
        "aaaaaaaab",
        "aaaaaaab",
        "\u{e9}",
    ];

    #[test]
    fn ids_sort_as_their_texts() {
        for (place, text) in TEXTS.iter().enumerate() {
            for (other_place, other) in TEXTS.iter().enumerate() {
                assert_eq!(PodUid::from(*text).cmp(&PodUid::from(*other)), place.cmp(&other_place));
                assert_eq!(NodeId::from(*text).cmp(&NodeId::from(*other)), place.cmp(&other_place));
            }
        }
    }

    #[test]
    fn an_id_is_found_by_its_text_and_says_it() {
        let uids: BTreeMap<PodUid, usize> = TEXTS.iter().map(|text| PodUid::from(*text)).zip(0..).collect();
        for (place, text) in TEXTS.iter().enumerate() {
            assert_eq!(uids.get(*text), Some(&place));
        }
        assert_eq!(format!("{:?} {0}", PodUid::from("a")), "PodUid(\"a\") a");
        let json = serde_json::to_string(&PodUid::from("aaaaaaaab")).unwrap();
        assert_eq!(json, "\"aaaaaaaab\"");
        assert_eq!(serde_json::from_str::<PodUid>(&json).unwrap(), PodUid::from("aaaaaaaab"));
    }
}
