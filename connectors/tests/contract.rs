//! The real archive and encoder keep the promises of their ports.

use prorata_connectors::archive::AvroArchive;
use prorata_samples::arbitrary;
use prorata_samples::hour::full_hour;
use prorata_schemas::tables::Table;
use prorata_schemas::time::Hour;
use prorata_testkit::conformance::files;
use prorata_worker::ports::EncoderFunctions;

#[test]
fn avro_files_keep_the_promises_of_an_archive() {
    files::archive(&AvroArchive, &arbitrary::records()).unwrap();
}

#[test]
fn parquet_files_keep_the_promises_of_a_table_encoder() {
    let (hour, other) = (full_hour("acme", Hour(490_000)), full_hour("bird", Hour(490_000)));
    let encoder = EncoderFunctions { encode: prorata_tables::encode, splice: prorata_tables::splice };
    for table in Table::ALL {
        files::table_encoder(&encoder, table, &hour, &other).unwrap();
    }
}
