//! JSON text with keys in a fixed order and decimals as exact numbers.

use std::fmt::{Display, Write};

/// A JSON object under construction; keys keep the order in which they are added.
#[derive(Default)]
pub struct Object(String);

/// Returns a text as a JSON string.
pub fn quoted(text: &str) -> String {
    let mut json = String::with_capacity(text.len() + 2);
    push_quoted(&mut json, text);
    json
}

fn push_quoted(json: &mut String, text: &str) {
    // No early exit, so that the processor checks many bytes at a time.
    let is_escaped = |byte: u8| (byte < b' ') | (byte == b'"') | (byte == b'\\');
    if text.bytes().fold(false, |found, byte| found | is_escaped(byte)) {
        json.push_str(&serde_json::Value::from(text).to_string());
    } else {
        json.push('"');
        json.push_str(text);
        json.push('"');
    }
}

/// Returns a JSON array of texts.
pub fn array<'a>(texts: impl IntoIterator<Item = &'a str>) -> String {
    let quoted: Vec<_> = texts.into_iter().map(quoted).collect();
    format!("[{}]", quoted.join(","))
}

impl Object {
    /// Creates an empty object with space for this many bytes.
    pub fn with_capacity(bytes: usize) -> Self {
        Self(String::with_capacity(bytes))
    }

    /// Adds a text; adds nothing if it is `None` or empty.
    pub fn text<'a>(self, key: &str, text: impl Into<Option<&'a str>>) -> Self {
        match text.into() {
            Some(text) if !text.is_empty() => self.any_text(key, text),
            _ => self,
        }
    }

    /// Adds a text that may be empty.
    pub fn any_text(mut self, key: &str, text: &str) -> Self {
        self.key(key);
        push_quoted(&mut self.0, text);
        self
    }

    /// Adds a value that is already JSON, such as a number.
    pub fn raw(mut self, key: &str, json: impl Display) -> Self {
        self.key(key);
        // Writing to a text cannot fail.
        let _ = write!(self.0, "{json}");
        self
    }

    fn key(&mut self, key: &str) {
        self.0.push(if self.0.is_empty() { '{' } else { ',' });
        push_quoted(&mut self.0, key);
        self.0.push(':');
    }

    /// Returns the object; `{}` if it is empty.
    pub fn finish(self) -> String {
        if self.0.is_empty() { "{}".to_owned() } else { self.0 + "}" }
    }

    /// Returns the object; `None` if it is empty.
    pub fn non_empty(self) -> Option<String> {
        if self.0.is_empty() { None } else { Some(self.0 + "}") }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_object_keeps_order_escapes_text_and_skips_what_is_missing() {
        let object =
            Object::default().text("b", "say \"hi\"\n").text("none", None).text("", "x").raw("a", "0.10");
        assert_eq!(object.finish(), r#"{"b":"say \"hi\"\n","":"x","a":0.10}"#);
        assert_eq!(Object::default().finish(), "{}");
        assert_eq!(Object::default().text("empty", "").non_empty(), None);
        assert_eq!(array(["a", "b\\"]), r#"["a","b\\"]"#);
    }
}
