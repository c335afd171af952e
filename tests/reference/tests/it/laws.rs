//! Laws of accounting, on seeded random histories. The engine agrees with the model, whatever the order of
//! arrival, the duplicates, and the hour at which a run is cut.
//!
//! `PRORATA_SEEDS` is the number of histories. `PRORATA_FIRST_SEED` is the first seed, or `fresh` for another
//! seed in each run. A history that breaks a law is shrunk and printed in the format of `testdata/rules`.

use std::collections::BTreeMap;
use std::time::UNIX_EPOCH;

use prorata_engine::{HourEvents, State, close_hour, has_hour};
use prorata_reference::PodRan;
use prorata_reference::rounding::{Exact, half_even, ratio};
use prorata_reference::scenario::{Scenario, scenario};
use prorata_reference::text::ORGANIZATION;
use prorata_schemas::decimal::Decimal12;
use prorata_schemas::event::{EventRecord, Recording};
use prorata_schemas::ids::PodUid;
use prorata_schemas::rows::{CostRow, HourTables, QuotaState, ResourceHours, RowKind, Unpriced};
use prorata_schemas::rules::Allocation;
use prorata_schemas::time::{HOUR_MICROS, Timestamp};
use rand::seq::SliceRandom;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::common::{by_hour, engine_tables};

/// Checks a law on many histories. Shrinks and shows the first history that breaks it.
pub(super) fn for_all(default_seeds: u64, law: impl Fn(&Scenario) -> Result<(), String>) {
    let seeds = std::env::var("PRORATA_SEEDS").ok().map_or(default_seeds, |text| text.parse().unwrap());
    let first = match std::env::var("PRORATA_FIRST_SEED").as_deref() {
        Ok("fresh") => UNIX_EPOCH.elapsed().unwrap().as_micros() as u64,
        Ok(text) => text.parse().unwrap(),
        Err(_) => 0,
    };
    for seed in first..first + seeds {
        let scenario = scenario(seed);
        if law(&scenario).is_err() {
            let small = super::shrink::shrink(scenario, |scenario| law(scenario).is_err());
            let broken = law(&small).unwrap_err();
            panic!("seed {seed} breaks the law: {broken}\n{}", super::shrink::show(&small));
        }
    }
}

fn engine(scenario: &Scenario) -> Result<Vec<HourTables>, String> {
    engine_tables(&scenario.records, &scenario.rules, scenario.through)
}

fn same(left: &[HourTables], right: &[HourTables], names: (&str, &str)) -> Result<(), String> {
    if left == right { Ok(()) } else { Err(super::shrink::differences(left, right, names)) }
}

#[test]
fn the_engine_agrees_with_the_model_in_every_field() {
    for_all(1000, |scenario| {
        let model = prorata_reference::tables(&scenario.records, &scenario.rules, scenario.through);
        same(&engine(scenario)?, &model, ("engine", "model"))
    });
}

#[test]
fn arrival_order_and_duplicates_change_nothing() {
    for_all(300, |scenario| {
        let ordered = engine(scenario)?;
        let mut shuffled = Scenario { records: scenario.records.clone(), ..*scenario_rules(scenario) };
        let mut rng = ChaCha8Rng::seed_from_u64(scenario.records.len() as u64);
        let again: Vec<_> = shuffled.records.iter().filter(|_| rng.random_bool(0.3)).cloned().collect();
        shuffled.records.extend(again);
        shuffled.records.shuffle(&mut rng);
        same(&ordered, &engine(&shuffled)?, ("ordered", "shuffled"))
    });
}

/// Returns a scenario with the same rules and hours but without events.
fn scenario_rules(scenario: &Scenario) -> Box<Scenario> {
    Box::new(Scenario { records: Vec::new(), rules: scenario.rules.clone(), through: scenario.through })
}

/// A history whose events are retracted last has the same rows as a history without these events. Only the
/// existing hours, and the events that they count, may differ.
#[test]
fn retracted_events_leave_no_row() {
    for_all(300, |scenario| {
        let mut rng = ChaCha8Rng::seed_from_u64(scenario.records.len() as u64);
        let mut retracted = Scenario { records: scenario.records.clone(), ..*scenario_rules(scenario) };
        let mut without = Scenario { records: scenario.records.clone(), ..*scenario_rules(scenario) };
        for record in scenario.records.iter().filter(|_| rng.random_bool(0.2)) {
            // Bills are recorded up to a month after the hour that they are for.
            let recorded_at = Timestamp(scenario.through.end().0 + 1000 * HOUR_MICROS);
            let retraction = Recording::new(Some(recorded_at), true);
            retracted.records.push(EventRecord::new(record.event.clone().recorded(retraction)));
            without.records.retain(|other| !other.event.is_rival_of(&record.event));
        }
        let rows = |scenario: &Scenario| -> Result<Vec<HourTables>, String> {
            let mut tables = engine(scenario)?;
            for hour in &mut tables {
                (hour.totals.events, hour.totals.max_event_time) = (0, None);
            }
            tables.retain(|hour| {
                let empty = hour.cost_allocation.is_empty() && hour.reservation_usage.is_empty();
                let unused = hour.commitment_utilization.is_empty() && hour.quota_usage.is_empty();
                !(empty && unused && hour.pool_usage.is_empty())
            });
            Ok(tables)
        };
        same(&rows(&retracted)?, &rows(&without)?, ("retracted", "without"))
    });
}

#[test]
fn a_run_cut_at_any_hour_continues_from_its_snapshot() {
    for_all(200, |scenario| {
        let whole = engine(scenario)?;
        let mut state = State::new(ORGANIZATION.into());
        let mut tables = Vec::new();
        for (hour, events) in by_hour(&scenario.records, scenario.through) {
            let text = serde_json::to_string(&state).map_err(|error| error.to_string())?;
            let restored: State = serde_json::from_str(&text).map_err(|error| error.to_string())?;
            if restored != state {
                return Err(format!("{hour}: the state is not what its snapshot restores"));
            }
            let events = HourEvents::of(hour, events);
            if !has_hour(&restored, &events) {
                state = State::new(ORGANIZATION.into());
                continue;
            }
            let closed = close_hour(restored, events, &scenario.rules).map_err(|error| error.to_string())?;
            state = closed.0;
            tables.push(closed.1);
        }
        same(&whole, &tables, ("whole", "cut"))
    });
}

#[test]
fn every_hour_conserves_what_was_supplied() {
    for_all(300, |scenario| engine(scenario)?.iter().try_for_each(conserved));
}

/// Checks that effective and supplied cost are equal, billed cost differs only by what bills say, ratios of
/// one origin sum to one, and parts of a row sum to the row.
fn conserved(tables: &HourTables) -> Result<(), String> {
    let rows = &tables.cost_allocation;
    let hour = tables.hour;
    let totals = &tables.totals;
    let effective = sum(rows, |row| Some(row.effective_cost));
    let billed = sum(rows, |row| Some(row.billed_cost));
    let billed_by_bills = totals.bill_billed_cost.atoms() - totals.bill_cost.atoms();
    let is_invoiced = billed.atoms() - effective.atoms() == billed_by_bills;
    if !is_invoiced || effective != totals.supply_cost || totals.difference != Decimal12::ZERO {
        return Err(format!("{hour}: effective {effective}, billed {billed}, totals {totals:?}"));
    }
    for row in rows {
        let parts = [[row.split_cost, row.unused_cost, None], [row.cpu_cost, row.memory_cost, row.gpu_cost]];
        for parts in parts.into_iter().filter(|parts| parts[0].is_some()) {
            let sum: i128 = parts.iter().flatten().map(|part| part.atoms()).sum();
            if sum != row.effective_cost.atoms() {
                return Err(format!("{hour}: parts {parts:?} do not sum to {}", row.effective_cost));
            }
        }
        let is_of_origin = |other: &CostRow| {
            let is_of_node = (&other.cluster_id, &other.resource_id) == (&row.cluster_id, &row.resource_id);
            // A shared charge may divide over pods of several clusters.
            let is_shared = row.kind == RowKind::SharedCharge;
            other.allocated_ratio.is_some()
                && other.lines.first() == row.lines.first()
                && (is_shared || is_of_node)
                && (&other.commitment_id, other.list_unit_price) == (&row.commitment_id, row.list_unit_price)
        };
        let of_origin: Vec<Box<CostRow>> = rows.iter().filter(|other| is_of_origin(other)).cloned().collect();
        if row.allocated_ratio.is_some() && sum(&of_origin, |row| row.allocated_ratio) != Decimal12::ONE {
            return Err(format!("{hour}: ratios of {} do not sum to 1", row.resource_id));
        }
    }
    if !rows.windows(2).all(|pair| pair[0].kind <= pair[1].kind) || totals.rows != rows.len() as i64 {
        return Err(format!("{hour}: rows are not in order or not counted"));
    }
    Ok(())
}

fn sum(rows: &[Box<CostRow>], column: impl Fn(&CostRow) -> Option<Decimal12>) -> Decimal12 {
    Decimal12::from_atoms(rows.iter().filter_map(|row| column(row)).map(Decimal12::atoms).sum())
}

#[test]
fn slices_of_a_pod_sum_to_the_whole_pod() {
    for_all(300, |scenario| {
        let ran = prorata_reference::ran(&scenario.records, &scenario.rules, scenario.through).pods;
        for tables in engine(scenario)? {
            let mut pods: BTreeMap<PodUid, Vec<Box<CostRow>>> = BTreeMap::new();
            for row in &tables.cost_allocation {
                if let Some(uid) = &row.pod_uid {
                    pods.entry(uid.clone()).or_default().push(row.clone());
                }
            }
            for (hour, uid) in ran.keys().filter(|(hour, _)| *hour == tables.hour) {
                if !pods.contains_key(uid) {
                    return Err(format!("{hour}: {uid} ran and has no row"));
                }
            }
            for (uid, rows) in pods {
                let pod =
                    ran.get(&(tables.hour, uid.clone())).ok_or(format!("{uid} has a row and did not run"))?;
                whole_pod(&rows, pod, scenario.rules.allocation)
                    .map_err(|what| format!("{}: rows of {uid} do not sum to its {what}", tables.hour))?;
            }
        }
        Ok(())
    });
}

/// Returns an error if time and quantities of the rows of one pod do not sum to the time and the quantities
/// of the pod.
fn whole_pod(rows: &[Box<CostRow>], pod: &PodRan, allocation: Allocation) -> Result<(), &'static str> {
    // Each row is rounded independently.
    let near = |sum: Decimal12, want: &Exact| {
        let off = (sum.atoms() - half_even(want).atoms()).unsigned_abs();
        off <= rows.len() as u128
    };
    let columns: [fn(&ResourceHours) -> Decimal12; 3] =
        [|hours| hours.cpu_core_hours, |hours| hours.memory_gib_hours, |hours| hours.gpu_hours];
    if !near(sum(rows, |row| row.running_seconds), &ratio(pod.micros, 1_000_000)) {
        return Err("time");
    }
    for (resource, column) in columns.into_iter().enumerate() {
        if !near(sum(rows, |row| row.requested.as_ref().map(column)), &pod.requested[resource]) {
            return Err("requests");
        }
        if !near(sum(rows, |row| row.used.as_ref().map(column)), &pod.used[resource]) {
            return Err("use");
        }
        let allocated = sum(rows, |row| row.allocated.as_ref().map(column));
        if allocation == Allocation::Requests && !near(allocated, &pod.requested[resource]) {
            return Err("allocation");
        }
    }
    Ok(())
}

#[test]
fn slices_of_a_node_sum_to_its_uptime() {
    for_all(300, |scenario| {
        let ran = prorata_reference::ran(&scenario.records, &scenario.rules, scenario.through).nodes;
        for tables in engine(scenario)? {
            let here = ran.iter().filter(|((hour, _), _)| *hour == tables.hour);
            for ((_, (cluster_id, node_id)), micros) in here {
                let of_node = |row: &CostRow| {
                    matches!(row.kind, RowKind::PodNode | RowKind::NodeIdle)
                        && row.unpriced != Some(Unpriced::UnknownNode)
                        && (row.cluster_id.as_ref(), &*row.resource_id) == (Some(cluster_id), &**node_id)
                };
                let node: Vec<Box<CostRow>> =
                    tables.cost_allocation.iter().filter(|row| of_node(row)).cloned().collect();
                // Billed rows stand for the hours of their lines.
                if node.iter().any(|row| !row.lines.is_empty()) {
                    continue;
                }
                let hours = sum(&node, |row| Some(row.pricing_quantity)).atoms();
                let want = i128::from(*micros) * Decimal12::ONE.atoms() / i128::from(HOUR_MICROS);
                // Each row is rounded independently.
                if (hours - want).unsigned_abs() > node.len() as u128 {
                    return Err(format!("{}: {node_id} stands for {hours}, it ran {want}", tables.hour));
                }
            }
        }
        Ok(())
    });
}

#[test]
fn labels_are_monotone_along_the_order_of_a_quota() {
    for_all(300, |scenario| {
        for (at, quota, labels) in
            prorata_reference::labels(&scenario.records, &scenario.rules, scenario.through)
        {
            if labels.windows(2).any(|pair| pair == [QuotaState::OverQuota, QuotaState::InQuota]) {
                return Err(format!("{at}: {quota} has a pod in quota after one over quota"));
            }
        }
        Ok(())
    });
}
