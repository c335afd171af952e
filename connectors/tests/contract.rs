//! The real archive and encoder keep the promises of their ports.

#[path = "../../pipeline/tables/tests/tables/samples.rs"]
#[expect(dead_code, reason = "the other tests use the rest")]
mod samples;
#[path = "../../schemas/tests/support/mod.rs"]
mod support;

use prorata_connectors::archive::AvroArchive;
use prorata_schemas::event::EventRecord;
use prorata_schemas::tables::Table;
use prorata_schemas::time::Hour;
use prorata_testkit::conformance::files;

#[test]
fn avro_files_keep_the_promises_of_an_archive() {
    let events: Vec<EventRecord> = support::samples().into_iter().map(EventRecord::new).collect();
    files::archive(&AvroArchive, &events).unwrap();
}

#[test]
fn parquet_files_keep_the_promises_of_a_table_encoder() {
    let (hour, other) =
        (samples::full_hour("acme", Hour(490_000)), samples::full_hour("bird", Hour(490_000)));
    for table in Table::ALL {
        files::table_encoder(&prorata_tables::encode, table, &hour, &other).unwrap();
    }
}
