//! The syntax of Java's properties files, in which `zoo.cfg` is written.
//!
//! Owns lines, continuation, comments, separators and escapes, as `java.util.Properties` reads
//! them, and the number of the line in which each key begins. Must not know what a key means, nor
//! decide which values are refused.
//!
//! A line ends with a line feed, a carriage return, or both. It is blank, a comment (`#` or `!`),
//! or a key and a value, separated by `=`, `:` or blanks. A backslash at its end continues it in
//! the next line, whose leading blanks are skipped; elsewhere a backslash makes the next character
//! literal, except in `\t`, `\n`, `\r`, `\f` and `\uXXXX`. A blank is a space, a tab or a form
//! feed.

use std::iter::Peekable;
use std::str::Chars;

/// A key, its value, and its line number.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Pair {
    /// The line in which the key begins, counted from 1.
    pub(super) line: usize,
    /// The line in which the value ends.
    pub(super) last: usize,
    pub(super) key: String,
    pub(super) value: String,
    /// An invalid escape in the key or the value; [`Fault::Unicode`] takes precedence.
    pub(super) fault: Option<Fault>,
}

/// An invalid escape.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Fault {
    /// `\u` without four hexadecimal digits, which Java refuses, or with an unpaired surrogate. The
    /// text keeps it unchanged.
    Unicode,
    /// A backslash before a letter or digit with which it forms no escape; it is dropped.
    Dropped(char),
}

/// All pairs of a text, in order.
pub(super) fn read(text: &str) -> Vec<Pair> {
    let mut lines = Lines { chars: text.chars().peekable(), number: 1 };
    let mut pairs = Vec::new();
    while let Some(([line, last], text)) = lines.next_logical() {
        pairs.push(Pair { last, ..split(line, &text) });
    }
    pairs
}

/// Splits a text into logical lines.
struct Lines<'a> {
    chars: Peekable<Chars<'a>>,
    /// Number of the natural line that contains the next character, from 1.
    number: usize,
}

impl Lines<'_> {
    /// The next logical line that is not blank or a comment, and the numbers of its first and last
    /// natural lines. Leading blanks and the backslashes of continuations are removed.
    fn next_logical(&mut self) -> Option<([usize; 2], String)> {
        let mut text = String::new();
        let mut first = self.number;
        loop {
            self.skip_blanks();
            if text.is_empty() {
                first = self.number;
            }
            if text.is_empty() && matches!(self.chars.peek(), Some('#' | '!')) {
                while self.chars.peek().is_some_and(|next| !is_end(*next)) {
                    self.chars.next();
                }
            }
            let last = self.number;
            let continues = self.take_natural(&mut text);
            let at_end = self.chars.peek().is_none();
            if !text.is_empty() && (at_end || !continues) {
                return Some(([first, last], text));
            }
            if at_end {
                return None;
            }
        }
    }

    /// Appends the rest of a natural line to `text` and consumes its end; true if the next line
    /// continues it.
    fn take_natural(&mut self, text: &mut String) -> bool {
        let mut escaped = false;
        while let Some(next) = self.chars.next() {
            if is_end(next) {
                if next == '\r' && self.chars.peek() == Some(&'\n') {
                    self.chars.next();
                }
                self.number += 1;
                break;
            }
            text.push(next);
            escaped = next == '\\' && !escaped;
        }
        if escaped {
            text.pop();
        }
        escaped
    }

    fn skip_blanks(&mut self) {
        while self.chars.peek().is_some_and(|next| is_blank(*next)) {
            self.chars.next();
        }
    }
}

fn is_end(c: char) -> bool {
    matches!(c, '\n' | '\r')
}

fn is_blank(c: char) -> bool {
    matches!(c, ' ' | '\t' | '\u{c}')
}

fn split(line: usize, text: &str) -> Pair {
    let mut escaped = false;
    let ends = |c: char| {
        let ends = !escaped && (matches!(c, '=' | ':') || is_blank(c));
        escaped = c == '\\' && !escaped;
        ends
    };
    let (key, rest) = text.split_at(text.find(ends).unwrap_or(text.len()));
    let rest = rest.trim_start_matches(is_blank);
    let value = rest.strip_prefix(['=', ':']).unwrap_or(rest).trim_start_matches(is_blank);
    let mut fault = None;
    let [key, value] = [key, value].map(|text| unescape(text, &mut fault));
    Pair { line, last: line, key, value, fault }
}

fn unescape(text: &str, fault: &mut Option<Fault>) -> String {
    let mut plain = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('\\') {
        plain.push_str(&rest[..at]);
        rest = &rest[at + 1..];
        let Some(escaped) = rest.chars().next() else {
            break;
        };
        if escaped == 'u' {
            match unicode(rest) {
                Some((c, units)) => {
                    plain.push(c);
                    // `rest` begins after the first backslash; the second unit has one of its own.
                    rest = &rest[units * "\\uXXXX".len() - 1..];
                }
                None => {
                    *fault = Some(Fault::Unicode);
                    plain.push_str("\\u");
                    rest = &rest[1..];
                }
            }
            continue;
        }
        rest = &rest[escaped.len_utf8()..];
        plain.push(match escaped {
            't' => '\t',
            'n' => '\n',
            'r' => '\r',
            'f' => '\u{c}',
            other => {
                if other.is_alphanumeric() {
                    fault.get_or_insert(Fault::Dropped(other));
                }
                other
            }
        });
    }
    plain.push_str(rest);
    plain
}

/// Decodes a `\uXXXX` escape, whose backslash is not in `text`, or a surrogate pair of two. Returns
/// the character and its number of UTF-16 units; `None` if the escape is invalid.
fn unicode(text: &str) -> Option<(char, usize)> {
    let unit = |text: &str| {
        let digits = text.strip_prefix('u')?.get(..4)?;
        digits.bytes().all(|byte| byte.is_ascii_hexdigit()).then_some(())?;
        u16::from_str_radix(digits, 16).ok()
    };
    let first = unit(text)?;
    let second = || text["uXXXX".len()..].strip_prefix('\\').and_then(unit);
    match char::from_u32(u32::from(first)) {
        Some(c) => Some((c, 1)),
        None => Some((char::decode_utf16([first, second()?]).next()?.ok()?, 2)),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    /// Decodes a text of the recording, in which unprintable characters are `\` and their UTF-16
    /// units in hexadecimal.
    fn unquoted(text: &str) -> String {
        let text = text.strip_prefix('[').and_then(|text| text.strip_suffix(']'));
        let mut parts = text.expect("stands in brackets").split('\\');
        let mut units: Vec<u16> = parts.next().expect("is there").encode_utf16().collect();
        for part in parts {
            units.push(u16::from_str_radix(&part[..4], 16).expect("four digits"));
            units.extend(part[4..].encode_utf16());
        }
        String::from_utf16(&units).expect("no case has half a character")
    }

    /// `RecordProperties.java`, in the same directory, recorded the expected results with Java.
    #[test]
    fn properties_parse_as_in_java() {
        let recorded = include_str!("../../tests/golden/properties-java17.txt");
        let mut refused = 0;
        for case in recorded.lines() {
            let mut parts = case.split('\t');
            let text = unquoted(parts.next().expect("has a text"));
            let pairs = read(&text);
            let faulty = pairs.iter().any(|pair| pair.fault == Some(Fault::Unicode));
            let expected: Vec<&str> = parts.collect();
            if expected == ["refused"] {
                assert!(faulty, "{text:?}");
                refused += 1;
                continue;
            }
            let mut expected: BTreeMap<String, String> =
                expected.chunks(2).map(|pair| (unquoted(pair[0]), unquoted(pair[1]))).collect();
            let mut got: BTreeMap<String, String> =
                pairs.into_iter().map(|pair| (pair.key, pair.value)).collect();
            if text.trim_end_matches(is_end).ends_with('\\') {
                // For a lone backslash in the last line Java returns an empty key or none,
                // depending on how that line ends.
                expected.remove("");
                got.remove("");
            }
            assert!(!faulty && expected == got, "{text:?}: {got:?} instead of {expected:?}");
        }
        assert!(refused > 20 && recorded.lines().count() > 500, "{refused}");
    }

    #[test]
    fn key_has_number_of_its_first_line() {
        let text = "# a \\\na=1\r\n\r\n\rb=2,\\\r\n  \\\r\n 3\n \\\n  c\\\n d=4\\\\\ne=5";
        let lines: Vec<(usize, String)> = read(text)
            .into_iter()
            .map(|pair| (pair.line, format!("{}={}", pair.key, pair.value)))
            .collect();
        let expected = [(2, "a=1"), (5, "b=2,3"), (9, "cd=4\\"), (11, "e=5")];
        assert_eq!(lines, expected.map(|(line, text)| (line, text.to_owned())));
    }

    #[test]
    fn invalid_escapes_are_faults() {
        let fault = |text: &str| read(text).remove(0).fault;
        assert_eq!(fault("a=\\:\\=\\#\\!\\ \\\\\\t\\u0041\\ud83d\\ude00"), None);
        assert_eq!(fault("dataDir=C:\\zk\\d"), Some(Fault::Dropped('z')));
        assert_eq!(fault("a=\\\u{e9}"), Some(Fault::Dropped('\u{e9}')));
        for half in ["\\ud83d", "\\ud83dx", "\\ude00\\ud83d", "\\ud83d\\u0041", "\\u00e", "\\u+041"]
        {
            assert_eq!(fault(&format!("a={half}")), Some(Fault::Unicode), "{half}");
            assert!(read(&format!("a={half}"))[0].value.contains("\\u"), "{half}");
        }
    }
}
