//! The token of OAUTHBEARER, read from a file whenever the client library asks for one. No network is
//! involved.

use std::fs;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use rdkafka::client::OAuthToken;
use serde::Deserialize;

/// How long to use a token that does not say when it expires before the file is read again.
const OPAQUE_LIFE: Duration = Duration::from_secs(300);

/// The claims of a JSON Web Token that we read.
#[derive(Deserialize)]
struct Claims {
    /// When it expires, in seconds since the epoch.
    exp: Option<f64>,
    /// The user it is about.
    sub: Option<String>,
}

/// Reads the token in a file.
///
/// # Errors
/// A sentence that names the file, never the token.
pub(crate) fn read(file: &Path) -> Result<OAuthToken, String> {
    let name = format!("kafka.sasl_token_file: the file '{}'", file.display());
    let text = fs::read_to_string(file).map_err(|error| format!("{name} cannot be read: {error}"))?;
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    parse(text.trim(), now).map_err(|what| format!("{name} {what}"))
}

fn parse(token: &str, now: Duration) -> Result<OAuthToken, String> {
    if token.is_empty() {
        return Err("is empty: it must hold the token".into());
    }
    // The characters that the SASL mechanism takes over from RFC 6750.
    if !token.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._~+/=".contains(&byte)) {
        return Err("holds more than one bearer token: it has spaces, line breaks or other characters".into());
    }
    let claims = claims(token);
    let ends = match claims.as_ref().and_then(|claims| claims.exp) {
        Some(seconds) => {
            Duration::try_from_secs_f64(seconds).map_err(|_| "holds a token without a valid exp")?
        }
        None => now.saturating_add(OPAQUE_LIFE),
    };
    if ends <= now {
        let seconds = (now - ends).as_secs();
        return Err(format!("holds a token that expired {seconds} seconds ago: renew it"));
    }
    let principal_name = claims.and_then(|claims| claims.sub).unwrap_or_else(|| "prorata".into());
    if principal_name.contains('\0') {
        return Err("holds a token whose sub has a null character".into());
    }
    let lifetime_ms = i64::try_from(ends.as_millis()).unwrap_or(i64::MAX);
    Ok(OAuthToken { token: token.into(), principal_name, lifetime_ms })
}

/// The claims, if it is a JSON Web Token. The brokers check its signature, we do not.
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
        parse(token, NOW).map(|token| token.lifetime_ms).unwrap_err()
    }

    #[test]
    fn a_web_token_lives_as_long_as_it_says() {
        let token = parse(&web_token("{\"sub\":\"worker\",\"exp\":1000060}"), NOW).unwrap();
        assert_eq!((token.principal_name.as_str(), token.lifetime_ms), ("worker", 1_000_060_000));
    }

    #[test]
    fn a_token_that_is_not_a_web_token_is_read_again_after_five_minutes() {
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
        let failure = read(Path::new("/nowhere/token")).map(|token| token.lifetime_ms).unwrap_err();
        assert!(
            failure.starts_with("kafka.sasl_token_file: the file '/nowhere/token' cannot be read"),
            "{failure}"
        );
    }
}
