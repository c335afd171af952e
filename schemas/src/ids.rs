//! Ids: one type per kind of object, so that the compiler never takes one for another.
//!
//! An id is a [`Text`] as its producer wrote it, never empty in a valid event. It clones as cheaply as a
//! [`Text`], and serializes, compares, sorts and hashes exactly as its text.

use std::borrow::Borrow;
use std::fmt;
use std::ops::Deref;

use serde::{Deserialize, Serialize};

use crate::Text;

macro_rules! ids {
    ($($(#[$doc:meta])* $name:ident,)+) => {$(
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(#[serde(deserialize_with = "crate::event::shared::text")] Text);

        impl Deref for $name {
            type Target = str;

            fn deref(&self) -> &str {
                &self.0
            }
        }

        impl Borrow<str> for $name {
            fn borrow(&self) -> &str {
                &self.0
            }
        }

        impl AsRef<str> for $name {
            fn as_ref(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(&self.0)
            }
        }

        impl From<&str> for $name {
            fn from(text: &str) -> Self {
                Self(text.into())
            }
        }

        impl From<String> for $name {
            fn from(text: String) -> Self {
                Self(text.into())
            }
        }

        impl From<Text> for $name {
            fn from(text: Text) -> Self {
                Self(text)
            }
        }

        impl From<$name> for Text {
            fn from(id: $name) -> Self {
                id.0
            }
        }
    )+};
}

ids! {
    /// An organization: the key of every message, and the unit that costs are computed for.
    OrganizationId,
    /// A Kubernetes cluster, unique in its organization.
    ClusterId,
    /// A node, unique in its cluster.
    NodeId,
    /// The uid that Kubernetes gave to a pod, unique in its organization.
    PodUid,
    /// A capacity reservation, unique in its organization.
    ReservationId,
    /// A commitment, unique in its organization.
    CommitmentId,
    /// An elastic quota, unique in its cluster.
    QuotaId,
    /// A GPU pool, unique in its organization.
    PoolId,
}
