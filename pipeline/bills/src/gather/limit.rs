//! The limits of a set: similar lines of a set that is too large become one.

use prorata_schemas::rules::bounds::LIST_MAX;
use prorata_schemas::time::Hour;

use super::{Gather, charges_of};
use crate::fault::BillError;
use crate::line::digest_of;
use crate::spill::{EMPTY, Entry};

/// Largest size of an encoded set, in bytes. Kafka's client library refuses a message of more than 1,000,000
/// bytes by default, and a message also has a key, headers and the id of a schema.
const SET_BYTES_MAX: usize = 900_000;

/// Largest size of an encoded set without its lines: five texts of at most 1,024 bytes each, and four
/// numbers.
const HEAD_BYTES_MAX: usize = 6 << 10;

/// Largest size of an encoded line without the texts of the bill: 33 bytes of its id, 67 of decimals, and 35
/// of other values and of lengths.
const LINE_BYTES_MAX: usize = 135;

/// What similar lines of a set that is too large may differ in.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Similar {
    /// The description, and whatever an event does not have.
    Description,
    /// The SKU, too.
    Sku,
    /// The account, too.
    Account,
}

impl Gather<'_> {
    /// Returns the lines of a set, of which similar ones are merged if the set is too large.
    ///
    /// # Errors
    /// If the set is still too large.
    pub(super) fn limited(&mut self, mut lines: Vec<Entry>) -> Result<Vec<Entry>, BillError> {
        for similar in [Similar::Description, Similar::Sku, Similar::Account] {
            if self.fit(&lines) {
                return Ok(lines);
            }
            let before = lines.len();
            lines.iter_mut().for_each(|line| self.simplify(line, similar));
            lines.sort_unstable_by_key(|line| (line.digest, line.file, line.place));
            lines.dedup_by(|later, first| {
                let is_equal = later.digest == first.digest;
                if is_equal {
                    first.costs = first.costs.plus(later.costs);
                }
                is_equal
            });
            self.report.merged_similar += u64::try_from(before - lines.len()).unwrap_or(u64::MAX);
        }
        match lines.first() {
            Some(first) if !self.fit(&lines) => Err(BillError::TooManyLines {
                charges: charges_of(&self.texts.text(first.resource_key)),
                from: Hour(first.begin).to_string(),
                lines: lines.len(),
                lines_max: LIST_MAX,
                bytes_max: SET_BYTES_MAX,
            }),
            _ => Ok(lines),
        }
    }

    /// Returns whether these lines fit into one event.
    fn fit(&self, lines: &[Entry]) -> bool {
        let bytes: usize = lines.iter().map(|line| self.bytes_max(line)).sum();
        lines.len() <= LIST_MAX && HEAD_BYTES_MAX + bytes <= SET_BYTES_MAX
    }

    /// Returns a number of bytes that an encoded line does not exceed.
    fn bytes_max(&self, line: &Entry) -> usize {
        let texts = &line.texts;
        let ids = [
            texts.service,
            texts.sku,
            texts.description,
            texts.account,
            texts.invoice,
            texts.commitment,
            texts.reservation,
        ];
        LINE_BYTES_MAX + ids.into_iter().map(|id| self.texts.bytes_of(id)).sum::<usize>()
    }

    /// Removes from a line what similar lines may differ in.
    fn simplify(&self, line: &mut Entry, similar: Similar) {
        let texts = &mut line.texts;
        texts.description = EMPTY;
        if similar >= Similar::Sku {
            texts.sku = EMPTY;
        }
        if similar >= Similar::Account {
            texts.account = EMPTY;
        }
        let ids =
            [texts.service, texts.sku, texts.account, texts.invoice, texts.commitment, texts.reservation];
        let names = ids.map(|id| self.texts.text(id));
        let numbers = [
            line.begin,
            line.hours,
            line.category as i64,
            i64::from(line.is_correction),
            line.commitment_status.map_or(-1, |status| status as i64),
            line.reservation_status.map_or(-1, |status| status as i64),
        ];
        let texts = names.iter().map(|name| &**name);
        line.digest = digest_of(texts, &numbers, line.list_unit_price, &mut Vec::new());
    }
}
