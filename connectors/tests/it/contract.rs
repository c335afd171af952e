//! The real archive and encoder keep the promises of their ports.

use prorata_connectors::ParquetEncoder;
use prorata_connectors::archive::AvroArchive;
use prorata_samples::arbitrary;
use prorata_samples::hour::full_hour;
use prorata_schemas::tables::Table;
use prorata_schemas::time::Hour;
use prorata_testkit::conformance::files;

#[test]
fn avro_files_keep_the_promises_of_an_archive() {
    files::archive(&AvroArchive, &arbitrary::records()).unwrap();
}

#[test]
fn parquet_files_keep_the_promises_of_a_table_encoder() {
    let (hour, other) = (full_hour("acme", Hour(490_000)), full_hour("bird", Hour(490_000)));
    for table in Table::HOURLY {
        files::table_encoder(&ParquetEncoder, table, &hour, &other).unwrap();
    }
}
