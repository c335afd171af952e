//! Writes the handwritten hour of the table tests as the files of a lake without a Delta log, for two
//! organizations and two hours. Run it with `cargo run -p prorata-tables --example sample_tables -- FOLDER`.
//!
//! The hour holds every kind of row. Checks of the format need that, and no real hour guarantees it.

use std::error::Error;
use std::fs;
use std::path::PathBuf;

use prorata_samples::hour::{empty_hour, full_hour};
use prorata_schemas::tables::{HourClock, Table};
use prorata_schemas::time::{Hour, WallTime};
use prorata_tables::encode;

fn main() -> Result<(), Box<dyn Error>> {
    let lake = PathBuf::from(std::env::args().nth(1).ok_or("usage: sample_tables FOLDER")?);
    for hour in [Hour(498_685), Hour(498_686)] {
        let tables = [full_hour("acme", hour), full_hour("bird", hour), empty_hour("calm", hour)];
        let clocks = tables.each_ref().map(|tables| HourClock {
            late_events: 0,
            max_event_time_seen: tables.totals.max_event_time,
            complete: true,
            revision: 1,
            last_updated: WallTime(hour.end().0),
        });
        for table in Table::HOURLY {
            if let Some(file) = encode(table, &tables, &clocks)? {
                let folder = lake.join(table.name()).join(format!("date={}", hour.date()));
                fs::create_dir_all(&folder)?;
                fs::write(folder.join(format!("{:02}-0000.parquet", hour.of_day())), &file.bytes)?;
            }
        }
    }
    Ok(())
}
