//! Describes the rows in text: from exact to rounded costs, the charges that they add up to, and the table
//! file.

use prorata_engine::trace::RowStep;
use prorata_schemas::decimal::Decimal12;
use prorata_schemas::rows::{CostRow, RowKind};
use prorata_tables::tags_of;
use serde_json::{Map, Value, json};

use super::explained::{ExplainedRow, SplitCharge};
use super::find::{self, FIGURES};
use super::lines::{REPORTED_MAX, TextLines, instant};
use super::{Answer, Changes, Subject};

/// Writes the rows and their charges.
pub fn write(lines: &mut TextLines, answer: &Answer) {
    let by_pod = matches!(answer.subject, Subject::Namespace(_) | Subject::Commitment(_));
    lines.head("Rows of cost_allocation");
    for explained in answer.rows.iter().take(REPORTED_MAX) {
        write_row(lines, &explained.row, if by_pod { None } else { step_of(answer, &explained.row) });
    }
    if answer.rows.len() > REPORTED_MAX {
        lines.add("  and so on: --json lists all");
    }
    lines.add(format!("  together {}", answer.cost()));
    if !answer.charges.is_empty() {
        lines.head("Charges, rounded once; their rows split them by largest remainder and add up to them");
    }
    for charge in &answer.charges {
        lines.add(format!("  {}: {}", charge.name, charge.total));
        for (who, cost) in charge.parts.iter().take(REPORTED_MAX) {
            lines.add(format!("    {cost:>22}  {who}"));
        }
        if charge.parts.len() > REPORTED_MAX {
            lines.add("    and so on: --json lists all");
        }
    }
}

/// Returns the exact step that leads to a row.
fn step_of<'a>(answer: &'a Answer, row: &CostRow) -> Option<&'a RowStep> {
    let ([wanted @ .., _, _, _], ..) = find::grain(row);
    let is_alike = |step: &&RowStep| step.list_unit_price == row.list_unit_price && texts_of(step) == wanted;
    let steps = answer.trace.rows.iter().filter(is_alike);
    // Steps do not name lines of bills, by which several rows may differ. The cost decides among them.
    steps.min_by_key(|step| step.cost.rounded().atoms().abs_diff(row.effective_cost.atoms()))
}

/// Returns the texts that the keys of a step and of its row have in common.
fn texts_of(step: &RowStep) -> [String; 10] {
    let text = |text: Option<&str>| text.unwrap_or_default().to_owned();
    [
        step.kind.to_owned(),
        text(step.cluster_id.as_deref()),
        step.resource_id.to_string(),
        text(step.pod_uid.as_deref()),
        text(step.commitment_id.as_deref()),
        text(step.reservation_id.as_deref()),
        text(step.quota_id.as_deref()),
        text(step.quota_state),
        text(step.unpriced),
        step.labels.as_ref().and_then(tags_of).unwrap_or_default(),
    ]
}

fn write_row(lines: &mut TextLines, row: &CostRow, step: Option<&RowStep>) {
    let mut name = row.kind.name().to_owned();
    let mut add = |what: &str, id: Option<&str>| {
        if let Some(id) = id {
            name.push_str(&format!(", {what} {id}"));
        }
    };
    if row.kind != RowKind::PodServerless && row.kind != RowKind::PodPool {
        add("of", Some(&*row.resource_id).filter(|id| !id.is_empty()));
    }
    add("pod", row.pod.as_ref().map(|pod| &*pod.pod_name));
    add("commitment", row.commitment_id.as_deref());
    add("reservation", row.reservation_id.as_deref());
    add("quota", row.quota_id.as_deref());
    add("label", row.quota_state.map(|state| state.name()));
    add("no price:", row.unpriced.map(|reason| reason.name()));
    if let [first, more @ ..] = &*row.lines {
        add("billed as", row.resource_key().map(|key| &**key).filter(|key| !key.is_empty()));
        add("line", Some(&*first.line().line_id));
        if !more.is_empty() {
            name.push_str(" and more");
        }
    }
    lines.add(format!("  {name}"));
    let (cost, billed) = (row.effective_cost, row.billed_cost);
    match step {
        Some(step) => lines.add(format!("    EffectiveCost {cost}, from {}; BilledCost {billed}", step.cost)),
        None => lines.add(format!("    EffectiveCost {cost}; BilledCost {billed}")),
    }
    if let Some(estimate) = row.estimated_cost {
        lines.add(format!("    x_EstimatedCost {estimate}, by the node's own price"));
    }
    let parts = |parts: &[Option<Decimal12>]| -> Option<String> {
        let parts: Option<Vec<String>> = parts.iter().map(|part| part.map(|part| part.to_string())).collect();
        parts.map(|parts| parts.join(" + "))
    };
    if let Some(sum) = parts(&[row.split_cost, row.unused_cost]) {
        lines.add(format!("    split + unused = {sum} = {cost}"));
    }
    if let Some(sum) = parts(&[row.cpu_cost, row.memory_cost, row.gpu_cost]) {
        lines.add(format!("    CPU + memory + GPU = {sum} = {cost}"));
    }
    if let Some(by_resource) = step.and_then(|step| step.by_resource.as_ref())
        && row.kind == RowKind::PodNode
    {
        lines.exact("  its part x the cost", by_resource);
    }
    if let Some(charge) = row.pool_charge.filter(|_| row.kind == RowKind::PodNode) {
        lines.add(format!("    x_PoolCharge {charge}"));
    }
}

/// Writes whether the table files have the rows of the answer, and how they differ.
pub fn compare(lines: &mut TextLines, answer: &Answer) {
    if answer.is_same() {
        lines.add(format!("The same rows are in {}.", answer.table_files.join(", ")));
        return;
    }
    lines.add(format!("The rows in {} DIFFER:", answer.table_files.join(", ")));
    if answer.input.is_dirty {
        lines.add("  the hour is waiting to be recomputed: late events or other rules have arrived since");
    }
    if !answer.is_published {
        lines.add(
            "  the newest revision of the hour is not in the table yet: its worker publishes it; ask again",
        );
    }
    for explained in answer.rows.iter().filter(|row| !row.differences.is_empty()).take(REPORTED_MAX) {
        for difference in &explained.differences {
            let column = difference.column.unwrap_or("the row");
            let said =
                |value: Option<Decimal12>| value.map_or("nothing".to_owned(), |value| value.to_string());
            lines.add(format!(
                "  {} {}: {column} is {} in the table, but {} when folded again",
                explained.row.kind.name(),
                explained.row.resource_id,
                said(difference.found),
                said(difference.computed)
            ));
        }
    }
    for (texts, ..) in answer.only_in_table.iter().take(REPORTED_MAX) {
        let [kind, _, resource, ..] = texts;
        lines.add(format!("  {kind} {resource}: the row is only in the table"));
    }
}

impl Answer {
    /// Returns one JSON document. Money and quantities are text. A number that twelve decimals cannot express
    /// exactly also has its fraction.
    ///
    /// # Errors
    /// If a step cannot be serialized, which is a defect.
    pub fn json(&self) -> Result<Value, serde_json::Error> {
        let (what, name) = self.subject.name();
        let input = &self.input;
        let events = self.events.iter().map(|event| {
            json!({ "time": event.at.to_string(), "clock": instant(event.at), "kind": event.kind.name(),
                "summary": event.what, "file": event.file, "file_number": self.file_number(&event.file) })
        });
        Ok(json!({
            "subject": { "kind": what, "name": name },
            "organization_id": &*input.organization_id,
            "hour": input.hour.to_string(),
            "currency": &*self.tables.currency,
            "rules_version": &*self.tables.rules_version,
            "cost": self.cost().to_string(),
            "snapshot": { "hour": input.base.map(|base| base.to_string()), "objects": input.snapshot },
            "is_dirty": input.is_dirty,
            "is_published": self.is_published,
            "changes": self.changes.as_ref().map(Changes::json),
            "events": events.collect::<Vec<_>>(),
            "trace": serde_json::to_value(&self.trace)?,
            "rows": self.rows.iter().map(row_json).collect::<Vec<_>>(),
            "only_in_table": self.only_in_table.iter().map(|(texts, ..)| texts).collect::<Vec<_>>(),
            "charges": self.charges.iter().map(charge_json).collect::<Vec<_>>(),
            "table_files": self.table_files,
            "is_same_as_table": self.is_same(),
        }))
    }
}

fn row_json(explained: &ExplainedRow) -> Value {
    let row = &explained.row;
    let (texts, price, _) = find::grain(row);
    let [kind, cluster, resource, uid, commitment, reservation, quota, state, ..] = &texts;
    let [.., unpriced, labels, basis, key, _] = &texts;
    let bill_lines: Vec<&str> = row.lines.iter().map(|billed| &*billed.line().line_id).collect();
    let figures: Map<String, Value> = FIGURES
        .iter()
        .filter_map(|(name, of)| Some(((*name).to_owned(), json!(of(row)?.to_string()))))
        .collect();
    let differences = explained.differences.iter().map(|difference| {
        let text = |value: Option<Decimal12>| value.map(|value| value.to_string());
        json!({ "column": difference.column, "table": text(difference.found),
            "computed": text(difference.computed) })
    });
    json!({
        "kind": kind, "cluster": cluster, "resource": resource, "pod_uid": uid, "commitment": commitment,
        "reservation": reservation, "quota": quota, "quota_state": state, "unpriced": unpriced,
        "labels": labels,
        "basis": basis, "bill": key, "bill_lines": bill_lines,
        "unit_price": price.map(|price| price.to_string()),
        "pod": row.pod.as_ref().map(|pod| format!("{}/{}", pod.namespace, pod.pod_name)),
        "figures": figures, "differences": differences.collect::<Vec<_>>(),
    })
}

fn charge_json(charge: &SplitCharge) -> Value {
    let parts: Vec<Value> =
        charge.parts.iter().map(|(who, cost)| json!({ "name": who, "cost": cost.to_string() })).collect();
    json!({ "charge": charge.name, "total": charge.total.to_string(), "parts": parts })
}
