//! What `zoo.cfg` and the options of Java say, by key.
//!
//! Owns entries, options, the values' types and the naming of a fault's place. Must not know what a key means.
//!
//! The file is a properties file of Java's (`java_properties`), whose keys and values are trimmed, as ZooKeeper does. A
//! file that is not UTF-8 is Latin-1, as every one is to Java. A key given twice counts with its last value. The mark with
//! which some editors begin a file (U+FEFF) is no part of it.
//!
//! Options are those of the environment variables `SERVER_JVMFLAGS` and `JVMFLAGS`, in which the scripts around ZooKeeper
//! pass what it only takes as system properties. As there, what the file says overwrites them.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::RangeInclusive;

use super::java_properties::{self, Fault};
use super::keys::{self, Flag};

/// The environment variables with options for Java, in the order in which `zkServer.sh` puts them: the last one counts.
pub(crate) const FLAGS: [&str; 2] = ["SERVER_JVMFLAGS", "JVMFLAGS"];

/// What a file and options say, by key. Whoever understands a key takes it out.
#[derive(Debug)]
pub(crate) struct Properties {
    file: String,
    entries: BTreeMap<String, Entry>,
    /// What the operator should know though the server starts.
    pub(crate) warnings: Vec<String>,
}

/// One value and where it stands.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Entry {
    pub(crate) place: Place,
    /// As it is written.
    pub(crate) key: String,
    pub(crate) value: String,
}

/// Where a value stands.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Place {
    /// In this line of the file.
    Line(usize),
    /// Among the options in this environment variable.
    Flag(&'static str),
}

/// A setting that cannot be: the server does not start.
#[derive(Debug, PartialEq, Eq)]
pub struct BadSetting(String);

impl Properties {
    /// Reads the text of `file`, whose name only goes into messages.
    ///
    /// # Errors
    /// A `\u` that is not followed by four hexadecimal digits.
    pub(crate) fn read(file: &str, text: &str) -> Result<Properties, BadSetting> {
        let mut all =
            Properties { file: file.to_owned(), entries: BTreeMap::new(), warnings: Vec::new() };
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        for pair in java_properties::read(text) {
            let [key, value] = [&pair.key, &pair.value].map(|text| trim(text).to_owned());
            let entry = Entry { place: Place::Line(pair.line), key, value };
            match pair.fault {
                None => {}
                Some(Fault::Unicode) => {
                    let what = "\\u has to be followed by four hexadecimal digits, as in \\u00e9; write \
                                \\\\ for a backslash";
                    return Err(all.refuse(&entry, what));
                }
                Some(Fault::Dropped(next)) => {
                    let what =
                        format!("a backslash before {next} is dropped; write \\\\ for a backslash");
                    all.warn(&entry, &what);
                }
            }
            let key = keys::of_line(&entry.key).to_owned();
            if let Some(Entry { place: Place::Line(line), .. }) =
                all.entries.insert(key, entry.clone())
            {
                all.warn(&entry, &format!("given before in line {line}; this one counts"));
            }
        }
        Ok(all)
    }

    /// Adds the `-Dname=value` options among `flags`, the text of `variable`, words as a shell would cut them; all else is
    /// for Java. What is there already counts.
    ///
    /// # Errors
    /// A quotation that does not end.
    pub(crate) fn add_flags(
        &mut self,
        variable: &'static str,
        flags: &str,
    ) -> Result<(), BadSetting> {
        let words = words(flags).ok_or_else(|| {
            BadSetting(format!("{variable}: a quotation mark without its other half; add it"))
        })?;
        // Java goes by the last of several, so the first that is found from the end counts.
        for word in words.iter().rev() {
            let Some(option) = word.strip_prefix("-D") else {
                continue;
            };
            let (name, value) = option.split_once('=').unwrap_or((option, ""));
            let value = value.trim().to_owned();
            let entry = Entry { place: Place::Flag(variable), key: name.to_owned(), value };
            match keys::of_flag(name) {
                Flag::Key(key) => match self.entries.get(key) {
                    None => {
                        self.entries.insert(key.to_owned(), entry);
                    }
                    Some(Entry { place: Place::Line(line), value, .. })
                        if *value != entry.value =>
                    {
                        let warning =
                            format!("line {line} of {} says otherwise and counts", self.file);
                        self.warn(&entry, &warning);
                    }
                    Some(_) => {}
                },
                Flag::Misplaced(what) => self.warn(&entry, &format!("ignored: {what}")),
                Flag::Unknown => self.warn(&entry, "unknown key, ignored; is it spelt right?"),
                Flag::Foreign => {}
            }
        }
        Ok(())
    }

    /// What stands at a key, left where it is.
    pub(crate) fn entry(&self, key: &str) -> Option<&Entry> {
        self.entries.get(key)
    }

    /// Takes a key out.
    pub(crate) fn take(&mut self, key: &str) -> Option<Entry> {
        self.entries.remove(key)
    }

    /// Takes a text that must not be empty out. `hint` says what would be right.
    ///
    /// # Errors
    /// An empty text.
    pub(crate) fn text(&mut self, key: &str, hint: &str) -> Result<Option<String>, BadSetting> {
        match self.take(key) {
            Some(entry) if entry.value.is_empty() => {
                Err(self.refuse(&entry, &format!("empty; use {hint}, or remove the line")))
            }
            entry => Ok(entry.map(|entry| entry.value)),
        }
    }

    /// Takes a whole number within `range` out. `hint` says what would be right, unit included.
    ///
    /// # Errors
    /// Anything else than such a number.
    pub(crate) fn number(
        &mut self,
        key: &str,
        range: RangeInclusive<i64>,
        hint: &str,
    ) -> Result<Option<i64>, BadSetting> {
        let Some(entry) = self.take(key) else {
            return Ok(None);
        };
        let number = match entry.value.strip_prefix("0x") {
            Some(hex) => i64::from_str_radix(hex, 16),
            None => entry.value.parse(),
        };
        match number {
            Ok(number) if range.contains(&number) => Ok(Some(number)),
            Ok(_) => {
                let (least, most) = range.into_inner();
                Err(self.refuse(&entry, &format!("out of range {least} to {most}; use {hint}")))
            }
            Err(_) => Err(self.refuse(&entry, &format!("not a whole number; use {hint}"))),
        }
    }

    /// Takes a number from 0 to `most` with up to six decimals out, in millionths. `hint` says what would be right.
    ///
    /// # Errors
    /// Anything else than such a number.
    pub(crate) fn millionths(
        &mut self,
        key: &str,
        most: u32,
        hint: &str,
    ) -> Result<Option<u32>, BadSetting> {
        let Some(entry) = self.take(key) else {
            return Ok(None);
        };
        match millionths(&entry.value) {
            Some(number) if number <= most * 1_000_000 => Ok(Some(number)),
            Some(_) => Err(self.refuse(&entry, &format!("out of range 0 to {most}; use {hint}"))),
            None => Err(self.refuse(&entry, &format!("not a decimal number; use {hint}"))),
        }
    }

    /// Takes a switch out, which is one of two words in any case.
    ///
    /// # Errors
    /// Any other word.
    pub(crate) fn switch(
        &mut self,
        key: &str,
        [on, off]: [&str; 2],
    ) -> Result<Option<bool>, BadSetting> {
        let Some(entry) = self.take(key) else {
            return Ok(None);
        };
        match &entry.value {
            value if value.eq_ignore_ascii_case(on) => Ok(Some(true)),
            value if value.eq_ignore_ascii_case(off) => Ok(Some(false)),
            _ => Err(self.refuse(&entry, &format!("use {on} or {off}"))),
        }
    }

    /// Takes a list of words with commas between out; blanks around them do not count, and empty ones neither.
    pub(crate) fn list(&mut self, key: &str) -> Option<(Entry, Vec<String>)> {
        let entry = self.take(key)?;
        let words = entry.value.split(',').map(str::trim).filter(|word| !word.is_empty());
        let words = words.map(str::to_owned).collect();
        Some((entry, words))
    }

    /// Takes out all keys that begin with `prefix`, in the order of their lines.
    pub(crate) fn take_prefixed(&mut self, prefix: &str) -> Vec<Entry> {
        let keys: Vec<String> =
            self.entries.keys().filter(|key| key.starts_with(prefix)).cloned().collect();
        let mut taken: Vec<Entry> =
            keys.iter().filter_map(|key| self.entries.remove(key)).collect();
        taken.sort_by_key(|entry| entry.place);
        taken
    }

    /// Adds a warning about an entry.
    pub(crate) fn warn(&mut self, entry: &Entry, what: &str) {
        let warning = self.place(entry, what);
        self.warnings.push(warning);
    }

    /// The error that names an entry and what is wrong with it.
    pub(crate) fn refuse(&self, entry: &Entry, what: &str) -> BadSetting {
        BadSetting(self.place(entry, what))
    }

    /// The error for a key that has to be there.
    pub(crate) fn missing(&self, key: &str, hint: &str) -> BadSetting {
        BadSetting(format!("{}: {key} is missing; add {hint}", self.file))
    }

    fn place(&self, entry: &Entry, what: &str) -> String {
        let Entry { place, key, value } = entry;
        let value = if is_secret(key) { "(not shown)" } else { value };
        let [key, value] = [key, value].map(printable);
        match place {
            Place::Line(line) => format!("{}:{line}: {key}={value}: {what}", self.file),
            Place::Flag(variable) => format!("{variable}: -D{key}={value}: {what}"),
        }
    }
}

/// The text of `file`, and a warning where it is not UTF-8.
pub(crate) fn decode(file: &str, bytes: Vec<u8>) -> (String, Option<String>) {
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

/// A text that stays within its line of the log.
fn printable(text: &str) -> String {
    let mut printable = String::with_capacity(text.len());
    for c in text.chars() {
        if c.is_control() { printable.extend(c.escape_default()) } else { printable.push(c) }
    }
    printable
}

/// Would the value help whoever reads the log to get in?
fn is_secret(key: &str) -> bool {
    let key = key.to_ascii_lowercase();
    ["passw", "superdigest", "secret"].iter().any(|part| key.contains(part))
}

/// Java's `trim`: without what stands at both ends and is not above a space.
fn trim(text: &str) -> &str {
    text.trim_matches(|c| c <= ' ')
}

/// A decimal number such as `0.02`, in millionths.
fn millionths(text: &str) -> Option<u32> {
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

/// The words of a text as a shell cuts it: blanks part them, except within quotation marks and behind a backslash. None
/// where a quotation does not end.
fn words(text: &str) -> Option<Vec<String>> {
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

impl BadSetting {
    pub(crate) fn new(what: String) -> BadSetting {
        BadSetting(what)
    }
}

impl fmt::Display for BadSetting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(line: &str, key: &str, value: &str) {
        let mut read = Properties::read("f", line).expect("reads");
        let entry = read.take(key).expect("is there");
        assert_eq!(entry.value, value);
    }

    #[test]
    fn lines_split_as_java_does() {
        check("tickTime=2000", "tickTime", "2000");
        check("  tickTime =  2000  ", "tickTime", "2000");
        check("tickTime: 2000", "tickTime", "2000");
        check("tickTime 2000", "tickTime", "2000");
        check("server.1=a:2888:3888;2181", "server.1", "a:2888:3888;2181");
        check("# c\n! d\n\nempty=", "empty", "");
        check("alone", "alone", "");
    }

    #[test]
    fn what_is_not_utf_8_is_latin_1() {
        let (text, warning) = decode("f", "# caf\u{e9}\n".into());
        assert_eq!((&text[..], warning), ("# caf\u{e9}\n", None));
        let (text, warning) = decode("f", b"a=1\r\nb=2\r# caf\xe9\n".to_vec());
        assert_eq!(text, "a=1\r\nb=2\r# caf\u{e9}\n");
        let warning = warning.expect("a warning");
        assert!(warning.starts_with("f:3: not UTF-8"), "{warning}");
    }

    #[test]
    fn a_byte_order_mark_is_no_part_of_the_first_key() {
        let mut read = Properties::read("zoo.cfg", "\u{feff}a=1\nb=\u{feff}2").expect("reads");
        assert_eq!(read.take("a").expect("is there").value, "1");
        assert_eq!(read.take("b").expect("is there").value, "\u{feff}2");
    }

    #[test]
    fn the_last_of_two_counts_and_a_warning_says_so() {
        let mut read = Properties::read("zoo.cfg", "a=1\nb=2\na=3").expect("reads");
        assert_eq!(read.warnings, ["zoo.cfg:3: a=3: given before in line 1; this one counts"]);
        assert_eq!(read.take("a").expect("is there").value, "3");
    }

    #[test]
    fn decimals_are_read_without_rounding() {
        for (text, expected) in [
            ("0.02", Some(20_000)),
            ("1", Some(1_000_000)),
            (".5", Some(500_000)),
            ("0.000001", Some(1)),
            ("0.0000001", None),
            ("1e-2", None),
            ("-1", None),
            (".", None),
            ("5000", None),
        ] {
            assert_eq!(millionths(text), expected, "{text}");
        }
    }

    #[test]
    fn flags_are_cut_as_a_shell_does() {
        let check = |text: &str, expected: Option<&[&str]>| {
            let words = words(text);
            let words: Option<Vec<&str>> =
                words.as_ref().map(|words| words.iter().map(String::as_str).collect());
            assert_eq!(words.as_deref(), expected, "{text}");
        };
        check("", Some(&[]));
        check("  -Xmx1g\t-Da=b ", Some(&["-Xmx1g", "-Da=b"]));
        check(r#"-Da="b c" '-Dd="e' f\ g"#, Some(&["-Da=b c", "-Dd=\"e", "f g"]));
        check(r#""" ''"#, Some(&["", ""]));
        check(r#""a\"b" 'c\d'"#, Some(&["a\"b", "c\\d"]));
        check("-Da='b", None);
    }

    #[test]
    fn the_file_overwrites_flags_and_the_last_of_two_flags_counts() {
        let mut read =
            Properties::read("zoo.cfg", "snapCount=7\nzookeeper.maxCnxns=3").expect("reads");
        let flags = "-server -Dzookeeper.snapCount=9 -Dzookeeper.maxCnxns=3 -Djute.maxbuffer=1 \
                     -Djute.maxbuffer=2 -DsnapCount=1 -Dzookeeper.tickTime=5 -Dzookeeper.nope -Dmine=1";
        read.add_flags("SERVER_JVMFLAGS", flags).expect("reads");
        assert_eq!(
            read.warnings,
            [
                "SERVER_JVMFLAGS: -Dzookeeper.nope=: unknown key, ignored; is it spelt right?",
                "SERVER_JVMFLAGS: -Dzookeeper.tickTime=5: ignored: only zoo.cfg can say this",
                "SERVER_JVMFLAGS: -DsnapCount=1: ignored: write -Dzookeeper. in front of it",
                "SERVER_JVMFLAGS: -Dzookeeper.snapCount=9: line 1 of zoo.cfg says otherwise and counts",
            ]
        );
        for (key, value) in [("snapCount", "7"), ("maxCnxns", "3"), ("jute.maxbuffer", "2")] {
            assert_eq!(read.take(key).expect("is there").value, value);
        }
        let error = read.add_flags("JVMFLAGS", "-Da='b").expect_err("refused").to_string();
        assert_eq!(error, "JVMFLAGS: a quotation mark without its other half; add it");
    }

    #[test]
    fn escapes_are_those_of_java() {
        check("server.1=zk1\\:2888\\:3888", "server.1", "zk1:2888:3888");
        check("tickTime = \\\n  2000 \n", "tickTime", "2000");
        check("data\\u0044ir=/d\\ ", "dataDir", "/d");
        check("dataDir=/d\u{a0}", "dataDir", "/d\u{a0}");
        let read = |text| Properties::read("zoo.cfg", text).map(|read| read.warnings);
        assert_eq!(
            read("a=1\nb=\\\n  C:\\zk"),
            Ok(vec![
                "zoo.cfg:2: b=C:zk: a backslash before z is dropped; write \\\\ for a backslash"
                    .to_owned()
            ])
        );
        assert_eq!(read("a=C:\\\\zk"), Ok(Vec::new()));
        let warning = "zoo.cfg:2: a=2\\n3: given before in line 1; this one counts";
        assert_eq!(read("a=1\na=2\\n3"), Ok(vec![warning.to_owned()]), "in one line");
        assert_eq!(
            read("\nssl.password=\\u12").map_err(|error| error.to_string()),
            Err("zoo.cfg:2: ssl.password=(not shown): \\u has to be followed by four hexadecimal digits, as in \
                 \\u00e9; write \\\\ for a backslash"
                .to_owned())
        );
    }
}
