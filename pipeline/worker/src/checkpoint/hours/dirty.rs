//! The closed hours to be folded again, for all organizations or for some.

use std::collections::BTreeMap;

use prorata_schemas::ids::OrganizationId;
use prorata_schemas::time::Hour;
use serde::{Deserialize, Serialize};

use super::HourSet;

/// Maximum number of organizations that are marked by name. If there are more, their hours become dirty for
/// all organizations.
const ORGANIZATIONS_MAX: usize = 1_024;

/// Maximum number of runs of marked hours over all organizations. If there are more, each organization
/// becomes dirty from its first marked hour through its last.
const RANGES_MAX: usize = 4_096;

/// Closed hours whose events have changed since they were folded: for all organizations, or for some.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Dirty {
    #[serde(skip_serializing_if = "HourSet::is_empty", default)]
    all: HourSet,
    #[serde(skip_serializing_if = "BTreeMap::is_empty", default)]
    organizations: BTreeMap<OrganizationId, HourSet>,
}

impl Dirty {
    /// Marks an hour of all organizations.
    pub fn insert(&mut self, hour: Hour) {
        self.all.insert(hour);
    }

    /// Marks the hours of all organizations from the first to the last, both inclusive.
    pub fn insert_range(&mut self, first: Hour, last: Hour) {
        self.all.insert_range(first, last);
    }

    /// Marks an hour of one organization.
    pub fn insert_of(&mut self, organization_id: &OrganizationId, hour: Hour) {
        match self.organizations.get_mut(organization_id) {
            Some(hours) => hours.insert(hour),
            None => {
                self.organizations.insert(organization_id.clone(), [hour].into_iter().collect());
            }
        }
    }

    /// Makes the marks coarser if there are too many. No hour loses its mark.
    pub fn bound(&mut self) {
        if self.organizations.len() > ORGANIZATIONS_MAX {
            self.forget_organizations();
        } else if self.organizations.values().map(HourSet::runs).sum::<usize>() > RANGES_MAX {
            for hours in self.organizations.values_mut() {
                if let Some((first, last)) = hours.first().zip(hours.last()) {
                    hours.insert_range(first, last);
                }
            }
        }
    }

    /// Makes every marked hour dirty for all organizations.
    pub fn forget_organizations(&mut self) {
        for hours in std::mem::take(&mut self.organizations).into_values() {
            self.all.extend(&hours);
        }
    }

    /// Returns the hours that are dirty for all organizations.
    pub fn of_all(&self) -> &HourSet {
        &self.all
    }

    /// Returns the hours that are dirty only for some organizations.
    pub fn of_organizations(&self) -> &BTreeMap<OrganizationId, HourSet> {
        &self.organizations
    }

    /// Returns the earliest marked hour; `None` if no hour is marked.
    pub fn first(&self) -> Option<Hour> {
        self.sets().filter_map(HourSet::first).min()
    }

    /// Returns the earliest marked hour after `hour`; `None` if there is none.
    pub fn first_after(&self, hour: Hour) -> Option<Hour> {
        self.sets().filter_map(|hours| hours.first_after(hour)).min()
    }

    /// Drops all marks of the hours from `first` to `last`, both inclusive.
    pub fn clear(&mut self, first: Hour, last: Hour) {
        self.all.clear(first, last);
        self.organizations.values_mut().for_each(|hours| hours.clear(first, last));
        self.organizations.retain(|_, hours| !hours.is_empty());
    }

    /// Drops the marks of one organization from `first` to `last`, both inclusive.
    pub fn clear_of(&mut self, organization_id: &OrganizationId, first: Hour, last: Hour) {
        if let Some(hours) = self.organizations.get_mut(organization_id) {
            hours.clear(first, last);
            if hours.is_empty() {
                self.organizations.remove(organization_id);
            }
        }
    }

    /// Returns whether nothing is dirty.
    pub fn is_empty(&self) -> bool {
        self.all.is_empty() && self.organizations.is_empty()
    }

    fn sets(&self) -> impl Iterator<Item = &HourSet> {
        std::iter::once(&self.all).chain(self.organizations.values())
    }
}

impl FromIterator<Hour> for Dirty {
    fn from_iter<I: IntoIterator<Item = Hour>>(hours: I) -> Self {
        Self { all: hours.into_iter().collect(), organizations: BTreeMap::new() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dirty() -> Dirty {
        let mut dirty: Dirty = [Hour(9)].into_iter().collect();
        dirty.insert_of(&"acme".into(), Hour(3));
        dirty.insert_of(&"acme".into(), Hour(5));
        dirty.insert_of(&"bird".into(), Hour(12));
        dirty
    }

    #[test]
    fn the_first_mark_is_that_of_anybody() {
        let mut dirty = dirty();
        assert_eq!((dirty.first(), dirty.first_after(Hour(5))), (Some(Hour(3)), Some(Hour(9))));
        dirty.clear_of(&"acme".into(), Hour(0), Hour(4));
        assert_eq!(dirty.first(), Some(Hour(5)));
        dirty.clear(Hour(5), Hour(11));
        assert_eq!((dirty.first(), dirty.of_organizations().len()), (Some(Hour(12)), 1));
        dirty.clear_of(&"bird".into(), Hour(12), Hour(12));
        assert!(dirty.is_empty());
    }

    #[test]
    fn marks_are_read_back_and_organizations_can_be_forgotten() {
        let text = serde_json::to_string(&dirty()).unwrap();
        assert_eq!(serde_json::from_str::<Dirty>(&text).unwrap(), dirty(), "{text}");
        let mut coarse = dirty();
        coarse.forget_organizations();
        assert_eq!(coarse, [Hour(3), Hour(5), Hour(9), Hour(12)].into_iter().collect());
        assert_eq!(serde_json::to_string(&Dirty::default()).unwrap(), "{}");
    }

    #[test]
    fn too_many_marks_become_coarser_and_none_is_lost() {
        let mut ranges = Dirty::default();
        for n in 0..=RANGES_MAX as i64 {
            ranges.insert_of(&format!("org-{}", n % 10).into(), Hour(n * 2));
        }
        ranges.bound();
        let hours = &ranges.of_organizations()["org-3"];
        assert_eq!((hours.ranges().len(), hours.first()), (1, Some(Hour(6))));
        let mut many = Dirty::default();
        for n in 0..=ORGANIZATIONS_MAX {
            many.insert_of(&format!("org-{n}").into(), Hour(7));
        }
        many.bound();
        assert_eq!(many, [Hour(7)].into_iter().collect());
    }
}
