//! A value for each organization, gathered from events that come one by one.

use std::borrow::Borrow;
use std::collections::BTreeMap;

/// A value for each organization with an event so far, by organization id.
pub struct Organizations<Id, T> {
    places: BTreeMap<Id, usize>,
    all: Vec<T>,
    /// The organization of the last event. In most cases, the next event belongs to it, too.
    last: Option<(Id, usize)>,
}

impl<Id: Clone + Ord, T> Organizations<Id, T> {
    /// Returns a set without organizations.
    pub fn new() -> Self {
        Self { places: BTreeMap::new(), all: Vec::new(), last: None }
    }

    /// Returns the value of an organization. `new` creates the value at the organization's first event.
    pub fn of<Q>(&mut self, id: &Q, new: impl FnOnce() -> T) -> &mut T
    where
        Id: Borrow<Q> + for<'a> From<&'a Q>,
        Q: Ord + ?Sized,
    {
        let place = match &self.last {
            Some((last, place)) if last.borrow() == id => *place,
            _ => {
                let (id, place) = match self.places.get_key_value(id) {
                    Some((id, place)) => (id.clone(), *place),
                    None => {
                        let (id, place) = (Id::from(id), self.all.len());
                        self.places.insert(id.clone(), place);
                        self.all.push(new());
                        (id, place)
                    }
                };
                self.last = Some((id, place));
                place
            }
        };
        &mut self.all[place]
    }

    /// Returns all values, in ascending order of id.
    pub fn into_ascending(self) -> impl Iterator<Item = (Id, T)> {
        let mut all: Vec<Option<T>> = self.all.into_iter().map(Some).collect();
        self.places.into_iter().filter_map(move |(id, place)| Some((id, all.get_mut(place)?.take()?)))
    }
}
