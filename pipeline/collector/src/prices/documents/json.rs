//! Reads JSON in one pass, with numbers as text.

use std::fmt;
use std::io::{self, BufRead, Read};
use std::marker::PhantomData;

use serde::de::{DeserializeOwned, DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::Value;

/// Puts the numbers of a JSON text into quotes, so that a price is never a float. Other bytes stay the same.
pub struct NumbersAsText<R> {
    from: R,
    is_in_string: bool,
    is_escaped: bool,
    is_in_number: bool,
    /// A byte that was read, but not returned yet.
    held: Option<u8>,
}

impl<R: BufRead> NumbersAsText<R> {
    pub const fn new(from: R) -> Self {
        Self { from, is_in_string: false, is_escaped: false, is_in_number: false, held: None }
    }

    /// Returns the next byte of the quoted text.
    fn next(&mut self) -> io::Result<Option<u8>> {
        if let Some(byte) = self.held.take() {
            return Ok(Some(byte));
        }
        let byte = self.from.fill_buf()?.first().copied();
        self.from.consume(usize::from(byte.is_some()));
        let is_of_number =
            |byte: u8| byte.is_ascii_digit() || matches!(byte, b'+' | b'-' | b'.' | b'e' | b'E');
        if self.is_in_number && !byte.is_some_and(is_of_number) {
            self.is_in_number = false;
            self.held = byte;
            self.note(byte);
            return Ok(Some(b'"'));
        }
        if !self.is_in_string && !self.is_in_number && byte.is_some_and(|b| b.is_ascii_digit() || b == b'-') {
            self.is_in_number = true;
            self.held = byte;
            return Ok(Some(b'"'));
        }
        if !self.is_in_number {
            self.note(byte);
        }
        Ok(byte)
    }

    /// Tracks the starts and ends of strings.
    fn note(&mut self, byte: Option<u8>) {
        match byte {
            _ if self.is_escaped => self.is_escaped = false,
            Some(b'\\') if self.is_in_string => self.is_escaped = true,
            Some(b'"') => self.is_in_string = !self.is_in_string,
            _ => {}
        }
    }
}

impl<R: BufRead> Read for NumbersAsText<R> {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        let mut count = 0;
        for place in to.iter_mut() {
            let Some(byte) = self.next()? else { break };
            *place = byte;
            count += 1;
        }
        Ok(count)
    }
}

/// A reader of a map that passes on each entry and keeps no entry.
pub struct Entries<V, F>(F, PhantomData<V>);

/// Returns a reader that passes each entry of a map to `each`. An entry of another form is passed on as an
/// error, and reading continues.
pub const fn entries<V, F: FnMut(String, Result<V, String>)>(each: F) -> Entries<V, F> {
    Entries(each, PhantomData)
}

impl<'de, V: DeserializeOwned, F: FnMut(String, Result<V, String>)> DeserializeSeed<'de> for Entries<V, F> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de, V: DeserializeOwned, F: FnMut(String, Result<V, String>)> Visitor<'de> for Entries<V, F> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(mut self, mut map: A) -> Result<(), A::Error> {
        while let Some((key, value)) = map.next_entry()? {
            (self.0)(key, parsed(value));
        }
        Ok(())
    }
}

/// A reader of a list that passes on each element and keeps no element.
pub struct Elements<V, F>(F, PhantomData<V>);

/// Returns a reader that passes each element of a list to `each`. An element of another form is passed on as
/// an error, and reading continues.
pub const fn elements<V, F: FnMut(Result<V, String>)>(each: F) -> Elements<V, F> {
    Elements(each, PhantomData)
}

impl<'de, V: DeserializeOwned, F: FnMut(Result<V, String>)> DeserializeSeed<'de> for Elements<V, F> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_seq(self)
    }
}

impl<'de, V: DeserializeOwned, F: FnMut(Result<V, String>)> Visitor<'de> for Elements<V, F> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list")
    }

    fn visit_seq<A: SeqAccess<'de>>(mut self, mut list: A) -> Result<(), A::Error> {
        while let Some(value) = list.next_element()? {
            (self.0)(parsed(value));
        }
        Ok(())
    }
}

fn parsed<V: DeserializeOwned>(value: Value) -> Result<V, String> {
    serde_json::from_value(value).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn quoted(text: &str) -> String {
        let mut out = String::new();
        NumbersAsText::new(text.as_bytes()).read_to_string(&mut out).unwrap();
        out
    }

    #[test]
    fn numbers_become_text_and_all_else_stays() {
        assert_eq!(quoted(r#"{"a":0.1,"b":[1,-2.5e+3 ,3]}"#), r#"{"a":"0.1","b":["1","-2.5e+3" ,"3"]}"#);
        assert_eq!(quoted(r#"{"a 1":"b \" 2","c\\":true}"#), r#"{"a 1":"b \" 2","c\\":true}"#);
        assert_eq!(quoted("12"), "\"12\"");
        assert_eq!(quoted(""), "");
        assert_eq!(quoted(r#"1"x 2"3"#), r#""1""x 2""3""#);
    }
}
