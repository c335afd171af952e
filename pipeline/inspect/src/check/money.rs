//! Adds up the rows of a day's hours again, and compares the sums with `hours` and with each other.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use prorata_schemas::decimal::Decimal12;
use prorata_schemas::rows::CostBasis;
use prorata_schemas::tables::Table;
use prorata_schemas::time::{Hour, HourRange};
use prorata_worker::names::Shard;

use super::Checked;
use super::agreements::{COMMITMENT_COLUMNS, MatchedAgreements, RESERVATION_COLUMNS};
use super::files::Unpublished;
use super::finding::{Findings, Problem};
use crate::Sum;
use crate::columns::{self, ReadError, Rows};
use crate::lake::FoundFile;

const COST_COLUMNS: [&str; 18] = [
    "BillingAccountId",
    "BillingCurrency",
    "ChargePeriodStart",
    "BilledCost",
    "EffectiveCost",
    "CommitmentDiscountId",
    "x_RowKind",
    "x_CostBasis",
    "x_SplitCost",
    "x_UnusedCost",
    "x_CpuCost",
    "x_MemoryCost",
    "x_GpuCost",
    "x_Unpriced",
    "x_PodUid",
    "x_Namespace",
    "RegionId",
    "x_GpuModel",
];

/// The parts of `supply_cost`, by their names in `hours`.
const SUPPLY: [&str; 6] =
    ["node_cost", "serverless_cost", "reservation_unused_cost", "commitment_cost", "pool_cost", "bill_cost"];

/// The sums of a date.
#[derive(Default)]
pub struct Day {
    hours: BTreeMap<(String, Hour), OrganizationHour>,
    with_totals: BTreeSet<(Option<Shard>, Hour)>,
    /// Number of rows and the first pod, by reason.
    unpriced: BTreeMap<String, (u64, String)>,
}

/// One organization's hour.
#[derive(Default)]
struct OrganizationHour {
    currency: String,
    rows: i64,
    billed: Sum,
    effective: Sum,
    reservation_unused: Sum,
    /// The part of `reservation_unused` that is estimated, and that no savings plan pays.
    reservation_own: Sum,
    commitment_unused: Sum,
    /// Estimated cost of purchases.
    purchases: Sum,
    /// The rows that lines of bills decide.
    of_bills: BilledRows,
    /// Unused and used costs from `reservation_usage` and `commitment_utilization`, to compare with the rows.
    reservation_usage: Sum,
    used_in_utilization: Sum,
    unused_in_utilization: Sum,
    /// The first row that differs from the sum of its parts.
    uneven: Option<String>,
    totals: Option<Totals>,
    /// Number of rows in `hours`.
    totals_rows: u64,
}

/// The rows of an hour that lines of bills decide.
#[derive(Clone, Copy, Debug, Default)]
struct BilledRows {
    count: i64,
    billed: Sum,
    effective: Sum,
    /// Whether any of them names a commitment.
    has_commitment: bool,
    /// Whether any of them is of unused units of a reservation.
    has_reservation: bool,
}

/// One of the sums of an hour.
type HourSum = fn(&mut OrganizationHour) -> &mut Sum;

/// A row of `hours`.
#[derive(Clone, Copy, Default)]
struct Totals {
    parts: Sum,
    reservation_unused: Sum,
    commitment: Sum,
    bill: Sum,
    bill_billed: Sum,
    /// The basis; `None` if it is not one of this release.
    basis: Option<CostBasis>,
    supply: Sum,
    allocated: Sum,
    difference: Sum,
    rows: i64,
    complete: bool,
}

impl Day {
    /// Adds the rows of a file, and the matches of agreements in these hours.
    ///
    /// # Errors
    /// If the file cannot be read.
    pub fn add(
        &mut self,
        file: &FoundFile,
        bytes: Bytes,
        range: HourRange,
        agreements: &mut MatchedAgreements,
    ) -> Result<(), ReadError> {
        match file.table {
            Table::CostAllocation => {
                columns::read(bytes, &COST_COLUMNS, |rows| self.add_cost(rows, range, agreements))
            }
            Table::Hours => {
                let shard = file.shard();
                let mut wanted = vec!["organization_id", "hour", "supply_cost", "allocated_cost"];
                wanted.extend(["bill_billed_cost", "basis", "difference", "rows", "complete"]);
                wanted.extend(SUPPLY);
                columns::read(bytes, &wanted, |rows| self.add_totals(shard, rows))
            }
            Table::ReservationUsage => {
                let wanted = [&RESERVATION_COLUMNS[..], &["unused_cost"]].concat();
                columns::read(bytes, &wanted, |rows| {
                    agreements.add_reservations(rows, range)?;
                    self.add_usage(rows, &[("unused_cost", |hour| &mut hour.reservation_usage)])
                })
            }
            Table::CommitmentUtilization => {
                let wanted = [&COMMITMENT_COLUMNS[..], &["used_cost", "unused_cost"]].concat();
                let parts: [(_, HourSum); 2] = [
                    ("used_cost", |hour| &mut hour.used_in_utilization),
                    ("unused_cost", |hour| &mut hour.unused_in_utilization),
                ];
                columns::read(bytes, &wanted, |rows| {
                    agreements.add_commitments(rows, range)?;
                    self.add_usage(rows, &parts)
                })
            }
            // A lake's hourly tables do not include it; see `closed`.
            Table::ClosedAllocation => Ok(()),
            // Their amounts have other grains, so this only checks that they can be read.
            Table::QuotaUsage | Table::PoolUsage => {
                columns::read(bytes, &["organization_id", "hour"], |rows| {
                    rows.texts("organization_id").map(drop)
                })
            }
        }
    }

    fn hour(&mut self, organization: Option<&str>, hour: Option<Hour>) -> &mut OrganizationHour {
        let key = (organization.unwrap_or_default().to_owned(), hour.unwrap_or(Hour(0)));
        self.hours.entry(key).or_default()
    }

    fn add_cost(
        &mut self,
        rows: &Rows,
        range: HourRange,
        agreements: &mut MatchedAgreements,
    ) -> Result<(), ReadError> {
        let (organizations, hours) = (rows.texts("BillingAccountId")?, rows.hours("ChargePeriodStart")?);
        let (currencies, kinds) = (rows.texts("BillingCurrency")?, rows.texts("x_RowKind")?);
        let (billed, effective) = (rows.amounts("BilledCost")?, rows.amounts("EffectiveCost")?);
        let split = [rows.amounts("x_SplitCost")?, rows.amounts("x_UnusedCost")?];
        let resources =
            [rows.amounts("x_CpuCost")?, rows.amounts("x_MemoryCost")?, rows.amounts("x_GpuCost")?];
        let (unpriced, pods) = (rows.texts("x_Unpriced")?, rows.texts("x_PodUid")?);
        let (bases, commitments) = (rows.texts("x_CostBasis")?, rows.texts("CommitmentDiscountId")?);
        let namespaces = rows.texts("x_Namespace")?;
        let (regions, models) = (rows.texts("RegionId")?, rows.texts("x_GpuModel")?);
        for row in 0..rows.len() {
            let text =
                |column: &[Option<&str>]| column.get(row).copied().flatten().unwrap_or_default().to_owned();
            let cost = sum_of(&[&effective], row).unwrap_or_default();
            if let Some(reason) = unpriced.get(row).copied().flatten() {
                let reported = self.unpriced.entry(reason.to_owned()).or_default();
                reported.0 += 1;
                if reported.1.is_empty() {
                    reported.1 = format!("{}/{}", text(&namespaces), text(&pods));
                }
            }
            let kind = text(&kinds);
            let pod = text(&pods);
            let is_read = hours.get(row).copied().flatten().is_some_and(|hour| range.contains(hour));
            if kind == "pod_serverless" && is_read {
                agreements.add_pod(&text(&organizations), &text(&regions), &text(&models));
            }
            let entry =
                self.hour(organizations.get(row).copied().flatten(), hours.get(row).copied().flatten());
            let billed = sum_of(&[&billed], row).unwrap_or_default();
            entry.currency = text(&currencies);
            entry.add(&kind, billed, cost);
            if text(&bases) == CostBasis::Billed.name() {
                entry.of_bills.add(&kind, billed, cost, !text(&commitments).is_empty());
            } else {
                entry.add_estimate(&kind, billed);
            }
            let parts = [sum_of(&split.each_ref(), row), sum_of(&resources.each_ref(), row)];
            if entry.uneven.is_none() && parts.into_iter().flatten().any(|sum| sum != cost) {
                entry.uneven = Some(format!("{kind} of pod {pod}"));
            }
        }
        Ok(())
    }

    fn add_totals(&mut self, shard: Option<Shard>, rows: &Rows) -> Result<(), ReadError> {
        let (organizations, hours) = (rows.texts("organization_id")?, rows.hours("hour")?);
        let amounts = |name| rows.amounts(name);
        let (supply, allocated) = (amounts("supply_cost")?, amounts("allocated_cost")?);
        let (difference, counts) = (amounts("difference")?, rows.integers("rows")?);
        let (bill_billed, bases) = (amounts("bill_billed_cost")?, rows.texts("basis")?);
        let (reservation, commitment, bill) = (amounts(SUPPLY[2])?, amounts(SUPPLY[3])?, amounts(SUPPLY[5])?);
        let parts = SUPPLY.map(amounts).into_iter().collect::<Result<Vec<_>, _>>()?;
        let complete = rows.flags("complete")?;
        for row in 0..rows.len() {
            let hour = hours.get(row).copied().flatten();
            self.with_totals.extend(hour.map(|hour| (shard, hour)));
            let of = |column: &Vec<Option<Decimal12>>| sum_of(&[column], row).unwrap_or_default();
            let totals = Totals {
                parts: parts.iter().fold(Sum::default(), |sum, part| sum.plus(of(part))),
                reservation_unused: of(&reservation),
                commitment: of(&commitment),
                bill: of(&bill),
                bill_billed: of(&bill_billed),
                basis: bases.get(row).copied().flatten().and_then(basis),
                supply: of(&supply),
                allocated: of(&allocated),
                difference: of(&difference),
                rows: counts.get(row).copied().flatten().unwrap_or_default(),
                complete: complete.get(row).copied().flatten().unwrap_or_default(),
            };
            let entry = self.hour(organizations.get(row).copied().flatten(), hour);
            entry.totals = Some(totals);
            entry.totals_rows += 1;
        }
        Ok(())
    }

    fn add_usage(&mut self, rows: &Rows, parts: &[(&'static str, HourSum)]) -> Result<(), ReadError> {
        let (organizations, hours) = (rows.texts("organization_id")?, rows.hours("hour")?);
        for (part, of) in parts {
            let amounts = rows.amounts(part)?;
            for row in 0..rows.len() {
                let organization = organizations.get(row).copied().flatten();
                let entry = self.hour(organization, hours.get(row).copied().flatten());
                of(entry).add(sum_of(&[&amounts], row).unwrap_or_default());
            }
        }
        Ok(())
    }

    /// Returns the hours that have totals, by shard. The shard is `None` if the file's name does not contain
    /// it.
    pub fn with_totals(self) -> BTreeSet<(Option<Shard>, Hour)> {
        self.with_totals
    }

    /// Compares the sums, and reports the problems. An hour that waits to be published is counted, but not
    /// compared.
    pub fn finish(&self, range: HourRange, unpublished: &Unpublished, checked: &mut Checked) {
        let unpublished: BTreeSet<Hour> = unpublished.iter().map(|place| place.hour).collect();
        for ((organization, hour), entry) in self.hours.iter().filter(|((_, hour), _)| range.contains(*hour))
        {
            let place = format!("organization '{organization}', hour {hour}");
            checked.organization_hours += 1;
            checked.rows += entry.rows.unsigned_abs();
            checked.hours = Some(checked.hours.unwrap_or((*hour).into()).with(*hour));
            let waits = unpublished.contains(hour);
            let Some(totals) = &entry.totals else {
                if waits {
                    continue;
                }
                checked.findings.add(Problem::TotalsMissing, place, "it has rows of cost, but none in hours");
                continue;
            };
            // An hour without rows of cost has no currency; whether it should have rows is checked below.
            if entry.rows > 0 {
                let money = checked.money.entry(entry.currency.clone()).or_default();
                money.supply.add(totals.supply);
                money.allocated.add(entry.effective);
            }
            if !waits {
                entry.compare(totals, &place, &mut checked.findings);
            }
        }
        for (reason, (rows, first)) in &self.unpriced {
            let what = format!("{rows} rows have no price, or only in part; the first is of pod {first}");
            checked.findings.add_many(Problem::Unpriced, *rows, reason, what);
        }
    }
}

impl BilledRows {
    fn add(&mut self, kind: &str, billed: Sum, effective: Sum, has_commitment: bool) {
        self.count += 1;
        self.billed.add(billed);
        self.effective.add(effective);
        self.has_commitment |= has_commitment;
        self.has_reservation |= kind == "reservation_unused";
    }
}

impl OrganizationHour {
    fn add(&mut self, kind: &str, billed: Sum, effective: Sum) {
        self.rows += 1;
        self.billed.add(billed);
        self.effective.add(effective);
        match kind {
            "reservation_unused" => self.reservation_unused.add(effective),
            "commitment_unused" => self.commitment_unused.add(effective),
            _ => {}
        }
    }

    /// Adds what a row is billed by the prices of producers.
    fn add_estimate(&mut self, kind: &str, billed: Sum) {
        match kind {
            "reservation_unused" => self.reservation_own.add(billed),
            "commitment_purchase" => self.purchases.add(billed),
            _ => {}
        }
    }

    /// Returns the basis that the rows have together.
    const fn basis(&self) -> CostBasis {
        match (self.of_bills.count, self.rows - self.of_bills.count) {
            (0, _) => CostBasis::Estimated,
            (_, 0) => CostBasis::Billed,
            _ => CostBasis::Partial,
        }
    }

    fn compare(&self, totals: &Totals, place: &str, findings: &mut Findings) {
        let mut unbalanced = |what: String| findings.add(Problem::Unbalanced, place, what);
        let mut equal = |left: Sum, right: Sum, what: [&str; 2]| {
            if left != right || left.amount().is_none() {
                unbalanced(format!("{} is {left}, but {} is {right}", what[0], what[1]));
            }
        };
        equal(self.effective, totals.allocated, ["the sum of EffectiveCost", "hours.allocated_cost"]);
        let as_billed = totals.allocated.minus(totals.bill).plus(totals.bill_billed);
        let of_hours = "hours.allocated_cost - bill_cost + bill_billed_cost";
        equal(self.billed, as_billed, ["the sum of BilledCost", of_hours]);
        equal(totals.supply, totals.allocated, ["hours.supply_cost", "hours.allocated_cost"]);
        equal(totals.parts, totals.supply, ["the sum of the six costs of hours", "hours.supply_cost"]);
        equal(totals.difference, Sum::default(), ["hours.difference", "nothing"]);
        let of_bills = &self.of_bills;
        equal(of_bills.effective, totals.bill, ["EffectiveCost of billed rows", "hours.bill_cost"]);
        equal(of_bills.billed, totals.bill_billed, ["BilledCost of billed rows", "hours.bill_billed_cost"]);
        let reservations = "hours.reservation_unused_cost";
        let own = ["BilledCost of estimated rows of unused units", reservations];
        equal(self.reservation_own, totals.reservation_unused, own);
        let purchases = "hours.commitment_cost";
        equal(self.purchases, totals.commitment, ["the estimated cost of purchases", purchases]);
        // A bill may name agreements that are unknown, and these have no usage.
        if !of_bills.has_reservation {
            let usage = ["reservation_usage.unused_cost", "the cost of rows of unused units"];
            equal(self.reservation_usage, self.reservation_unused, usage);
        }
        if !of_bills.has_commitment {
            let usage = ["used and unused cost in commitment_utilization", purchases];
            equal(self.used_in_utilization.plus(self.unused_in_utilization), totals.commitment, usage);
            let usage = ["commitment_utilization.unused_cost", "the cost of rows of unused commitments"];
            equal(self.unused_in_utilization, self.commitment_unused, usage);
        }
        // A final basis says that bills are complete, not which rows they decide.
        if ![Some(self.basis()), Some(CostBasis::Final)].contains(&totals.basis) {
            let found = totals.basis.map_or("another text", CostBasis::name);
            unbalanced(format!("hours.basis is {found}, but its rows are {}", self.basis().name()));
        }
        if self.rows != totals.rows {
            unbalanced(format!("it has {} rows, but hours.rows is {}", self.rows, totals.rows));
        }
        if self.totals_rows != 1 {
            unbalanced(format!("it has {} rows in hours", self.totals_rows));
        }
        if let Some(row) = &self.uneven {
            unbalanced(format!("the parts of a row do not add up to its EffectiveCost: {row}"));
        }
        if !totals.complete {
            findings.add(Problem::Incomplete, place, "it is not complete");
        }
    }
}

/// Returns the basis with a name; `None` if no basis has it.
fn basis(name: &str) -> Option<CostBasis> {
    let all = [CostBasis::Estimated, CostBasis::Partial, CostBasis::Billed, CostBasis::Final];
    all.into_iter().find(|basis| basis.name() == name)
}

/// Returns the sum of columns in a row, or `None` if all of them are null.
fn sum_of(columns: &[&Vec<Option<Decimal12>>], row: usize) -> Option<Sum> {
    let amounts = columns.iter().filter_map(|column| column.get(row).copied().flatten());
    amounts.fold(None, |sum: Option<Sum>, amount| Some(sum.unwrap_or_default().plus(amount)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sum(text: &str) -> Sum {
        text.parse::<Decimal12>().unwrap().into()
    }

    /// Returns an hour with an estimated row that costs 2, and a credit of a bill: 1, billed as 1.5.
    fn hour() -> OrganizationHour {
        let mut hour = OrganizationHour { totals_rows: 1, ..OrganizationHour::default() };
        hour.add("pod_node", sum("2"), sum("2"));
        hour.add_estimate("pod_node", sum("2"));
        hour.add("shared_charge", sum("-1.5"), sum("-1"));
        hour.of_bills.add("shared_charge", sum("-1.5"), sum("-1"), false);
        hour
    }

    /// Returns the messages about the hour after a change of its totals.
    fn messages(change: fn(&mut Totals)) -> Vec<String> {
        let mut totals = Totals {
            parts: sum("1"),
            bill: sum("-1"),
            bill_billed: sum("-1.5"),
            basis: Some(CostBasis::Partial),
            supply: sum("1"),
            allocated: sum("1"),
            rows: 2,
            complete: true,
            ..Totals::default()
        };
        change(&mut totals);
        let mut findings = Findings::default();
        hour().compare(&totals, "here", &mut findings);
        findings.reported().into_iter().map(|finding| finding.what.clone()).collect()
    }

    #[test]
    fn rows_of_bills_add_up_on_their_own() {
        assert_eq!(messages(|_| {}), Vec::<String>::new());
        assert_eq!(
            messages(|totals| totals.bill_billed = sum("-2")),
            [
                "the sum of BilledCost is 0.5, but hours.allocated_cost - bill_cost + bill_billed_cost is 0",
                "BilledCost of billed rows is -1.5, but hours.bill_billed_cost is -2",
            ]
        );
        assert_eq!(
            messages(|totals| totals.basis = Some(CostBasis::Billed)),
            ["hours.basis is billed, but its rows are partial"]
        );
        assert_eq!(
            messages(|totals| totals.basis = basis("closed")),
            ["hours.basis is another text, but its rows are partial"]
        );
        assert_eq!(messages(|totals| totals.basis = basis("final")), Vec::<String>::new());
    }
}
