//! Samples in the text format of Prometheus: `name{label="value",..} number [milliseconds]`.

use std::borrow::Cow;

use prorata_schemas::reject::excerpt;
use prorata_schemas::time::Timestamp;

/// A line that is not a valid sample.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: '{text}' is not a sample such as name{{label=\"value\"}} 1.5")]
pub struct SampleError {
    /// The line number, from 1.
    pub line: usize,
    /// The start of the line.
    pub text: String,
}

/// Names and values, in order.
type Labels<'t> = Vec<(&'t str, Cow<'t, str>)>;

/// A sample.
#[derive(Clone, Debug, PartialEq)]
pub struct Sample<'t> {
    pub name: &'t str,
    labels: Labels<'t>,
    pub value: f64,
    /// Time of measurement. `None` if it is the time of reading.
    pub at: Option<Timestamp>,
}

impl Sample<'_> {
    /// Returns the value of a label, or `None` if it is missing or empty.
    pub fn label(&self, name: &str) -> Option<&str> {
        let found = self.labels.iter().find(|(label, _)| *label == name);
        found.map(|(_, value)| value.as_ref()).filter(|value| !value.is_empty())
    }
}

/// Parses the samples of a text; skips comments and blank lines.
pub fn samples(text: &str) -> impl Iterator<Item = Result<Sample<'_>, SampleError>> {
    text.lines().enumerate().filter_map(|(index, line)| {
        let trimmed = line.trim();
        if trimmed.is_empty() || trimmed.starts_with('#') {
            return None;
        }
        Some(sample(trimmed).ok_or_else(|| SampleError { line: index + 1, text: excerpt(trimmed) }))
    })
}

fn sample(line: &str) -> Option<Sample<'_>> {
    let end = line.find(|c: char| c == '{' || c.is_whitespace())?;
    let (name, rest) = line.split_at(end);
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | ':');
    if name.is_empty() || !name.chars().all(plain) {
        return None;
    }
    let rest = rest.trim_start();
    let (labels, rest) = match rest.strip_prefix('{') {
        Some(rest) => labels(rest)?,
        None => (Vec::new(), rest),
    };
    let mut words = rest.split_whitespace();
    let value = words.next()?.parse().ok()?;
    let millis: Option<i64> = match words.next() {
        Some(text) => Some(text.parse().ok()?),
        None => None,
    };
    let at = match millis {
        Some(millis) => Some(Timestamp(millis.checked_mul(1_000)?)),
        None => None,
    };
    words.next().is_none().then_some(Sample { name, labels, value, at })
}

/// Parses labels up to the closing brace, and returns the rest.
fn labels(mut rest: &str) -> Option<(Labels<'_>, &str)> {
    let mut labels = Vec::new();
    loop {
        rest = rest.trim_start_matches([' ', ',']);
        if let Some(tail) = rest.strip_prefix('}') {
            return Some((labels, tail));
        }
        let (name, tail) = rest.split_once('=')?;
        let (value, tail) = quoted(tail.trim_start().strip_prefix('"')?)?;
        labels.push((name.trim(), value));
        rest = tail;
    }
}

/// Parses a value up to its closing quote, and returns the rest.
fn quoted(text: &str) -> Option<(Cow<'_, str>, &str)> {
    let mut is_escaped = false;
    let mut has_escapes = false;
    let end = text.char_indices().find_map(|(at, c)| match c {
        _ if is_escaped => {
            is_escaped = false;
            None
        }
        '\\' => {
            (is_escaped, has_escapes) = (true, true);
            None
        }
        '"' => Some(at),
        _ => None,
    })?;
    let (value, tail) = (text.get(..end)?, text.get(end + 1..)?);
    Some((if has_escapes { Cow::Owned(unescaped(value)) } else { Cow::Borrowed(value) }, tail))
}

fn unescaped(value: &str) -> String {
    let mut out = String::with_capacity(value.len());
    let mut chars = value.chars();
    while let Some(c) = chars.next() {
        match c {
            '\\' => match chars.next() {
                Some('n') => out.push('\n'),
                Some(other) => out.push(other),
                None => {}
            },
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_are_read() {
        let text = "# HELP a b\n\na 1\nb{x=\"1\",y=\"a,}\\\"\\n\\\\\",} 2.5e3 1700000000123\nc_d:e { } NaN\n";
        let read: Vec<Sample<'_>> = samples(text).map(Result::unwrap).collect();
        assert_eq!((read[0].name, read[0].value, read[0].at), ("a", 1.0, None));
        assert_eq!((read[1].label("x"), read[1].label("y")), (Some("1"), Some("a,}\"\n\\")));
        assert_eq!((read[1].value, read[1].at), (2500.0, Some(Timestamp(1_700_000_000_123_000))));
        assert!(read[2].value.is_nan());
    }

    #[test]
    fn an_invalid_sample_is_reported_with_its_line() {
        let wrong =
            ["a", "a b", "a{ 1", "a{x} 1", "a{x=1} 1", "a{x=\"1} 1", "a 1 x", "a 1 2 3", "{x=\"1\"} 1"];
        for line in wrong.into_iter().chain(["a 1 9223372036854775807", "é 1", "a{x=\"\\"]) {
            let error = samples(&format!("ok 1\n{line}\n")).nth(1).unwrap().unwrap_err();
            assert_eq!(error.line, 2, "{line}");
        }
    }
}
