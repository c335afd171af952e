//! Laws of bills on random histories: every line is in the hours to the last decimal, only the bill recorded
//! last counts, and what a line bills is not estimated too.

use std::collections::BTreeMap;

use prorata_reference::bills;
use prorata_reference::scenario::{Scenario, scenario};
use prorata_reference::text::ORGANIZATION;
use prorata_schemas::decimal::Decimal12;
use prorata_schemas::event::{Event, EventRecord, Payload};
use prorata_schemas::rows::{CostBasis, CostRow, HourTables, RowKind};
use prorata_schemas::time::{HOUR_MICROS, Hour};

use super::common::engine_tables;
use super::laws::for_all;

/// The length in hours of the longest lines whose end a test waits for.
const HOURS_MAX: i64 = 100;

/// Returns the engine's hours through the end of the last line; `None` if there is no line, or a long one.
fn through_last_line(scenario: &Scenario) -> Result<Option<Vec<HourTables>>, String> {
    let mut last: Option<i64> = None;
    for (begin, set) in bills(&scenario.records) {
        for line in &set.lines {
            if line.period_end.0 - begin.0 > HOURS_MAX * HOUR_MICROS {
                return Ok(None);
            }
            last = last.max(Some(line.period_end.hour().0 - 1));
        }
    }
    let Some(last) = last else { return Ok(None) };
    let through = Hour(last).max(scenario.through);
    engine_tables(&scenario.records, &scenario.rules, through).map(Some)
}

/// Returns the sum of a column over billed rows.
fn billed(hours: &[HourTables], column: fn(&CostRow) -> Decimal12) -> i128 {
    let rows = hours.iter().flat_map(|hour| &hour.cost_allocation);
    rows.filter(|row| !row.lines.is_empty()).map(|row| column(row).atoms()).sum()
}

#[test]
fn billed_rows_cost_what_the_lines_say() {
    for_all(400, |scenario| {
        let Some(hours) = through_last_line(scenario)? else { return Ok(()) };
        let mut lines = [0; 3];
        for line in bills(&scenario.records).iter().flat_map(|(_, set)| &set.lines) {
            lines[0] += line.effective_cost.atoms();
            lines[1] += line.billed_cost.atoms();
            lines[2] += line.list_cost.atoms();
        }
        let columns: [fn(&CostRow) -> Decimal12; 3] =
            [|row| row.effective_cost, |row| row.billed_cost, |row| row.list_cost];
        let rows = columns.map(|column| billed(&hours, column));
        let totals = [
            hours.iter().map(|hour| hour.totals.bill_cost.atoms()).sum::<i128>(),
            hours.iter().map(|hour| hour.totals.bill_billed_cost.atoms()).sum(),
        ];
        if rows == lines && totals[..] == lines[..2] {
            return Ok(());
        }
        Err(format!("the lines cost {lines:?}, their rows {rows:?}, their hours {totals:?}"))
    });
}

/// Returns the rows of each hour that has any.
fn rows(records: &[EventRecord], scenario: &Scenario) -> Result<BTreeMap<Hour, Vec<CostRow>>, String> {
    let hours = engine_tables(records, &scenario.rules, scenario.through)?.into_iter();
    let with_rows = hours.filter(|hour| !hour.cost_allocation.is_empty());
    let rows = |hour: HourTables| hour.cost_allocation.into_iter().map(|row| *row).collect();
    Ok(with_rows.map(|hour| (hour.hour, rows(hour))).collect())
}

/// A history has the rows of a history without the bills that others replace or retract.
#[test]
fn only_the_bill_recorded_last_counts() {
    for_all(200, |scenario| {
        let is_bill = |record: &EventRecord| matches!(record.event.payload, Payload::BillSet(_));
        let mut records = scenario.records.clone();
        records.retain(|record| !is_bill(record));
        for (event_time, bill) in bills(&scenario.records) {
            let payload = Payload::BillSet(Box::new(bill));
            records.push(EventRecord::new(Event::new(ORGANIZATION.into(), event_time, payload)));
        }
        if rows(&records, scenario)? == rows(&scenario.records, scenario)? {
            return Ok(());
        }
        Err("a bill that another one replaces, or a retraction, changes rows".into())
    });
}

/// A commitment or reservation that a line names has no row but rows of lines.
#[test]
fn what_a_line_bills_is_not_estimated() {
    for_all(400, |scenario| {
        let bills = bills(&scenario.records);
        for hour in engine_tables(&scenario.records, &scenario.rules, scenario.through)? {
            let start = hour.hour.start();
            let sets = bills.iter().filter(|(begin, _)| *begin <= start);
            let lines = sets.flat_map(|(_, set)| &set.lines).filter(|line| line.period_end > start);
            let lines: Vec<_> = lines.collect();
            for row in hour.cost_allocation.iter().filter(|row| row.lines.is_empty()) {
                let is_unused = row.kind == RowKind::ReservationUnused;
                let names_it = lines.iter().any(|line| {
                    let pays = row.commitment_id.is_some() && row.commitment_id == line.commitment_id;
                    pays || is_unused && row.reservation_id == line.reservation_id
                });
                if names_it {
                    return Err(format!("{}: a line bills what {row:?} estimates", hour.hour));
                }
            }
        }
        Ok(())
    });
}

fn any(hour: &HourTables, holds: fn(&CostRow) -> bool) -> bool {
    hour.cost_allocation.iter().any(|row| holds(row) && !row.lines.is_empty())
}

/// Returns whether the share of a pod in a divided charge satisfies `holds`.
fn shares(hour: &HourTables, holds: fn(&CostRow) -> bool) -> bool {
    let mut rows = hour.cost_allocation.iter();
    rows.any(|row| row.kind == RowKind::SharedCharge && row.pod_uid.is_some() && holds(row))
}

/// Returns whether two billed rows of nodes satisfy `differ`.
fn pairs(hour: &HourTables, differ: fn(&CostRow, &CostRow) -> bool) -> bool {
    let rows = || hour.cost_allocation.iter().filter(|row| row.node.is_some() && !row.lines.is_empty());
    rows().any(|left| rows().any(|right| differ(left, right)))
}

const ZERO: Decimal12 = Decimal12::ZERO;

/// A fact about one hour's tables.
type Thing = (&'static str, fn(&HourTables) -> bool);

/// The things that the histories must reach.
const THINGS: &[Thing] = &[
    ("a pod on a billed node", |hour| {
        any(hour, |row| row.kind == RowKind::PodNode && row.effective_cost > ZERO)
    }),
    ("a billed idle part", |hour| {
        any(hour, |row| row.kind == RowKind::NodeIdle && row.effective_cost > ZERO)
    }),
    ("a billed pod with an estimate", |hour| {
        any(hour, |row| row.kind == RowKind::PodNode && row.estimated_cost > Some(ZERO))
    }),
    ("a billed pod below zero", |hour| {
        any(hour, |row| row.kind == RowKind::PodNode && row.effective_cost < ZERO)
    }),
    ("a billed node that a commitment pays", |hour| {
        any(hour, |row| row.node.is_some() && row.commitment.is_some())
    }),
    ("a commitment that only a line knows", |hour| {
        any(hour, |row| row.node.is_some() && row.commitment_id.is_some() && row.commitment.is_none())
    }),
    ("two lines of one component", |hour| any(hour, |row| row.lines.len() > 1)),
    ("two components of a billed node", |hour| {
        pairs(hour, |left, right| {
            left.resource_id == right.resource_id && left.list_unit_price != right.list_unit_price
        })
    }),
    ("two nodes of one key", |hour| {
        pairs(hour, |left, right| {
            left.resource_id != right.resource_id && left.lines.first() == right.lines.first()
        })
    }),
    ("a node that is billed for a part of the hour", |hour| {
        let estimates = hour.cost_allocation.iter().filter(|row| row.node.is_some() && row.lines.is_empty());
        let keys: Vec<_> = estimates.map(|row| (&row.cluster_id, &row.resource_id)).collect();
        let mut rows = hour.cost_allocation.iter().filter(|row| !row.lines.is_empty());
        rows.any(|row| row.node.is_some() && keys.contains(&(&row.cluster_id, &row.resource_id)))
    }),
    ("a node with a line of several hours", |hour| {
        any(hour, |row| {
            let ends = row.lines.iter().map(|line| line.line().period_end.0 - line.begins_at.0);
            row.node.is_some() && ends.max() > Some(HOUR_MICROS)
        })
    }),
    ("a billed idle part without cost", |hour| {
        any(hour, |row| row.kind == RowKind::NodeIdle && row.effective_cost == ZERO)
    }),
    ("a billed cost that is not the effective cost", |hour| {
        any(hour, |row| row.node.is_some() && row.billed_cost != row.effective_cost)
    }),
    ("an unused commitment", |hour| any(hour, |row| row.kind == RowKind::CommitmentUnused)),
    ("a purchase", |hour| any(hour, |row| row.kind == RowKind::CommitmentPurchase)),
    ("an unused reservation", |hour| any(hour, |row| row.kind == RowKind::ReservationUnused)),
    ("a shared charge", |hour| any(hour, |row| row.kind == RowKind::SharedCharge)),
    ("a shared charge of a commitment", |hour| {
        any(hour, |row| row.kind == RowKind::SharedCharge && row.commitment_id.is_some())
    }),
    ("a volume of a pod", |hour| shares(hour, |row| !row.resource_id.is_empty())),
    ("a volume of several pods", |hour| {
        shares(hour, |row| !row.resource_id.is_empty() && row.allocated_ratio < Some(Decimal12::ONE))
    }),
    ("a charge that an entry divides", |hour| shares(hour, |row| row.resource_id.is_empty())),
    ("a charge that an entry divides over several pods", |hour| {
        shares(hour, |row| row.resource_id.is_empty() && row.allocated_ratio < Some(Decimal12::ONE))
    }),
    ("a shared charge that does not divide", |hour| {
        any(hour, |row| row.kind == RowKind::SharedCharge && row.pod_uid.is_none())
    }),
    ("a divided charge of several lines", |hour| shares(hour, |row| row.lines.len() > 1)),
    ("a divided charge below zero", |hour| shares(hour, |row| row.effective_cost < ZERO)),
    ("a divided charge of a commitment", |hour| shares(hour, |row| row.commitment_id.is_some())),
    ("a billed commitment that is partly used", |hour| {
        hour.commitment_utilization.iter().any(|row| {
            let mut rows = hour.cost_allocation.iter().filter(|row| !row.lines.is_empty());
            let is_billed = rows.any(|billed| billed.commitment_id.as_ref() == Some(&row.commitment_id));
            is_billed && row.utilization > ZERO && row.utilization < Decimal12::ONE
        })
    }),
    ("an hour of bills alone", |hour| hour.totals.basis == CostBasis::Billed),
    ("an hour of bills and estimates", |hour| hour.totals.basis == CostBasis::Partial),
    ("a final hour with a line", |hour| {
        hour.totals.basis == CostBasis::Final && any(hour, |row| row.effective_cost != ZERO)
    }),
    ("a final hour of estimates", |hour| {
        hour.totals.basis == CostBasis::Final && hour.totals.node_cost > ZERO
    }),
];

#[test]
fn random_histories_reach_every_rule_of_bills() {
    let seeds = 400;
    let mut reached: BTreeMap<&'static str, u32> = BTreeMap::new();
    for seed in 0..seeds {
        let scenario = scenario(seed);
        let tables = engine_tables(&scenario.records, &scenario.rules, scenario.through).unwrap();
        for (thing, holds) in THINGS {
            *reached.entry(*thing).or_default() += u32::from(tables.iter().any(holds));
        }
    }
    let rare: Vec<_> = reached.iter().filter(|(_, often)| **often < 2).collect();
    assert!(rare.is_empty(), "of {seeds} histories too few hold {rare:?}; all: {reached:#?}");
}
