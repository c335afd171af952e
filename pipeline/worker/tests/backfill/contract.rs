//! The fakes of archive and encoder pass the conformance suites of the ports.

use prorata_engine::{HourEvents, State, close_hour};
use prorata_samples::trace::{START, node, trace};
use prorata_schemas::rows::HourTables;
use prorata_schemas::rules::Rules;
use prorata_schemas::tables::Table;
use prorata_schemas::time::Hour;
use prorata_testkit::conformance::files;
use prorata_testkit::fakes::{FakeArchive, FakeEncoder};

#[test]
fn the_twin_of_the_archive_keeps_its_promises() {
    files::archive(&FakeArchive, &trace()).unwrap();
}

/// Returns the tables of the first hour of an organization with one node.
fn hour(organization: &str, hourly_cost: i64) -> HourTables {
    let state = State::new(organization.into());
    let events = HourEvents::of(Hour(START), [node(organization, 0, hourly_cost)]);
    close_hour(state, events, &Rules::default()).unwrap().1
}

#[test]
fn the_twin_of_the_encoder_keeps_its_promises() {
    for table in [Table::CostAllocation, Table::Hours] {
        files::table_encoder(&FakeEncoder, table, &hour("acme", 3), &hour("bird", 4)).unwrap();
    }
}
