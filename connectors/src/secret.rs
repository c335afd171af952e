//! A secret that cannot be printed or serialized by accident.

use std::fmt;

use serde::{Deserialize, Serialize, Serializer};

/// The text shown in place of a secret.
const REDACTED: &str = "[redacted]";

/// A password or token. Only this crate's clients can read it.
#[derive(Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(transparent)]
pub struct Secret(String);

impl Secret {
    /// Wraps a secret. An empty text stands for no secret.
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// Returns whether there is no secret.
    pub const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the secret itself, for a client library.
    pub(crate) fn reveal(&self) -> &str {
        &self.0
    }

    fn shown(&self) -> &'static str {
        if self.is_empty() { "" } else { REDACTED }
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.is_empty() { "none" } else { REDACTED })
    }
}

impl Serialize for Secret {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.shown())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_is_neither_printed_nor_serialized() {
        let secret: Secret = serde_json::from_str("\"s3cret\"").unwrap();
        assert_eq!(secret.reveal(), "s3cret");
        assert_eq!(format!("{secret:?} {:?}", Secret::default()), "[redacted] none");
        assert_eq!(serde_json::to_string(&secret).unwrap(), "\"[redacted]\"");
        assert_eq!(serde_json::to_string(&Secret::default()).unwrap(), "\"\"");
    }
}
