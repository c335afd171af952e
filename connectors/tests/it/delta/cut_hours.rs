//! Hours in several Parquet files in Delta tables. Late events must give the same files, byte for byte, as a
//! backfill of all events.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use prorata_connectors::archive::{AvroArchive, write_events};
use prorata_connectors::store::Store;
use prorata_connectors::{DeltaTables, ParquetEncoder, SystemClock};
use prorata_samples::trace::{START, node, pod, pod_stop};
use prorata_schemas::event::EventRecord;
use prorata_schemas::tables::Table;
use prorata_schemas::time::Hour;
use prorata_testkit::fakes::FileRows;
use prorata_tests::lake::{EVERY_HOUR, StoredLake};
use prorata_worker::backfill::input::InMemoryFiles;
use prorata_worker::backfill::{self, BackfillOptions, BackfillPorts, Outcome};
use prorata_worker::ports::Silent;

const ORGANIZATIONS: i64 = 12;

fn history() -> Vec<EventRecord> {
    let of = |n: i64| {
        let organization = format!("org-{n:02}");
        let pods = (0..n % 4).map(|pod| format!("pod {pod}")).collect::<Vec<_>>();
        let pods = pods.iter().map(|name| pod(&organization, 5 + n, name, 1)).collect::<Vec<_>>();
        [vec![node(&organization, 0, 10)], pods].concat()
    };
    let mut events: Vec<EventRecord> = (0..ORGANIZATIONS).flat_map(of).collect();
    events.push(pod("org-00", 5 * 60 + 20, "now", 1));
    events
}

async fn fold(root: &Path, events: &[EventRecord], owner: &str) -> Outcome {
    let store = Store::open(root.to_str().unwrap()).unwrap();
    let bodies: Vec<_> = events.iter().map(|event| (event.event.payload.kind(), &*event.body)).collect();
    let file = write_events(&bodies).unwrap().into();
    let ports = BackfillPorts {
        shared: prorata_worker::Ports {
            store: Arc::new(store.clone()),
            tables: Arc::new(DeltaTables::new(store)),
            archive: Arc::new(AvroArchive),
            encoder: Arc::new(FileRows { encoder: ParquetEncoder, rows: 4 }),
            clock: Arc::new(SystemClock),
        },
        input: Arc::new(InMemoryFiles::of(BTreeMap::from([("events.avro".to_owned(), file)]))),
        progress: Arc::new(Silent),
    };
    let options = BackfillOptions { shards: Some(1), ..BackfillOptions::new(owner.into()) };
    backfill::run(ports, options).await.unwrap()
}

#[test]
fn late_events_rewrite_some_files_to_the_bytes_of_a_backfill() {
    let runtime = Arc::new(tokio::runtime::Runtime::new().unwrap());
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let lake = |name: &str| StoredLake::open(path(name).to_str().unwrap(), Arc::clone(&runtime));
    runtime.block_on(fold(&path("late"), &history(), "first"));
    let before = lake("late").files(EVERY_HOUR);
    let hour = |files: &prorata_tests::lake::LiveFiles, table| files[&(table, 0, Hour(START + 2))].clone();
    let costs = hour(&before, Table::CostAllocation);
    assert!(costs.len() > 3, "{} files", costs.len());

    let late = [pod("org-06", 125, "late", 1), pod_stop("org-06", 150, "late")];
    let outcome = runtime.block_on(fold(&path("late"), &late, "second"));
    assert_eq!((outcome.hours_restated, outcome.organization_hours), (1, 1));
    let after = lake("late").files(EVERY_HOUR);
    let stay = hour(&after, Table::CostAllocation).iter().filter(|file| costs.contains(file)).count();
    assert!(stay > 0, "files without rows of the organization stay");
    assert_eq!(hour(&after, Table::Hours).len(), 1);

    runtime.block_on(fold(&path("whole"), &[history(), late.to_vec()].concat(), "third"));
    lake("late").assert_equals(&lake("whole"), EVERY_HOUR);
    // The same fold again changes nothing.
    let outcome = runtime.block_on(fold(&path("late"), &history(), "fourth"));
    assert_eq!((outcome.files_written, outcome.hours_restated), (0, 0));
}
