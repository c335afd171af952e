//! Event time, wall-clock time, and UTC hours [h, h+1). Tables consist of such hours.
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// Microseconds in one hour.
pub const HOUR_MICROS: i64 = 3_600_000_000;

/// Event time: an instant in microseconds since 1970-01-01T00:00:00Z (Avro `timestamp-micros`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Timestamp(pub i64);

/// An instant of the machine's wall clock, in microseconds since 1970-01-01T00:00:00Z.
///
/// It is a separate type because only a few rules may compare it with event time. They decide how far an
/// event may lie in the future, and how long a silent topic holds back the watermark. These rules call
/// [`WallTime::event_time`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct WallTime(pub i64);

/// A UTC hour, counted from the epoch. It holds the instants from [`Hour::start`] up to [`Hour::end`],
/// exclusive.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Hour(pub i64);

/// Consecutive hours from `first` to `last`, both included. There are none if `last` is before `first`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HourRange {
    /// The first hour.
    pub first: Hour,
    /// The last hour.
    pub last: Hour,
}

/// A calendar date in UTC.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Date {
    /// The year, such as 2026.
    pub year: i64,
    /// The month, 1 to 12.
    pub month: u8,
    /// The day of the month, 1 to 31.
    pub day: u8,
}

impl Timestamp {
    /// Returns the hour that holds this instant.
    pub const fn hour(self) -> Hour {
        Hour(self.0.div_euclid(HOUR_MICROS))
    }

    /// Returns whole seconds since the epoch, rounded down.
    pub const fn seconds(self) -> i64 {
        self.0.div_euclid(1_000_000)
    }

    /// Returns the instant earlier by `duration`.
    #[must_use]
    pub fn before(self, duration: Duration) -> Self {
        Self(self.0.saturating_sub(micros(duration)))
    }
}

impl WallTime {
    /// The earliest instant: anything due then is due at once.
    pub const MIN: Self = Self(i64::MIN);

    /// Returns the event time of something that happens at this instant.
    pub const fn event_time(self) -> Timestamp {
        Timestamp(self.0)
    }

    /// Returns the hour that holds this instant.
    pub const fn hour(self) -> Hour {
        self.event_time().hour()
    }

    /// Returns microseconds since an earlier instant. The number is negative if that instant is later, for
    /// example after the clock was set back.
    pub const fn micros_since(self, earlier: Self) -> i64 {
        self.0.saturating_sub(earlier.0)
    }

    /// Returns the time since an earlier instant. The time is zero if that instant is later, for example
    /// after the clock was set back.
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_micros(u64::try_from(self.micros_since(earlier)).unwrap_or_default())
    }

    /// Returns the instant later by `duration`.
    #[must_use]
    pub fn after(self, duration: Duration) -> Self {
        Self(self.0.saturating_add(micros(duration)))
    }
}

/// Returns a duration in microseconds, the unit of instants; the largest number if it does not fit.
pub fn micros(duration: Duration) -> i64 {
    i64::try_from(duration.as_micros()).unwrap_or(i64::MAX)
}

impl Hour {
    /// Returns the first instant of the hour.
    pub const fn start(self) -> Timestamp {
        Timestamp(self.0 * HOUR_MICROS)
    }

    /// Returns the first instant after the hour.
    pub const fn end(self) -> Timestamp {
        Timestamp((self.0 + 1) * HOUR_MICROS)
    }

    /// Returns the next hour.
    pub const fn next(self) -> Self {
        Self(self.0 + 1)
    }

    /// Returns the previous hour.
    pub const fn previous(self) -> Self {
        Self(self.0 - 1)
    }

    /// Returns the hour of the day, 0 to 23.
    pub const fn of_day(self) -> i64 {
        self.0.rem_euclid(24)
    }

    /// Returns the hour's UTC date.
    pub const fn date(self) -> Date {
        Date::from_days(self.0.div_euclid(24))
    }
}

impl HourRange {
    /// All hours.
    pub const ALL: Self = Self::new(Hour(i64::MIN), Hour(i64::MAX));

    /// Creates the range from a first to a last hour.
    pub const fn new(first: Hour, last: Hour) -> Self {
        Self { first, last }
    }

    /// Creates the range between two bounds, both included. A bound of `None` leaves its end open.
    pub fn between(from: Option<Hour>, to: Option<Hour>) -> Self {
        Self::new(from.unwrap_or(Self::ALL.first), to.unwrap_or(Self::ALL.last))
    }

    /// Returns whether an hour is in the range.
    pub fn contains(self, hour: Hour) -> bool {
        self.first <= hour && hour <= self.last
    }

    /// Returns whether both ranges have an hour in common.
    pub fn overlaps(self, other: Self) -> bool {
        self.first.max(other.first) <= self.last.min(other.last)
    }

    /// Returns the number of hours.
    pub fn count(self) -> u64 {
        if self.first <= self.last { self.last.0.abs_diff(self.first.0).saturating_add(1) } else { 0 }
    }

    /// Returns the shortest range that contains this range and an hour.
    #[must_use]
    pub fn with(self, hour: Hour) -> Self {
        Self::new(self.first.min(hour), self.last.max(hour))
    }
}

impl IntoIterator for HourRange {
    type Item = Hour;
    type IntoIter = std::iter::Map<std::ops::RangeInclusive<i64>, fn(i64) -> Hour>;

    /// Returns the hours, ascending.
    fn into_iter(self) -> Self::IntoIter {
        (self.first.0..=self.last.0).map(Hour)
    }
}

impl From<Hour> for HourRange {
    fn from(hour: Hour) -> Self {
        Self::new(hour, hour)
    }
}

impl Date {
    /// Returns the date `days` after 1970-01-01.
    pub const fn from_days(days: i64) -> Self {
        // The civil-from-days algorithm, over 400-year eras that begin on 1 March.
        let shifted = days + 719_468;
        let era = shifted.div_euclid(146_097);
        let day_of_era = shifted.rem_euclid(146_097);
        let year_of_era =
            (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
        let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
        let month_index = (5 * day_of_year + 2) / 153;
        let day = (day_of_year - (153 * month_index + 2) / 5 + 1) as u8;
        let month = if month_index < 10 { month_index + 3 } else { month_index - 9 } as u8;
        let year = year_of_era + era * 400 + if month <= 2 { 1 } else { 0 };
        Self { year, month, day }
    }

    /// Returns the days since 1970-01-01.
    pub const fn days(self) -> i64 {
        let year = if self.month <= 2 { self.year - 1 } else { self.year };
        let era = year.div_euclid(400);
        let year_of_era = year.rem_euclid(400);
        let month = self.month as i64;
        let month_index = if month > 2 { month - 3 } else { month + 9 };
        let day_of_year = (153 * month_index + 2) / 5 + self.day as i64 - 1;
        let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
        era * 146_097 + day_of_era - 719_468
    }

    /// Returns the first day of the date's month.
    pub const fn month_start(self) -> Self {
        Self { year: self.year, month: self.month, day: 1 }
    }

    /// Returns the first day of the next month.
    pub const fn next_month_start(self) -> Self {
        if self.month == 12 {
            Self { year: self.year + 1, month: 1, day: 1 }
        } else {
            Self { year: self.year, month: self.month + 1, day: 1 }
        }
    }

    /// Returns the first day of the date's calendar quarter.
    pub const fn quarter_start(self) -> Self {
        Self { year: self.year, month: (self.month - 1) / 3 * 3 + 1, day: 1 }
    }

    /// Returns the hours of the date.
    pub const fn hours(self) -> HourRange {
        let first = self.days() * 24;
        HourRange::new(Hour(first), Hour(first + 23))
    }

    /// Returns the first instant of the date.
    pub const fn start(self) -> Timestamp {
        Timestamp(self.days() * 24 * HOUR_MICROS)
    }
}

impl fmt::Display for Date {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:04}-{:02}-{:02}", self.year, self.month, self.day)
    }
}

impl fmt::Display for Hour {
    /// Writes the form `2026-11-20T13`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}T{:02}", self.date(), self.of_day())
    }
}

/// The text is not an hour.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("it is not an hour in UTC such as 2026-11-20T13")]
pub struct ParseHourError;

impl FromStr for Hour {
    type Err = ParseHourError;

    /// Reads the form that [`Hour`] displays, such as `2026-11-20T13`.
    fn from_str(text: &str) -> Result<Self, ParseHourError> {
        let (date, hour) = text.rsplit_once('T').ok_or(ParseHourError)?;
        let of_day = digits(hour, 2).filter(|hour| *hour < 24).ok_or(ParseHourError)?;
        Ok(Self(date.parse::<Date>().map_err(|_| ParseHourError)?.days() * 24 + of_day))
    }
}

/// The text is not a date of the calendar.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("it is not a date such as 2026-11-20")]
pub struct ParseDateError;

impl FromStr for Date {
    type Err = ParseDateError;

    /// Reads the form that [`Date`] displays, such as `2026-11-20`. Accepts only dates of the calendar.
    fn from_str(text: &str) -> Result<Self, ParseDateError> {
        parse_date(text).ok_or(ParseDateError)
    }
}

fn parse_date(text: &str) -> Option<Date> {
    let (rest, day) = text.rsplit_once('-')?;
    let (year, month) = rest.rsplit_once('-')?;
    let (sign, year) = year.strip_prefix('-').map_or((1, year), |digits| (-1, digits));
    if year.is_empty() || year.len() > 6 {
        return None;
    }
    let date = Date {
        year: sign * digits(year, year.len())?,
        month: u8::try_from(digits(month, 2)?).ok().filter(|month| (1..=12).contains(month))?,
        day: u8::try_from(digits(day, 2)?).ok()?,
    };
    (Date::from_days(date.days()) == date).then_some(date)
}

/// Returns the number in a text of exactly `length` digits; `None` if the text has another form.
fn digits(text: &str, length: usize) -> Option<i64> {
    (text.len() == length && text.bytes().all(|byte| byte.is_ascii_digit())).then(|| text.parse().ok())?
}

impl fmt::Display for WallTime {
    /// Writes the form of [`Timestamp`].
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.event_time().fmt(f)
    }
}

impl fmt::Display for Timestamp {
    /// Writes RFC 3339 in UTC with microseconds.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let hour = self.hour();
        let within = self.0.rem_euclid(HOUR_MICROS);
        let (minute, second, micros) = (within / 60_000_000, within / 1_000_000 % 60, within % 1_000_000);
        write!(f, "{}T{:02}:{minute:02}:{second:02}.{micros:06}Z", hour.date(), hour.of_day())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_and_days_agree_over_eight_centuries() {
        for days in -146_097..146_097 {
            let date = Date::from_days(days);
            assert_eq!(date.days(), days, "{date}");
        }
        assert_eq!(Date::from_days(0).to_string(), "1970-01-01");
        assert_eq!(Date { year: 2024, month: 2, day: 29 }.days(), 19_782);
    }

    #[test]
    fn an_hour_is_half_open() {
        let hour = Timestamp(1_763_643_600_000_000).hour();
        assert_eq!(hour.to_string(), "2025-11-20T13");
        assert_eq!(hour.end().hour(), hour.next());
        assert_eq!(Timestamp(hour.end().0 - 1).hour(), hour);
        assert_eq!(Timestamp(-1).hour(), Hour(-1));
    }

    #[test]
    fn a_range_has_its_first_and_its_last_hour() {
        let range = HourRange::new(Hour(-1), Hour(1));
        assert_eq!(range.into_iter().collect::<Vec<_>>(), [Hour(-1), Hour(0), Hour(1)]);
        assert_eq!([-2, -1, 1, 2].map(|hour| range.contains(Hour(hour))), [false, true, true, false]);
        assert_eq!((range.count(), HourRange::ALL.count()), (3, u64::MAX));
        assert_eq!(range.with(Hour(5)).with(Hour(0)), HourRange::new(Hour(-1), Hour(5)));
        assert!(range.overlaps(Hour(1).into()) && !range.overlaps(Hour(2).into()));
        assert_eq!(HourRange::between(None, Some(Hour(1))).with(Hour(0)).last, Hour(1));
        let none = HourRange::new(Hour(1), Hour(0));
        assert!(none.count() == 0 && !none.contains(Hour(0)) && !none.overlaps(range));
        assert_eq!(none.into_iter().next(), None);
        let date = Date::from_days(-1);
        assert!(date.hours().into_iter().all(|hour| hour.date() == date) && date.hours().count() == 24);
    }

    #[test]
    fn hours_are_read_back_also_far_from_now() {
        for hour in [Hour(-1), Hour(498_199), Hour(-800_000_000), Hour(2_000_000_000)] {
            assert_eq!(hour.to_string().parse(), Ok(hour), "{hour}");
        }
    }

    #[test]
    fn an_invalid_hour_is_refused() {
        let wrong = [
            "2026-11-01",
            "2026-11-01T24",
            "2026-02-30T00",
            "2026-13-20T07",
            "2026-1-1T00",
            "x",
            "2026-11-01T1",
        ];
        for wrong in wrong {
            assert_eq!(wrong.parse::<Hour>(), Err(ParseHourError), "{wrong}");
        }
        assert_eq!("2026-02-29".parse::<Date>(), Err(ParseDateError));
    }
}
