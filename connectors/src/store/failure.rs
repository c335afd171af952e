//! Store errors: their kind, and a message that first says what to fix, then gives the server's answer
//! without markup.

use std::error::Error;
use std::fmt;
use std::io;

use prorata_worker::ports::{ErrorKind, StoreError};

/// Error codes in the answers of S3 and Azure that are about credentials, although their HTTP status does not
/// show it.
const REFUSALS: [&str; 4] =
    ["ExpiredToken", "InvalidToken", "TokenRefreshRequired", "InvalidAuthenticationInfo"];

/// Error codes for a bucket or container that does not exist. An object that does not exist has another code.
const NO_BUCKET: [&str; 2] = ["NoSuchBucket", "ContainerNotFound"];

/// Returns the port's error for an operation on a path.
pub(super) fn failure(operation: &'static str, path: &str, error: object_store::Error) -> StoreError {
    let kind = kind_of(&error);
    StoreError::new(kind, operation, path, Explained::new(kind, error))
}

/// An error of an object store or table log, in one line, with the remedy first.
#[derive(Debug)]
pub(crate) struct Explained {
    advice: Option<&'static str>,
    source: Box<dyn Error + Send + Sync>,
}

impl Explained {
    /// Explains an error of this kind.
    pub(crate) fn new(kind: ErrorKind, source: impl Error + Send + Sync + 'static) -> Self {
        let advice = match kind {
            ErrorKind::Missing => {
                Some("the bucket, container or folder does not exist; create it, or correct the URL")
            }
            ErrorKind::Permission => {
                Some("the store refuses these credentials; correct them or their permissions")
            }
            ErrorKind::Transient | ErrorKind::Conflict | ErrorKind::Invalid => None,
        };
        Self { advice, source: Box::new(source) }
    }

    /// Wraps the error without advice.
    pub(crate) fn plain(source: impl Error + Send + Sync + 'static) -> Self {
        Self { advice: None, source: Box::new(source) }
    }
}

impl fmt::Display for Explained {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let reported = causes(&*self.source);
        match self.advice {
            Some(advice) => write!(f, "{advice} ({reported})"),
            None => f.write_str(&reported),
        }
    }
}

impl Error for Explained {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        Some(&*self.source)
    }
}

/// Returns the kind of an object store's error. `NotFound` of a single object is not an error of the port:
/// callers handle it first.
pub(crate) fn kind_of(error: &object_store::Error) -> ErrorKind {
    use object_store::Error as Store;
    match error {
        Store::NotFound { .. } => ErrorKind::Missing,
        Store::PermissionDenied { .. } | Store::Unauthenticated { .. } => ErrorKind::Permission,
        Store::AlreadyExists { .. } | Store::Precondition { .. } | Store::NotModified { .. } => {
            ErrorKind::Conflict
        }
        Store::InvalidPath { .. }
        | Store::NotSupported { .. }
        | Store::NotImplemented { .. }
        | Store::UnknownConfigurationKey { .. } => ErrorKind::Invalid,
        _ if has_code(error, &REFUSALS) => ErrorKind::Permission,
        _ => kind_of_status(error).unwrap_or_else(|| kind_of_cause(error)),
    }
}

/// Returns the kind of an error by its HTTP status; `None` if the status is missing or does not decide the
/// kind. The library maps the status of a single object's request to a variant of its own. It reports the
/// status of a list as a generic error around a private type, so only the message has the status.
fn kind_of_status(error: &object_store::Error) -> Option<ErrorKind> {
    let text = error.to_string();
    let (_, status) = text.split_once("non-2xx status code: ")?;
    match status.get(..3)? {
        "401" | "403" => Some(ErrorKind::Permission),
        "404" => Some(ErrorKind::Missing),
        _ => None,
    }
}

/// Returns the kind of the file system's error in the chain of causes; [`ErrorKind::Transient`] if there is
/// none.
fn kind_of_cause(error: &object_store::Error) -> ErrorKind {
    io_error(error).map_or(ErrorKind::Transient, ErrorKind::of_io)
}

/// Returns whether the bucket or container itself does not exist.
pub(super) fn no_bucket(error: &object_store::Error) -> bool {
    matches!(error, object_store::Error::NotFound { .. }) && has_code(error, &NO_BUCKET)
}

/// Returns the first error of the file system in the chain of causes; `None` if there is none.
fn io_error<'e>(error: &'e (dyn Error + 'static)) -> Option<&'e io::Error> {
    let mut cause = Some(error);
    while let Some(error) = cause {
        if let Some(io) = error.downcast_ref::<io::Error>() {
            return Some(io);
        }
        cause = error.source();
    }
    None
}

/// Returns whether the server's answer has one of these codes.
fn has_code(error: &object_store::Error, codes: &[&str]) -> bool {
    let text = error.to_string();
    codes.iter().any(|code| text.contains(&format!("<Code>{code}</Code>")))
}

/// Returns the error and its causes in one line, without repeated causes, XML or logins.
pub(crate) fn causes(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let more = cause.to_string();
        if !text.contains(&more) {
            text = format!("{text}: {more}");
        }
        source = cause.source();
    }
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    without_markup(&without_logins(&text))
}

/// Returns the text without the user and the password in its URLs, because the URL of an endpoint may contain
/// them.
pub(super) fn without_logins(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("://") {
        let is_end = |letter: char| letter.is_whitespace() || "/?#\"'()<>,;".contains(letter);
        let (authority, _) = after.split_at(after.find(is_end).unwrap_or(after.len()));
        let login = authority.rfind('@').map_or(0, |at| at + 1);
        shown.push_str(before);
        shown.push_str("://");
        rest = after.get(login..).unwrap_or_default();
    }
    shown + rest
}

/// Replaces the XML of a cloud's answer with its `Code` and `Message`. All clouds answer in XML.
fn without_markup(text: &str) -> String {
    let Some((before, xml)) = text.split_once("<?xml").or_else(|| text.split_once("<Error>")) else {
        return text.to_owned();
    };
    let of = |tag: &str| {
        let (_, rest) = xml.split_once(&format!("<{tag}>"))?;
        rest.split_once(&format!("</{tag}>")).map(|(inside, _)| inside.trim())
    };
    let said = [of("Code"), of("Message")].into_iter().flatten().collect::<Vec<_>>();
    // Other markup stays: it may be a proxy's page, which is then all that is known.
    if said.is_empty() { text.to_owned() } else { format!("{before}{}", said.join(": ")) }
}

#[cfg(test)]
mod tests {
    use object_store::Error as Store;

    use super::*;

    fn generic(text: &str) -> Store {
        Store::Generic { store: "S3", source: text.into() }
    }

    fn not_found(text: &str) -> Store {
        Store::NotFound { path: "a".into(), source: text.into() }
    }

    #[test]
    fn an_error_has_the_kind_of_its_remedy() {
        let denied = Store::PermissionDenied { path: "a".into(), source: "403".into() };
        let io =
            |kind: io::ErrorKind| Store::Generic { store: "file", source: Box::new(io::Error::from(kind)) };
        for (error, kind) in [
            (denied, ErrorKind::Permission),
            (generic("status 400: <Error><Code>ExpiredToken</Code></Error>"), ErrorKind::Permission),
            (generic("status 503: <Error><Code>SlowDown</Code></Error>"), ErrorKind::Transient),
            (
                generic("list: Server returned non-2xx status code: 403 Forbidden: <Error>"),
                ErrorKind::Permission,
            ),
            (
                generic("list: Server returned non-2xx status code: 404 Not Found: <Error>"),
                ErrorKind::Missing,
            ),
            (
                generic("list: Server returned non-2xx status code: 503 Slow Down: <Error>"),
                ErrorKind::Transient,
            ),
            (not_found("status 404"), ErrorKind::Missing),
            (io(io::ErrorKind::NotADirectory), ErrorKind::Missing),
            (io(io::ErrorKind::ReadOnlyFilesystem), ErrorKind::Permission),
            (io(io::ErrorKind::StorageFull), ErrorKind::Transient),
            (Store::NotSupported { source: "no".into() }, ErrorKind::Invalid),
        ] {
            assert_eq!(kind_of(&error), kind, "{error}");
            let reported = failure("read", "a", error);
            assert_eq!(reported.kind, kind);
            assert!(reported.source.source().is_some(), "the store's own error is kept: {reported}");
        }
    }

    #[test]
    fn a_missing_bucket_is_distinguished_from_a_missing_object() {
        assert!(no_bucket(&not_found("<Error><Code>NoSuchBucket</Code></Error>")));
        assert!(!no_bucket(&not_found("<Error><Code>NoSuchKey</Code></Error>")));
        assert!(!no_bucket(&generic("<Error><Code>NoSuchBucket</Code></Error>")));
    }

    #[test]
    fn logins_of_urls_are_never_shown() {
        for (text, shown) in [
            (
                "error sending request for url (http://u:s3cret@store:9000/b?list)",
                "error sending request for url (http://store:9000/b?list)",
            ),
            ("http://u:p@a/ then https://b@c", "http://a/ then https://c"),
            ("a@b and s3://bucket/x@y", "a@b and s3://bucket/x@y"),
            ("https://u:p@", "https://"),
            ("no url", "no url"),
        ] {
            assert_eq!(without_logins(text), shown);
            assert_eq!(causes(&generic(text)), format!("Generic S3 error: {shown}"));
        }
    }

    #[test]
    fn the_code_and_the_message_of_xml_are_reported() {
        let xml = "<Error><Code>NoSuchBucket</Code><Message>It does not exist</Message><Id>7</Id></Error>";
        let reported = "status 404: NoSuchBucket: It does not exist";
        assert_eq!(without_markup(&format!("status 404: <?xml version=\"1.0\"?> {xml}")), reported);
        assert_eq!(without_markup(&format!("status 404: {xml}")), reported);
        assert_eq!(
            without_markup("status 503: <?xml version=\"1.0\"?><html>busy</html>"),
            "status 503: <?xml version=\"1.0\"?><html>busy</html>"
        );
        assert_eq!(without_markup("connection refused"), "connection refused");
    }
}
