//! Writes a difference as lines of text, and as one JSON document.

use std::collections::BTreeMap;
use std::fmt;

use prorata_schemas::time::HourRange;
use serde_json::{Value, json};

use super::{Bearer, Change, Difference};
use crate::text::PlainText;

/// Maximum number of lines in each list of the text.
const LISTED_MAX: usize = 20;

/// Maximum number of pods and namespaces in the document.
const JSON_MAX: usize = 10_000;

/// Returns the changes that are not zero, largest first. Changes of equal magnitude keep the order of their
/// keys.
fn by_change<K: Ord>(changes: &BTreeMap<K, Change>) -> Vec<(&K, &Change)> {
    let mut sorted: Vec<_> = changes.iter().filter(|(_, change)| !change.is_none()).collect();
    sorted.sort_by(|left, right| {
        let magnitude = |change: &Change| change.difference().magnitude();
        magnitude(right.1).cmp(&magnitude(left.1)).then_with(|| left.0.cmp(right.0))
    });
    sorted
}

fn amounts(change: &Change) -> [(&'static str, Value); 3] {
    [
        ("before", json!(change.before.to_string())),
        ("after", json!(change.after.to_string())),
        ("difference", json!(change.difference().to_string())),
    ]
}

fn object(names: &[(&str, &str)], change: &Change) -> Value {
    let names = names.iter().map(|(key, value)| ((*key).to_owned(), json!(value)));
    let amounts = amounts(change).into_iter().map(|(key, value)| (key.to_owned(), value));
    Value::Object(names.chain(amounts).collect())
}

impl Difference {
    /// Returns one JSON document. Money is text, so that no reader turns it into a float by default.
    pub fn json(&self) -> Value {
        let organizations: Vec<Value> =
            self.totals.iter().map(|(id, change)| object(&[("organization_id", id)], change)).collect();
        let hours: Vec<Value> = self
            .by_hour
            .iter()
            .map(|((id, hour), change)| {
                object(&[("organization_id", id), ("hour", &hour.to_string())], change)
            })
            .collect();
        let namespaces = by_change(&self.namespaces).into_iter().take(JSON_MAX).map(|(bearer, change)| {
            let names = [
                ("organization_id", &*bearer.organization),
                ("currency", &bearer.currency),
                ("cluster_id", &bearer.cluster),
                ("namespace", &bearer.namespace),
            ];
            object(&names, change)
        });
        let pods = by_change(&self.pods).into_iter().take(JSON_MAX).map(|(name, change)| {
            let names = [
                ("organization_id", &*name.bearer.organization),
                ("cluster_id", &name.bearer.cluster),
                ("namespace", &name.bearer.namespace),
                ("pod_name", &name.pod.0),
                ("pod_uid", &name.pod.1),
            ];
            object(&names, change)
        });
        json!({
            "from": self.hours.map(|hours| hours.first.to_string()),
            "to": self.hours.map(|hours| hours.last.to_string()),
            "organizations": organizations,
            "only_in": self.only,
            "hours": hours,
            "namespaces": namespaces.collect::<Vec<_>>(),
            "pods": pods.collect::<Vec<_>>(),
            "pods_truncated": self.pods_cut,
            "balanced": self.open().is_empty(),
            "unreadable": self.unreadable.iter().map(|(file, why)| json!({ "file": file, "message": why }))
                .collect::<Vec<_>>(),
        })
    }

    fn list<'a, K: Ord + 'a>(
        &self,
        out: &mut PlainText,
        title: &str,
        changes: &'a BTreeMap<K, Change>,
        name: impl Fn(&K) -> String,
    ) -> fmt::Result {
        let sorted = by_change(changes);
        if sorted.is_empty() {
            return Ok(());
        }
        writeln!(out)?;
        writeln!(out, "{title} ({} changed):", sorted.len())?;
        for (key, change) in sorted.iter().take(LISTED_MAX) {
            writeln!(
                out,
                "  {}: {} -> {}, difference {}",
                name(key),
                change.before,
                change.after,
                change.difference()
            )?;
        }
        match sorted.len().saturating_sub(LISTED_MAX) {
            0 => Ok(()),
            more => writeln!(out, "  and {more} more, which changed less; --json lists them"),
        }
    }
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut out = PlainText::default();
        self.write_text(&mut out)?;
        f.write_str(out.as_str())
    }
}

impl Difference {
    fn write_text(&self, out: &mut PlainText) -> fmt::Result {
        match self.hours {
            Some(HourRange { first, last }) => writeln!(out, "Compared {first} to {last}.")?,
            None => return writeln!(out, "Neither lake has an hour to compare."),
        }
        for (file, why) in &self.unreadable {
            writeln!(out, "'{file}' is left out: {why}; run prorata check to see how to fix it")?;
        }
        for (organization, side) in &self.only {
            writeln!(out, "Organization '{organization}' is only in the lake {side}.")?;
        }
        self.list(out, "Organizations", &self.totals, String::clone)?;
        self.list(out, "Hours", &self.by_hour, |(id, hour)| format!("{id} {hour}"))?;
        self.list(out, "Namespaces", &self.namespaces, |bearer| {
            let Bearer { organization, currency, cluster, namespace } = bearer;
            format!("{organization} {cluster}/{namespace} ({currency})")
        })?;
        self.list(out, "Pods", &self.pods, |name| {
            let (organization, namespace) = (&name.bearer.organization, &name.bearer.namespace);
            format!("{organization} {namespace}/{} ({})", name.pod.0, name.pod.1)
        })?;
        if self.pods_cut {
            writeln!(out, "Pods that changed little are not listed: there were too many.")?;
        }
        writeln!(out)?;
        match self.open().as_slice() {
            _ if self.is_empty() => writeln!(out, "Nothing differs."),
            [] => writeln!(out, "The rows add up to the change of the totals."),
            open => {
                let open = open.join(", ");
                writeln!(
                    out,
                    "The rows do not add up to the change of the totals of {open}; see prorata check."
                )
            }
        }
    }
}
