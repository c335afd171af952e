//! The importer: it reads documents, chooses and checks their charges, and returns events.

use std::borrow::Cow;
use std::io::{self, Read, Seek, Write};

use parquet::file::reader::ChunkReader;
use prorata_schemas::Text;
use prorata_schemas::decimal::ONE;
use prorata_schemas::event::{Event, Payload, Recording};
use prorata_schemas::ids::OrganizationId;
use prorata_schemas::rules::Rules;
use prorata_schemas::rules::bounds::{BILL_COST_MAX, check_bounds};
use prorata_schemas::time::Timestamp;

use crate::decimal::Exact;
use crate::fault::{BillError, LineFault, Place};
use crate::filter::BillFilter;
use crate::formats::BillFormat;
use crate::gather::{Gather, charges_of};
use crate::line::{Charge, CostKind, Found, bounded};
use crate::read::{Source, read_document};
use crate::report::BillReport;
use crate::spill::{Costs, Dictionary, LineTexts, Record, Spill, StoredText};

/// What an import needs besides the documents.
#[derive(Clone, Debug)]
pub struct BillImport {
    /// The format of the documents.
    pub format: BillFormat,
    /// The organization that pays the bill.
    pub organization_id: OrganizationId,
    /// When the export was made.
    pub recorded_at: Timestamp,
    /// The choice of the charges.
    pub filter: BillFilter,
}

/// Imports the documents of one export of a bill.
pub struct BillImporter<F: Write> {
    import: BillImport,
    spill: Spill<F>,
    texts: Dictionary,
    report: BillReport,
    /// Names of the documents.
    files: Vec<String>,
    /// The first line, which decides the currency.
    first: Option<String>,
    /// The first line of each kind of costs of Azure.
    actual: Option<String>,
    amortized: Option<String>,
    /// Number of lines without a fault.
    good: u64,
    buffer: Vec<u8>,
}

/// The origin of a line.
#[derive(Clone, Copy)]
struct Origin<'n> {
    name: &'n str,
    file: u32,
    place: Place,
    is_previous: bool,
}

impl Origin<'_> {
    fn text(&self) -> String {
        format!("{} of '{}'", self.place, self.name)
    }
}

/// The reason for which a line was not taken.
enum NotTaken {
    /// A fault of the line. The others are imported.
    Fault(LineFault),
    /// An error that ends the import.
    Import(BillError),
}

impl From<LineFault> for NotTaken {
    fn from(fault: LineFault) -> Self {
        Self::Fault(fault)
    }
}

impl From<BillError> for NotTaken {
    fn from(error: BillError) -> Self {
        Self::Import(error)
    }
}

impl<F: Read + Write + Seek> BillImporter<F> {
    /// Creates an importer that keeps charges in these files until all are read. The files are empty; there
    /// are [`crate::PARTITIONS`].
    pub fn new(import: BillImport, files: Vec<F>) -> Self {
        Self {
            import,
            spill: Spill::new(files),
            texts: Dictionary::new(),
            report: BillReport::default(),
            files: Vec::new(),
            first: None,
            actual: None,
            amortized: None,
            good: 0,
            buffer: Vec::new(),
        }
    }

    /// Reads a document of the export. A line with a fault is left out, and counted in the report.
    ///
    /// # Errors
    /// If the document cannot be read to its end, or does not fit to the others.
    pub fn read<D: ChunkReader + 'static>(&mut self, name: &str, document: D) -> Result<(), BillError> {
        self.read_any(name, document, false)
    }

    /// Reads a document of the export that this one replaces. Its sets are retracted, unless this export has
    /// them.
    ///
    /// # Errors
    /// As for [`Self::read`].
    pub fn read_previous<D: ChunkReader + 'static>(
        &mut self,
        name: &str,
        document: D,
    ) -> Result<(), BillError> {
        self.read_any(name, document, true)
    }

    fn read_any<D: ChunkReader + 'static>(
        &mut self,
        name: &str,
        document: D,
        is_previous: bool,
    ) -> Result<(), BillError> {
        let file = u32::try_from(self.files.len()).unwrap_or(u32::MAX);
        self.files.push(name.to_owned());
        let format = self.import.format;
        let source = Source { name, columns: format.columns(), has_json: format.has_json() };
        let mut scratch = String::new();
        read_document(&source, document, &mut |place, row| {
            let origin = Origin { name, file, place, is_previous };
            *(if is_previous { &mut self.report.previous_lines } else { &mut self.report.lines }) += 1;
            let found = match row {
                Ok(row) => format.read(row, &mut scratch),
                Err(fault) => Err(fault),
            };
            match found.map_err(NotTaken::Fault).and_then(|found| self.take(found, origin)) {
                Ok(()) => self.good += 1,
                Err(NotTaken::Fault(fault)) => self.report.fault(name, place, fault),
                Err(NotTaken::Import(error)) => return Err(error),
            }
            Ok(())
        })
    }

    /// Takes all that was found in a line, or nothing of it.
    fn take(&mut self, found: Vec<Found<'_>>, origin: Origin<'_>) -> Result<(), NotTaken> {
        for found in &found {
            if let Found::Charge(charge) = found {
                check_costs([charge.billed, charge.effective, charge.list])?;
            }
        }
        for found in found {
            match found {
                Found::Charge(charge) => self.take_charge(*charge, origin)?,
                Found::LeftOut { reason, billed, effective } => {
                    self.leave_out(reason, billed, effective, origin);
                }
            }
        }
        Ok(())
    }

    fn take_charge(&mut self, mut charge: Charge<'_>, origin: Origin<'_>) -> Result<(), BillError> {
        self.check_currency(charge.currency, origin)?;
        self.check_kind(charge.cost_kind, origin)?;
        if let Some(reason) = self.import.filter.left_out(&charge) {
            self.leave_out(reason, charge.billed, charge.effective, origin);
            return Ok(());
        }
        if charge.span.is_too_long() {
            charge.span = charge.span.within(charge.billing_month);
            self.report.clipped += u64::from(!origin.is_previous);
        }
        if !charge.is_machine && !self.import.filter.has_key(&charge.resource_key) {
            (charge.hours, charge.list_unit_price) = (None, None);
        }
        self.store(&charge, origin)
    }

    fn store(&mut self, charge: &Charge<'_>, origin: Origin<'_>) -> Result<(), BillError> {
        let digest = charge.digest(&mut self.buffer);
        let (billed, effective) = self.round(charge.billed, charge.effective, origin);
        let ids = [charge.billing_account, charge.sku, charge.account, charge.invoice];
        let [billing_account, sku, account, invoice] = ids.map(|id| bounded(Cow::Borrowed(id)));
        let texts = LineTexts {
            provider: &*charge.provider,
            billing_account: &*billing_account,
            service: charge.service,
            sku: &*sku,
            description: charge.description,
            account: &*account,
            invoice: &*invoice,
            commitment: &*charge.commitment,
            reservation: &*charge.reservation,
        };
        let dictionary = &mut self.texts;
        let texts = texts.map(|text| match dictionary.id(text) {
            Some(id) => StoredText::Known(id),
            None => StoredText::Own(text),
        });
        let record = Record {
            resource_key: &charge.resource_key,
            texts,
            begin: charge.span.begin.0,
            hours: charge.span.hours(),
            category: charge.category,
            is_correction: charge.is_correction,
            commitment_status: charge.commitment_status,
            reservation_status: charge.reservation_status,
            list_unit_price: charge.list_unit_price.map(|price| price.round().atoms),
            costs: Costs {
                billed,
                effective,
                list: charge.list.round().atoms,
                hours: charge.hours.map(|hours| hours.round().atoms),
            },
            digest,
            has_provider_id: !charge.provider_line_id.is_empty(),
            is_previous: origin.is_previous,
            file: origin.file,
            place: origin.place,
        };
        self.spill.push(&record)?;
        Ok(())
    }

    /// Refuses a second currency: a bill in two currencies has no sum.
    fn check_currency(&mut self, currency: &str, origin: Origin<'_>) -> Result<(), BillError> {
        match &self.first {
            None => {
                self.first = Some(origin.text());
                self.report.currency = Text::from(currency);
            }
            Some(before) if *self.report.currency != *currency => {
                return Err(BillError::TwoCurrencies {
                    here: origin.text(),
                    currency: currency.to_owned(),
                    before: before.clone(),
                    currency_before: self.report.currency.to_string(),
                });
            }
            Some(_) => {}
        }
        Ok(())
    }

    /// Refuses actual and amortized costs of Azure together.
    fn check_kind(&mut self, kind: Option<CostKind>, origin: Origin<'_>) -> Result<(), BillError> {
        if origin.is_previous {
            return Ok(());
        }
        match kind {
            None => return Ok(()),
            Some(CostKind::Actual) => self.actual.get_or_insert_with(|| origin.text()),
            Some(CostKind::Amortized) => self.amortized.get_or_insert_with(|| origin.text()),
        };
        match (&self.actual, &self.amortized) {
            (Some(actual), Some(amortized)) => {
                Err(BillError::ActualAndAmortized { actual: actual.clone(), amortized: amortized.clone() })
            }
            _ => Ok(()),
        }
    }

    fn leave_out(&mut self, reason: &'static str, billed: Exact, effective: Exact, origin: Origin<'_>) {
        let (billed, effective) = self.round(billed, effective, origin);
        if !origin.is_previous {
            self.report.leave_out(reason, billed, effective);
        }
    }

    /// Rounds two costs, and adds to the report how much that added.
    fn round(&mut self, billed: Exact, effective: Exact, origin: Origin<'_>) -> (i128, i128) {
        let (billed, effective) = (billed.round(), effective.round());
        if !origin.is_previous {
            let rounding = &mut self.report.rounding;
            // Each line adds less than 10^-12, so a sum never gets too large.
            rounding.billed_cost = rounding.billed_cost.plus(billed.added).unwrap_or_default();
            rounding.effective_cost = rounding.effective_cost.plus(effective.added).unwrap_or_default();
        }
        (billed.atoms, effective.atoms)
    }

    /// Passes an event for each set to `each`, and returns the report.
    ///
    /// # Errors
    /// If no line could be read, if a set makes no valid event, or an error of `each`.
    pub fn finish(mut self, each: &mut dyn FnMut(Event) -> io::Result<()>) -> Result<BillReport, BillError> {
        if let (0, Some(first)) = (self.good, self.report.first_faults.first()) {
            let lines = self.report.lines + self.report.previous_lines;
            return Err(BillError::NothingRead { lines, first: first.clone() });
        }
        let (organization, recorded_at) = (&self.import.organization_id, self.import.recorded_at);
        let rules = Rules::default();
        let partitions = self.spill.finish()?;
        let mut gather = Gather { texts: &mut self.texts, report: &mut self.report, files: &self.files };
        for partition in partitions {
            gather.sets(partition, &mut |gathered| {
                let recording = Recording::new(Some(recorded_at), gathered.is_retraction);
                let charges = charges_of(&gathered.set.resource_key);
                let payload = Payload::BillSet(Box::new(gathered.set));
                let event = Event::new(organization.clone(), gathered.begin.start(), payload);
                let event = event.recorded(recording);
                check_bounds(&event, &rules).map_err(|reject| BillError::Rejected { charges, reject })?;
                Ok(each(event)?)
            })?;
        }
        Ok(self.report)
    }
}

/// Refuses costs that an event may not have.
fn check_costs(costs: [Exact; 3]) -> Result<(), LineFault> {
    let limit = i128::from(BILL_COST_MAX) * ONE;
    match costs.into_iter().find(|cost| cost.round().atoms.abs() > limit) {
        None => Ok(()),
        Some(cost) => {
            let message = format!("a cost of {cost} is above the limit of {BILL_COST_MAX}; correct the line");
            Err(LineFault::of_line(message))
        }
    }
}
