//! Known parts of the last checkpoint, so that the next checkpoint need not encode them again.

use std::collections::BTreeMap;
use std::sync::Arc;

use prorata_schemas::time::{Date, Hour};

use crate::checkpoint::HourEntry;

/// Days whose hours are in a part, each with these hours and the path of the part. While a day has the same
/// shared entries, they are not encoded again. Otherwise, each checkpoint would encode all hours inside the
/// horizon.
#[derive(Clone, Debug, Default)]
pub struct KnownDays(BTreeMap<Date, KnownDay>);

#[derive(Clone, Debug)]
struct KnownDay {
    hours: BTreeMap<Hour, Arc<HourEntry>>,
    path: String,
}

impl KnownDays {
    /// Returns the path of the part that holds exactly these hours of one day; `None` if no such part is
    /// known.
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
