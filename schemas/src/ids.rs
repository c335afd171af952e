//! Ids: one type per kind of object, so that the compiler catches an id of the wrong kind.
//!
//! An id is a [`Text`] as its producer wrote it, never empty in a valid event. It clones as cheaply as a
//! [`Text`], and serializes, compares, sorts and hashes exactly like its text.

use std::borrow::Borrow;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::ops::Deref;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::Text;
use crate::sharing::shared;

/// Implements the conversions between an id and the text in this field.
macro_rules! as_text {
    ($name:ident, $text:tt) => {
        impl Deref for $name {
            type Target = str;

            fn deref(&self) -> &str {
                &self.$text
            }
        }

        impl Borrow<str> for $name {
            fn borrow(&self) -> &str {
                &self.$text
            }
        }

        impl AsRef<str> for $name {
            fn as_ref(&self) -> &str {
                &self.$text
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(&self.$text)
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
                id.$text
            }
        }
    };
}

macro_rules! ids {
    ($($(#[$doc:meta])* $name:ident,)+) => {$(
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(#[serde(deserialize_with = "shared::text")] Text);

        impl From<Text> for $name {
            fn from(text: Text) -> Self {
                Self(text)
            }
        }

        as_text!($name, 0);
    )+};
}

ids! {
    /// An organization: the key of every message, and the tenant whose costs are computed.
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
/// An organization may have a million pods. In a map of plain texts, each step of a search would read another
/// text somewhere in memory. Uids are random, so their first bytes, kept with the id, decide nearly every
/// step.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct PodUid {
    /// The first bytes as a number, padded with zeros. The number sorts as the bytes do, so it is compared
    /// first.
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

as_text!(PodUid, text);

// Hashes like its text, because maps of uids are looked up by text too.
impl Hash for PodUid {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.text.hash(state);
    }
}

impl fmt::Debug for PodUid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("PodUid").field(&self.text).finish()
    }
}

impl Serialize for PodUid {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.text.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for PodUid {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        shared::text(deserializer).map(Self::from)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::hash::{BuildHasher, RandomState};

    use super::*;

    /// Texts of various lengths in ascending order, with common prefixes of various lengths.
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
        let hasher = RandomState::new();
        for (place, text) in TEXTS.iter().enumerate() {
            assert_eq!(uids.get(*text), Some(&place));
            assert_eq!(hasher.hash_one(PodUid::from(*text)), hasher.hash_one(*text));
        }
        assert_eq!(format!("{:?} {0}", PodUid::from("a")), "PodUid(\"a\") a");
        let json = serde_json::to_string(&PodUid::from("aaaaaaaab")).unwrap();
        assert_eq!(json, "\"aaaaaaaab\"");
        assert_eq!(serde_json::from_str::<PodUid>(&json).unwrap(), PodUid::from("aaaaaaaab"));
    }
}
