//! Times in bills, and the charge periods that they make.

use std::borrow::Cow;

use jiff::civil::{self, DateTime, Time};
use jiff::fmt::temporal::Pieces;
use jiff::tz::Offset;
use prorata_schemas::time::{Date, Hour, Timestamp};

/// Longest charge period of a line of a set, in hours: 32 days, so that every month fits.
const PERIOD_HOURS_MAX: i64 = 32 * 24;

/// The first day after the times that a bill may have.
const END: Date = Date { year: 9999, month: 1, day: 1 };

/// Parses a time of the years 1970 to 9998 in ISO 8601: `2026-11-20`, `2026-11-20 13:05:00`, or
/// `2026-11-20T13:05:00Z`, with up to nine decimals of a second. A time zone may follow: `Z`, `UTC`, or an
/// offset such as `+01:00`. Times without one are UTC. Returns `None` if the text is anything else.
pub fn parse_time(text: &str) -> Option<Timestamp> {
    let text = with_joined_zone(text);
    let pieces = Pieces::parse(&*text).ok()?;
    // The offset of a zone with a name, such as `[Europe/Vienna]`, is not in the text.
    if pieces.time_zone_annotation().is_some() {
        return None;
    }
    let clock = pieces.time().unwrap_or(Time::midnight());
    instant(pieces.date().to_datetime(clock), pieces.to_numeric_offset().unwrap_or(Offset::UTC))
}

/// Parses a date as month, day and year, such as `9/2/2026` or `09/02/2026`. Returns `None` if the text is
/// anything else.
pub fn parse_american_date(text: &str) -> Option<Timestamp> {
    let date = civil::Date::strptime("%m/%d/%Y", text).ok()?;
    instant(date.to_datetime(Time::midnight()), Offset::UTC)
}

/// Returns a time as ISO 8601 writes it: without a blank before the zone. `UTC` is what a time without a zone
/// means.
fn with_joined_zone(text: &str) -> Cow<'_, str> {
    if let Some(clock) = text.strip_suffix("UTC").or_else(|| text.strip_suffix("utc")) {
        return Cow::Borrowed(clock.trim_end());
    }
    match text.rsplit_once(' ') {
        Some((clock, zone)) if zone.starts_with(['+', '-', 'Z', 'z']) => {
            Cow::Owned([clock.trim_end(), zone].concat())
        }
        _ => Cow::Borrowed(text),
    }
}

/// Returns an instant of the years that a bill may have.
fn instant(local: DateTime, offset: Offset) -> Option<Timestamp> {
    let micros = offset.to_timestamp(local).ok()?.as_microsecond();
    (0..END.start().0).contains(&micros).then_some(Timestamp(micros))
}

/// A charge period in full hours of UTC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// The first hour.
    pub begin: Hour,
    /// The first hour after the period.
    pub end: Hour,
}

impl Span {
    /// Returns the shortest span of at least an hour with this period; `None` if the period ends before it
    /// begins.
    pub fn of(begin: Timestamp, end: Timestamp) -> Option<Self> {
        if end < begin {
            return None;
        }
        let (first, last) = (begin.hour(), end.hour());
        let end = if last.start() < end { last.next() } else { last };
        Some(Self { begin: first, end: end.max(first.next()) })
    }

    /// Returns the number of hours.
    pub const fn hours(self) -> i64 {
        self.end.0 - self.begin.0
    }

    /// Returns whether the span is longer than a line of a set may be.
    pub const fn is_too_long(self) -> bool {
        self.hours() > PERIOD_HOURS_MAX
    }

    /// Returns the part of the span in its billing month, or the whole month if they have no hour in common.
    /// Without a `billing_month`, or if that is too long, the month is the calendar month of the first hour.
    #[must_use]
    pub fn within(self, billing_month: Option<Self>) -> Self {
        let month = billing_month.filter(|month| !month.is_too_long()).unwrap_or_else(|| {
            let date = self.begin.date();
            let (first, next) = (date.month_start(), date.next_month_start());
            Self { begin: first.start().hour(), end: next.start().hour() }
        });
        let common = Self { begin: self.begin.max(month.begin), end: self.end.min(month.end) };
        if common.hours() > 0 { common } else { month }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_times_of_all_providers_are_read() {
        let same = [
            "2026-11-20T13:05:00Z",
            "2026-11-20T13:05:00.000Z",
            "2026-11-20T13:05Z",
            "2026-11-20 13:05:00",
            "2026-11-20 13:05:00 UTC",
            "2026-11-20 13:05:00.000000 UTC",
            "2026-11-20T14:05:00+01:00",
            "2026-11-20 07:35:00-0530",
            "2026-11-20 13:05:00+00",
            "2026-11-20 13:05:00 Z",
            "2026-11-20 14:05:00.000 +01:00",
            "2026-11-20 07:35:00 -0530",
        ];
        for text in same {
            let shown = parse_time(text).map(|time| time.to_string());
            assert_eq!(shown.as_deref(), Some("2026-11-20T13:05:00.000000Z"), "{text}");
        }
        let midnight = parse_time("2026-11-20T00:00:00Z");
        assert!(midnight.is_some());
        assert_eq!(parse_time("2026-11-20"), midnight);
        assert_eq!(parse_american_date("11/20/2026"), midnight);
        assert_eq!(parse_american_date("9/2/2026"), parse_time("2026-09-02"));
        assert_eq!(
            parse_time("2016-12-31T23:59:60.123456789Z").map(|time| time.to_string()).as_deref(),
            Some("2016-12-31T23:59:59.123456Z")
        );
    }

    #[test]
    fn other_texts_are_refused() {
        for text in [
            "",
            "2026-11-2",
            "2026-02-29",
            "2026-11-20T",
            "2026-11-20X13:05:00",
            "2026-11-20T24:00:00Z",
            "2026-11-20T13:60Z",
            "2026-11-20T13:05:00 CET",
            "2026-11-20T13:05:00[Europe/Vienna]",
            "2026-11-20 +01:00",
            "2026-11-20T13:05:00+1",
            "2026-11-20T13:05:00.1234567890Z",
            "2026-11-20T13:05:00:00Z",
            "1969-12-31T23:59:59Z",
            "9999-01-01",
            "2026-11-2é",
            "45000",
        ] {
            assert_eq!(parse_time(text), None, "{text}");
        }
        for text in ["", "20/11/2026", "2/29/2026", "0/1/2026", "1/0/2026", "1/1/26/1", "1//2026", "1/1/1969"]
        {
            assert_eq!(parse_american_date(text), None, "{text}");
        }
    }

    fn span(begin: &str, end: &str) -> Span {
        Span::of(parse_time(begin).unwrap(), parse_time(end).unwrap()).unwrap()
    }

    #[test]
    fn a_period_becomes_full_hours() {
        let hour = span("2026-11-20T13:00:00Z", "2026-11-20T14:00:00Z");
        assert_eq!(hour.hours(), 1);
        assert_eq!(span("2026-11-20T13:10:00Z", "2026-11-20T13:50:00Z"), hour);
        assert_eq!(span("2026-11-20T13:59:59Z", "2026-11-20T13:59:59Z"), hour);
        assert_eq!(span("2026-11-20T13:30:00Z", "2026-11-20T14:30:00Z").hours(), 2);
        assert_eq!(span("2026-10-01", "2026-11-01").hours(), 31 * 24);
        let (begin, end) = (parse_time("2026-11-20").unwrap(), parse_time("2026-11-19").unwrap());
        assert_eq!(Span::of(begin, end), None);
    }

    #[test]
    fn a_long_period_is_clipped_to_its_month() {
        let year = span("2026-10-15T12:00:00Z", "2027-10-15T12:00:00Z");
        assert!(year.is_too_long() && !span("2026-10-01", "2026-11-02").is_too_long());
        let rest = span("2026-10-15T12:00:00Z", "2026-11-01");
        let november = span("2026-11-01", "2026-12-01");
        assert_eq!(year.within(None), rest);
        assert_eq!(year.within(Some(span("2026-10-01", "2026-11-01"))), rest);
        assert_eq!(year.within(Some(november)), november);
        assert_eq!(year.within(Some(span("2026-09-01", "2026-10-01"))), span("2026-09-01", "2026-10-01"));
        assert_eq!(year.within(Some(year)), rest);
    }
}
