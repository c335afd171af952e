//! Runs imports in memory, and checks that every event is valid.

use std::collections::BTreeSet;
use std::io::Cursor;

use bytes::Bytes;
use prorata_bills::{BillError, BillFilter, BillFormat, BillImport, BillImporter, BillReport, PARTITIONS};
use prorata_schemas::body;
use prorata_schemas::decimal::Decimal12;
use prorata_schemas::event::{BillLine, BillSet, Event, EventKind, Payload};
use prorata_schemas::time::Timestamp;

/// The time of the exports.
pub const RECORDED_AT: Timestamp = Timestamp(1_800_000_000_000_000);

/// The result of an import.
pub struct Done {
    pub report: BillReport,
    pub events: Vec<Event>,
}

/// Chooses all charges.
pub fn all() -> BillFilter {
    BillFilter::new(true, BTreeSet::new())
}

/// Imports documents, and documents of the export before.
pub fn import_with(
    format: BillFormat,
    filter: BillFilter,
    documents: &[Bytes],
    previous: &[Bytes],
) -> Result<Done, BillError> {
    let import = BillImport { format, organization_id: "acme".into(), recorded_at: RECORDED_AT, filter };
    let files = (0..PARTITIONS).map(|_| Cursor::new(Vec::new())).collect();
    let mut importer = BillImporter::new(import, files);
    for (number, document) in documents.iter().enumerate() {
        importer.read(&format!("new-{number}"), document.clone())?;
    }
    for (number, document) in previous.iter().enumerate() {
        importer.read_previous(&format!("old-{number}"), document.clone())?;
    }
    let mut events = Vec::new();
    let report = importer.finish(&mut |event| {
        events.push(event);
        Ok(())
    })?;
    for event in &events {
        let decoded = body::decode(EventKind::BillSet, &body::encode(event)).unwrap();
        assert_eq!(&decoded, event);
    }
    Ok(Done { report, events })
}

/// Imports all charges of one document.
pub fn import(format: BillFormat, document: &str) -> Result<Done, BillError> {
    import_with(format, all(), &[Bytes::copy_from_slice(document.as_bytes())], &[])
}

pub fn set(event: &Event) -> &BillSet {
    match &event.payload {
        Payload::BillSet(set) => set,
        other => panic!("{other:?}"),
    }
}

impl Done {
    /// Returns all sets with a resource key, by their first hour.
    pub fn sets(&self, resource_key: &str) -> Vec<(&Event, &BillSet)> {
        let all = self.events.iter().map(|event| (event, set(event)));
        let mut found: Vec<_> = all.filter(|(_, set)| &*set.resource_key == resource_key).collect();
        found.sort_by_key(|(event, _)| event.event_time);
        found
    }

    /// Returns the only set with a resource key, and its event.
    pub fn only(&self, resource_key: &str) -> (&Event, &BillSet) {
        let sets = self.sets(resource_key);
        assert_eq!(sets.len(), 1, "{sets:?}");
        sets[0]
    }

    /// Returns the line with this description.
    pub fn line(&self, description: &str) -> &BillLine {
        let mut lines = self.events.iter().flat_map(|event| &set(event).lines);
        lines.find(|line| line.description.as_deref() == Some(description)).unwrap()
    }

    /// Returns the sums of billed and effective costs of all events that are not retracted.
    pub fn sums(&self) -> [Decimal12; 2] {
        let standing = self.events.iter().filter(|event| !event.recording.is_retraction());
        let lines: Vec<&BillLine> = standing.flat_map(|event| &set(event).lines).collect();
        [
            lines.iter().map(|line| line.billed_cost.atoms()).sum::<i128>(),
            lines.iter().map(|line| line.effective_cost.atoms()).sum(),
        ]
        .map(Decimal12::from_atoms)
    }
}

/// Returns a line's billed, effective and list cost, as text.
pub fn costs(line: &BillLine) -> [String; 3] {
    [line.billed_cost, line.effective_cost, line.list_cost].map(|cost| cost.to_string())
}

/// Returns a line's hours and list price per hour, as text.
pub fn time(line: &BillLine) -> [Option<String>; 2] {
    [line.hours.map(|hours| hours.to_string()), line.list_unit_price.map(|price| price.to_string())]
}

/// Returns texts, as `time` does.
pub fn texts<const N: usize>(texts: [&str; N]) -> [Option<String>; N] {
    texts.map(|text| Some(text.to_owned()))
}
