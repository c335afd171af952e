//! Texts of bounded length: foreign text that goes into errors, logs and dead letters.

/// Returns at most `chars_max` characters of a text, and three dots if there were more.
pub(crate) fn shortened(mut text: String, chars_max: usize) -> String {
    if let Some((end, _)) = text.char_indices().nth(chars_max) {
        text.truncate(end);
        text.push_str("...");
    }
    text
}
