//! Checks the parser with any text of `zoo.cfg`, any Java options, and any file `myid`. The fuzz
//! target and the test that replays its corpus share these checks.
//!
//! An input is the three texts, separated by zero bytes.

use std::io;
use std::path::Path;

use zabkeeper::config::{BadSetting, Settings, parse};

/// The name of the file in messages.
const FILE: &str = "zoo.cfg";

/// Checks one input and returns the result of parsing it.
///
/// # Panics
/// If a check fails.
pub(crate) fn check(input: &[u8]) -> Result<(Settings, Vec<String>), BadSetting> {
    let mut parts = input.splitn(3, |byte| *byte == 0).map(String::from_utf8_lossy);
    let [text, flags, myid] = [(); 3].map(|()| parts.next().unwrap_or_default().into_owned());
    let read = |path: &Path| match path.file_name() {
        Some(name) if name == "myid" && !myid.is_empty() => Ok(myid.clone()),
        _ => Err(io::Error::from(io::ErrorKind::NotFound)),
    };
    let variables = [("SERVER_JVMFLAGS", &*flags)];
    let parsed = parse(FILE, &text, &variables, &read);
    assert_eq!(parsed, parse(FILE, &text, &variables, &read), "the same again");
    match &parsed {
        Ok((_, warnings)) => {
            for warning in warnings {
                assert!(names_its_place(warning, &text, &flags), "{warning}");
            }
        }
        Err(refusal) => {
            let refusal = refusal.to_string();
            let other = refusal.starts_with("zoo.cfg: dataDir is missing; add ")
                || refusal.starts_with("zoo.cfg: clientPort is missing; add ")
                || refusal.starts_with("SERVER_JVMFLAGS: a quotation mark without")
                || refusal.contains("/myid: ")
                || refusal.starts_with("myid: ");
            assert!(other || names_its_place(&refusal, &text, &flags), "{refusal}");
        }
    }
    parsed
}

/// Does a message name a line of the file or an option, with key and value, followed by a text?
fn names_its_place(message: &str, text: &str, flags: &str) -> bool {
    if let Some(option) = message.strip_prefix("SERVER_JVMFLAGS: -D") {
        let key = option.split(['=', ':']).next().unwrap_or_default();
        // Messages escape control characters, and omit quotation marks of the shell.
        let escaped =
            |c: char| if c.is_control() { c.escape_default().to_string() } else { c.into() };
        let shown: String = flags.chars().map(escaped).collect();
        return option.contains('=') && (shown.contains(key) || flags.contains(['"', '\'', '\\']));
    }
    let Some((number, rest)) = message
        .strip_prefix(FILE)
        .and_then(|rest| rest.strip_prefix(':'))
        .and_then(|rest| rest.split_once(": "))
    else {
        return false;
    };
    // As in Java, a carriage return ends a line, too. A byte order mark is skipped.
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let text = text.replace("\r\n", "\n").replace('\r', "\n");
    let line = number.parse::<usize>().ok().and_then(|number| text.lines().nth(number - 1));
    let Some(line) = line else {
        return false;
    };
    let Some((key, what)) = rest.split_once('=') else {
        return false;
    };
    if line.contains('\\') || line.contains(char::is_control) {
        // Escapes are decoded, lines continued and control characters escaped, so key and value
        // cannot be compared.
        return what.contains(": ");
    }
    let line = trim(line);
    // The key ends at the first of these characters; a secret value is not shown.
    let end = line.find(['=', ':', ' ']).unwrap_or(line.len());
    let (line_key, value) = line.split_at(end);
    let value = trim(value);
    let value = trim(value.strip_prefix(['=', ':']).unwrap_or(value));
    key == line_key
        && [value, "(not shown)"].into_iter().any(|value| {
            let what = what.strip_prefix(value).and_then(|rest| rest.strip_prefix(": "));
            what.is_some_and(|what| !what.is_empty())
        })
}

/// Java's `String.trim`: removes characters up to U+0020 from both ends.
fn trim(text: &str) -> &str {
    text.trim_matches(|c| c <= ' ')
}
