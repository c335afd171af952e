//! What a store's refusal means to a person: what to mend first, then the server's own words without their markup.

use std::error::Error;

use prorata_worker::ports::StoreError;

/// An error of the port, for an operation on a path.
pub(super) fn failure(operation: &'static str, path: &str, error: &object_store::Error) -> StoreError {
    let told = causes(error);
    let advice = match error {
        // What may be absent is told apart before this: here it is what the path is in.
        object_store::Error::NotFound { .. } => {
            "the bucket, container or folder is not there; create it, or mend the URL"
        }
        object_store::Error::PermissionDenied { .. } | object_store::Error::Unauthenticated { .. } => {
            "the store refuses these credentials; mend them, or what they may do"
        }
        _ => return StoreError::new(operation, path, told),
    };
    StoreError::new(operation, path, format!("{advice} ({told})"))
}

/// The error and what it stands on, each said once, in one line and without XML.
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
    without_markup(&text)
}

/// The servers of all clouds answer in XML; its `Code` and `Message` say what there is to know.
fn without_markup(text: &str) -> String {
    let Some((before, xml)) = text.split_once("<?xml").or_else(|| text.split_once("<Error>")) else {
        return text.to_owned();
    };
    let of = |tag: &str| {
        let (_, rest) = xml.split_once(&format!("<{tag}>"))?;
        rest.split_once(&format!("</{tag}>")).map(|(inside, _)| inside.trim())
    };
    let said = [of("Code"), of("Message")].into_iter().flatten().collect::<Vec<_>>();
    // Markup that is none of theirs stays: it may be a proxy's page, and is all there is.
    if said.is_empty() { text.to_owned() } else { format!("{before}{}", said.join(": ")) }
}

#[cfg(test)]
mod tests {
    use super::without_markup;

    #[test]
    fn of_xml_the_code_and_the_message_are_told() {
        let xml = "<Error><Code>NoSuchBucket</Code><Message>It does not exist</Message><Id>7</Id></Error>";
        let told = "status 404: NoSuchBucket: It does not exist";
        assert_eq!(without_markup(&format!("status 404: <?xml version=\"1.0\"?> {xml}")), told);
        assert_eq!(without_markup(&format!("status 404: {xml}")), told);
        assert_eq!(
            without_markup("status 503: <?xml version=\"1.0\"?><html>busy</html>"),
            "status 503: <?xml version=\"1.0\"?><html>busy</html>"
        );
        assert_eq!(without_markup("connection refused"), "connection refused");
    }
}
