//! Times of Kubernetes: RFC 3339 text, in whole seconds or microseconds.

use prorata_schemas::time::{Date, HOUR_MICROS, Timestamp};
use serde::{Deserialize, Deserializer};

/// A time in a Kubernetes object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Instant(pub Timestamp);

impl<'de> Deserialize<'de> for Instant {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<str>::deserialize(deserializer)?;
        parse_instant(&text).map(Self).ok_or_else(|| {
            serde::de::Error::custom(format!("'{text}' is not a time such as 2026-11-20T13:05:00Z"))
        })
    }
}

/// Parses an RFC 3339 instant of the years 1970 to 9999: `2026-11-20T13:05:00Z`, with up to nine decimals of
/// a second and `Z` or an offset such as `+01:00`. Decimals below a microsecond are cut off. Returns `None`
/// if the text is anything else.
pub fn parse_instant(text: &str) -> Option<Timestamp> {
    let (date, rest) = text.split_once(['T', 't'])?;
    let date = calendar_date(date)?;
    let zone = rest.find(['Z', 'z', '+', '-'])?;
    let (clock, zone) = rest.split_at(zone);
    let (clock, fraction) = clock.split_once('.').map_or((clock, None), |(clock, part)| (clock, Some(part)));
    let [hour, minute, second] = numbers(clock, ':')?;
    // A leap second counts as the second before it.
    let in_range = hour < 24 && minute < 60 && second <= 60;
    if !in_range {
        return None;
    }
    let seconds = hour * 3_600 + minute * 60 + second.min(59);
    let offset = offset_minutes(zone)? * 60_000_000;
    let micros = date.days() * 24 * HOUR_MICROS + seconds * 1_000_000 + micros_of(fraction)? - offset;
    (0..=LAST_MICRO).contains(&micros).then_some(Timestamp(micros))
}

/// The last microsecond of the year 9999.
const LAST_MICRO: i64 = Date { year: 10_000, month: 1, day: 1 }.days() * 24 * HOUR_MICROS - 1;

/// Parses a date such as `2026-11-20` of the years 1970 to 9999.
pub(crate) fn parse_date(text: &str) -> Option<Date> {
    calendar_date(text).filter(|date| date.days() >= 0)
}

/// Parses a date of the years 0 to 9999 and checks that it is in the calendar.
fn calendar_date(text: &str) -> Option<Date> {
    let [year, month, day] = numbers(text, '-')?;
    let exact = text.len() == 10 && (1..=12).contains(&month) && (1..=31).contains(&day);
    let date = Date { year, month: month as u8, day: day as u8 };
    (exact && Date::from_days(date.days()) == date).then_some(date)
}

/// Parses three numbers with a separator `between` them. The second and the third number have two digits.
fn numbers(text: &str, between: char) -> Option<[i64; 3]> {
    let mut parts = text.split(between);
    let mut next = |digits: usize| -> Option<i64> {
        let part = parts.next().filter(|part| part.len() == digits)?;
        part.bytes().all(|byte| byte.is_ascii_digit()).then(|| part.parse().ok())?
    };
    let first = if between == '-' { 4 } else { 2 };
    let numbers = [next(first)?, next(2)?, next(2)?];
    parts.next().is_none().then_some(numbers)
}

/// Converts the decimals of a second to microseconds.
fn micros_of(fraction: Option<&str>) -> Option<i64> {
    let Some(digits) = fraction else { return Some(0) };
    let plain = (1..=9).contains(&digits.len()) && digits.bytes().all(|byte| byte.is_ascii_digit());
    let padded: String = digits.chars().chain("000000".chars()).take(6).collect();
    plain.then(|| padded.parse().ok())?
}

fn offset_minutes(zone: &str) -> Option<i64> {
    let sign = match zone.as_bytes() {
        [b'Z' | b'z'] => return Some(0),
        [b'+', ..] => 1,
        _ => -1,
    };
    let [hours, minutes, _] = numbers(&format!("{}:00", zone.get(1..)?), ':')?;
    (hours < 24 && minutes < 60).then_some(sign * (hours * 60 + minutes))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(text: &str) -> Option<String> {
        parse_instant(text).map(|instant| instant.to_string())
    }

    #[test]
    fn kubernetes_times_are_read() {
        let whole = Some("2026-11-20T13:05:09.000000Z".to_owned());
        assert_eq!(shown("2026-11-20T13:05:09Z"), whole);
        assert_eq!(shown("2026-11-20T14:05:09+01:00"), whole);
        assert_eq!(shown("2026-11-20T07:35:09-05:30"), whole);
        assert_eq!(shown("2026-11-20T13:05:09.5Z").unwrap(), "2026-11-20T13:05:09.500000Z");
        assert_eq!(shown("2026-11-20T13:05:09.123456789Z").unwrap(), "2026-11-20T13:05:09.123456Z");
        assert_eq!(shown("2016-12-31T23:59:60Z").unwrap(), "2016-12-31T23:59:59.000000Z");
    }

    #[test]
    fn dates_are_those_whose_instants_are_read() {
        for text in ["1970-01-01", "9999-12-31", "2024-02-29"] {
            assert_eq!(
                parse_date(text).map(Date::start),
                parse_instant(&format!("{text}T00:00:00Z")),
                "{text}"
            );
            assert!(parse_date(text).is_some(), "{text}");
        }
        for text in ["0000-01-01", "1969-12-31", "2026-02-29", "2026-1-1"] {
            assert_eq!(parse_date(text), None, "{text}");
        }
    }

    #[test]
    fn an_invalid_time_is_refused() {
        for text in [
            "",
            "2026-11-20",
            "2026-11-20T13:05Z",
            "2026-11-20T13:05:09",
            "2026-02-30T00:00:00Z",
            "2026-11-20T24:00:00Z",
            "2026-11-20T13:60:00Z",
            "2026-11-20T13:05:09.Z",
            "2026-11-20T13:05:09.1234567890Z",
            "2026-11-20T13:05:09+1:00",
            "2026-11-20T13:05:09+01:00:00",
            "1969-12-31T23:59:59Z",
            "+026-11-20T13:05:09Z",
            "2026-11-20T1é:05:09Z",
            "99999-01-01T00:00:00Z",
        ] {
            assert_eq!(parse_instant(text), None, "{text}");
        }
    }
}
