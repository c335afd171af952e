//! A lake in memory whose ledger the tests write, hour by hour, as Parquet.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use prorata_connectors::ParquetEncoder;
use prorata_inspect::check::{ClosedChecked, check_closed};
use prorata_inspect::{LakeTables, TableLog};
use prorata_samples::hour::full_hour;
use prorata_schemas::decimal::Decimal12;
use prorata_schemas::rows::{CostBasis, HourTables};
use prorata_schemas::tables::{EncodedFile, HourClock, Table};
use prorata_schemas::time::{Hour, WallTime};
use prorata_tables::closed;
use prorata_testkit::fakes::{FakeStore, FakeTables, Faults, SteppedClock};
use prorata_worker::WorkerError;
use prorata_worker::names::closed::Month;
use prorata_worker::names::{ObjectId, TableFile};
use prorata_worker::ports::{CommitOutcome, FileEntry, ObjectStore, PutOutcome, TableCommit, TableCommitter};
use prorata_worker::root::Root;
use prorata_worker::root::close::{CloseOptions, ClosePorts, CloseReport, close};
use prorata_worker::root::maintain::{MaintainPorts, Maintained, maintain};

/// Microseconds of a day.
const DAY: i64 = 86_400_000_000;

/// The first moment of the tests.
const NOW: WallTime = WallTime(20_800 * DAY);

/// Returns the time this many days after the first moment.
pub fn after_days(days: i64) -> WallTime {
    WallTime(NOW.0 + days * DAY)
}

pub struct Lake {
    pub store: FakeStore,
    pub tables: FakeTables,
    pub clock: SteppedClock,
}

pub fn hour(text: &str) -> Hour {
    text.parse().unwrap()
}

pub fn month(text: &str) -> Month {
    text.parse().unwrap()
}

/// Returns the first `rows` rows of an hour.
pub fn rows(organization: &str, at: &str, rows: usize) -> HourTables {
    let mut tables = full_hour(organization, hour(at));
    tables.cost_allocation.truncate(rows);
    tables.totals.basis = CostBasis::Final;
    tables
}

/// Returns an hour that is not final.
pub fn not_final(organization: &str, at: &str) -> HourTables {
    let mut tables = rows(organization, at, 3);
    tables.totals.basis = CostBasis::Partial;
    tables
}

fn encoded(table: Table, hours: &[HourTables]) -> Option<EncodedFile> {
    let clock = HourClock {
        late_events: 0,
        max_event_time_seen: None,
        complete: true,
        revision: 0,
        last_updated: WallTime(0),
    };
    prorata_tables::encode(table, hours, &vec![clock; hours.len()]).unwrap()
}

impl Lake {
    /// Creates a root of one shard.
    pub async fn new() -> Self {
        let clock = SteppedClock::moved_by_pauses(NOW);
        let store = FakeStore::default().with_clock(clock.clone());
        let tables = FakeTables::default().with_clock(clock.clone());
        Root::new(1).create(&store).await.unwrap();
        Self { store, tables, clock }
    }

    /// Creates a lake of `acme` whose October is final, and whose November has begun.
    pub async fn october() -> Self {
        let lake = Self::new().await;
        lake.put(&[rows("acme", "2026-10-01T00", 9)]).await;
        lake.put(&[rows("acme", "2026-10-15T05", 7)]).await;
        lake.put(&[not_final("acme", "2026-11-03T00")]).await;
        lake
    }

    /// Writes the rows of an hour, and replaces the rows that it had.
    pub async fn put(&self, hours: &[HourTables]) {
        let at = hours.first().unwrap().hour;
        for table in [Table::CostAllocation, Table::Hours] {
            let live = self.tables.load(table).await.unwrap();
            let is_old = |path: &String| TableFile::parse(path).is_some_and(|name| name.hour == at);
            let removes: Vec<String> =
                live.files.iter().map(|file| file.path.clone()).filter(is_old).collect();
            let mut adds = Vec::new();
            if let Some(EncodedFile { bytes, stats, digest, .. }) = encoded(table, hours) {
                let object_id = ObjectId { seq: 1, owner: "aa".into(), n: live.version };
                let path = TableFile { hour: at, shard: 0, object_id, digest: digest.clone() }.path();
                let size = bytes.len() as u64;
                let object = format!("{}/{path}", table.name());
                let put = self.store.put_if_absent(&object, bytes.into()).await.unwrap();
                assert_eq!(put, PutOutcome::Created);
                adds.push(FileEntry {
                    path,
                    bytes: size,
                    digest,
                    stats: Some(stats),
                    last_organization: None,
                });
            }
            let commit = TableCommit { adds, removes, id: "test".into(), ..TableCommit::default() };
            let committed = self.tables.commit(table, live.version, &commit).await.unwrap();
            assert_eq!(committed, CommitOutcome::Committed);
        }
    }

    pub async fn close_with(
        &self,
        faults: Faults,
        options: CloseOptions,
    ) -> Result<CloseReport, WorkerError> {
        let ports = ClosePorts {
            store: Arc::new(self.store.with_faults(faults.clone())),
            tables: Arc::new(self.tables.with_faults(faults)),
            encoder: Arc::new(ParquetEncoder),
            clock: Arc::new(self.clock.clone()),
        };
        close(&ports, &options, "closer").await
    }

    /// Closes months without faults.
    pub async fn close(&self) -> CloseReport {
        let closed = self.close_with(Faults::default(), CloseOptions::default()).await.unwrap();
        assert!(closed.failed.is_empty(), "{:?}", closed.failed);
        closed
    }

    pub async fn maintain(&self) -> Maintained {
        let tables = Arc::new(self.tables.clone());
        let ports = MaintainPorts {
            store: Arc::new(self.store.clone()),
            tables: tables.clone(),
            logs: tables,
            encoder: Arc::new(ParquetEncoder),
            clock: Arc::new(self.clock.clone()),
        };
        maintain(&ports, "keeper").await.unwrap()
    }

    pub async fn check(&self) -> ClosedChecked {
        let logs = self.tables.tables().into_iter();
        let logs = logs.map(|(table, log)| (table, TableLog { files: log.live.files, drift: None }));
        let mut logs: BTreeMap<Table, TableLog> = logs.collect();
        let closed = logs.remove(&Table::ClosedAllocation);
        check_closed(&LakeTables::new(&self.store, logs), closed.as_ref()).await.unwrap()
    }

    /// Returns the names of the problems that a check reports.
    pub async fn problems(&self) -> Vec<&'static str> {
        self.check().await.findings.counts().keys().map(|problem| problem.name()).collect()
    }

    /// Returns the live files of `closed_allocation`, with the rows and corrections of each.
    pub fn closed_files(&self) -> BTreeMap<String, (u64, u64)> {
        let live = self.live(Table::ClosedAllocation).into_iter().map(|path| {
            let file = closed::describe(&self.object(Table::ClosedAllocation, &path)).unwrap();
            (path, (file.rows, file.corrections))
        });
        live.collect()
    }

    /// Returns the effective cost of an organization in a month: of the ledger, and as issued and corrected.
    pub fn costs(&self, organization: &str, period: &str) -> [Decimal12; 2] {
        let period = month(period);
        let of_month = |table: Table| {
            let live = self.live(table).into_iter();
            let live = live.filter(move |path| {
                let date = prorata_worker::names::partition_date(path).unwrap();
                Month::of(date) == period
            });
            live.map(move |path| self.object(table, &path)).collect::<Vec<Bytes>>()
        };
        let ledger = of_month(Table::CostAllocation).into_iter();
        let ledger = ledger.flat_map(|file| closed::copy(&[file], &organization.into(), u64::MAX).unwrap());
        let issued = of_month(Table::ClosedAllocation).into_iter();
        let issued = issued.map(|file| closed::describe(&file).unwrap());
        let issued = issued.filter(|file| &*file.organization_id == organization);
        [ledger.collect::<Vec<_>>(), issued.collect()].map(|files| {
            let sums = files.iter().flat_map(|file| file.totals.values());
            sums.fold(Decimal12::ZERO, |sum, of| sum.checked_add(of.effective).unwrap())
        })
    }

    pub fn live(&self, table: Table) -> Vec<String> {
        let tables = self.tables.tables();
        let live = tables.get(&table).map(|log| log.live.files.clone()).unwrap_or_default();
        live.into_iter().map(|file| file.path).collect()
    }

    fn object(&self, table: Table, path: &str) -> Bytes {
        self.store.object(&format!("{}/{path}", table.name())).unwrap()
    }
}
