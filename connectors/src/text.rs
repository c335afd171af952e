//! Texts of bounded length: what others wrote goes into errors, logs and dead letters.

/// At most `chars_max` characters of a text, and three dots if there were more.
pub(crate) fn shortened(mut text: String, chars_max: usize) -> String {
    if let Some((end, _)) = text.char_indices().nth(chars_max) {
        text.truncate(end);
        text.push_str("...");
    }
    text
}
