//! The token of OAUTHBEARER, which is read from a file whenever the client library asks for a token. No
//! network is involved.

use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use std::{fs, io};

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use rdkafka::client::OAuthToken;
use serde::Deserialize;

/// The time that a token without an expiry is used before the file is read again.
const OPAQUE_LIFE: Duration = Duration::from_secs(300);

/// The claims of a JSON Web Token that we read.
#[derive(Deserialize)]
struct Claims {
    /// The expiry, in seconds since the epoch.
    exp: Option<f64>,
    /// The user that the token is for.
    sub: Option<String>,
}

/// The reason why a file does not contain a usable token. The message names the file, but never shows the
/// token.
#[derive(Debug, thiserror::Error)]
#[error("kafka.sasl_token_file: the file '{}' {source}", file.display())]
pub(crate) struct TokenFileError {
    file: PathBuf,
    source: TokenError,
}

/// The fault of the file.
#[derive(Debug, thiserror::Error)]
enum TokenError {
    #[error("cannot be read: {0}")]
    Unreadable(#[from] io::Error),
    #[error("is empty: it must hold the token")]
    Empty,
    #[error("holds more than one bearer token: it has spaces, line breaks or other characters")]
    Characters,
    #[error("holds a token without a valid exp")]
    Expiry,
    #[error("holds a token that expired {0} seconds ago: renew it")]
    Expired(u64),
    #[error("holds a token whose sub has a null character")]
    Subject,
}

/// Reads the token in a file.
///
/// # Errors
/// See [`TokenFileError`].
pub(crate) fn read(file: &Path) -> Result<OAuthToken, TokenFileError> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let token = fs::read_to_string(file).map_err(TokenError::from).and_then(|text| parse(text.trim(), now));
    token.map_err(|source| TokenFileError { file: file.to_owned(), source })
}

fn parse(token: &str, now: Duration) -> Result<OAuthToken, TokenError> {
    if token.is_empty() {
        return Err(TokenError::Empty);
    }
    // The SASL mechanism takes these characters from RFC 6750.
    if !token.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._~+/=".contains(&byte)) {
        return Err(TokenError::Characters);
    }
    let claims = claims(token);
    let ends = match claims.as_ref().and_then(|claims| claims.exp) {
        Some(seconds) => Duration::try_from_secs_f64(seconds).map_err(|_| TokenError::Expiry)?,
        None => now.saturating_add(OPAQUE_LIFE),
    };
    if ends <= now {
        return Err(TokenError::Expired((now - ends).as_secs()));
    }
    let principal_name = claims.and_then(|claims| claims.sub).unwrap_or_else(|| "prorata".into());
    if principal_name.contains('\0') {
        return Err(TokenError::Subject);
    }
    let lifetime_ms = i64::try_from(ends.as_millis()).unwrap_or(i64::MAX);
    Ok(OAuthToken { token: token.into(), principal_name, lifetime_ms })
}

/// Returns the claims of a JSON Web Token; `None` for any other token. The brokers check the signature; we do
/// not.
fn claims(token: &str) -> Option<Claims> {
    let mut parts = token.split('.');
    let (_, claims, _) = (parts.next()?, parts.next()?, parts.next()?);
    let json = URL_SAFE_NO_PAD.decode(claims.trim_end_matches('=')).ok()?;
    serde_json::from_slice(&json).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Duration = Duration::from_secs(1_000_000);

    fn web_token(claims: &str) -> String {
        let part = |json: &str| URL_SAFE_NO_PAD.encode(json);
        format!("{}.{}.{}", part("{\"alg\":\"none\"}"), part(claims), "c2ln")
    }

    fn failure(token: &str) -> String {
        parse(token, NOW).map(|token| token.lifetime_ms).unwrap_err().to_string()
    }

    #[test]
    fn a_web_token_lives_as_long_as_it_says() {
        let token = parse(&web_token("{\"sub\":\"worker\",\"exp\":1000060}"), NOW).unwrap();
        assert_eq!((token.principal_name.as_str(), token.lifetime_ms), ("worker", 1_000_060_000));
    }

    #[test]
    fn opaque_tokens_are_read_again_after_five_minutes() {
        for opaque in ["abc", "a.b.c", "no.dots"] {
            let token = parse(opaque, NOW).unwrap();
            assert_eq!((token.principal_name.as_str(), token.lifetime_ms), ("prorata", 1_000_300_000));
        }
    }

    #[test]
    fn an_expired_token_is_reported_without_the_token() {
        let token = web_token("{\"sub\":\"worker\",\"exp\":999990}");
        assert_eq!(failure(&token), "holds a token that expired 10 seconds ago: renew it");
    }

    #[test]
    fn a_file_without_a_token_is_refused() {
        assert_eq!(failure(""), "is empty: it must hold the token");
        assert!(failure("a b").starts_with("holds more than one bearer token"));
        assert!(failure(&web_token("{\"exp\":-1}")).contains("valid exp"));
        assert!(failure(&web_token("{\"sub\":\"a\\u0000b\"}")).contains("null"));
    }

    #[test]
    fn a_file_that_is_not_there_is_named() {
        let failure =
            read(Path::new("/nowhere/token")).map(|token| token.lifetime_ms).unwrap_err().to_string();
        assert!(
            failure.starts_with("kafka.sasl_token_file: the file '/nowhere/token' cannot be read"),
            "{failure}"
        );
    }
}
