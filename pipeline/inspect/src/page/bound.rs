//! Bounds the page. Beyond some number, the items that cost least are joined or left out, and the page says
//! so.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::mem;

use super::{CostBearer, Report};
use crate::Sum;

/// Maximum number of amounts of single bearers, by hour or day. They take about 25 MB of the page.
const AMOUNTS_MAX: usize = 200_000;

/// Maximum number of groups.
const GROUPS_MAX: usize = 1_000;

/// Maximum number of rows of each of the other tables.
const ROWS_MAX: usize = 1_000;

/// Maximum number of days of single organizations in the section on bills. They take about 4 MB of the page.
const DAYS_MAX: usize = 20_000;

/// The name of the bearers, of the groups, or of the organizations in the section on bills, that were joined.
const OTHERS: &str = "(others)";

/// Number of items that the page does not show individually, by kind of item.
pub type LeftOut = BTreeMap<&'static str, usize>;

/// Joins bearers, groups and days of bills beyond the bounds without changing any sum, and leaves out rows of
/// other tables.
pub fn bound(report: &mut Report) {
    bound_by(report, AMOUNTS_MAX, GROUPS_MAX, ROWS_MAX);
}

fn bound_by(report: &mut Report, amounts_max: usize, groups_max: usize, rows_max: usize) {
    let groups = join_groups(report, groups_max);
    let bearers = join_bearers(report, amounts_max);
    let organizations = join_days(report, DAYS_MAX);
    let left_out = [
        ("groups", groups),
        ("pods and other costs", bearers),
        ("organizations in bills by day", organizations),
        ("clusters in bills", keep(&mut report.bills.clusters, rows_max, |of| of.cost())),
        ("reservations", keep(&mut report.reservations, rows_max, |of| of.unused_cost)),
        ("commitments", keep(&mut report.commitments, rows_max, |of| of.used_cost.plus(of.unused_cost))),
        ("quotas", keep(&mut report.quotas, rows_max, |of| of.over_quota_cost)),
        ("pools", keep(&mut report.pools, rows_max, |of| of.charges)),
        ("GPU models", keep(&mut report.gpu_sharing, rows_max, |of| of.physical_hours)),
        ("reasons of a missing price", keep(&mut report.unpriced, rows_max, |of| of.seconds)),
        ("unreadable files", report.unreadable.len().saturating_sub(rows_max)),
    ];
    report.unreadable.truncate(rows_max);
    report.left_out = left_out.into_iter().filter(|(_, count)| *count > 0).collect();
}

/// Keeps the `most` rows with the largest sums, and returns the number of rows that were removed.
fn keep<K: Ord + Clone, V>(rows: &mut BTreeMap<K, V>, most: usize, size: impl Fn(&V) -> Sum) -> usize {
    let count = rows.len();
    if count > most {
        let mut ranked: Vec<_> = mem::take(rows).into_iter().collect();
        ranked.sort_by_key(|(_, row)| Reverse(size(row).magnitude()));
        rows.extend(ranked.into_iter().take(most));
    }
    count.saturating_sub(most)
}

/// Renames the cheapest groups to one common name, and returns the number of these groups.
fn join_groups(report: &mut Report, most: usize) -> usize {
    let key =
        |bearer: &CostBearer| (bearer.organization.clone(), bearer.currency.clone(), bearer.group.clone());
    let mut kept: BTreeMap<_, Sum> = BTreeMap::new();
    for ((_, bearer), amounts) in &report.amounts {
        kept.entry(key(bearer)).or_default().add(amounts.cost);
    }
    let joined = keep(&mut kept, most, |cost| *cost);
    if joined > 0 {
        rename(report, |mut bearer| {
            if !kept.contains_key(&key(&bearer)) {
                OTHERS.clone_into(&mut bearer.group);
            }
            Some(bearer)
        });
        for ((organization, currency, group), cost) in mem::take(&mut report.before) {
            let key = (organization, currency, group);
            let key = if kept.contains_key(&key) { key } else { (key.0, key.1, OTHERS.to_owned()) };
            report.before.entry(key).or_default().add(cost);
        }
    }
    joined
}

/// Joins the cheapest bearers of each organization, kind, group and GPU model into one bearer. Returns the
/// number of bearers that were joined.
fn join_bearers(report: &mut Report, most: usize) -> usize {
    if report.amounts.len() <= most {
        return 0;
    }
    let mut totals: BTreeMap<&CostBearer, (Sum, usize)> = BTreeMap::new();
    for ((_, bearer), amounts) in &report.amounts {
        let (cost, count) = totals.entry(bearer).or_default();
        cost.add(amounts.cost);
        *count += 1;
    }
    let mut ranked: Vec<_> = totals.into_iter().collect();
    ranked.sort_by_key(|(_, (cost, _))| Reverse(cost.magnitude()));
    let (mut kept, mut amounts) = (BTreeSet::new(), 0);
    let bearers = ranked.len();
    for (bearer, (_, count)) in ranked {
        amounts += count;
        if amounts > most {
            break;
        }
        kept.insert(bearer.clone());
    }
    let joined = bearers - kept.len();
    rename(report, |bearer| kept.contains(&bearer).then_some(bearer));
    joined
}

/// Joins the days of the organizations with the lowest costs into days of one organization. Returns the
/// number of organizations that were joined. An organization with two currencies counts twice.
fn join_days(report: &mut Report, most: usize) -> usize {
    let mut totals: BTreeMap<(String, String), (Sum, usize)> = BTreeMap::new();
    for ((organization, currency, _), sums) in &report.bills.days {
        let (cost, days) = totals.entry((organization.clone(), currency.clone())).or_default();
        cost.add(sums.cost());
        *days += 1;
    }
    let mut ranked: Vec<_> = totals.into_iter().collect();
    ranked.sort_by_key(|(_, (cost, _))| Reverse(cost.magnitude()));
    let (organizations, mut kept, mut rows) = (ranked.len(), BTreeSet::new(), 0);
    for (organization, (_, days)) in ranked {
        rows += days;
        if rows > most {
            break;
        }
        kept.insert(organization);
    }
    let joined = organizations - kept.len();
    if joined > 0 {
        for ((organization, currency, date), sums) in mem::take(&mut report.bills.days) {
            let key = (organization, currency);
            let (organization, currency) = if kept.contains(&key) { key } else { (OTHERS.to_owned(), key.1) };
            report.bills.days.entry((organization, currency, date)).or_default().add(&sums);
        }
    }
    joined
}

/// Renames bearers, and adds up bearers with the same name. If `name` returns `None`, the bearer is joined
/// with others, and is no longer explained.
fn rename(report: &mut Report, name: impl Fn(CostBearer) -> Option<CostBearer>) {
    for ((time, bearer), mut amounts) in mem::take(&mut report.amounts) {
        let named = name(bearer.clone()).unwrap_or_else(|| {
            amounts.dearest = None;
            let (cluster, namespace, uid) = (String::new(), String::new(), String::new());
            CostBearer { cluster, namespace, name: OTHERS.to_owned(), uid, ..bearer }
        });
        report.amounts.entry((time, named)).or_default().add(&amounts);
    }
    for (bearer, explanation) in mem::take(&mut report.explained) {
        report.explained.extend(name(bearer).map(|bearer| (bearer, explanation)));
    }
}

#[cfg(test)]
mod tests {
    use prorata_schemas::decimal::Decimal12;
    use prorata_schemas::time::{Hour, HourRange};

    use super::*;
    use crate::page::{BasisSums, BearerAmounts, ReportOptions};

    fn pod(group: usize, uid: usize) -> CostBearer {
        CostBearer {
            organization: "acme".to_owned(),
            currency: "USD".to_owned(),
            kind: "pod",
            group: group.to_string(),
            cluster: "prod".to_owned(),
            namespace: group.to_string(),
            name: format!("web-{uid}"),
            uid: uid.to_string(),
            gpu_model: String::new(),
        }
    }

    /// Creates a report of 8 groups. Pod `n` belongs to group `n % 8`, and costs `n` in each of two hours.
    fn full() -> Report {
        let mut report = Report::new(&ReportOptions::of_tests(), Some(HourRange::new(Hour(1), Hour(2))));
        for uid in 0..80 {
            let cost = Decimal12::from_int(uid as i64);
            let bearer = pod(uid % 8, uid);
            for hour in [Hour(1), Hour(2)] {
                let amounts =
                    BearerAmounts { cost: cost.into(), dearest: Some((cost, hour)), ..Default::default() };
                report.amounts.insert((hour, bearer.clone()), amounts);
            }
            report.before.insert(("acme".to_owned(), "USD".to_owned(), bearer.group.clone()), cost.into());
            report.explained.insert(bearer, format!("pod {uid}"));
            report.unreadable.push((uid.to_string(), "gone".to_owned()));
        }
        report
    }

    fn sums(report: &Report, by: fn(&CostBearer) -> String) -> BTreeMap<String, Sum> {
        let mut sums: BTreeMap<String, Sum> = BTreeMap::new();
        for ((_, bearer), amounts) in &report.amounts {
            sums.entry(by(bearer)).or_default().add(amounts.cost);
        }
        sums
    }

    #[test]
    fn a_page_that_is_small_enough_stays_as_it_is() {
        let mut report = full();
        bound(&mut report);
        assert_eq!((report.amounts, report.left_out), (full().amounts, LeftOut::new()));
    }

    #[test]
    fn joined_bearers_and_groups_keep_every_sum() {
        let mut report = full();
        bound_by(&mut report, 40, 6, 10);
        assert_eq!(
            report.left_out,
            [("groups", 2), ("pods and other costs", 60), ("unreadable files", 70)].into()
        );
        let kept = report.amounts.keys().filter(|(_, bearer)| bearer.name != OTHERS).count();
        assert_eq!(kept, 40);
        let total = |report: &Report| sums(report, |_| String::new());
        assert_eq!(total(&report), total(&full()));
        let (groups, all) =
            (sums(&report, |bearer| bearer.group.clone()), sums(&full(), |bearer| bearer.group.clone()));
        assert_eq!(groups.len(), 7);
        assert_eq!(groups[OTHERS], all["0"].plus(all["1"]));
        assert!((2..8).map(|group| group.to_string()).all(|group| groups[&group] == all[&group]));
        let before: Vec<_> = report.before.keys().map(|(.., group)| group.as_str()).collect();
        assert_eq!(before, [OTHERS, "2", "3", "4", "5", "6", "7"]);
        // The bearers that cost most are explained under their new names, and joined bearers have nothing to
        // explain.
        assert_eq!(report.explained.len(), 20);
        assert!(
            report.explained.keys().all(|bearer| report.amounts.contains_key(&(Hour(1), bearer.clone())))
        );
        let others = report.amounts.iter().filter(|((_, bearer), _)| bearer.name == OTHERS);
        assert!(others.clone().count() > 0 && others.clone().all(|(_, of)| of.dearest.is_none()));
    }

    #[test]
    fn joined_days_of_bills_keep_every_sum() {
        let mut report = full();
        for number in 1..=4 {
            let bearer = CostBearer { organization: number.to_string(), ..pod(0, 0) };
            let cost = Decimal12::from_int(number);
            let sums = BasisSums::of_row(Some("billed"), "shared_charge", cost, Decimal12::ZERO);
            for day in 0..3 {
                report.bills.add(&bearer, Hour(24 * day).date(), &sums);
            }
        }
        let total = |report: &Report| {
            report.bills.days.values().fold(Sum::default(), |total, sums| total.plus(sums.cost()))
        };
        let before = total(&report);
        assert_eq!(join_days(&mut report, 12), 0);
        assert_eq!(join_days(&mut report, 7), 2);
        let names: BTreeSet<&str> = report.bills.days.keys().map(|(name, ..)| name.as_str()).collect();
        assert_eq!(names, [OTHERS, "3", "4"].into());
        assert_eq!((report.bills.days.len(), total(&report)), (9, before));
    }
}
