//! The order of events in an archive file: by organization, then kind, then body. So equal events make equal
//! files, and a reader of one organization can pass over the blocks of others.

use std::borrow::Borrow;
use std::cmp::Ordering;
use std::collections::BTreeMap;

use prorata_schemas::body;
use prorata_schemas::event::EventKind;

use crate::shard::fold::Body;

/// Which of two events stands first.
pub fn archive_order(a: &Body, b: &Body) -> Ordering {
    body::organization_of(&a.1).cmp(body::organization_of(&b.1)).then_with(|| a.cmp(b))
}

/// These events in the order of an archive file, which [`archive_order`] defines, each once.
pub fn in_archive_order<B: Borrow<Body> + Ord>(events: impl IntoIterator<Item = B>) -> Vec<B> {
    let mut organizations: BTreeMap<Box<[u8]>, Vec<(u128, B)>> = BTreeMap::new();
    for event in events {
        let (kind, body) = event.borrow();
        let (organization, behind) = body::split_organization(body);
        let first = first_bytes(*kind, behind);
        match organizations.get_mut(organization) {
            Some(of) => of.push((first, event)),
            None => {
                organizations.insert(organization.into(), vec![(first, event)]);
            }
        }
    }
    let mut sorted = Vec::with_capacity(organizations.values().map(Vec::len).sum());
    for mut events in organizations.into_values() {
        events.sort_unstable();
        sorted.extend(events.into_iter().map(|(_, event)| event));
    }
    sorted.dedup();
    sorted
}

/// The kind, and the first bytes of what is behind the organization: of one organization, they are in the
/// order of the archive, and nearly always decide it.
fn first_bytes(kind: EventKind, behind: &[u8]) -> u128 {
    let mut bytes = [0; 16];
    bytes[0] = kind as u8;
    let length = behind.len().min(15);
    bytes[1..=length].copy_from_slice(&behind[..length]);
    u128::from_be_bytes(bytes)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn bodies() -> impl Strategy<Value = Vec<Body>> {
        let organization = prop::sample::select(vec!["", "a", "acme", "acme-2", "b"]);
        let kind = prop::sample::select(EventKind::ALL.to_vec());
        // Few values and many lengths: bodies that are equal up to here or there.
        let behind = prop::collection::vec(prop::sample::select(vec![0_u8, 1, 255]), 0..20);
        let body = (organization, kind, behind).prop_map(|(organization, kind, behind)| {
            let mut body = Vec::new();
            body::wire::put_bytes(&mut body, organization.as_bytes());
            body.extend(behind);
            (kind, body.into_boxed_slice())
        });
        prop::collection::vec(body, 0..200)
    }

    proptest! {
        #[test]
        fn events_are_sorted_as_the_order_says_each_once(bodies in bodies()) {
            let mut expected: Vec<&Body> = bodies.iter().collect();
            expected.sort_by(|a, b| archive_order(a, b));
            expected.dedup();
            prop_assert_eq!(in_archive_order(&bodies), expected.clone());
            let owned: Vec<Body> = expected.into_iter().cloned().collect();
            prop_assert_eq!(in_archive_order(bodies), owned);
        }
    }
}
