//! Reads the fields of one record in order and validates each of them.
//!
//! If a value is out of range, the fault is recorded, a placeholder replaces the value, and the record is
//! read to its end. So the end of an invalid record is known. Bytes that are not a record are `malformed`,
//! whatever values they hold.

use std::fmt;
use std::mem;

use crate::Text;
use crate::body::wire::{Wire, shortest};
use crate::decimal::Decimal12;
use crate::event::{ByName, Labels, Quantities, Recording};
use crate::ids::OrganizationId;
use crate::money::Ratio;
use crate::quantity::{NVIDIA_GPU, Quantity};
use crate::reject::{Reason, Reject, excerpt};
use crate::sharing::{Maps, Names};
use crate::time::{Date, HOUR_MICROS, Timestamp};

/// Message for an id or key without characters.
const EMPTY: &str = "empty, but an id or key must not be";

/// The first instant after all valid event times, in microseconds. Event times lie in the years 1970 to 9999.
const TIME_END: i64 = Date { year: 10_000, month: 1, day: 1 }.start().0;

/// The fields of a record that are still to be read.
pub struct Fields<'w, 'a> {
    wire: &'w mut Wire<'a>,
    names: &'w mut Names,
    record: &'static str,
    fault: Option<Reject>,
}

impl<'w, 'a> Fields<'w, 'a> {
    /// Creates the reader of a record named `record`, from the position of `wire`.
    pub const fn new(wire: &'w mut Wire<'a>, names: &'w mut Names, record: &'static str) -> Self {
        Self { wire, names, record, fault: None }
    }

    /// Returns the fault of the values read so far; `None` if they are all valid.
    pub fn into_fault(self) -> Option<Reject> {
        self.fault
    }

    /// Records an invalid value. Only the first invalid value is reported.
    pub fn invalid(&mut self, field: &str, what: impl fmt::Display) {
        if self.fault.is_none() {
            self.fault = Some(Reject::invalid(self.record, field, what));
        }
    }

    fn str(&mut self, field: &str) -> Result<&'a str, Reject> {
        let bytes = self.wire.bytes()?;
        Ok(self.utf8(bytes, field))
    }

    fn utf8(&mut self, bytes: &'a [u8], field: &str) -> &'a str {
        std::str::from_utf8(bytes).unwrap_or_else(|_| {
            // The text's length is known, and so is the record's end; but such bytes are not an Avro string.
            if self.fault.as_ref().is_none_or(|fault| fault.reason != Reason::Malformed) {
                self.fault = Some(Reject::malformed(format!("{}.{field}: not UTF-8", self.record)));
            }
            ""
        })
    }

    /// Reads any text.
    pub fn text(&mut self, field: &str) -> Result<Text, Reject> {
        let bytes = self.wire.bytes()?;
        if let Some(kept) = self.names.kept(bytes) {
            return Ok(kept);
        }
        let text = self.utf8(bytes, field);
        Ok(self.names.text(text))
    }

    /// Reads a text that other events rarely repeat, without sharing it.
    pub fn own_text(&mut self, field: &str) -> Result<Text, Reject> {
        self.str(field).map(Text::from)
    }

    /// Reads an id, which must not be empty, and borrows it from the bytes.
    pub fn key_ref(&mut self, field: &str) -> Result<&'a str, Reject> {
        let text = self.str(field)?;
        if text.is_empty() {
            self.invalid(field, EMPTY);
        }
        Ok(text)
    }

    /// Returns `text`, shared among the events of the organization.
    pub fn shared(&mut self, text: &str) -> Text {
        self.names.text(text)
    }

    /// Reads the organization's id, which must not be empty. Texts read after it are shared among the
    /// organization's events.
    pub fn organization(&mut self, field: &str) -> Result<OrganizationId, Reject> {
        let bytes = self.wire.bytes()?;
        let id = self.names.last(bytes).unwrap_or_else(|| {
            let id = self.utf8(bytes, field);
            self.names.enter(id)
        });
        Ok(self.not_empty(id, field).into())
    }

    /// Reads an id, or a text that is part of a natural key. It must not be empty.
    pub fn key<K: From<Text>>(&mut self, field: &str) -> Result<K, Reject> {
        let text = self.text(field)?;
        Ok(self.not_empty(text, field).into())
    }

    fn not_empty(&mut self, text: Text, field: &str) -> Text {
        if text.is_empty() {
            self.invalid(field, EMPTY);
        }
        text
    }

    /// Reads null as `None`, or a value with `read`.
    pub fn optional<T>(
        &mut self,
        field: &str,
        read: impl FnOnce(&mut Self, &str) -> Result<T, Reject>,
    ) -> Result<Option<T>, Reject> {
        match self.wire.long()? {
            0 => Ok(None),
            1 => read(self, field).map(Some),
            branch => {
                Err(Reject::malformed(format!("{}.{field}: its union has no branch {branch}", self.record)))
            }
        }
    }

    /// Reads the index of an enum's symbol, below `symbols`.
    pub fn symbol(&mut self, field: &str, symbols: i32) -> Result<i32, Reject> {
        match self.wire.int()? {
            index if (0..symbols).contains(&index) => Ok(index),
            index => {
                Err(Reject::malformed(format!("{}.{field}: its enum has no symbol {index}", self.record)))
            }
        }
    }

    /// Reads an instant of the years 1970 to 9999.
    pub fn time(&mut self, field: &str) -> Result<Timestamp, Reject> {
        let micros = self.wire.long()?;
        if !is_time(micros) {
            self.invalid(field, format_args!("{micros} microseconds lie outside the years 1970 to 9999"));
            return Ok(Timestamp::default());
        }
        Ok(Timestamp(micros))
    }

    /// Reads `recorded_at` and `retracted`, the two fields at the end of every record.
    pub fn recording(&mut self) -> Result<Recording, Reject> {
        let recorded_at = self.optional("recorded_at", Self::time)?;
        Ok(Recording::new(recorded_at, self.boolean()?))
    }

    /// Reads any boolean.
    pub fn boolean(&mut self) -> Result<bool, Reject> {
        self.wire.boolean()
    }

    /// Reads a number that may be negative.
    pub fn signed(&mut self) -> Result<i32, Reject> {
        self.wire.int()
    }

    /// Reads a count or percentage: zero or more.
    pub fn count(&mut self, field: &str) -> Result<i32, Reject> {
        let value = self.wire.int()?;
        if value < 0 {
            self.invalid(field, format_args!("{value} is negative"));
        }
        Ok(value)
    }

    /// Reads a measured use: zero or more.
    pub fn measured(&mut self, field: &str) -> Result<i64, Reject> {
        let value = self.wire.long()?;
        if value < 0 {
            self.invalid(field, format_args!("{value} is negative"));
        }
        Ok(value)
    }

    /// Reads a priority: 1 or more.
    pub fn rank(&mut self, field: &str) -> Result<i32, Reject> {
        let value = self.wire.int()?;
        if value < 1 {
            self.invalid(field, format_args!("{value} is below 1, the highest priority"));
        }
        Ok(value)
    }

    /// Reads a price, budget, amount or ratio: zero or more, at most 28 digits. `of` converts a number of
    /// atoms (10^-12) to the value.
    pub fn decimal<D: Default>(&mut self, field: &str, of: fn(i128) -> Option<D>) -> Result<D, Reject> {
        let (atoms, value) = self.any_decimal(field, of)?;
        if atoms < 0 {
            self.invalid(field, format_args!("{} is negative", Decimal12::from_atoms(atoms)));
        }
        Ok(value)
    }

    /// Reads an amount of money that may be negative: at most 28 digits. `of` converts a number of atoms
    /// (10^-12) to the value.
    pub fn signed_decimal<D: Default>(
        &mut self,
        field: &str,
        of: fn(i128) -> Option<D>,
    ) -> Result<D, Reject> {
        self.any_decimal(field, of).map(|(_, value)| value)
    }

    /// Reads a decimal as a number of atoms and as a value; zero if it is invalid.
    fn any_decimal<D: Default>(
        &mut self,
        field: &str,
        of: fn(i128) -> Option<D>,
    ) -> Result<(i128, D), Reject> {
        let bytes = shortest(self.wire.bytes()?);
        let read = atoms_of(bytes).and_then(|atoms| Some((atoms, of(atoms)?)));
        if read.is_none() {
            self.invalid(field, "not a decimal of at most 28 digits");
        }
        Ok(read.unwrap_or_default())
    }

    /// Reads a map of quantities. If a key occurs twice, the last entry counts, as in every Avro map.
    pub fn quantities(&mut self, field: &str) -> Result<Quantities, Reject> {
        let quantity = |fields: &mut Self, key: &str| fields.quantity(field, key, Some(key));
        self.map(|names| &mut names.quantities, field, quantity)
    }

    /// Reads a number of GPUs; `None` if it is invalid.
    pub fn gpus(&mut self, field: &str) -> Result<Option<Quantity>, Reject> {
        self.quantity(field, NVIDIA_GPU, None)
    }

    /// Reads a quantity of a resource; `None` if it is invalid. A fault names the key, if there is one.
    fn quantity(&mut self, field: &str, of: &str, key: Option<&str>) -> Result<Option<Quantity>, Reject> {
        let text = self.str(field)?;
        match Quantity::amount_of(of, text) {
            Ok(amount) => return Ok(Some(Quantity { text: self.names.text(text), amount })),
            Err(error) => match key {
                Some(key) => self.invalid(field, format_args!("{}: {error}", excerpt(key))),
                None => self.invalid(field, error),
            },
        }
        Ok(None)
    }

    /// Reads a map of labels.
    pub fn labels(&mut self, field: &str) -> Result<Labels, Reject> {
        self.map(|names| &mut names.labels, field, |fields, _| fields.text(field).map(Some))
    }

    /// Reads a map; `value` reads the value after each key. A map whose bytes are still kept from an earlier
    /// read is not validated again.
    fn map<V>(
        &mut self,
        maps: fn(&mut Names) -> &mut Maps<V>,
        field: &str,
        value: impl FnMut(&mut Self, &str) -> Result<Option<V>, Reject>,
    ) -> Result<ByName<V>, Reject> {
        let from = self.wire.clone();
        self.wire.pass_map()?;
        let bytes = from.read_until(self.wire);
        let organization = self.names.organization();
        if let Some(map) = maps(self.names).kept(organization, bytes) {
            return Ok(map);
        }
        let tail = mem::replace(self.wire, from);
        let map = self.entries(field, value)?;
        debug_assert_eq!(self.wire.rest(), tail.rest());
        // A map with a fault is not kept: it is validated each time.
        if self.fault.is_none() {
            maps(self.names).keep(organization, bytes, &map);
        }
        Ok(map)
    }

    fn entries<V>(
        &mut self,
        field: &str,
        mut value: impl FnMut(&mut Self, &str) -> Result<Option<V>, Reject>,
    ) -> Result<ByName<V>, Reject> {
        let mut map = Vec::new();
        loop {
            let entries = self.wire.block()?;
            if entries == 0 {
                return Ok(map.into_iter().collect());
            }
            for _ in 0..entries {
                let key = self.str(field)?;
                if let Some(value) = value(self, key)? {
                    map.push((self.names.text(key), value));
                }
            }
        }
    }

    /// Reads an array by calling `item` for each item. `item` must read at least one byte.
    pub fn array<T>(
        &mut self,
        mut item: impl FnMut(&mut Self) -> Result<T, Reject>,
    ) -> Result<Vec<T>, Reject> {
        let mut items = Vec::new();
        loop {
            let entries = self.wire.block()?;
            if entries == 0 {
                return Ok(items);
            }
            for _ in 0..entries {
                items.push(item(self)?);
            }
        }
    }

    /// Checks that an effective span does not end before it starts. A span that ends at its start is valid
    /// but never effective.
    pub fn judge_span(&mut self, starts_at: Timestamp, ends_at: Option<Timestamp>) {
        if let Some(ends_at) = ends_at
            && ends_at < starts_at
        {
            self.invalid("ends_at", format_args!("{ends_at} is before starts_at, {starts_at}"));
        }
    }

    /// Checks that a usage interval is not negative and is at most one hour long.
    pub fn judge_interval(&mut self, start: Timestamp, end: Timestamp) {
        if is_usage_interval(start, end) {
            return;
        }
        if end < start {
            self.invalid("interval_end", format_args!("{end} is before event_time, {start}"));
        } else {
            self.invalid(
                "interval_end",
                format_args!("{end} is more than an hour after event_time, {start}"),
            );
        }
    }

    /// Checks a fraction: at most 1.
    pub fn judge_fraction(&mut self, field: &str, value: Option<Ratio>) {
        if let Some(value) = value
            && value > Ratio::from(1)
        {
            self.invalid(field, format_args!("{value} is above 1"));
        }
    }
}

/// Reads `recorded_at` and `retracted`, the two fields at the end of every record. Returns `None` if they are
/// invalid. Most samples have a null time and are not retractions.
pub fn valid_recording(wire: &mut Wire<'_>) -> Option<Recording> {
    if let [0, 0, ..] = wire.rest() {
        wire.take(2).ok()?;
        return Some(Recording::NONE);
    }
    let recorded_at = match wire.long().ok()? {
        0 => None,
        1 => Some(Timestamp(wire.long().ok().filter(|micros| is_time(*micros))?)),
        _ => return None,
    };
    Some(Recording::new(recorded_at, wire.boolean().ok()?))
}

/// Returns whether this number of microseconds is an instant of the years 1970 to 9999.
pub const fn is_time(micros: i64) -> bool {
    micros >= 0 && micros < TIME_END
}

/// Returns whether the interval between two valid instants may belong to a sample. The interval must not be
/// negative, and must be at most one hour long.
pub const fn is_usage_interval(start: Timestamp, end: Timestamp) -> bool {
    start.0 <= end.0 && end.0 - start.0 <= HOUR_MICROS
}

/// Returns the unscaled value of a decimal without leading sign bytes. Returns `None` if there are no bytes,
/// or more than 16 bytes.
fn atoms_of(bytes: &[u8]) -> Option<i128> {
    let first = *bytes.first()?;
    if bytes.len() > 16 {
        return None;
    }
    let sign = if first >= 0x80 { -1 } else { 0 };
    Some(bytes.iter().fold(sign, |atoms: i128, &byte| atoms << 8 | i128::from(byte)))
}
