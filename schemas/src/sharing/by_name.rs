//! Maps from names to values, such as the quantities and labels of events.

use std::fmt;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use litemap::LiteMap;
use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde::{Serialize, Serializer};

use crate::Text;

/// Values by name, sorted by the UTF-8 bytes of the names. Each name occurs once.
///
/// Most pods of a workload have the same labels and requests. Clones share one map in memory until one of
/// them is changed.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ByName<V>(Arc<LiteMap<Text, V>>);

impl<V> ByName<V> {
    /// Creates an empty map.
    pub fn new() -> Self {
        Self(Arc::new(LiteMap::new_vec()))
    }

    /// Returns the address of the map in memory. Clones have the same address.
    pub fn as_ptr(&self) -> *const () {
        Arc::as_ptr(&self.0).cast()
    }
}

impl<V> Clone for ByName<V> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<V> Default for ByName<V> {
    fn default() -> Self {
        Self::new()
    }
}

impl<V> Deref for ByName<V> {
    type Target = LiteMap<Text, V>;

    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

/// A change does not affect the clones.
impl<V: Clone> DerefMut for ByName<V> {
    fn deref_mut(&mut self) -> &mut Self::Target {
        Arc::make_mut(&mut self.0)
    }
}

/// If a name occurs more than once, the last value counts.
impl<V> FromIterator<(Text, V)> for ByName<V> {
    fn from_iter<I: IntoIterator<Item = (Text, V)>>(values: I) -> Self {
        Self(Arc::new(values.into_iter().collect()))
    }
}

impl<V, const COUNT: usize> From<[(Text, V); COUNT]> for ByName<V> {
    fn from(values: [(Text, V); COUNT]) -> Self {
        values.into_iter().collect()
    }
}

impl<'a, V> IntoIterator for &'a ByName<V> {
    type Item = (&'a Text, &'a V);
    type IntoIter = <&'a LiteMap<Text, V> as IntoIterator>::IntoIter;

    fn into_iter(self) -> Self::IntoIter {
        self.0.iter()
    }
}

impl<V: Clone> IntoIterator for ByName<V> {
    type Item = (Text, V);
    type IntoIter = <LiteMap<Text, V> as IntoIterator>::IntoIter;

    fn into_iter(self) -> Self::IntoIter {
        Arc::unwrap_or_clone(self.0).into_iter()
    }
}

impl<V: Serialize> Serialize for ByName<V> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self)
    }
}

impl<'de, V: Deserialize<'de>> Deserialize<'de> for ByName<V> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(Values::<Text, V, V>(PhantomData))
    }
}

/// Deserializes a map of `Name` to `Read` as a map from texts to `Kept`.
pub(super) struct Values<Name, Read, Kept>(pub(super) PhantomData<(Name, Read, Kept)>);

impl<'de, Name, Read, Kept> Visitor<'de> for Values<Name, Read, Kept>
where
    Name: Deserialize<'de> + Into<Text>,
    Read: Deserialize<'de> + Into<Kept>,
{
    type Value = ByName<Kept>;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a map of values by name")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut values = Vec::new();
        while let Some((name, value)) = map.next_entry::<Name, Read>()? {
            values.push((name.into(), value.into()));
        }
        Ok(values.into_iter().collect())
    }
}
