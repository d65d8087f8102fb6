//! The file format of `zoo.cfg`: Java properties without their escapes.
//!
//! Owns lines, keys and the naming of a fault's place. Must not know what a key means.
//!
//! A line is empty, a comment (`#` or `!`), or a key and a value with `=`, `:` or blanks between; both are trimmed.
//! A key given twice counts with its last value. Backslashes, which Java would take as escapes, are refused rather
//! than read in another way.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::RangeInclusive;

/// What a file says, by key. Whoever understands a key takes it out.
#[derive(Debug)]
pub(crate) struct Properties {
    file: String,
    entries: BTreeMap<String, Entry>,
    /// What the operator should know though the server starts.
    pub(crate) warnings: Vec<String>,
}

/// One value and where it stands.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub(crate) line: usize,
    pub(crate) key: String,
    pub(crate) value: String,
}

/// A setting that cannot be: the server does not start.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct BadSetting(String);

impl Properties {
    /// Reads the text of `file`, whose name only goes into messages.
    ///
    /// # Errors
    /// A line with a backslash.
    pub(crate) fn read(file: &str, text: &str) -> Result<Properties, BadSetting> {
        let mut all =
            Properties { file: file.to_owned(), entries: BTreeMap::new(), warnings: Vec::new() };
        for (number, line) in text.lines().enumerate() {
            let line = line.trim();
            if line.is_empty() || line.starts_with(['#', '!']) {
                continue;
            }
            let entry = split(number + 1, line);
            if line.contains('\\') {
                return Err(all.refuse(&entry, "backslashes are not supported; write it without"));
            }
            if let Some(earlier) = all.entries.insert(entry.key.clone(), entry.clone()) {
                let warning = format!("given before in line {}; this one counts", earlier.line);
                all.warn(&entry, &warning);
            }
        }
        Ok(all)
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
            Ok(_) => Err(self.refuse(&entry, &format!("out of range; use {hint}"))),
            Err(_) => Err(self.refuse(&entry, &format!("not a whole number; use {hint}"))),
        }
    }

    /// Takes out all keys that begin with `prefix`, in the order of their lines.
    pub(crate) fn take_prefixed(&mut self, prefix: &str) -> Vec<Entry> {
        let keys: Vec<String> =
            self.entries.keys().filter(|key| key.starts_with(prefix)).cloned().collect();
        let mut taken: Vec<Entry> =
            keys.iter().filter_map(|key| self.entries.remove(key)).collect();
        taken.sort_by_key(|entry| entry.line);
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
        let Entry { line, key, value } = entry;
        let value = if is_secret(key) { "(not shown)" } else { value };
        format!("{}:{line}: {key}={value}: {what}", self.file)
    }
}

/// Would the value help whoever reads the log to get in?
fn is_secret(key: &str) -> bool {
    let key = key.to_ascii_lowercase();
    ["passw", "digestauthenticationprovider.", "secret"].iter().any(|part| key.contains(part))
}

fn split(line: usize, text: &str) -> Entry {
    let ends = |c: char| c == '=' || c == ':' || c.is_whitespace();
    let (key, rest) = text.split_at(text.find(ends).unwrap_or(text.len()));
    let rest = rest.trim_start();
    let value = rest.strip_prefix(['=', ':']).unwrap_or(rest).trim();
    Entry { line, key: key.to_owned(), value: value.to_owned() }
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
    fn the_last_of_two_counts_and_a_warning_says_so() {
        let mut read = Properties::read("zoo.cfg", "a=1\nb=2\na=3").expect("reads");
        assert_eq!(read.warnings, ["zoo.cfg:3: a=3: given before in line 1; this one counts"]);
        assert_eq!(read.take("a").expect("is there").value, "3");
    }

    #[test]
    fn backslashes_are_refused() {
        let error = Properties::read("zoo.cfg", "dataDir=C:\\zk").expect_err("refused");
        assert!(error.to_string().starts_with("zoo.cfg:1: dataDir=C:\\zk: backslashes"));
    }
}
