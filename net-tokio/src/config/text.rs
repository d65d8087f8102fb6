//! Texts of the configuration: their encoding, how they are split and shown.
//!
//! Owns these functions. Must not know a key.

/// A value as lines of the log show it.
pub(crate) fn shown(key: &str, value: &str) -> String {
    if is_secret(key) { "(not shown)".to_owned() } else { printable(value) }
}

/// Decodes the content of `file`; the warning says that it is not UTF-8.
pub(super) fn decode(file: &str, bytes: Vec<u8>) -> (String, Option<String>) {
    let error = match String::from_utf8(bytes) {
        Ok(text) => return (text, None),
        Err(error) => error,
    };
    let at = error.utf8_error().valid_up_to();
    let bytes = error.into_bytes();
    let text: String = bytes.iter().copied().map(char::from).collect();
    let before: String = bytes[..at].iter().copied().map(char::from).collect();
    let line = 1 + before.replace("\r\n", "\n").matches(['\r', '\n']).count();
    let warning =
        format!("{file}:{line}: not UTF-8, so the file is read as Latin-1; write it in UTF-8");
    (text, Some(warning))
}

/// Escapes control characters, so that the text stays within one line of the log.
pub(super) fn printable(text: &str) -> String {
    let mut printable = String::with_capacity(text.len());
    for c in text.chars() {
        if c.is_control() { printable.extend(c.escape_default()) } else { printable.push(c) }
    }
    printable
}

/// Is the value a password or another secret, which must not be logged?
fn is_secret(key: &str) -> bool {
    let key = key.to_ascii_lowercase();
    ["passw", "superdigest", "secret"].iter().any(|part| key.contains(part))
}

/// Java's `String.trim`: removes characters up to U+0020 from both ends.
pub(super) fn trim(text: &str) -> &str {
    text.trim_matches(|c| c <= ' ')
}

/// Parses a decimal number such as `0.02`, in millionths.
pub(super) fn millionths(text: &str) -> Option<u32> {
    let (whole, decimals) = text.split_once('.').unwrap_or((text, ""));
    let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    if whole.len() + decimals.len() == 0
        || decimals.len() > 6
        || !digits(whole)
        || !digits(decimals)
    {
        return None;
    }
    let number = |text: &str| if text.is_empty() { Some(0) } else { text.parse::<u32>().ok() };
    number(whole)?.checked_mul(1_000_000)?.checked_add(number(&format!("{decimals:0<6}"))?)
}

/// Splits a text into words as a shell does: at blanks, except within quotation marks and after a
/// backslash. `None` if a quotation is unterminated.
pub(super) fn words(text: &str) -> Option<Vec<String>> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut quote = None;
    let mut chars = text.chars();
    while let Some(next) = chars.next() {
        match (quote, next) {
            (None, ' ' | '\t' | '\n' | '\r') => words.extend(word.take()),
            (None, '"' | '\'') => {
                quote = Some(next);
                word.get_or_insert_default();
            }
            (Some(mark), _) if next == mark => quote = None,
            (None | Some('"'), '\\') => word.get_or_insert_default().extend(chars.next()),
            _ => word.get_or_insert_default().push(next),
        }
    }
    words.extend(word);
    quote.is_none().then_some(words)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invalid_utf_8_is_read_as_latin_1() {
        let (text, warning) = decode("f", "# caf\u{e9}\n".into());
        assert_eq!((&text[..], warning), ("# caf\u{e9}\n", None));
        let (text, warning) = decode("f", b"a=1\r\nb=2\r# caf\xe9\n".to_vec());
        assert_eq!(text, "a=1\r\nb=2\r# caf\u{e9}\n");
        let warning = warning.expect("a warning");
        assert!(warning.starts_with("f:3: not UTF-8"), "{warning}");
    }
}
