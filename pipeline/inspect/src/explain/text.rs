//! Writes an explanation as lines of text. Every number in the text is also in the JSON document.

use std::collections::BTreeMap;
use std::fmt;

use prorata_schemas::event::EventKind;

use super::lines::{TextLines, instant};
use super::{Answer, Subject, bills, nodes, rows, spans};

/// Maximum number of usage events that one explanation reports one by one.
const USAGE_REPORTED_MAX: usize = 6;

/// Maximum number of other events that one explanation reports one by one.
const EVENTS_REPORTED_MAX: usize = 60;

impl fmt::Display for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut lines = TextLines::default();
        self.begin(&mut lines);
        if let Some(changes) = &self.changes {
            changes.write(&mut lines);
        }
        self.events(&mut lines);
        spans::write(&mut lines, &self.trace, &self.subject);
        bills::write(&mut lines, self);
        nodes::write(&mut lines, &self.trace, &self.subject);
        rows::write(&mut lines, self);
        f.write_str(lines.as_str())
    }
}

impl Answer {
    fn begin(&self, lines: &mut TextLines) {
        let (what, name) = self.subject.name();
        let (input, tables) = (&self.input, &self.tables);
        lines.add(format!(
            "{what} {name} of organization {}, hour {}: {} {}",
            input.organization_id,
            input.hour,
            self.cost(),
            tables.currency
        ));
        if let Subject::Pod(_) = self.subject {
            let pods: BTreeMap<_, _> = self
                .rows
                .iter()
                .filter_map(|row| Some((row.row.pod_uid.clone()?, row.row.pod.clone()?)))
                .collect();
            for (uid, pod) in pods {
                lines.add(format!(
                    "  uid {uid}, {}/{} in cluster {}",
                    pod.namespace, pod.pod_name, pod.cluster_id
                ));
            }
        }
        let from = match input.base {
            Some(base) => format!("the state at the end of hour {base}"),
            None => "the first event".to_owned(),
        };
        lines.add(format!(
            "Folded again under rules {} from {from} and the events of the hour. Money is in {}.",
            tables.rules_version, tables.currency
        ));
        for object in &input.snapshot {
            lines.add(format!("  state: {object}"));
        }
        rows::compare(lines, self);
    }

    fn events(&self, lines: &mut TextLines) {
        lines.head("Events of the hour that matter");
        let (usage, others): (Vec<_>, Vec<_>) =
            self.events.iter().partition(|event| event.kind == EventKind::PodUsage);
        for (list, most, name) in
            [(others, EVENTS_REPORTED_MAX, "events"), (usage, USAGE_REPORTED_MAX, "samples of use")]
        {
            for event in list.iter().take(most) {
                let (at, kind) = (instant(event.at), event.kind.name());
                let file = self.file_number(&event.file);
                lines.add(format!("  {at}  {kind} {}  [{file}]", event.what));
            }
            if list.len() > most {
                lines.add(format!("  and more {name}: --json lists all"));
            }
        }
        if self.events.is_empty() {
            lines.add("  none; everything was set before the hour");
        }
        for file in self.event_files() {
            lines.add(format!("  [{}] {file}", self.file_number(file)));
        }
    }
}
