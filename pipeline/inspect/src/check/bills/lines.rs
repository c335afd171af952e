//! The lines of a bill with the rows that were found for them, and their comparison.

use std::collections::{BTreeMap, BTreeSet};

use prorata_schemas::Text;
use prorata_schemas::time::{Hour, HourRange, Timestamp};

use super::{BillChecked, BillSums, ExpectedLine};
use crate::Sum;
use crate::check::finding::{Findings, Problem, REPORTED_MAX};

/// A billed row of a file.
pub struct LineRow<'a> {
    /// The canonical name of the provider.
    pub provider: &'a str,
    /// The resource in the bill; empty if there is none, or several.
    pub key: &'a str,
    /// The line; `None` if the row joins several lines.
    pub line: Option<&'a str>,
    /// The invoice; `None` if there is none, or several.
    pub invoice: Option<&'a str>,
    /// The hour.
    pub hour: Hour,
    /// The costs of the row.
    pub costs: BillSums,
}

/// A provider, and an invoice if there is one.
type Invoice = (Text, Option<Text>);

/// A bill, with the rows that were found for it so far.
#[derive(Default)]
pub struct ExpectedBill {
    keys: BTreeMap<Text, ExpectedKey>,
    /// Rows that join lines, and name neither a line nor a resource. The lines of such a row have one
    /// provider and one invoice.
    mixed: BTreeMap<Invoice, BTreeMap<Hour, RowGroup>>,
    invoices: BTreeSet<Text>,
    hours: Option<HourRange>,
    rows: u64,
    /// Rows that the bill lacks, although it has their resource or their invoice.
    lacking: UnexpectedRows,
    /// Rows of other bills.
    other: UnexpectedRows,
}

/// The lines of one resource, and rows that join lines.
#[derive(Default)]
struct ExpectedKey {
    /// The lines, by id and start.
    lines: Vec<WantedLine>,
    joined: BTreeMap<Hour, RowGroup>,
}

/// A line, with the rows that name it.
struct WantedLine {
    line_id: Text,
    provider: Text,
    invoice: Option<Text>,
    hours: HourRange,
    expected: BillSums,
    found: BillSums,
    is_seen: bool,
    /// Whether a line of the resource with the same id has an hour in common, as in the bills of two
    /// accounts. No row distinguishes such lines.
    is_shared: bool,
}

/// Rows that are reported together.
#[derive(Default)]
struct RowGroup {
    rows: u64,
    first: Option<Hour>,
    invoice: Option<Text>,
    costs: BillSums,
}

/// Rows without a line in the bill, by resource and line. The first groups are kept, and all others are one
/// group.
#[derive(Default)]
struct UnexpectedRows {
    groups: BTreeMap<(Text, Option<Text>), RowGroup>,
    others: RowGroup,
    by_invoice: BTreeMap<Option<Text>, BillSums>,
}

impl ExpectedBill {
    /// Collects the lines of a bill.
    pub fn new(lines: impl IntoIterator<Item = ExpectedLine>) -> Self {
        let mut bill = Self::default();
        lines.into_iter().for_each(|line| bill.expect(line));
        bill.keys.values_mut().for_each(ExpectedKey::sort);
        bill
    }

    /// Returns the hours from the first to the last hour of the lines; `None` without lines.
    pub const fn hours(&self) -> Option<HourRange> {
        self.hours
    }

    fn expect(&mut self, line: ExpectedLine) {
        let ExpectedLine { provider, resource_key, line_id, invoice_id, begin, end, billed, effective } =
            line;
        let first = begin.hour();
        let hours = HourRange::new(first, Timestamp(end.0.saturating_sub(1)).hour().max(first));
        self.hours = Some(self.hours.map_or(hours, |all| all.with(hours.first).with(hours.last)));
        let invoice = invoice_id.map(|id| self.shared_invoice(id));
        self.keys.entry(resource_key).or_default().lines.push(WantedLine {
            line_id,
            provider,
            invoice,
            hours,
            expected: BillSums { billed: Sum::from(billed), effective: Sum::from(effective) },
            found: BillSums::default(),
            is_seen: false,
            is_shared: false,
        });
    }

    /// Returns the stored text of an invoice. Many lines share one text.
    fn shared_invoice(&mut self, id: Text) -> Text {
        if let Some(known) = self.invoices.get(&id) {
            return known.clone();
        }
        self.invoices.insert(id.clone());
        id
    }

    /// Adds a row of the tables.
    pub fn add(&mut self, row: &LineRow<'_>) {
        self.rows += 1;
        if row.line.is_none() && row.key.is_empty() {
            let invoice = (Text::from(row.provider), row.invoice.map(Text::from));
            return join(self.mixed.entry(invoice).or_default(), row);
        }
        let key = self.keys.get_mut(row.key);
        let is_known = key.is_some();
        if !key.is_some_and(|key| key.add(row)) {
            self.add_unexpected(row.key, row.line, RowGroup::of(row), is_known);
        }
    }

    fn add_unexpected(&mut self, key: &str, line: Option<&str>, group: RowGroup, is_known: bool) {
        let has_invoice = group.invoice.as_ref().is_some_and(|id| self.invoices.contains(id));
        // Charges of no resource share one key, so it does not say whose bill has them.
        let is_of_bill = has_invoice || (is_known && !key.is_empty());
        let rows = if is_of_bill { &mut self.lacking } else { &mut self.other };
        rows.add(key, line, group);
    }

    /// Compares the lines with their rows. Lines that end after the last closed hour are not compared.
    ///
    /// Lines that differ from the rows of their own may have parts in mixed rows. Such lines are compared
    /// with the mixed rows of their invoice and their time, in sum.
    pub fn compare(mut self, through: Option<Hour>, findings: Findings) -> BillChecked {
        let mut checked = BillChecked { through, rows: self.rows, findings, ..BillChecked::default() };
        let mixed = std::mem::take(&mut self.mixed);
        let mut left: BTreeMap<Invoice, Vec<LineUnit>> = BTreeMap::new();
        for (key, lines) in std::mem::take(&mut self.keys) {
            let (units, unexpected) = lines.units(&key);
            for unit in units {
                let invoice = unit.invoice();
                let may_be_mixed = mixed.get(&invoice).is_some_and(|rows| unit.is_joined(rows));
                if may_be_mixed && !unit.is_settled(through) {
                    left.entry(invoice).or_default().push(unit);
                } else {
                    unit.compare(&mut checked);
                }
            }
            for group in unexpected {
                self.add_unexpected(&key, None, group, true);
            }
        }
        for (invoice, rows) in mixed {
            let (units, unexpected) = unite(left.remove(&invoice).unwrap_or_default(), rows);
            units.into_iter().for_each(|unit| unit.compare(&mut checked));
            for group in unexpected {
                self.add_unexpected("", None, group, false);
            }
        }
        for (invoice, costs) in &self.lacking.by_invoice {
            checked.invoices.entry(invoice.clone()).or_default().rows.add(*costs);
        }
        self.lacking.report(Problem::NotInBill, &mut checked.findings);
        self.other.report(Problem::OtherBill, &mut checked.findings);
        checked
    }
}

impl ExpectedKey {
    /// Sorts the lines by id and start, and marks lines that no row distinguishes.
    fn sort(&mut self) {
        self.lines.sort_by(|a, b| (&a.line_id, a.hours.first).cmp(&(&b.line_id, b.hours.first)));
        let mut longest: Option<&mut WantedLine> = None;
        for line in &mut self.lines {
            longest = match longest.take() {
                Some(before) if before.line_id == line.line_id => {
                    if line.hours.first <= before.hours.last {
                        (before.is_shared, line.is_shared) = (true, true);
                    }
                    Some(if before.hours.last > line.hours.last { before } else { line })
                }
                _ => Some(line),
            };
        }
    }

    /// Adds a row. Returns whether a line may have it.
    fn add(&mut self, row: &LineRow<'_>) -> bool {
        let Some(id) = row.line else {
            join(&mut self.joined, row);
            return true;
        };
        let after = self.lines.partition_point(|line| (&*line.line_id, line.hours.first) <= (id, row.hour));
        let before = self.lines.get_mut(..after).and_then(|lines| lines.last_mut());
        match before.filter(|line| *line.line_id == *id) {
            Some(line) if line.is_shared => join(&mut self.joined, row),
            Some(line) if line.hours.contains(row.hour) => {
                line.found.add(row.costs);
                line.is_seen = true;
            }
            _ => return false,
        }
        true
    }

    /// Returns the lines with their rows, and the joined rows that belong to none of them.
    fn units(self, key: &Text) -> (Vec<LineUnit>, Vec<RowGroup>) {
        unite(self.lines.into_iter().map(|line| LineUnit::of(key, line)).collect(), self.joined)
    }
}

/// Gives each joined row to the units of its hour. Units with such a row that overlap become one unit.
/// Returns all units, and the rows that belong to none of them.
fn unite(units: Vec<LineUnit>, joined: BTreeMap<Hour, RowGroup>) -> (Vec<LineUnit>, Vec<RowGroup>) {
    let (mut together, mut all): (Vec<_>, Vec<_>) =
        units.into_iter().partition(|unit| unit.is_joined(&joined));
    together.sort_by_key(|unit| unit.hours.first);
    let mut united: Vec<LineUnit> = Vec::new();
    for unit in together {
        match united.last_mut().filter(|last| unit.hours.first <= last.hours.last) {
            Some(last) => last.join(unit),
            None => united.push(unit),
        }
    }
    let mut unexpected = Vec::new();
    for (hour, group) in joined {
        let at = united.partition_point(|unit| unit.hours.last < hour);
        match united.get_mut(at).filter(|unit| unit.hours.contains(hour)) {
            Some(unit) => unit.joined.add(group.costs),
            None => unexpected.push(group),
        }
    }
    all.append(&mut united);
    (all, unexpected)
}

/// Adds a row that may belong to any line of its resource.
fn join(joined: &mut BTreeMap<Hour, RowGroup>, row: &LineRow<'_>) {
    joined.entry(row.hour).or_default().add(RowGroup::of(row));
}

impl RowGroup {
    fn of(row: &LineRow<'_>) -> Self {
        Self { rows: 1, first: Some(row.hour), invoice: row.invoice.map(Text::from), costs: row.costs }
    }

    fn add(&mut self, other: Self) {
        self.rows += other.rows;
        self.first = self.first.into_iter().chain(other.first).min();
        self.invoice = self.invoice.take().or(other.invoice);
        self.costs.add(other.costs);
    }
}

impl UnexpectedRows {
    fn add(&mut self, key: &str, line: Option<&str>, group: RowGroup) {
        self.by_invoice.entry(group.invoice.clone()).or_default().add(group.costs);
        let place = (Text::from(key), line.map(Text::from));
        if self.groups.len() < REPORTED_MAX || self.groups.contains_key(&place) {
            self.groups.entry(place).or_default().add(group);
        } else {
            self.others.add(group);
        }
    }

    fn report(self, problem: Problem, findings: &mut Findings) {
        let places = self.groups.into_iter().map(|((key, line), group)| {
            let line = line.map_or("several lines".to_owned(), |id| format!("line '{id}'"));
            (format!("{line} {}", of_resource(&key)), group)
        });
        let others = (self.others.rows > 0).then(|| ("other lines".to_owned(), self.others));
        for (place, RowGroup { rows, first, costs, .. }) in places.chain(others) {
            let first = first.map_or(String::new(), |hour| format!(" from hour {hour}"));
            let BillSums { billed, effective } = costs;
            let what = format!("{rows} rows{first} have billed cost {billed} and effective cost {effective}");
            findings.add_many(problem, rows, place, what);
        }
    }
}

/// Lines that are compared together: one line, or all lines of a time in which rows join lines.
struct LineUnit {
    /// The resource; `None` if the lines are of several.
    key: Option<Text>,
    hours: HourRange,
    lines: Vec<WantedLine>,
    joined: BillSums,
}

impl LineUnit {
    fn of(key: &Text, line: WantedLine) -> Self {
        Self { key: Some(key.clone()), hours: line.hours, lines: vec![line], joined: BillSums::default() }
    }

    fn join(&mut self, other: Self) {
        let Self { key, hours, lines, joined } = other;
        if self.key != key {
            self.key = None;
        }
        self.hours = self.hours.with(hours.last);
        self.lines.extend(lines);
        self.joined.add(joined);
    }

    /// Returns the provider and the invoice of the first line.
    fn invoice(&self) -> Invoice {
        let first = self.lines.first();
        let provider = first.map(|line| line.provider.clone()).unwrap_or_default();
        (provider, first.and_then(|line| line.invoice.clone()))
    }

    /// Returns whether any of these rows is in an hour of the lines.
    fn is_joined(&self, rows: &BTreeMap<Hour, RowGroup>) -> bool {
        rows.range(self.hours.first..=self.hours.last).next().is_some()
    }

    /// Returns whether the lines end after the last closed hour.
    fn waits(&self, through: Option<Hour>) -> bool {
        through.is_none_or(|through| through < self.hours.last)
    }

    /// Returns the costs of the lines, and of their rows.
    fn costs(&self) -> [BillSums; 2] {
        let (mut expected, mut found) = (BillSums::default(), self.joined);
        for line in &self.lines {
            expected.add(line.expected);
            found.add(line.found);
        }
        [expected, found]
    }

    /// Returns whether the lines are over, and their rows have exactly their costs.
    fn is_settled(&self, through: Option<Hour>) -> bool {
        let [expected, found] = self.costs();
        !self.waits(through) && found.minus(expected).is_zero()
    }

    fn compare(self, checked: &mut BillChecked) {
        let [expected, found] = self.costs();
        let count = self.lines.len() as u64;
        if self.waits(checked.through) {
            checked.waiting.0 += count;
            checked.waiting.1.add(expected);
            return;
        }
        checked.lines += count;
        for line in &self.lines {
            let sums = checked.invoices.entry(line.invoice.clone()).or_default();
            sums.bill.add(line.expected);
            sums.rows.add(line.expected);
        }
        let difference = found.minus(expected);
        if difference.is_zero() {
            return;
        }
        let first = self.lines.first().and_then(|line| line.invoice.clone());
        checked.invoices.entry(first).or_default().rows.add(difference);
        self.report(expected, found, &mut checked.findings);
    }

    fn report(&self, expected: BillSums, found: BillSums, findings: &mut Findings) {
        let lines = match &*self.lines {
            [only] => format!("line '{}'", only.line_id),
            lines => format!("{} lines", lines.len()),
        };
        let HourRange { first, last } = self.hours;
        let resource = self.key.as_deref().map_or("of several resources".to_owned(), of_resource);
        let place = format!("{lines} {resource}, hours {first} to {last}");
        let BillSums { billed, effective } = expected;
        let is_seen = self.lines.iter().any(|line| line.is_seen) || self.joined != BillSums::default();
        if is_seen {
            let difference = found.minus(expected);
            let what = format!(
                "billed cost is {billed} in the bill, and {} in the rows: difference {}; effective cost is \
                 {effective} and {}: difference {}",
                found.billed, difference.billed, found.effective, difference.effective
            );
            findings.add(Problem::BillDiffers, place, what);
        } else {
            let what = format!("no row has its billed cost of {billed} and effective cost of {effective}");
            findings.add(Problem::BillLineMissing, place, what);
        }
    }
}

/// Describes a resource of a bill.
fn of_resource(key: &str) -> String {
    if key.is_empty() { "of no resource".to_owned() } else { format!("of '{key}'") }
}

#[cfg(test)]
mod tests;
