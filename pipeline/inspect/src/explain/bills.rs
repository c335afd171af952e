//! Describes bills in text: the amounts of each line, the part that the hour takes, and the charges that pods
//! divide.

use std::fmt;

use prorata_engine::trace::{BillFigures, BillStep, DivisionStep};
use prorata_schemas::decimal::Decimal12;
use prorata_schemas::ids::{ClusterId, NodeId};
use prorata_schemas::time::Hour;

use super::lines::{REPORTED_MAX, TextLines, date_and_time};
use super::{Answer, Subject};
use crate::Sum;

/// Writes the parts of the lines in focus, and the charges that pods divide.
pub fn write(lines: &mut TextLines, answer: &Answer) {
    write_steps(lines, answer);
    write_divisions(lines, &answer.trace.divisions);
}

fn write_steps(lines: &mut TextLines, answer: &Answer) {
    let is_asked = |step: &&BillStep| match &answer.subject {
        Subject::Bill(key) => *step.resource_key == **key,
        _ => true,
    };
    let steps: Vec<&BillStep> = answer.trace.bills.iter().filter(is_asked).collect();
    if steps.is_empty() {
        return;
    }
    lines.head("Bills: lines of the provider, and the part of each that the hour takes");
    lines.add("  Where a line covers the hour, it replaces estimates. A part is rounded once.");
    if matches!(answer.subject, Subject::Commitment(_) | Subject::Reservation(_)) {
        lines.add("  A commitment or reservation with a line costs in this hour what its lines say.");
    }
    for step in steps.iter().take(REPORTED_MAX) {
        write_line(lines, step, answer);
    }
    if steps.len() > REPORTED_MAX {
        lines.add("  and so on: --json lists all");
    }
    if let Subject::Bill(_) = answer.subject {
        let mut cost = Sum::default();
        steps.iter().for_each(|step| cost.add(step.part.effective));
        lines.add(format!("  together {cost} of effective cost"));
    }
}

fn write_line(lines: &mut TextLines, step: &BillStep, answer: &Answer) {
    let resource = match &*step.resource_key {
        "" => String::new(),
        key => format!(", for {key}"),
    };
    let description = step.description.as_ref().map(|text| format!(": {text}")).unwrap_or_default();
    lines.head(&format!(
        "  Line {} of {}, account {}{resource}{description}",
        step.line_id, step.provider, step.billing_account_id
    ));
    lines.add(format!("  charge period {} to {}", date_and_time(step.from), date_and_time(step.to)));
    columns(lines, "", ["effective", "billed", "list", "hours"]);
    figures(lines, "the whole line", &step.whole);
    figures(lines, "left by earlier hours", &step.left);
    figures(lines, "the part of this hour", &step.part);
    lines.add(format!("  {}", how(step, answer.input.hour)));
    if step.nodes.is_empty() {
        lines.add("  no node takes it: pods divide it, or a row of its own has it, unless it costs nothing");
    } else {
        lines.add("  its nodes divide it by own price x billed time, or by time if all prices are zero:");
        write_nodes(lines, step, answer);
    }
}

/// Writes the nodes of a line with their parts. A resource may have many nodes, so the nodes of other rows
/// are left out.
fn write_nodes(lines: &mut TextLines, step: &BillStep, answer: &Answer) {
    let all = matches!(answer.subject, Subject::Bill(_));
    let is_asked = |cluster: &ClusterId, node: &NodeId| {
        let mut rows = answer.rows.iter().map(|row| &row.row);
        rows.any(|row| row.cluster_id.as_ref() == Some(cluster) && *row.resource_id == **node)
    };
    let (mut shown, mut is_cut) = (0, false);
    for (cluster, node, part) in &step.nodes {
        if shown < REPORTED_MAX && (all || is_asked(cluster, node)) {
            figures(lines, &format!("node {cluster}/{node}"), part);
            shown += 1;
        } else {
            is_cut = true;
        }
    }
    if is_cut {
        lines.add("  and other nodes: --json lists all");
    }
}

/// Describes how the hour's part of a line comes about.
fn how(step: &BillStep, hour: Hour) -> String {
    let BillStep { whole, left, node_hours, .. } = step;
    if step.to <= hour.end() {
        "the hour is the last of the line, and takes all that is left".to_owned()
    } else if whole.hours > Decimal12::ZERO {
        let (left, whole) = (left.hours, whole.hours);
        format!("it is min({node_hours}, {left}) / {whole} of the line: node hours, at most what is left")
    } else {
        let hours = step.to.hour().0.saturating_sub(step.from.hour().0);
        format!("it is 1/{hours} of the line, which has no hours of a resource")
    }
}

/// Writes the charges that pods divide.
fn write_divisions(lines: &mut TextLines, divisions: &[DivisionStep]) {
    if divisions.is_empty() {
        return;
    }
    lines.head("Shared charges of bills that pods divide by their weights");
    for step in divisions.iter().take(REPORTED_MAX) {
        write_division(lines, step);
    }
    if divisions.len() > REPORTED_MAX {
        lines.add("  and so on: --json lists all");
    }
}

fn write_division(lines: &mut TextLines, step: &DivisionStep) {
    let DivisionStep { provider, billing_account_id, service, pods, total_weight, .. } = step;
    let count = match &*step.lines {
        [only] => format!("line {only}"),
        several => format!("{} lines", several.len()),
    };
    let service = if service.is_empty() { "no service" } else { &**service };
    lines.head(&format!("  {service} of {provider}, account {billing_account_id}, {count}"));
    columns(lines, "", ["effective", "billed", "list", "hours"]);
    figures(lines, "the whole charge", &step.amounts);
    lines.add(format!("  {}: {pods} pods with a total weight of {total_weight} divide it", divider(step)));
    for (uid, weight) in step.weights.iter().take(REPORTED_MAX) {
        lines.add(format!("    pod {uid}: {weight} of {total_weight}"));
    }
    if step.weights.len() > REPORTED_MAX {
        lines.add("    and other pods: --json lists all");
    }
}

/// Describes what divides a charge, and by which weight.
fn divider(step: &DivisionStep) -> String {
    match (&step.volume, step.entry, step.over) {
        (Some(key), ..) => format!("by hours with the volume {key}"),
        (None, Some(entry), Some("pods")) => format!("by running hours (entry {entry} of shared_charges)"),
        (None, Some(entry), Some("cost")) => {
            format!("by cost of the other rows (entry {entry} of shared_charges)")
        }
        (None, Some(entry), Some(over)) => format!("by allocated {over} (entry {entry} of shared_charges)"),
        (None, ..) => "by weight".to_owned(),
    }
}

fn figures(lines: &mut TextLines, name: &str, figures: &BillFigures) {
    let BillFigures { effective, billed, list, hours } = figures;
    columns(lines, name, [effective, billed, list, hours]);
}

/// Writes a line of a table with four columns.
fn columns<T: fmt::Display>(lines: &mut TextLines, name: &str, values: [T; 4]) {
    let [effective, billed, list, hours] = values;
    lines.add(format_args!("  {name:<36} {effective:>16} {billed:>16} {list:>16} {hours:>14}"));
}

#[cfg(test)]
mod tests {
    use prorata_engine::trace::ExactNumber;

    use super::*;

    fn amounts(text: &str) -> BillFigures {
        let amount: Decimal12 = text.parse().unwrap();
        BillFigures { effective: amount, billed: amount, list: amount, hours: amount }
    }

    /// Returns a line that begins with hour 0.
    fn line(end: i64, whole: &str, left: &str) -> BillStep {
        BillStep {
            provider: "aws".into(),
            billing_account_id: "1".into(),
            resource_key: "i-1".into(),
            line_id: "l".into(),
            description: None,
            from: Hour(0).start(),
            to: Hour(end).start(),
            whole: amounts(whole),
            left: amounts(left),
            part: amounts("0"),
            node_hours: ExactNumber::default(),
            nodes: Vec::new(),
        }
    }

    #[test]
    fn the_part_of_an_hour_is_described_by_the_rule_that_decides_it() {
        let by_hours = line(24, "3", "2");
        assert!(how(&by_hours, Hour(1)).starts_with("it is min(0, 2) / 3 of the line"));
        assert!(how(&by_hours, Hour(23)).ends_with("takes all that is left"));
        assert!(how(&line(24, "0", "0"), Hour(1)).starts_with("it is 1/24 of the line"));
        assert!(how(&line(1, "0", "0"), Hour(0)).ends_with("takes all that is left"));
    }

    #[test]
    fn a_division_is_described_by_its_pods_and_weights() {
        let step = DivisionStep {
            provider: "aws".into(),
            billing_account_id: "1".into(),
            service: "Amazon EKS".into(),
            volume: None,
            entry: Some(2),
            over: Some("cost"),
            lines: vec!["l".into(), "m".into()],
            amounts: amounts("1.5"),
            pods: 12,
            total_weight: ExactNumber::default(),
            weights: vec![("a".into(), ExactNumber::default())],
        };
        let text = |step: &DivisionStep| {
            let mut lines = TextLines::default();
            write_divisions(&mut lines, std::slice::from_ref(step));
            lines.as_str().to_owned()
        };
        let by_entry = text(&step);
        assert!(by_entry.contains("Amazon EKS of aws, account 1, 2 lines"), "{by_entry}");
        let how = "by cost of the other rows (entry 2 of shared_charges): 12 pods with a total weight of 0";
        assert!(by_entry.contains(how), "{by_entry}");
        assert!(by_entry.contains("pod a: 0 of 0"), "{by_entry}");
        let by_volume = DivisionStep { volume: Some("vol-1".into()), entry: None, over: None, ..step };
        assert!(text(&by_volume).contains("by hours with the volume vol-1: 12 pods"));
    }
}
