//! Text for people, in which text written by tenants cannot move a terminal's cursor, change its colour, or
//! fake a line.

use std::borrow::Cow;
use std::fmt;

/// Returns whether a character has effects beyond its own glyph: control characters, line and paragraph
/// separators, and marks that change the direction of text.
pub fn is_unsafe(letter: char) -> bool {
    letter.is_control()
        || matches!(letter, '\u{61c}' | '\u{200e}' | '\u{200f}')
        || matches!(letter, '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// Returns the line with U+FFFD in place of each unsafe character.
pub fn plain(line: &str) -> Cow<'_, str> {
    if line.contains(is_unsafe) { line.replace(is_unsafe, "\u{fffd}").into() } else { line.into() }
}

/// A text of plain lines. Each `writeln!` writes exactly one line, even if the values contain line ends.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PlainText(String);

impl PlainText {
    /// Writes a line. `writeln!` calls it.
    ///
    /// # Errors
    /// If a value cannot be formatted.
    pub fn write_fmt(&mut self, text: fmt::Arguments<'_>) -> fmt::Result {
        let mut formatted = String::new();
        fmt::write(&mut formatted, text)?;
        self.0.push_str(&plain(formatted.strip_suffix('\n').unwrap_or(&formatted)));
        self.0.push('\n');
        Ok(())
    }

    /// Returns the lines, without trailing white space.
    pub fn as_str(&self) -> &str {
        self.0.trim_end()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unsafe_characters_are_replaced() {
        let cases = [
            ("team-a/pod é 价格 🙂", "team-a/pod é 价格 🙂"),
            ("\u{1b}]0;title\u{7}", "\u{fffd}]0;title\u{fffd}"),
            ("a\r\nb\tc\u{7f}\u{9b}2J", "a\u{fffd}\u{fffd}b\u{fffd}c\u{fffd}\u{fffd}2J"),
            ("a\u{2028}b\u{2029}c", "a\u{fffd}b\u{fffd}c"),
            ("\u{202e}a\u{2066}b\u{200f}c\u{61c}", "\u{fffd}a\u{fffd}b\u{fffd}c\u{fffd}"),
        ];
        for (text, shown) in cases {
            assert_eq!(plain(text), shown, "{text:?}");
        }
    }

    #[test]
    fn values_end_no_line() {
        let mut text = PlainText::default();
        for (pod, cost) in [("a\ntotal 0", 1), ("b\n", 2)] {
            writeln!(text, "pod {pod}, cost {cost}").unwrap();
        }
        writeln!(text).unwrap();
        assert_eq!(text.as_str(), "pod a\u{fffd}total 0, cost 1\npod b\u{fffd}, cost 2");
    }
}
