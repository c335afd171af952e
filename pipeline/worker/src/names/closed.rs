//! Names of closed months: manifests, and files of `closed_allocation`.

use std::fmt;
use std::str::FromStr;

use prorata_schemas::ids::OrganizationId;
use prorata_schemas::time::{Date, Hour, Timestamp};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// Folder of the manifests.
pub const CLOSED: &str = "closed/";

/// Number of hexadecimal digits of a file's SHA-256 in its name.
const DIGEST_DIGITS: usize = 32;

/// A calendar month in UTC, such as `2026-10`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Month {
    first: Date,
}

impl Month {
    /// Returns the month of a date.
    pub const fn of(date: Date) -> Self {
        Self { first: date.month_start() }
    }

    /// Returns the first date.
    pub const fn first(self) -> Date {
        self.first
    }

    /// Returns the month after this one.
    #[must_use]
    pub const fn next(self) -> Self {
        Self { first: self.first.next_month_start() }
    }

    /// Returns the month this many months earlier.
    #[must_use]
    pub fn earlier(self, months: u32) -> Self {
        (0..months).fold(self, |month, _| Self::of(Date::from_days(month.first.days() - 1)))
    }

    /// Returns the dates, ascending.
    pub fn dates(self) -> impl Iterator<Item = Date> + use<> {
        (self.first.days()..self.next().first.days()).map(Date::from_days)
    }

    /// Returns the first hour.
    pub const fn first_hour(self) -> Hour {
        Hour(self.first.days() * 24)
    }

    /// Returns the first instant, and the first instant after the month.
    pub const fn bounds(self) -> (Timestamp, Timestamp) {
        (self.first.start(), self.next().first.start())
    }
}

impl fmt::Display for Month {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:04}-{:02}", self.first.year, self.first.month)
    }
}

/// The text is not a month of the calendar.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("it is not a month such as 2026-10")]
pub struct ParseMonthError;

impl FromStr for Month {
    type Err = ParseMonthError;

    /// Reads the form that [`Month`] displays, from the years of events: 1970 to 9999.
    fn from_str(text: &str) -> Result<Self, ParseMonthError> {
        let month = format!("{text}-01").parse().map(|first| Self { first });
        let is_month = |month: &Self| (1970..=9999).contains(&month.first.year) && month.to_string() == text;
        month.ok().filter(is_month).ok_or(ParseMonthError)
    }
}

impl Serialize for Month {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Month {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(de::Error::custom)
    }
}

/// Returns the path of the manifest of an organization's month. In the organization's id, a byte that is no
/// letter, digit, `-` or `_` is `=` and two digits, as in quoted-printable. So the id is one segment of a
/// path on every store. Stores encode `%` themselves.
pub fn manifest(organization_id: &str, period: Month) -> String {
    let mut path = CLOSED.to_owned();
    for byte in organization_id.bytes() {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_') {
            path.push(char::from(byte));
        } else {
            path += &format!("={byte:02X}");
        }
    }
    format!("{path}/{period}.json")
}

/// Parses the organization and the month from the path of a manifest. Returns `None` for any other path.
pub fn parse_manifest(path: &str) -> Option<(OrganizationId, Month)> {
    let (encoded, name) = path.strip_prefix(CLOSED)?.split_once('/')?;
    let mut parts = encoded.split('=');
    let mut bytes = parts.next()?.as_bytes().to_vec();
    for part in parts {
        bytes.push(u8::from_str_radix(part.get(..2)?, 16).ok()?);
        bytes.extend_from_slice(part.get(2..)?.as_bytes());
    }
    let organization_id = String::from_utf8(bytes).ok()?;
    let period = name.strip_suffix(".json")?.parse().ok()?;
    (manifest(&organization_id, period) == path).then(|| (organization_id.into(), period))
}

/// The name of a file of `closed_allocation`, which holds rows of one organization and date.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ClosedPath {
    /// The date of the charge periods.
    pub date: Date,
    /// The billing period of the rows.
    pub period: Month,
    /// The first digits of the SHA-256 of the file, in hexadecimal.
    pub digest: String,
}

impl ClosedPath {
    /// Returns the name of a file with this SHA-256, in hexadecimal.
    pub fn new(date: Date, period: Month, sha256: &str) -> Self {
        Self { date, period, digest: sha256.chars().take(DIGEST_DIGITS).collect() }
    }

    /// Returns the path under the table's folder.
    pub fn path(&self) -> String {
        let Self { date, period, digest } = self;
        format!("date={date}/{period}-{digest}.parquet")
    }

    /// Parses a path under the table's folder. Returns `None` if this program did not write the file.
    pub fn parse(path: &str) -> Option<Self> {
        let (date, name) = path.split_once('/')?;
        let (period, digest) = name.strip_suffix(".parquet")?.rsplit_once('-')?;
        let is_digest = digest.len() == DIGEST_DIGITS && digest.bytes().all(|byte| byte.is_ascii_hexdigit());
        let date = date.strip_prefix("date=")?.parse().ok()?;
        is_digest.then_some(Self { date, period: period.parse().ok()?, digest: digest.to_owned() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_is_read_back() {
        let period: Month = "2026-12".parse().unwrap();
        assert_eq!((period.to_string(), period.next().to_string()), ("2026-12".into(), "2027-01".into()));
        assert_eq!(period.next().earlier(4).to_string(), "2026-09");
        assert_eq!(period.dates().count(), 31);
        let encoded = [("acme", "acme"), ("a.b/c_d-e", "a=2Eb=2Fc_d-e"), ("é", "=C3=A9"), ("=", "=3D")];
        for (id, encoded) in encoded {
            let path = manifest(id, period);
            assert_eq!(path, format!("closed/{encoded}/2026-12.json"));
            assert_eq!(parse_manifest(&path), Some((id.into(), period)));
        }
        let digest = "0123456789abcdef0123456789abcdef";
        let file = ClosedPath::new("2026-10-05".parse().unwrap(), period, &digest.repeat(2));
        assert_eq!(file.path(), format!("date=2026-10-05/2026-12-{digest}.parquet"));
        assert_eq!(ClosedPath::parse(&file.path()), Some(file));
    }

    #[test]
    fn names_that_are_not_ours_are_not_read() {
        let foreign = ["closed/a.b/2026-12.json", "closed/=61/2026-12.json", "closed/a/2026-13.json"];
        for path in foreign {
            assert_eq!(parse_manifest(path), None, "{path}");
        }
        for path in ["date=2026-10-05/2026-12-0123.parquet", "date=2026-10-05/part-0.parquet", "x.parquet"] {
            assert_eq!(ClosedPath::parse(path), None, "{path}");
        }
    }
}
