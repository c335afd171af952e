//! Table files as text of their rows, without Parquet.

use std::collections::BTreeSet;

use bytes::Bytes;
use prorata_schemas::decimal::Decimal12;
use prorata_schemas::ids::OrganizationId;
use prorata_schemas::rows::HourTables;
use prorata_schemas::rows::budget::{BudgetUse, Period};
use prorata_schemas::tables::{
    ClosedFile, CorrectedRows, CutFile, EncodedFile, HourBasis, HourClock, HourFile, RowSource, SplicedFiles,
    Table, TableSplice,
};
use prorata_worker::checkpoint::snapshot::hex;
use prorata_worker::ports::{FormatError, TableEncoder};
use sha2::{Digest, Sha256};

/// Table files with one line of text for each row. The file of `hours` ends with one line that has all
/// clocks. Text has no columns to add up, so months cannot be closed: tests of closing use Parquet.
#[derive(Clone, Copy, Debug, Default)]
pub struct FakeEncoder;

/// An encoder with another number of rows at which files end.
#[derive(Clone, Debug)]
pub struct FileRows<E> {
    /// The encoder that makes the files.
    pub encoder: E,
    /// Number of rows at which a file ends.
    pub rows: u64,
}

impl<E: TableEncoder> TableEncoder for FileRows<E> {
    fn file_rows(&self) -> u64 {
        self.rows
    }

    fn encode(
        &self,
        table: Table,
        hours: &[HourTables],
        clocks: &[HourClock],
        file_rows: u64,
    ) -> Result<Vec<CutFile>, FormatError> {
        self.encoder.encode(table, hours, clocks, file_rows)
    }

    fn splice(&self, table: Table, splice: &TableSplice<'_>) -> Result<SplicedFiles, FormatError> {
        self.encoder.splice(table, splice)
    }

    fn join(&self, table: Table, sources: &[RowSource<Bytes>]) -> Result<EncodedFile, FormatError> {
        self.encoder.join(table, sources)
    }

    fn split(&self, table: Table, joined: &Bytes) -> Result<Vec<HourFile>, FormatError> {
        self.encoder.split(table, joined)
    }

    fn allocated_costs(&self, hours: &Bytes) -> Result<Vec<(OrganizationId, Decimal12)>, FormatError> {
        self.encoder.allocated_costs(hours)
    }

    fn budgets(&self, pool_usage: &Bytes) -> Result<Vec<BudgetUse>, FormatError> {
        self.encoder.budgets(pool_usage)
    }

    fn bases(&self, hours: &Bytes) -> Result<Vec<HourBasis>, FormatError> {
        self.encoder.bases(hours)
    }

    fn copy_closed(
        &self,
        ledger: &[Bytes],
        organization_id: &OrganizationId,
        file_rows: u64,
    ) -> Result<Vec<ClosedFile>, FormatError> {
        self.encoder.copy_closed(ledger, organization_id, file_rows)
    }

    fn correct_closed(
        &self,
        rows: &CorrectedRows<'_, Bytes>,
        file_rows: u64,
    ) -> Result<Vec<ClosedFile>, FormatError> {
        self.encoder.correct_closed(rows, file_rows)
    }

    fn describe_closed(&self, file: &Bytes) -> Result<ClosedFile, FormatError> {
        self.encoder.describe_closed(file)
    }
}

/// A file as text.
#[derive(Default)]
struct Text {
    /// Lines of the rows. Each line begins with its organization and a space.
    lines: Vec<String>,
    /// Clocks of `hours`, one for each line; empty for other tables.
    clocks: Vec<String>,
}

impl TableEncoder for FakeEncoder {
    fn encode(
        &self,
        table: Table,
        hours: &[HourTables],
        clocks: &[HourClock],
        file_rows: u64,
    ) -> Result<Vec<CutFile>, FormatError> {
        Ok(Text::of(table, hours, clocks).into_files(table, file_rows))
    }

    fn splice(&self, table: Table, splice: &TableSplice<'_>) -> Result<SplicedFiles, FormatError> {
        let refused = |cause: &'static str| FormatError::new("replace rows in a file", cause);
        let (mut old, mut old_digests) = (Text::default(), Vec::new());
        for file in splice.old {
            let text = std::str::from_utf8(file).map_err(|_| refused("a file is not text"))?;
            let mut text = Text::parse(table, text).ok_or_else(|| refused("a file is damaged"))?;
            old_digests.push(text.digest());
            old.lines.append(&mut text.lines);
            old.clocks.append(&mut text.clocks);
        }
        let old_incomplete = old.incomplete();
        let fresh = Text::of(table, splice.hours, splice.clocks);
        let stays = |line: &String| !splice.organizations.contains(organization_of(line));
        let stay: Vec<bool> = old.lines.iter().map(stays).collect();
        let keep = |of: &mut Vec<String>| {
            let mut stay = stay.iter();
            of.retain(|_| stay.next().copied().unwrap_or_default());
        };
        keep(&mut old.lines);
        keep(&mut old.clocks);
        let mut rows: Vec<(String, Option<String>)> = [old, fresh]
            .into_iter()
            .flat_map(|text| {
                let clocks = text.clocks.into_iter().map(Some).chain(std::iter::repeat(None));
                text.lines.into_iter().zip(clocks)
            })
            .collect();
        rows.sort_by(|(left, _), (right, _)| organization_of(left).cmp(organization_of(right)));
        let mut text = Text::default();
        for (line, clock) in rows {
            text.lines.push(line);
            text.clocks.extend(clock.map(|clock| stamp(&clock, splice)));
        }
        let incomplete = text.incomplete();
        let files = text.into_files(table, splice.file_rows);
        Ok(SplicedFiles { files, old_digests, old_incomplete, incomplete })
    }

    fn join(&self, table: Table, sources: &[RowSource<Bytes>]) -> Result<EncodedFile, FormatError> {
        let damaged = || FormatError::new("join files", "a file is damaged");
        let mut files = Vec::new();
        for source in sources {
            match source {
                RowSource::Hour { hour, digest, bytes } => {
                    let text = std::str::from_utf8(bytes).map_err(|_| damaged())?;
                    let rows = Text::parse(table, text).ok_or_else(damaged)?.lines.len() as u64;
                    let (bytes, digest, stats) = (bytes.to_vec(), digest.clone(), "{}".into());
                    files.push(HourFile { hour: *hour, file: EncodedFile { bytes, rows, stats, digest } });
                }
                RowSource::Day(joined) => files.append(&mut self.split(table, joined)?),
            }
        }
        files.sort_by(|left, right| (left.hour, &left.file.bytes).cmp(&(right.hour, &right.file.bytes)));
        let (mut bytes, mut rows, mut digests) = (Vec::new(), 0, Sha256::new());
        for HourFile { hour, file } in files {
            let head = format!("{hour} {} {} {}\n", file.digest, file.rows, file.bytes.len());
            bytes.extend([head.as_bytes(), &file.bytes, b"\n"].concat());
            digests.update(format!("{hour} {} ", file.digest));
            rows += file.rows;
        }
        Ok(EncodedFile { bytes, rows, stats: "{}".into(), digest: hex(&digests.finalize()) })
    }

    fn split(&self, _: Table, joined: &Bytes) -> Result<Vec<HourFile>, FormatError> {
        let damaged = || FormatError::new("split a file", "the file is damaged");
        let mut rest = std::str::from_utf8(joined).map_err(|_| damaged())?;
        let mut files = Vec::new();
        while !rest.is_empty() {
            let (file, after) = split_first(rest).ok_or_else(damaged)?;
            files.push(file);
            rest = after;
        }
        Ok(files)
    }

    fn allocated_costs(&self, hours: &Bytes) -> Result<Vec<(OrganizationId, Decimal12)>, FormatError> {
        let cost = |line: &str| Some((organization_of(line).into(), decimal(line, "allocated_cost")?));
        Ok(Text::read(Table::Hours, hours)?.lines.iter().filter_map(|line| cost(line)).collect())
    }

    fn budgets(&self, pool_usage: &Bytes) -> Result<Vec<BudgetUse>, FormatError> {
        let of = |line: &str, period: Period| {
            Some(BudgetUse {
                organization_id: organization_of(line).into(),
                pool_id: field(line, "pool_id")?.split('"').nth(1)?.into(),
                period,
                spend: decimal(line, &format!("spend_{}", period.name()))?,
                budget: decimal(line, &format!("budget_{}", period.name()))?,
            })
        };
        let text = Text::read(Table::PoolUsage, pool_usage)?;
        let budgets = text.lines.iter().flat_map(|line| Period::ALL.map(|period| of(line, period)));
        Ok(budgets.flatten().collect())
    }

    fn bases(&self, _: &Bytes) -> Result<Vec<HourBasis>, FormatError> {
        Err(not_closed())
    }

    fn copy_closed(&self, _: &[Bytes], _: &OrganizationId, _: u64) -> Result<Vec<ClosedFile>, FormatError> {
        Err(not_closed())
    }

    fn correct_closed(&self, _: &CorrectedRows<'_, Bytes>, _: u64) -> Result<Vec<ClosedFile>, FormatError> {
        Err(not_closed())
    }

    fn describe_closed(&self, _: &Bytes) -> Result<ClosedFile, FormatError> {
        Err(not_closed())
    }
}

fn not_closed() -> FormatError {
    FormatError::new("close a month", "the fake encoder has no columns")
}

/// Splits joined files into the first file and the rest; `None` if the text is not valid.
fn split_first(text: &str) -> Option<(HourFile, &str)> {
    let (head, rest) = text.split_once('\n')?;
    let mut head = head.split(' ');
    let (hour, digest) = (head.next()?.parse().ok()?, head.next()?.to_owned());
    let (rows, length) = (head.next()?.parse().ok()?, head.next()?.parse().ok()?);
    let bytes = rest.get(..length)?.as_bytes().to_vec();
    let file = EncodedFile { bytes, rows, stats: "{}".into(), digest };
    Some((HourFile { hour, file }, rest.get(length..)?.strip_prefix('\n')?))
}

/// Replaces the revision and the time of change of a clock with the values of the hour.
fn stamp(clock: &str, splice: &TableSplice<'_>) -> String {
    let (own, _) = clock.split_once("revision: ").unwrap_or((clock, ""));
    let TableSplice { revision, last_updated, .. } = splice;
    format!("{own}revision: {revision}, last_updated: {last_updated:?} }}")
}

/// Returns the text of a row after the name of a field; `None` if the row has no such field.
fn field<'l>(line: &'l str, name: &str) -> Option<&'l str> {
    line.split_once(&format!(" {name}: ")).map(|(_, rest)| rest)
}

/// Returns the number in a field; `None` if the field has no number.
fn decimal(line: &str, name: &str) -> Option<Decimal12> {
    let value = field(line, name)?;
    let value = value.strip_prefix("Some(").unwrap_or(value).strip_prefix("Decimal12(")?;
    value.split_once(')')?.0.parse().ok().map(Decimal12::from_atoms)
}

fn organization_of(line: &str) -> &str {
    line.split_once(' ').map_or(line, |(organization_id, _)| organization_id)
}

impl Text {
    fn of(table: Table, hours: &[HourTables], clocks: &[HourClock]) -> Self {
        let lines = hours.iter().flat_map(|hour| lines(table, hour)).collect();
        let clocks = if table == Table::Hours { clocks } else { &[] };
        Self { lines, clocks: clocks.iter().map(|clock| format!("{clock:?}")).collect() }
    }

    fn parse(table: Table, text: &str) -> Option<Self> {
        let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
        let clocks = if table == Table::Hours { lines.pop()? } else { "[]".to_owned() };
        let clocks = clocks.strip_prefix('[')?.strip_suffix(']')?;
        let ends = clocks.split_inclusive(" }").map(|clock| clock.trim_start_matches(", ").to_owned());
        let clocks: Vec<String> = ends.collect();
        let whole = lines.iter().all(|line| line.contains(' '));
        (whole && (table != Table::Hours || clocks.len() == lines.len())).then_some(Self { lines, clocks })
    }

    fn read(table: Table, bytes: &[u8]) -> Result<Self, FormatError> {
        let text = std::str::from_utf8(bytes).ok().and_then(|text| Self::parse(table, text));
        text.ok_or_else(|| FormatError::new("read a file", "it is damaged"))
    }

    fn digest(&self) -> String {
        hex(&Sha256::digest(self.lines.join("\n")))
    }

    fn incomplete(&self) -> Vec<OrganizationId> {
        let lines = self.lines.iter().zip(&self.clocks);
        let incomplete = lines.filter(|(_, clock)| clock.contains("complete: false"));
        let organizations: BTreeSet<&str> = incomplete.map(|(line, _)| organization_of(line)).collect();
        organizations.into_iter().map(OrganizationId::from).collect()
    }

    /// Cuts the rows into files. A file ends after the organization that brings it to this number of rows.
    fn into_files(self, table: Table, file_rows: u64) -> Vec<CutFile> {
        let Self { lines, clocks } = self;
        if table == Table::Hours {
            return Self { lines, clocks }.into_file(table).into_iter().collect();
        }
        let (mut files, mut part) = (Vec::new(), Self::default());
        let mut lines = lines.into_iter().peekable();
        while let Some(line) = lines.next() {
            let same = lines.peek().is_some_and(|next| organization_of(next) == organization_of(&line));
            part.lines.push(line);
            if !same && (part.lines.len() as u64 >= file_rows || lines.peek().is_none()) {
                files.extend(std::mem::take(&mut part).into_file(table));
            }
        }
        files
    }

    fn into_file(self, table: Table) -> Option<CutFile> {
        let last_organization = organization_of(self.lines.last()?).into();
        let digest = self.digest();
        let rows = self.lines.len() as u64;
        let clocks = match table {
            Table::Hours => format!("\n[{}]", self.clocks.join(", ")),
            _ => String::new(),
        };
        let bytes = (self.lines.join("\n") + &clocks).into_bytes();
        let file = EncodedFile { bytes, rows, stats: "{}".into(), digest };
        Some(CutFile { file, last_organization })
    }
}

fn lines(table: Table, hour: &HourTables) -> Vec<String> {
    let named = |row: String| format!("{} {} {row}", hour.organization_id, hour.rules_version);
    match table {
        Table::CostAllocation => hour.cost_allocation.iter().map(|row| named(format!("{row:?}"))).collect(),
        Table::ReservationUsage => {
            hour.reservation_usage.iter().map(|row| named(format!("{row:?}"))).collect()
        }
        Table::CommitmentUtilization => {
            hour.commitment_utilization.iter().map(|row| named(format!("{row:?}"))).collect()
        }
        Table::QuotaUsage => hour.quota_usage.iter().map(|row| named(format!("{row:?}"))).collect(),
        Table::PoolUsage => hour.pool_usage.iter().map(|row| named(format!("{row:?}"))).collect(),
        Table::Hours => vec![named(format!("{:?}", hour.totals))],
        Table::ClosedAllocation => Vec::new(),
    }
}
