//! The lines of an explanation: their layout, and the format of instants and amounts.

use std::fmt;

use prorata_engine::PerResource;
use prorata_engine::trace::ExactNumber;
use prorata_schemas::time::Timestamp;

use crate::text::PlainText;

/// Maximum number of rows of one list to report.
pub const REPORTED_MAX: usize = 24;

/// Lines under headings.
#[derive(Debug, Default)]
pub struct TextLines(PlainText);

impl TextLines {
    /// Returns the text.
    pub fn as_str(&self) -> &str {
        self.0.as_str()
    }

    /// Writes a line.
    pub fn add(&mut self, line: impl fmt::Display) {
        // Writing to a string never fails.
        let _infallible = writeln!(self.0, "{line}");
    }

    /// Writes a heading.
    pub fn head(&mut self, heading: &str) {
        self.add("");
        self.add(heading);
    }

    /// Writes a line of a table with a column for each resource.
    pub fn resources(&mut self, name: &str, values: PerResource<String>) {
        let PerResource { cpu, memory, gpu } = values;
        self.add(format_args!("  {name:<32} {cpu:>19} {memory:>19} {gpu:>19}"));
    }

    /// Writes a line of exact numbers, with a column for each resource.
    pub fn exact(&mut self, name: &str, values: &PerResource<ExactNumber>) {
        self.resources(name, values.as_ref().map(ToString::to_string));
    }

    /// Writes the names of the columns.
    pub fn resource_names(&mut self, name: &str) {
        self.resources(name, PerResource { cpu: "CPU".into(), memory: "memory".into(), gpu: "GPU".into() });
    }
}

/// Formats an instant with its date.
pub fn date_and_time(at: Timestamp) -> String {
    let text = at.to_string();
    text.strip_suffix(".000000Z").map(|text| format!("{text}Z")).unwrap_or(text)
}

/// Formats an instant within the explained hour.
pub fn instant(at: Timestamp) -> String {
    let text = date_and_time(at);
    text.split_once('T').map_or(text.clone(), |(_, time)| time.trim_end_matches('Z').to_owned())
}

/// Formats the span from one instant to another within an hour.
pub fn span(from: Timestamp, to: Timestamp) -> String {
    format!("{} to {}", instant(from), instant(to))
}

/// Describes amounts of the resources in words.
pub fn amounts(amounts: &PerResource<ExactNumber>) -> String {
    format!("{} vCPU, {} GiB, {} GPU", amounts.cpu, amounts.memory, amounts.gpu)
}

/// Formats resource-hours.
pub fn resource_hours(amounts: &PerResource<ExactNumber>) -> String {
    format!("{} vCPU-hours, {} GiB-hours, {} GPU-hours", amounts.cpu, amounts.memory, amounts.gpu)
}
