//! Durations in a configuration: texts such as `30s`, `5m` or `1h30m`, for `#[serde(with = "duration")]`.

use std::time::Duration;

use serde::{Deserialize, Deserializer, Serializer};

/// Writes a duration as people do.
///
/// # Errors
/// If the serializer fails.
pub fn serialize<S: Serializer>(duration: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(&humantime::format_duration(*duration))
}

/// Reads a duration as people write it.
///
/// # Errors
/// If the text is not a duration; the message names the accepted forms.
pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
    let text = String::deserialize(deserializer)?;
    parse(&text).ok_or_else(|| {
        let accepted = "use numbers with ms, s, m, h or d, such as 30s, 5m, 1h30m or 2d";
        serde::de::Error::custom(format!("'{text}' is not a duration; {accepted}"))
    })
}

/// Parses a duration; `None` if the text is not valid. `M` is refused, because it would mean months and is
/// most likely a mistyped `m`.
pub fn parse(text: &str) -> Option<Duration> {
    humantime::parse_duration(text).ok().filter(|_| !text.contains('M'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_written_as_people_write_them() {
        for (text, seconds) in [
            ("30s", 30),
            ("5m", 300),
            ("1h", 3_600),
            ("1h30m", 5_400),
            ("1h 30m", 5_400),
            ("1.5h", 5_400),
            ("2d", 172_800),
            ("0s", 0),
        ] {
            assert_eq!(parse(text), Some(Duration::from_secs(seconds)), "{text}");
        }
        assert_eq!(parse("250ms"), Some(Duration::from_millis(250)));
        for text in ["", "5", "m", "-5m", "5M", "99999999999999999999d"] {
            assert_eq!(parse(text), None, "{text}");
        }
    }

    #[test]
    fn a_written_duration_is_read_back() {
        for seconds in [0, 5, 45, 60, 300, 3_600, 5_400, 86_400, 172_800] {
            let duration = Duration::from_secs(seconds);
            let text = humantime::format_duration(duration).to_string();
            assert_eq!(parse(&text), Some(duration), "{text}");
        }
    }
}
