//! Table files as text of their rows, without Parquet.

use std::collections::BTreeSet;

use bytes::Bytes;
use prorata_schemas::ids::OrganizationId;
use prorata_schemas::rows::HourTables;
use prorata_schemas::tables::{EncodedFile, HourClock, HourFile, RowSource, SplicedFile, Table, TableSplice};
use prorata_worker::checkpoint::snapshot::hex;
use prorata_worker::ports::{FormatError, TableEncoder};
use sha2::{Digest, Sha256};

/// Table files as one line of text for each row; the file of `hours` ends with a line of all clocks.
#[derive(Clone, Copy, Debug, Default)]
pub struct FakeEncoder;

/// A file as text.
#[derive(Default)]
struct Text {
    /// Each begins with its organization and a blank.
    lines: Vec<String>,
    /// Of `hours`: one for each line.
    clocks: Vec<String>,
}

impl TableEncoder for FakeEncoder {
    fn encode(
        &self,
        table: Table,
        hours: &[HourTables],
        clocks: &[HourClock],
    ) -> Result<Option<EncodedFile>, FormatError> {
        Ok(Text::of(table, hours, clocks).into_file(table))
    }

    fn splice(&self, table: Table, splice: &TableSplice<'_>) -> Result<SplicedFile, FormatError> {
        let refused = |cause: &'static str| FormatError::new("replace rows in a file", cause);
        let old = std::str::from_utf8(splice.old).map_err(|_| refused("the file is no text"))?;
        let mut old = Text::parse(table, old).ok_or_else(|| refused("the file is damaged"))?;
        let (old_digest, old_incomplete) = (old.digest(), old.incomplete());
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
        Ok(SplicedFile { file: text.into_file(table), old_digest, old_incomplete, incomplete })
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
}

/// The first file of those that were joined, and the rest.
fn split_first(text: &str) -> Option<(HourFile, &str)> {
    let (head, rest) = text.split_once('\n')?;
    let mut head = head.split(' ');
    let (hour, digest) = (head.next()?.parse().ok()?, head.next()?.to_owned());
    let (rows, length) = (head.next()?.parse().ok()?, head.next()?.parse().ok()?);
    let bytes = rest.get(..length)?.as_bytes().to_vec();
    let file = EncodedFile { bytes, rows, stats: "{}".into(), digest };
    Some((HourFile { hour, file }, rest.get(length..)?.strip_prefix('\n')?))
}

/// Revision and time of change are those of the hour.
fn stamp(clock: &str, splice: &TableSplice<'_>) -> String {
    let (own, _) = clock.split_once("revision: ").unwrap_or((clock, ""));
    let TableSplice { revision, last_updated, .. } = splice;
    format!("{own}revision: {revision}, last_updated: {last_updated:?} }}")
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

    fn digest(&self) -> String {
        hex(&Sha256::digest(self.lines.join("\n")))
    }

    fn incomplete(&self) -> Vec<OrganizationId> {
        let lines = self.lines.iter().zip(&self.clocks);
        let incomplete = lines.filter(|(_, clock)| clock.contains("complete: false"));
        let organizations: BTreeSet<&str> = incomplete.map(|(line, _)| organization_of(line)).collect();
        organizations.into_iter().map(OrganizationId::from).collect()
    }

    fn into_file(self, table: Table) -> Option<EncodedFile> {
        let digest = self.digest();
        let rows = self.lines.len() as u64;
        let clocks = match table {
            Table::Hours => format!("\n[{}]", self.clocks.join(", ")),
            _ => String::new(),
        };
        let bytes = (self.lines.join("\n") + &clocks).into_bytes();
        (rows > 0).then(|| EncodedFile { bytes, rows, stats: "{}".into(), digest })
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
    }
}
