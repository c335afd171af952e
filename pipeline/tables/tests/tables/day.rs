//! Files of days: rows of hours are joined, and split again to the same bytes.

use bytes::Bytes;
use prorata_samples::hour::full_hour;
use prorata_schemas::tables::{EncodedFile, RowSource, Table};
use prorata_schemas::time::Hour;
use prorata_tables::{DayPart, day_parts, join, split};

use crate::read::{HOUR, file, read};

fn source(hour: Hour, file: &EncodedFile) -> RowSource<Bytes> {
    RowSource::Hour { hour, digest: file.digest.clone(), bytes: file.bytes.clone().into() }
}

fn hour(step: i64) -> Hour {
    Hour(HOUR.0 + step)
}

#[test]
fn a_joined_file_is_split_byte_for_byte() {
    for table in Table::HOURLY {
        // The two files of one hour hold different organizations; their order here does not matter.
        let files = [
            (hour(2), file(table, &[full_hour("acme", hour(2)), full_hour("bird", hour(2))])),
            (hour(0), file(table, &[full_hour("dove", hour(0))])),
            (hour(0), file(table, &[full_hour("acme", hour(0))])),
        ];
        let sources: Vec<RowSource<Bytes>> = files.iter().map(|(hour, file)| source(*hour, file)).collect();
        let joined = join(table, &sources).unwrap();
        assert_eq!(joined.rows, files.iter().map(|(_, file)| file.rows).sum::<u64>());
        let joined_bytes = Bytes::from(joined.bytes.clone());
        let parts = split(table, &joined_bytes).unwrap();
        let expected = [&files[2], &files[1], &files[0]];
        assert_eq!(parts.len(), 3, "{table:?}");
        for (part, (hour, file)) in parts.iter().zip(expected) {
            assert_eq!((part.hour, &part.file), (*hour, file), "{table:?}");
        }
        let listed = day_parts(table, &joined_bytes).unwrap();
        let (digest, rows) = (files[2].1.digest.clone(), files[2].1.rows);
        assert_eq!(listed[0], DayPart { hour: hour(0), digest, rows });

        // A file of a day, and a file of an hour between its hours.
        let between = file(table, &[full_hour("acme", hour(1))]);
        let again = join(table, &[RowSource::Day(joined_bytes), source(hour(1), &between)]).unwrap();
        let mut all = sources;
        all.push(source(hour(1), &between));
        assert_eq!(again, join(table, &all).unwrap(), "it does not matter what was joined first");
        assert_eq!(read(&again.bytes).num_rows() as u64, again.rows);
    }
}

/// Changes bytes of the footer one at a time. Some changes make an offset negative, on which the library
/// panics.
#[test]
fn a_damaged_footer_is_an_error_or_reads_well_and_never_a_panic() {
    let table = Table::Hours;
    let hours = [0, 1].map(|step| (hour(step), file(table, &[full_hour("acme", hour(step))])));
    let sources: Vec<RowSource<Bytes>> = hours.iter().map(|(hour, file)| source(*hour, file)).collect();
    let joined = join(table, &sources).unwrap().bytes;
    let end = joined.len() - 8;
    let footer = u32::from_le_bytes(joined[end..end + 4].try_into().unwrap()) as usize;
    let mut refused = 0;
    for at in (end - footer..joined.len()).step_by(footer.div_ceil(2_000)) {
        let mut bent = joined.clone();
        bent[at] ^= 1;
        refused += usize::from(split(table, &bent.into()).is_err());
    }
    assert!(refused > 100, "{refused}");
}

#[test]
fn rows_that_are_not_what_they_are_said_to_be_are_refused() {
    let table = Table::CostAllocation;
    let made = file(table, &[full_hour("acme", HOUR)]);
    let refused = |sources: &[RowSource<Bytes>]| join(table, sources).unwrap_err().to_string();
    assert!(refused(&[source(hour(1), &made)]).contains("another hour"));
    let broken = RowSource::Hour { hour: HOUR, digest: String::new(), bytes: Bytes::from_static(b"broken") };
    assert!(refused(&[broken]).contains("cannot be read"));
    let other = file(Table::Hours, &[full_hour("acme", HOUR)]);
    assert!(!refused(&[source(HOUR, &other)]).is_empty());
    let plain = Bytes::from(made.bytes);
    assert!(split(table, &plain).unwrap_err().to_string().contains("footer"), "it is not one of a day");
}
