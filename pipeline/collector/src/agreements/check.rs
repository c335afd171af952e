//! Checks of entries against each other, and of events on their own.

use std::collections::BTreeMap;

use prorata_schemas::body;
use prorata_schemas::event::{Event, Payload};
use prorata_schemas::rules::Rules;
use prorata_schemas::rules::bounds::check_bounds;

use super::{AgreementsError, Version};

/// Rejects versions that end at or before their start, and versions of one object that overlap.
pub(super) fn versions(versions: &[Version]) -> Result<(), AgreementsError> {
    let mut by_key: BTreeMap<&str, Vec<&Version>> = BTreeMap::new();
    for version in versions {
        if let Some(to) = version.to.filter(|to| *to <= version.from) {
            return Err(AgreementsError::Reversed { place: version.place.clone(), from: version.from, to });
        }
        by_key.entry(&version.key).or_default().push(version);
    }
    for versions in by_key.values_mut() {
        versions.sort_by_key(|version| (version.from, version.place.number));
        for pair in versions.windows(2) {
            let [earlier, later] = pair else { continue };
            // A rate has no end: the next rate replaces it.
            let is_rate = matches!(earlier.set, Payload::RateSet(_));
            let ends = earlier.to.or_else(|| is_rate.then_some(later.from));
            if ends.is_none_or(|ends| ends > later.from) || earlier.from == later.from {
                return Err(AgreementsError::Overlap {
                    earlier: earlier.place.clone(),
                    later: later.place.clone(),
                    from: later.from,
                });
            }
        }
    }
    Ok(())
}

/// Rejects an event that a reader would reject.
pub(super) fn event(event: &Event) -> Result<(), String> {
    let decoded = body::decode(event.payload.kind(), &body::encode(event)).map(drop);
    let judged = decoded.and_then(|()| check_bounds(event, &Rules::default()));
    judged.map_err(|reject| reject.to_string())
}
