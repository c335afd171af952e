//! Known parts of the last checkpoint, so that the next one need not encode them again.

use std::collections::BTreeMap;
use std::sync::Arc;

use prorata_schemas::time::{Date, Hour};

use crate::checkpoint::HourEntry;

/// Days that have a part, with the hours in the part and its path. While a day's hours are the very same,
/// they are not encoded again. Without this, each checkpoint would encode all hours of the horizon.
#[derive(Clone, Debug, Default)]
pub struct KnownDays(BTreeMap<Date, KnownDay>);

#[derive(Clone, Debug)]
struct KnownDay {
    hours: BTreeMap<Hour, Arc<HourEntry>>,
    path: String,
}

impl KnownDays {
    /// Returns the path of the part that holds these hours of one day.
    pub fn path_of(&self, hours: &BTreeMap<Hour, Arc<HourEntry>>) -> Option<&String> {
        let KnownDay { hours: known, path } = self.0.get(&hours.keys().next()?.date())?;
        let same = known.iter().zip(hours).all(|((a, old), (b, new))| a == b && Arc::ptr_eq(old, new));
        (known.len() == hours.len() && same).then_some(path)
    }

    /// Records which part holds these hours of one day.
    pub fn note(&mut self, hours: BTreeMap<Hour, Arc<HourEntry>>, path: &str) {
        if let Some(hour) = hours.keys().next() {
            self.0.insert(hour.date(), KnownDay { hours, path: path.to_owned() });
        }
    }
}
