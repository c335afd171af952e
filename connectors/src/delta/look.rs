//! A reader of a table's log that changes nothing: it creates no table and adds no column.

use chrono::DateTime;
use deltalake_core::{DeltaTable, DeltaTableError};
use prorata_schemas::tables::Table;
use prorata_schemas::time::Timestamp;
use prorata_worker::ports::{ErrorKind, LiveFile, TableError};

use super::failure::failure;
use super::{DeltaTables, columns, schema};

/// A table at one instant.
#[derive(Clone, Debug)]
pub struct TableLook {
    /// The live files, in ascending order of path.
    pub files: Vec<LiveFile>,
    /// The difference between the table's columns and this release's columns; `None` if there is none. New
    /// columns that a writer would add do not count.
    pub drift: Option<String>,
}

impl DeltaTables {
    /// Reads the table's log, as of an instant or as of now. Returns `None` if the table does not exist.
    ///
    /// # Errors
    /// If storage is unavailable, the log cannot be read, or the log no longer has the version of the
    /// instant.
    pub async fn look(
        &self,
        table: Table,
        as_of: Option<Timestamp>,
    ) -> Result<Option<TableLook>, TableError> {
        let failed = |error: DeltaTableError| failure("read", table, error);
        let mut delta = DeltaTable::new(self.log_store(table)?);
        if !delta.verify_deltatable_existence().await.map_err(failed)? {
            return Ok(None);
        }
        match as_of {
            None => delta.load().await.map_err(failed)?,
            Some(Timestamp(micros)) => {
                let Some(instant) = DateTime::from_timestamp_micros(micros) else {
                    let cause = "the time is out of range; name one within the table's history";
                    return Err(TableError::new(ErrorKind::Invalid, "read", table, cause));
                };
                delta.load_with_datetime(instant).await.map_err(failed)?;
            }
        }
        let state = delta.snapshot().map_err(failed)?;
        let drift = schema::missing(&state.schema(), &columns(table)?).err();
        let data = state.snapshot().try_log_data().map_err(failed)?;
        let live = |path, bytes: i64| LiveFile { path, bytes: bytes.unsigned_abs() };
        let mut files: Vec<LiveFile> =
            data.iter().map(|file| live(file.path().into_owned(), file.size())).collect();
        files.sort();
        Ok(Some(TableLook { files, drift }))
    }
}
