//! Splits a line of the shell into words as zkCli does.
//!
//! Owns the quoting rules. Must not know any command.
//!
//! The rules are those of ZooKeeper's pattern `\s*([^"']\S*|"[^"]*"|'[^']*')\s*`: quotes count at
//! the beginning of a word only, nothing is escaped, and a quote without its partner is left out.

/// The words of a line.
pub(crate) fn words(line: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut rest = line;
    loop {
        rest = rest.trim_start_matches(is_space);
        let Some(first) = rest.chars().next() else { return words };
        let after_quote = &rest[first.len_utf8()..];
        let end = match first {
            '"' | '\'' => after_quote.find(first),
            _ => Some(rest.find(is_space).unwrap_or(rest.len())),
        };
        match (first, end) {
            ('"' | '\'', Some(end)) => {
                words.push(after_quote[..end].to_owned());
                rest = &after_quote[end + 1..];
            }
            (_, Some(end)) => {
                words.push(rest[..end].to_owned());
                rest = &rest[end..];
            }
            (_, None) => rest = after_quote,
        }
    }
}

/// Java's `\s`.
fn is_space(c: char) -> bool {
    matches!(c, ' ' | '\t' | '\n' | '\u{b}' | '\u{c}' | '\r')
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The expected words are what ZooKeeper 3.9.4 prints for these lines.
    #[test]
    fn quotes_count_at_the_beginning_of_a_word_only() {
        for (line, expected) in [
            ("ls /", &["ls", "/"][..]),
            ("  ls\t/a  ", &["ls", "/a"]),
            ("create /a \"b c\" 'd \"e'", &["create", "/a", "b c", "d \"e"]),
            ("set /a ''", &["set", "/a", ""]),
            ("set /a b\"c d\"", &["set", "/a", "b\"c", "d\""]),
            ("set /a \"b\"c", &["set", "/a", "b", "c"]),
            ("set /a \"b c", &["set", "/a", "b", "c"]),
            ("set /a \\\"b", &["set", "/a", "\\\"b"]),
            ("\"ls\" '/ä b'", &["ls", "/ä b"]),
            ("   ", &[]),
        ] {
            assert_eq!(words(line), expected, "{line:?}");
        }
    }
}
