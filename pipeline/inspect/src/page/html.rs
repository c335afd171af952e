//! Writes the page: a frame, styles, a script, and the data as compact columns. Money and quantities are
//! whole numbers of 10^-12 as text, so the script adds them up without rounding.

use std::collections::BTreeMap;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use prorata_schemas::time::{Hour, HourRange};
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};

use super::{BasisSums, BearerAmounts, CostBearer, Report};
use crate::Sum;

const FRAME: &str = include_str!("assets/page.html");
const STYLE: &str = concat!(include_str!("assets/uplot/uPlot.min.css"), include_str!("assets/page.css"));
/// The library of charts with its licence, and the page's own script.
const SCRIPT: &str = concat!(
    include_str!("assets/language.js"),
    "/*!\n",
    include_str!("assets/uplot/LICENSE"),
    "\n*/\n",
    include_str!("assets/uplot/uPlot.iife.min.js"),
    include_str!("assets/sums.js"),
    include_str!("assets/elements.js"),
    include_str!("assets/table.js"),
    include_str!("assets/chart.js"),
    include_str!("assets/sections.js"),
    include_str!("assets/bills.js"),
    include_str!("assets/detail.js"),
    include_str!("assets/page.js"),
);

/// Returns the fix for a missing price.
fn fix(reason: &str) -> &'static str {
    match reason {
        "unknown_node" => "send the node that the pods name: a late NodeStarted corrects the hours",
        "unknown_pool" => "send the pool that the pods name: a late PoolSet corrects the hours",
        "unknown_gpu_share" => "send the pod with the part of a GPU that it holds, in gpus",
        "no_qos_price" => "send the pool with a price for their quality of service",
        "no_rate" => "send the rate of their region, GPU model and quality of service",
        "other_currency" => {
            "send the price in the currency of the organization, or change the currency in the rules"
        }
        _ => "see RULES.md, section 11",
    }
}

/// Formats a sum in atoms. For a sum with too many digits, returns a text that says so.
fn atoms(sum: Sum) -> String {
    sum.amount().map_or("more than 38 digits".to_owned(), |amount| amount.atoms().to_string())
}

/// Numbered texts: each text is written once.
#[derive(Default)]
struct Texts {
    numbers: BTreeMap<String, usize>,
    list: Vec<String>,
}

impl Texts {
    fn number(&mut self, text: &str) -> usize {
        if let Some(number) = self.numbers.get(text) {
            return *number;
        }
        self.numbers.insert(text.to_owned(), self.list.len());
        self.list.push(text.to_owned());
        self.list.len() - 1
    }
}

impl Report {
    /// Returns the data for the page's script.
    pub fn data(&self) -> Value {
        let mut texts = Texts::default();
        let mut bearers: BTreeMap<&CostBearer, usize> = BTreeMap::new();
        let mut times = BTreeMap::new();
        for (time, bearer) in self.amounts.keys() {
            let next = bearers.len();
            bearers.entry(bearer).or_insert(next);
            let next = times.len();
            times.entry(*time).or_insert(next);
        }
        let mut in_order: Vec<(&CostBearer, usize)> =
            bearers.iter().map(|(bearer, number)| (*bearer, *number)).collect();
        in_order.sort_by_key(|(_, number)| *number);
        let mut column = |of: fn(&CostBearer) -> &str| -> Vec<usize> {
            in_order.iter().map(|(bearer, _)| texts.number(of(bearer))).collect()
        };
        let hours = self.dearest_hours(&bearers);
        let bearer_columns = json!({
            "organization": column(|bearer| &bearer.organization),
            "currency": column(|bearer| &bearer.currency),
            "kind": column(|bearer| bearer.kind),
            "group": column(|bearer| &bearer.group),
            "cluster": column(|bearer| &bearer.cluster),
            "namespace": column(|bearer| &bearer.namespace),
            "name": column(|bearer| &bearer.name),
            "uid": column(|bearer| &bearer.uid),
            "gpu_model": column(|bearer| &bearer.gpu_model),
            "hour": hours.iter().map(|hour| texts.number(hour)).collect::<Vec<_>>(),
        });
        let facts = |of: fn(&BearerAmounts) -> Sum| -> Vec<String> {
            self.amounts.values().map(|amounts| atoms(of(amounts))).collect()
        };
        let time_of: Vec<usize> =
            self.amounts.keys().filter_map(|(time, _)| times.get(time).copied()).collect();
        let bearer_of: Vec<usize> =
            self.amounts.keys().filter_map(|(_, bearer)| bearers.get(bearer).copied()).collect();
        let hours =
            |hours: Option<HourRange>| hours.map(|range| [range.first.to_string(), range.last.to_string()]);
        let time_name = |hour: &Hour| {
            if self.by_day { hour.date().to_string() } else { hour.to_string() }
        };
        json!({
            "lake": self.lake,
            "group_by": self.group_by.to_string(),
            "hours": hours(self.hours),
            "before_hours": hours(self.before_hours),
            "by_day": self.by_day,
            "times": times.keys().map(time_name).collect::<Vec<_>>(),
            "bearers": bearer_columns,
            "explained": self.explained(&bearers),
            "texts": texts.list,
            "facts": {
                "time": time_of,
                "bearer": bearer_of,
                "cost": facts(|amounts| amounts.cost),
                "used": facts(|amounts| amounts.used),
                "unused": facts(|amounts| amounts.unused),
                "over_quota": facts(|amounts| amounts.over_quota),
                "gpu_cost": facts(|amounts| amounts.gpu_cost),
                "gpu_hours": facts(|amounts| amounts.gpu_hours),
            },
            "before": self.before(),
            "bills": self.bills(),
            "unpriced": self.unpriced(),
            "agreements": self.agreements(),
            "gpu_sharing": self.gpu_sharing(),
            "left_out": self.left_out,
            "unreadable": self.unreadable,
        })
    }

    fn before(&self) -> Vec<Value> {
        let costs = self.before.iter().map(|((organization, currency, group), cost)| {
            json!([organization, currency, group, atoms(*cost)])
        });
        costs.collect()
    }

    /// Returns the costs by basis, by day and by cluster.
    fn bills(&self) -> Value {
        let sums = |of: &BasisSums| {
            json!({ "nodes": atoms(of.nodes), "estimate": atoms(of.estimate),
                "agreements": atoms(of.agreements), "shared": atoms(of.shared),
                "estimated": atoms(of.estimated) })
        };
        let days = self.bills.days.iter().map(|((organization, currency, date), of)| {
            json!({ "organization": organization, "currency": currency, "date": date.to_string(),
                "is_billed": of.is_billed, "sums": sums(of) })
        });
        let clusters = self.bills.clusters.iter().map(|((organization, currency, cluster), of)| {
            json!({ "organization": organization, "currency": currency, "cluster": cluster,
                "sums": sums(of) })
        });
        json!({ "days": days.collect::<Vec<_>>(), "clusters": clusters.collect::<Vec<_>>() })
    }

    fn unpriced(&self) -> Vec<Value> {
        let unpriced = self.unpriced.iter().map(|((organization, reason), of)| {
            json!({ "organization": organization, "reason": reason, "fix": fix(reason),
                "pods": of.pods.len(), "seconds": atoms(of.seconds) })
        });
        unpriced.collect()
    }

    fn gpu_sharing(&self) -> Vec<Value> {
        let shared = self.gpu_sharing.iter().map(|((organization, model), of)| {
            json!({ "organization": organization, "gpu_model": model,
                "physical_hours": atoms(of.physical_hours),
                "allocated_hours": atoms(of.allocated_hours),
                "oversubscribed_hours": atoms(of.oversubscribed_hours) })
        });
        shared.collect()
    }

    /// Returns the explanations of bearers, by the bearers' numbers.
    fn explained(&self, bearers: &BTreeMap<&CostBearer, usize>) -> Value {
        let numbered = self.explained.iter().filter_map(|(bearer, text)| Some((bearers.get(bearer)?, text)));
        numbered.map(|(number, text)| (number.to_string(), json!(text))).collect::<Map<_, _>>().into()
    }

    /// Returns the hour in which each bearer cost most, by the bearer's number.
    fn dearest_hours(&self, bearers: &BTreeMap<&CostBearer, usize>) -> Vec<String> {
        let mut dearest = vec![None; bearers.len()];
        for ((_, bearer), amounts) in &self.amounts {
            if let Some(of) = bearers.get(bearer).and_then(|number| dearest.get_mut(*number)) {
                *of = amounts.dearest.max(*of);
            }
        }
        let name = |of: Option<(_, Hour)>| of.map(|(_, hour)| hour.to_string()).unwrap_or_default();
        dearest.into_iter().map(name).collect()
    }

    fn agreements(&self) -> Value {
        let reservations = self.reservations.iter().map(|((organization, id), of)| {
            json!({ "organization": organization, "id": id, "name": of.name, "gpu_model": of.gpu_model,
                "used_seconds": atoms(of.used_seconds), "unused_seconds": atoms(of.unused_seconds),
                "unused_cost": atoms(of.unused_cost) })
        });
        let commitments = self.commitments.iter().map(|((organization, id), of)| {
            json!({ "organization": organization, "id": id, "name": of.name,
                "used_cost": atoms(of.used_cost), "unused_cost": atoms(of.unused_cost),
                "list_cost_avoided": atoms(of.list_cost_avoided) })
        });
        let quotas = self.quotas.iter().map(|((organization, cluster, id, resource), of)| {
            json!({ "organization": organization, "cluster": cluster, "id": id, "resource": resource,
                "over_quota_cost": atoms(of.over_quota_cost),
                "preemptible_cost": atoms(of.preemptible_cost),
                "borrowed_hours": atoms(of.borrowed_hours), "lent_hours": atoms(of.lent_hours) })
        });
        let pools = self.pools.iter().map(|((organization, id), of)| {
            json!({ "organization": organization, "id": id, "charges": atoms(of.charges),
                "node_cost": atoms(of.node_cost), "spend_month": atoms(of.spend_month),
                "exceeded": of.exceeded, "last": of.last.to_string() })
        });
        json!({
            "reservations": reservations.collect::<Vec<_>>(),
            "commitments": commitments.collect::<Vec<_>>(),
            "quotas": quotas.collect::<Vec<_>>(),
            "pools": pools.collect::<Vec<_>>(),
        })
    }

    /// Returns the page. A policy in the page names the page's style and script by digest, so that the
    /// browser runs no other script, whatever its source.
    pub fn html(&self) -> String {
        // Nothing in the data can end its element: every '<' is escaped.
        let data = self.data().to_string().replace('<', "\\u003c");
        FRAME
            .replace("{{style-digest}}", &digest(STYLE))
            .replace("{{script-digest}}", &digest(SCRIPT))
            .replace("{{style}}", STYLE)
            .replace("{{script}}", SCRIPT)
            .replacen("{{data}}", &data, 1)
    }
}

/// Returns the digest of an element's text in the form that a Content-Security-Policy requires.
fn digest(text: &str) -> String {
    format!("'sha256-{}'", BASE64_STANDARD.encode(Sha256::digest(text)))
}
