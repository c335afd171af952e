//! Describes lines of bills in text: the amounts of each line, and the part that the hour takes.

use std::fmt;

use prorata_engine::trace::{BillFigures, BillStep};
use prorata_schemas::decimal::Decimal12;
use prorata_schemas::ids::{ClusterId, NodeId};
use prorata_schemas::time::Hour;

use super::lines::{REPORTED_MAX, TextLines, date_and_time};
use super::{Answer, Subject};
use crate::Sum;

/// Writes the parts of the lines in focus.
pub fn write(lines: &mut TextLines, answer: &Answer) {
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
        lines.add("  no node takes it: a row of its own has it, unless it costs nothing");
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
}
