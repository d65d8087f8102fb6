//! What must hold for any text as `zoo.cfg`, any options in `SERVER_JVMFLAGS`, and any file `myid`. Shared by the fuzz
//! target and the test that replays its corpus.
//!
//! An input is the three texts, with a zero byte between.

use std::io;
use std::path::Path;

use zabkeeper::config::{BadSetting, Settings, parse};

/// What messages call the file.
const FILE: &str = "zoo.cfg";

/// Checks one input; returns what was made of it.
///
/// # Panics
/// Where something does not hold.
pub(crate) fn check(input: &[u8]) -> Result<(Settings, Vec<String>), BadSetting> {
    let mut parts = input.splitn(3, |byte| *byte == 0).map(String::from_utf8_lossy);
    let [text, flags, myid] = [(); 3].map(|()| parts.next().unwrap_or_default().into_owned());
    let read = |path: &Path| match path.file_name() {
        Some(name) if name == "myid" && !myid.is_empty() => Ok(myid.clone()),
        _ => Err(io::Error::from(io::ErrorKind::NotFound)),
    };
    let parsed = parse(FILE, &text, &flags, &read);
    assert_eq!(parsed, parse(FILE, &text, &flags, &read), "the same again");
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

/// Does a message name a line of the file or an option with key and value, and say something about it?
fn names_its_place(message: &str, text: &str, flags: &str) -> bool {
    if let Some(option) = message.strip_prefix("SERVER_JVMFLAGS: -D") {
        let key = option.split(['=', ':']).next().unwrap_or_default();
        // Quotation marks of the shell may stand within.
        return option.contains('=') && (flags.contains(key) || flags.contains(['"', '\'', '\\']));
    }
    let Some((number, rest)) = message
        .strip_prefix(FILE)
        .and_then(|rest| rest.strip_prefix(':'))
        .and_then(|rest| rest.split_once(": "))
    else {
        return false;
    };
    // A carriage return ends a line, too, as in Java. A byte order mark is not part of it.
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let text = text.replace("\r\n", "\n").replace('\r', "\n");
    let line = number.parse::<usize>().ok().and_then(|number| text.lines().nth(number - 1));
    let Some(line) = line.map(str::trim) else {
        return false;
    };
    // The key ends with the first of these; a value that is a secret is not shown.
    let end = line.find(|c: char| c == '=' || c == ':' || c.is_whitespace()).unwrap_or(line.len());
    let (key, value) = line.split_at(end);
    let value = value.trim_start();
    let value = value.strip_prefix(['=', ':']).unwrap_or(value).trim();
    rest.strip_prefix(key).and_then(|rest| rest.strip_prefix('=')).is_some_and(|rest| {
        [value, "(not shown)"].into_iter().any(|value| {
            let what = rest.strip_prefix(value).and_then(|rest| rest.strip_prefix(": "));
            what.is_some_and(|what| !what.is_empty())
        })
    })
}
