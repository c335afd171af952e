//! Secrets come from the environment or from files of their own, never from the configuration file.

use std::path::Path;

use figment::Figment;
use prorata_connectors::Secret;

use super::environment::variable;
use crate::failure::Failure;

/// Keys of secrets.
const SECRETS: [&str; 2] = ["kafka.sasl_password", "registry.password"];

/// Refuses secrets in the configuration file, because many people and programs copy, mount and read that
/// file.
///
/// # Errors
/// If a secret is set. The message says where the secret belongs, and does not contain it.
pub fn refuse_in_file(file: &Path, values: &Figment) -> Result<(), Failure> {
    let is_set = |key: &&str| values.find_value(key).is_ok_and(|value| value.as_str() != Some(""));
    let Some(key) = SECRETS.into_iter().find(is_set) else { return Ok(()) };
    Err(Failure::usage(format!(
        "{key} is written in '{}'; set {} in the environment, or name a file that holds it as {key}_file",
        file.display(),
        variable(key)
    )))
}

/// Returns a secret if it is set, otherwise the content of its file without the last line break. The result
/// is empty if neither is given.
///
/// # Errors
/// If the file cannot be read or is empty.
pub fn read(secret: &Secret, file: &str) -> Result<Secret, Failure> {
    if !secret.is_empty() || file.is_empty() {
        return Ok(secret.clone());
    }
    let text = std::fs::read_to_string(file)
        .map_err(|error| Failure::usage(format!("the password file '{file}' cannot be read: {error}")))?;
    let line = text.strip_suffix('\n').unwrap_or(&text);
    let line = line.strip_suffix('\r').unwrap_or(line);
    if line.is_empty() {
        return Err(Failure::usage(format!("the password file '{file}' is empty")));
    }
    Ok(Secret::new(line))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_comes_from_the_environment_or_its_file_without_the_line_end() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("password");
        let file = path.to_str().unwrap();
        let none = Secret::default();
        assert_eq!(read(&none, "").unwrap(), none);
        assert_eq!(read(&Secret::new("set"), "no/such/file").unwrap(), Secret::new("set"));
        for (text, expected) in [("a b", "a b"), ("x\n", "x"), ("x\r\n", "x"), ("x\n\n", "x\n"), (" x", " x")]
        {
            std::fs::write(&path, text).unwrap();
            assert_eq!(read(&none, file).unwrap(), Secret::new(expected), "{text:?}");
        }
        std::fs::write(&path, "\n").unwrap();
        assert!(read(&none, file).unwrap_err().to_string().contains("is empty"));
        let message = read(&none, "no/such/file").unwrap_err().to_string();
        assert!(message.contains("'no/such/file' cannot be read"), "{message}");
    }
}
