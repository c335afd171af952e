//! The ledger: live files of `cost_allocation`, by shard and date.

use std::collections::BTreeMap;

use bytes::Bytes;
use prorata_schemas::tables::Table;
use prorata_schemas::time::Date;

use super::ClosePorts;
use super::manifest::fingerprint;
use crate::error::Result;
use crate::names::{self, Shard};
use crate::objects;

/// Live files of one date and shard.
#[derive(Debug)]
struct LedgerDate {
    /// Paths under the table's folder, sorted.
    paths: Vec<String>,
    fingerprint: String,
}

/// The live files of `cost_allocation` at one version of the table.
#[derive(Debug)]
pub(super) struct Ledger {
    dates: BTreeMap<(Shard, Date), LedgerDate>,
    empty: String,
}

impl Ledger {
    /// Reads the table's log.
    ///
    /// # Errors
    /// If storage is unavailable.
    pub(super) async fn read(ports: &ClosePorts) -> Result<Self> {
        let mut paths: BTreeMap<(Shard, Date), Vec<String>> = BTreeMap::new();
        for file in ports.tables.load(Table::CostAllocation).await?.files {
            let shard = names::parse_table_file(&file.path).map(|(shard, _)| shard);
            if let Some(key) = shard.zip(names::partition_date(&file.path)) {
                paths.entry(key).or_default().push(file.path);
            }
        }
        let of_date = |(key, mut paths): (_, Vec<String>)| {
            paths.sort_unstable();
            let fingerprint = fingerprint(&paths);
            (key, LedgerDate { paths, fingerprint })
        };
        Ok(Self { dates: paths.into_iter().map(of_date).collect(), empty: fingerprint(&[]) })
    }

    /// Returns the fingerprint of a date's files.
    pub(super) fn fingerprint(&self, shard: Shard, date: Date) -> &str {
        self.dates.get(&(shard, date)).map_or(&self.empty, |date| &date.fingerprint)
    }

    /// Fetches the files of a date.
    ///
    /// # Errors
    /// If a file does not exist, or storage is unavailable.
    pub(super) async fn fetch(&self, ports: &ClosePorts, shard: Shard, date: Date) -> Result<Vec<Bytes>> {
        let Some(date) = self.dates.get(&(shard, date)) else { return Ok(Vec::new()) };
        let folder = names::table(Table::CostAllocation);
        let objects = date.paths.iter().map(|path| format!("{folder}/{path}")).collect();
        let files = objects::get_all(&*ports.store, objects).await?;
        Ok(files.into_iter().map(|file| file.bytes).collect())
    }
}
