//! JSON objects that carry their own checksum, so that a flipped bit never changes a number unnoticed. The
//! first field is `checksum`, the SHA-256 of the document without this field, in hexadecimal.

use sha2::{Digest, Sha256};

use super::snapshot::hex;

const FIELD: &[u8] = b"{\"checksum\":\"";
const DIGITS: usize = 64;

/// The error for an object that does not match its checksum.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("its checksum does not match")]
pub struct Mismatch;

/// Adds the checksum to a JSON object with at least one field.
pub fn add_to_json(json: &[u8]) -> Vec<u8> {
    let fields = json.strip_prefix(b"{").unwrap_or(json);
    [FIELD, digest(json).as_bytes(), b"\",", fields].concat()
}

/// Returns the JSON object without its checksum.
///
/// # Errors
/// Returns [`Mismatch`] if the checksum does not match.
pub fn check_json(object: &[u8]) -> Result<Vec<u8>, Mismatch> {
    let rest = object.strip_prefix(FIELD).ok_or(Mismatch)?;
    let (said, rest) = rest.split_at_checked(DIGITS).ok_or(Mismatch)?;
    let fields = rest.strip_prefix(b"\",").ok_or(Mismatch)?;
    let json = [b"{", fields].concat();
    if digest(&json).as_bytes() == said { Ok(json) } else { Err(Mismatch) }
}

fn digest(bytes: &[u8]) -> String {
    hex(&Sha256::digest(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_flipped_bit_and_no_cut_goes_unseen() {
        let json = br#"{"a":17}"#;
        let with_field = add_to_json(json);
        assert_eq!(check_json(&with_field).unwrap(), json);
        for at in 0..with_field.len() {
            let mut flipped = with_field.clone();
            flipped[at] ^= 1;
            assert!(check_json(&flipped).is_err() && check_json(&with_field[..at]).is_err(), "byte {at}");
        }
    }

    #[test]
    fn an_object_with_a_checksum_is_still_json() {
        let value: serde_json::Value = serde_json::from_slice(&add_to_json(br#"{"a":17}"#)).unwrap();
        assert_eq!(value["a"], 17);
    }
}
