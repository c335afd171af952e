//! The reasons for which a message cannot become an event: a closed list of codes, each with a readable
//! message.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// Reason codes of dead letters, as in `EVENTS.md`, "Rejected input".
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reason {
    /// The magic byte is missing, the bytes are truncated or trailing, or they are not Avro.
    Malformed,
    /// A schema id that the registry does not know.
    UnknownSchema,
    /// The writer schema is not one of ours, or cannot be resolved to ours.
    UnknownEvent,
    /// A value is outside its range or does not parse.
    InvalidField,
    /// The message key is not the organization, or the message is not on the partition of its key.
    KeyMismatch,
    /// The topic or folder may not carry this organization.
    ForeignOrganization,
    /// The currency is not the organization's configured one.
    CurrencyMismatch,
    /// The event is later than the shard's clock plus the allowed skew.
    InTheFuture,
    /// The event's hour is closed and is before the oldest kept snapshot.
    TooLate,
}

impl Reason {
    /// Every reason, in the order of `EVENTS.md`.
    pub const ALL: [Self; 9] = [
        Self::Malformed,
        Self::UnknownSchema,
        Self::UnknownEvent,
        Self::InvalidField,
        Self::KeyMismatch,
        Self::ForeignOrganization,
        Self::CurrencyMismatch,
        Self::InTheFuture,
        Self::TooLate,
    ];

    /// Returns the code that headers, counts and configuration use.
    pub const fn code(self) -> &'static str {
        match self {
            Self::Malformed => "malformed",
            Self::UnknownSchema => "unknown_schema",
            Self::UnknownEvent => "unknown_event",
            Self::InvalidField => "invalid_field",
            Self::KeyMismatch => "key_mismatch",
            Self::ForeignOrganization => "foreign_organization",
            Self::CurrencyMismatch => "currency_mismatch",
            Self::InTheFuture => "in_the_future",
            Self::TooLate => "too_late",
        }
    }
}

/// The text is not a reason code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a dead-letter reason; the reasons are {}", Reason::ALL.map(Reason::code).join(", "))]
pub struct ParseReasonError;

impl FromStr for Reason {
    type Err = ParseReasonError;

    /// Reads a [`Reason::code`].
    fn from_str(code: &str) -> Result<Self, ParseReasonError> {
        Self::ALL.into_iter().find(|reason| reason.code() == code).ok_or(ParseReasonError)
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.code())
    }
}

/// A message that cannot become an event.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{reason}: {message}")]
pub struct Reject {
    /// The reason code.
    pub reason: Reason,
    /// The message: what is wrong, where, and how to fix it.
    pub message: String,
}

impl Reject {
    /// Creates a reject with its message.
    pub fn new(reason: Reason, message: impl Into<String>) -> Self {
        Self { reason, message: message.into() }
    }

    /// Creates a `malformed` reject.
    pub fn malformed(message: impl Into<String>) -> Self {
        Self::new(Reason::Malformed, message)
    }

    /// Creates an `invalid_field` reject that names the record and the field.
    pub fn invalid(record: &str, field: &str, what: impl fmt::Display) -> Self {
        Self::new(Reason::InvalidField, format!("{record}.{field}: {what}"))
    }
}

/// Shortens a text so that a message can repeat it.
pub fn excerpt(text: &str) -> String {
    const CHARS_MAX: usize = 64;
    match text.char_indices().nth(CHARS_MAX) {
        None => text.to_owned(),
        Some((end, _)) => format!("{}... ({} bytes)", text.get(..end).unwrap_or_default(), text.len()),
    }
}

/// The failure to read one of several consecutive records.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RecordError {
    /// The bytes are not a record, so its end is unknown.
    Malformed(Reject),
    /// The record is rejected, and its end is known.
    Rejected(Reject),
}

impl RecordError {
    /// Returns the reason.
    pub fn into_reject(self) -> Reject {
        match self {
            Self::Malformed(reject) | Self::Rejected(reject) => reject,
        }
    }

    /// Changes the reason.
    #[must_use]
    pub fn map(self, change: impl FnOnce(Reject) -> Reject) -> Self {
        match self {
            Self::Malformed(reject) => Self::Malformed(change(reject)),
            Self::Rejected(reject) => Self::Rejected(change(reject)),
        }
    }
}

/// Treats a reject as bytes that do not have the form of a record.
impl From<Reject> for RecordError {
    fn from(malformed: Reject) -> Self {
        Self::Malformed(malformed)
    }
}
