//! Explains the bearers with the highest cost for the page, each in its most expensive hour.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use prorata_schemas::ids::OrganizationId;
use prorata_schemas::time::{Hour, HourRange};
use prorata_worker::{Ports, WorkerError};

use super::{BearerAmounts, CostBearer, Report};
use crate::check::Checkpoints;
use crate::explain::{ExplainError, HourToExplain, Subject};
use crate::lake::LakeTables;

/// Maximum number of cost bearers that an organization may have in an explained hour, or in its day if the
/// page shows days. All events of the hour are in memory during the explanation.
const BEARERS_MAX: usize = 20_000;

/// Explains the `count` bearers with the highest cost in the whole period. If a bearer cannot be explained,
/// the page shows the reason instead.
///
/// # Errors
/// If storage is unavailable.
pub async fn dearest(
    lake: &LakeTables<'_>,
    ports: &Ports,
    count: usize,
    report: &mut Report,
) -> Result<(), WorkerError> {
    let mut checkpoints = None;
    for ((organization, hour), bearers) in chosen(report, count) {
        let read = match HourToExplain::read(lake, ports, &organization, hour).await {
            Err(ExplainError::Worker(error @ (WorkerError::Store(_) | WorkerError::Tables(_)))) => {
                return Err(error);
            }
            read => read,
        };
        for bearer in bearers {
            let answer = match &read {
                Ok(hour) => hour.explain(subject(&bearer)).await,
                Err(error) => Err(ExplainError::NotFound(error.to_string())),
            };
            let explanation = match answer {
                Ok(answer) if answer.is_same() => answer.to_string(),
                Ok(mut answer) => {
                    // The table may have another revision than the folded hour.
                    let checkpoints = match &mut checkpoints {
                        Some(checkpoints) => checkpoints,
                        none => none.insert(Checkpoints::read(&*ports.store).await?),
                    };
                    let range = HourRange::from(hour);
                    answer.is_published = checkpoints.are_published(lake, range);
                    answer.to_string()
                }
                Err(why) => format!("It cannot be explained: {why}"),
            };
            report.explained.insert(bearer, explanation);
        }
    }
    Ok(())
}

/// Selects the bearers to explain, by organization and hour.
fn chosen(report: &Report, count: usize) -> BTreeMap<(OrganizationId, Hour), Vec<CostBearer>> {
    let mut totals: BTreeMap<&CostBearer, BearerAmounts> = BTreeMap::new();
    for ((_, bearer), amounts) in &report.amounts {
        let total = totals.entry(bearer).or_default();
        total.cost.add(amounts.cost);
        total.dearest = total.dearest.max(amounts.dearest);
    }
    let mut counts: BTreeMap<(Hour, &str), usize> = BTreeMap::new();
    let keys = report.amounts.keys();
    keys.for_each(|(time, bearer)| *counts.entry((*time, &bearer.organization)).or_default() += 1);
    let is_small = |bearer: &CostBearer, total: &BearerAmounts| {
        let at = total.dearest.map(|(_, hour)| (report.time_of(hour), bearer.organization.as_str()));
        at.and_then(|at| counts.get(&at)).is_some_and(|bearers| *bearers <= BEARERS_MAX)
    };
    let mut ranked: Vec<_> = totals.into_iter().filter(|(bearer, total)| is_small(bearer, total)).collect();
    ranked.sort_by_key(|(_, total)| Reverse(total.cost.magnitude()));
    let mut chosen: BTreeMap<_, Vec<CostBearer>> = BTreeMap::new();
    for (bearer, total) in ranked.into_iter().take(count) {
        if let Some((_, hour)) = total.dearest {
            chosen.entry((bearer.organization.as_str().into(), hour)).or_default().push(bearer.clone());
        }
    }
    chosen
}

/// Returns the subject that the command explains for a bearer.
fn subject(bearer: &CostBearer) -> Subject {
    let CostBearer { kind, cluster, name, uid, .. } = bearer;
    match *kind {
        "pod" => Subject::Pod(uid.clone()),
        "idle" => Subject::Node(format!("{cluster}/{name}")),
        "reservation" => Subject::Reservation(name.clone()),
        "shared" => Subject::Bill(name.clone()),
        _ => Subject::Commitment(name.clone()),
    }
}

#[cfg(test)]
mod tests {
    use prorata_schemas::decimal::Decimal12;

    use super::*;
    use crate::Sum;
    use crate::page::{GroupBy, ReportOptions};

    fn pods(
        organization: &str,
        count: usize,
        cost: i128,
    ) -> impl Iterator<Item = (CostBearer, BearerAmounts)> {
        let cost = Decimal12::from_atoms(cost);
        let amounts =
            BearerAmounts { cost: Sum::from(cost), dearest: Some((cost, Hour(30))), ..Default::default() };
        (0..count).map(move |number| {
            let bearer = CostBearer {
                organization: organization.to_owned(),
                currency: "USD".to_owned(),
                kind: "pod",
                group: String::new(),
                cluster: String::new(),
                namespace: String::new(),
                name: String::new(),
                uid: number.to_string(),
                gpu_model: String::new(),
            };
            (bearer, amounts)
        })
    }

    #[test]
    fn the_highest_costs_are_explained_unless_their_hour_would_fill_the_memory() {
        let options = ReportOptions {
            lake: "lake".to_owned(),
            range: HourRange::ALL,
            organization: None,
            group_by: GroupBy::Namespace,
            explain: 3,
        };
        let mut report = Report::new(&options, Some(HourRange::new(Hour(24), Hour(47))));
        let large = pods("large", BEARERS_MAX + 1, 9);
        let loads = large.chain(pods("full", BEARERS_MAX, 5)).chain(pods("small", 2, 7));
        report.amounts = loads.map(|(bearer, amounts)| ((Hour(30), bearer), amounts)).collect();
        let chosen = chosen(&report, 3);
        let counts: Vec<_> =
            chosen.iter().map(|((organization, hour), pods)| (&**organization, *hour, pods.len())).collect();
        assert_eq!(counts, [("full", Hour(30), 1), ("small", Hour(30), 2)]);
    }
}
