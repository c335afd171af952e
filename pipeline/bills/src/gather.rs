//! Groups the charges of a partition into sets. Equal lines of a set become one.

mod limit;

use std::io::{self, Read};

use prorata_schemas::Text;
use prorata_schemas::event::{BillLine, BillSet, UseStatus};
use prorata_schemas::money::{Amount, Money, UnitPrice};
use prorata_schemas::time::Hour;

use crate::fault::BillError;
use crate::line::hex;
use crate::report::BillReport;
use crate::spill::{Dictionary, EMPTY, Entry, Record, StoredText, TextId, read_records};

/// Number of charges in memory above which equal lines are merged before all are read.
const ENTRIES_MIN: usize = 1 << 18;

/// Reason for a line with an id that an equal line has.
const TWICE: &str = "a line that the files have twice, by the id of the provider";

/// Reason for a line with an id that another line has, with other amounts.
const CONTRADICTED: &str = "a line with the id of an earlier line and other amounts";

/// A set of a bill.
pub struct GatheredSet {
    /// The hour at which the charge periods begin.
    pub begin: Hour,
    /// The set.
    pub set: BillSet,
    /// Whether the set was only in the export that this one replaces.
    pub is_retraction: bool,
}

/// What partitions have in common.
pub struct Gather<'g> {
    /// Texts of the charges.
    pub texts: &'g mut Dictionary,
    /// The report to complete.
    pub report: &'g mut BillReport,
    /// Names of the documents.
    pub files: &'g [String],
}

impl Gather<'_> {
    /// Passes the sets of a partition to `each`.
    ///
    /// # Errors
    /// If the partition cannot be read, if a set is too large, or an error of `each`.
    pub fn sets(
        &mut self,
        partition: impl Read,
        each: &mut dyn FnMut(GatheredSet) -> Result<(), BillError>,
    ) -> Result<(), BillError> {
        let known = self.texts.len();
        let (mut entries, mut limit) = (Vec::new(), ENTRIES_MIN);
        read_records(partition, |record| {
            entries.push(self.entry(&record)?);
            if entries.len() >= limit {
                self.merge(&mut entries);
                limit = ENTRIES_MIN.max(entries.len() * 2);
            }
            Ok(())
        })?;
        self.merge(&mut entries);
        for lines in entries.chunk_by(|one, other| one.set_key() == other.set_key()) {
            if let Some(set) = self.set(lines)? {
                each(set)?;
            }
        }
        self.texts.truncate(known);
        Ok(())
    }

    fn entry(&mut self, record: &Record<'_>) -> io::Result<Entry> {
        let mut is_full = false;
        let mut id = |text| {
            let id = match text {
                StoredText::Known(id) => Some(id),
                StoredText::Own(text) => self.texts.id_of_any(text),
            };
            is_full |= id.is_none();
            id.unwrap_or(EMPTY)
        };
        let texts = record.texts.map(&mut id);
        let resource_key = id(StoredText::Own(record.resource_key));
        if is_full {
            return Err(io::Error::other("the bill has more than four billion texts"));
        }
        Ok(Entry {
            resource_key,
            texts,
            begin: record.begin,
            hours: record.hours,
            category: record.category,
            is_correction: record.is_correction,
            commitment_status: record.commitment_status,
            reservation_status: record.reservation_status,
            list_unit_price: record.list_unit_price,
            costs: record.costs,
            digest: record.digest,
            has_provider_id: record.has_provider_id,
            is_previous: record.is_previous,
            file: record.file,
            place: record.place,
        })
    }

    /// Sorts lines by set, and merges equal lines of a set. Of a set of the earlier export, one line stays:
    /// a retraction needs no more.
    fn merge(&mut self, entries: &mut Vec<Entry>) {
        entries.sort_unstable_by_key(|entry| {
            (entry.set_key(), entry.is_previous, entry.digest, entry.file, entry.place)
        });
        entries.dedup_by(|later, first| {
            if (later.set_key(), later.is_previous) != (first.set_key(), first.is_previous) {
                return false;
            }
            if !later.is_previous && later.digest == first.digest {
                self.join(first, later);
                return true;
            }
            later.is_previous
        });
    }

    /// Adds a line to an equal one. Lines that have an id of the provider are the same line instead.
    fn join(&mut self, first: &mut Entry, later: &Entry) {
        let Entry { costs, .. } = *later;
        if !first.has_provider_id {
            first.costs = first.costs.plus(costs);
            self.report.merged += 1;
        } else if first.costs == costs {
            self.report.leave_out(TWICE, costs.billed, costs.effective);
        } else {
            let files = self.files;
            let name = |file: u32| {
                let file = usize::try_from(file).ok().and_then(|index| files.get(index));
                file.map_or("", String::as_str)
            };
            let fault = format!(
                "it has the id of {} in '{}', but other amounts; import one export of the period only",
                first.place,
                name(first.file)
            );
            self.report.fault(name(later.file), later.place, fault);
            self.report.leave_out(CONTRADICTED, costs.billed, costs.effective);
        }
    }

    /// Returns the set of these lines; `None` without lines.
    fn set(&mut self, lines: &[Entry]) -> Result<Option<GatheredSet>, BillError> {
        let Some(first) = lines.first() else { return Ok(None) };
        let is_retraction = first.is_previous;
        let current = lines.iter().filter(|line| line.is_previous == is_retraction).copied().collect();
        let lines = self.limited(current)?;
        if is_retraction {
            self.report.retractions += 1;
        } else {
            self.count(&lines);
        }
        let set = BillSet {
            provider: self.texts.text(first.texts.provider),
            billing_account_id: self.texts.text(first.texts.billing_account),
            resource_key: self.texts.text(first.resource_key),
            currency: self.report.currency.clone(),
            lines: lines.iter().map(|line| self.line(line)).collect(),
        };
        Ok(Some(GatheredSet { begin: Hour(first.begin), set, is_retraction }))
    }

    fn count(&mut self, lines: &[Entry]) {
        self.report.sets += 1;
        self.report.set_lines += u64::try_from(lines.len()).unwrap_or(u64::MAX);
        for line in lines {
            let invoice = self.texts.text(line.texts.invoice);
            self.report.invoices.entry(invoice).or_default().add(line.costs.billed, line.costs.effective);
        }
    }

    fn line(&self, line: &Entry) -> BillLine {
        let filled = |id: TextId| Some(self.texts.text(id)).filter(|text| !text.is_empty());
        let texts = &line.texts;
        let (commitment, reservation) = (filled(texts.commitment), filled(texts.reservation));
        let status = line.reservation_status.unwrap_or(UseStatus::Used);
        BillLine {
            line_id: hex(&line.digest).into(),
            period_end: Hour(line.begin + line.hours).start(),
            category: line.category,
            is_correction: line.is_correction,
            service: self.texts.text(texts.service),
            sku_id: filled(texts.sku),
            description: filled(texts.description),
            account_id: filled(texts.account),
            invoice_id: filled(texts.invoice),
            commitment_status: line.commitment_status.filter(|_| commitment.is_some()),
            commitment_id: commitment.map(Into::into),
            reservation_status: reservation.as_ref().map(|_| status),
            reservation_id: reservation.map(Into::into),
            // Only sums of lines may be too large. The check of the event then refuses the largest number.
            hours: line.costs.hours.map(|atoms| Amount::from_atoms(atoms).unwrap_or(Amount::MAX)),
            list_unit_price: line
                .list_unit_price
                .map(|atoms| UnitPrice::from_atoms(atoms).unwrap_or(UnitPrice::MAX)),
            billed_cost: money(line.costs.billed),
            effective_cost: money(line.costs.effective),
            list_cost: money(line.costs.list),
        }
    }
}

fn money(atoms: i128) -> Money {
    Money::from_atoms(atoms).unwrap_or(Money::MAX)
}

/// Names the charges of a set, for messages.
pub fn charges_of(resource_key: &Text) -> String {
    match &**resource_key {
        "" => "the charges of no resource".to_owned(),
        key => format!("the charges of '{key}'"),
    }
}
