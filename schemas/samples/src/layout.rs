//! Other spellings of one body. Avro leaves a writer free to block maps and arrays, order map entries, pad
//! integers and sign-extend decimals as it likes. The schemas drive this module, so it also checks the reader
//! against them.

use prorata_schemas::avsc;
use prorata_schemas::body::wire::{Wire, put_bytes, put_long};
use prorata_schemas::event::EventKind;
use serde_json::Value as Json;

/// The binary form of a type.
#[expect(missing_docs, reason = "the names are Avro's")]
pub enum Layout {
    Null,
    Boolean,
    Integer,
    Text,
    Decimal,
    Array(Box<Layout>),
    Map(Box<Layout>),
    Union(Vec<Layout>),
    Record(Vec<Layout>),
}

/// Returns the layout of our newest schema of `kind`.
pub fn layout_of(kind: EventKind) -> Layout {
    layout(&serde_json::from_str(avsc(kind)).unwrap())
}

fn layout(schema: &Json) -> Layout {
    match schema {
        Json::Array(variants) => Layout::Union(variants.iter().map(layout).collect()),
        Json::String(name) => match name.as_str() {
            "null" => Layout::Null,
            "boolean" => Layout::Boolean,
            "int" | "long" => Layout::Integer,
            "string" => Layout::Text,
            other => panic!("{other}"),
        },
        complex => match complex["type"].as_str().unwrap() {
            "long" | "enum" => Layout::Integer,
            "bytes" => Layout::Decimal,
            "array" => Layout::Array(Box::new(layout(&complex["items"]))),
            "map" => Layout::Map(Box::new(layout(&complex["values"]))),
            "record" => {
                let fields = complex["fields"].as_array().unwrap();
                Layout::Record(fields.iter().map(|field| layout(&field["type"])).collect())
            }
            other => panic!("{other}"),
        },
    }
}

/// Encodes `body` of this `layout` again, in another spelling that `dice` chooses.
pub fn respell(layout: &Layout, body: &[u8], dice: &mut dyn FnMut(usize) -> usize) -> Vec<u8> {
    let mut wire = Wire::new(body);
    let mut out = Vec::new();
    Speller { dice }.spell(layout, &mut wire, &mut out);
    assert_eq!(wire.rest(), b"", "the schema does not cover the whole body");
    out
}

struct Speller<'d> {
    dice: &'d mut dyn FnMut(usize) -> usize,
}

impl Speller<'_> {
    fn spell(&mut self, layout: &Layout, wire: &mut Wire<'_>, out: &mut Vec<u8>) {
        match layout {
            Layout::Null => {}
            Layout::Boolean => out.push(wire.boolean().unwrap().into()),
            Layout::Integer => self.integer(wire.long().unwrap(), out),
            Layout::Text => self.bytes(wire.bytes().unwrap(), out),
            Layout::Decimal => self.decimal(wire.bytes().unwrap(), out),
            Layout::Union(variants) => {
                let index = wire.long().unwrap();
                self.integer(index, out);
                self.spell(&variants[usize::try_from(index).unwrap()], wire, out);
            }
            Layout::Record(fields) => fields.iter().for_each(|field| self.spell(field, wire, out)),
            Layout::Array(item) => {
                let items = self.items(item, false, wire);
                self.blocks(&items, out);
            }
            Layout::Map(value) => {
                let entries = self.items(value, true, wire);
                let mut shuffled = Vec::new();
                for (index, entry) in entries.iter().enumerate() {
                    let at = (self.dice)(shuffled.len() + 1);
                    shuffled.insert(at, entry.clone());
                    // A stale entry with the same key may be anywhere before the one that counts.
                    let stale = &entries[(self.dice)(index + 1)];
                    if matches!(**value, Layout::Text) && (self.dice)(4) == 0 {
                        let key = Wire::new(stale).bytes().unwrap();
                        let mut other = Vec::new();
                        put_bytes(&mut other, key);
                        put_bytes(&mut other, b"7");
                        shuffled.insert(0, other);
                    }
                }
                self.blocks(&shuffled, out);
            }
        }
    }

    fn items(&mut self, item: &Layout, keys: bool, wire: &mut Wire<'_>) -> Vec<Vec<u8>> {
        let mut items = Vec::new();
        loop {
            let count = wire.block().unwrap();
            if count == 0 {
                return items;
            }
            for _ in 0..count {
                let mut out = Vec::new();
                if keys {
                    put_bytes(&mut out, wire.bytes().unwrap());
                }
                self.spell(item, wire, &mut out);
                items.push(out);
            }
        }
    }

    fn blocks(&mut self, mut items: &[Vec<u8>], out: &mut Vec<u8>) {
        while !items.is_empty() {
            let (block, rest) = items.split_at(1 + (self.dice)(items.len()));
            let bytes = block.concat();
            let count = i64::try_from(block.len()).unwrap();
            if (self.dice)(2) == 0 {
                self.integer(count, out);
            } else {
                self.integer(-count, out);
                self.integer(i64::try_from(bytes.len()).unwrap(), out);
            }
            out.extend(bytes);
            items = rest;
        }
        self.integer(0, out);
    }

    fn bytes(&mut self, bytes: &[u8], out: &mut Vec<u8>) {
        self.integer(i64::try_from(bytes.len()).unwrap(), out);
        out.extend_from_slice(bytes);
    }

    fn decimal(&mut self, bytes: &[u8], out: &mut Vec<u8>) {
        let sign = if bytes[0] >= 0x80 { 0xff } else { 0 };
        let mut padded = vec![sign; (self.dice)(20)];
        padded.extend_from_slice(bytes);
        self.bytes(&padded, out);
    }

    fn integer(&mut self, value: i64, out: &mut Vec<u8>) {
        let start = out.len();
        put_long(out, value);
        if (self.dice)(3) == 0 && out.len() - start < 8 {
            *out.last_mut().unwrap() |= 0x80;
            out.extend([0x80, 0x00]);
        }
    }
}
