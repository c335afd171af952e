//! Text objects that carry a digest of themselves, so that no flipped bit becomes another number.
//!
//! JSON: a first field `checksum`, the SHA-256 of the document without it. YAML: a first line `# checksum: ..`, that of
//! all lines behind it. People can read both as they are.

use sha2::{Digest, Sha256};

use crate::checkpoint::snapshot::hex;

const FIELD: &[u8] = b"{\"checksum\":\"";
const LINE: &[u8] = b"# checksum: ";
const DIGITS: usize = 64;

/// A document does not have the digest that it names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("its checksum does not match")]
pub struct Broken;

/// Adds the digest to a JSON object with at least one field.
pub fn seal_json(json: &[u8]) -> Vec<u8> {
    let fields = json.strip_prefix(b"{").unwrap_or(json);
    [FIELD, digest(json).as_bytes(), b"\",", fields].concat()
}

/// The JSON object without its digest.
///
/// # Errors
/// [`Broken`].
pub fn open_json(sealed: &[u8]) -> Result<Vec<u8>, Broken> {
    let rest = sealed.strip_prefix(FIELD).ok_or(Broken)?;
    let (said, rest) = rest.split_at_checked(DIGITS).ok_or(Broken)?;
    let fields = rest.strip_prefix(b"\",").ok_or(Broken)?;
    let json = [b"{", fields].concat();
    if digest(&json).as_bytes() == said { Ok(json) } else { Err(Broken) }
}

/// Adds the digest to a YAML document.
pub fn seal_yaml(yaml: &[u8]) -> Vec<u8> {
    [LINE, digest(yaml).as_bytes(), b"\n", yaml].concat()
}

/// The YAML document without its digest.
///
/// # Errors
/// [`Broken`].
pub fn open_yaml(sealed: &[u8]) -> Result<&[u8], Broken> {
    let rest = sealed.strip_prefix(LINE).ok_or(Broken)?;
    let (said, rest) = rest.split_at_checked(DIGITS).ok_or(Broken)?;
    let yaml = rest.strip_prefix(b"\n").ok_or(Broken)?;
    if digest(yaml).as_bytes() == said { Ok(yaml) } else { Err(Broken) }
}

fn digest(bytes: &[u8]) -> String {
    hex(&Sha256::digest(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_flipped_bit_and_no_cut_goes_unseen() {
        let (json, yaml) = (br#"{"a":17}"#, b"a: 17\n");
        let (sealed_json, sealed_yaml) = (seal_json(json), seal_yaml(yaml));
        assert_eq!(open_json(&sealed_json).unwrap(), json);
        assert_eq!(open_yaml(&sealed_yaml).unwrap(), yaml);
        for at in 0..sealed_json.len() {
            let mut flipped = sealed_json.clone();
            flipped[at] ^= 1;
            assert!(open_json(&flipped).is_err() && open_json(&sealed_json[..at]).is_err(), "byte {at}");
        }
        for at in 0..sealed_yaml.len() {
            let mut flipped = sealed_yaml.clone();
            flipped[at] ^= 1;
            assert!(open_yaml(&flipped).is_err() && open_yaml(&sealed_yaml[..at]).is_err(), "byte {at}");
        }
    }

    #[test]
    fn a_sealed_object_is_json_still() {
        let value: serde_json::Value = serde_json::from_slice(&seal_json(br#"{"a":17}"#)).unwrap();
        assert_eq!(value["a"], 17);
    }
}
