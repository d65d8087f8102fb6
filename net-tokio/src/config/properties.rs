//! The settings of `zoo.cfg` and of Java `-D` options, by key.
//!
//! Owns entries, options, the types of values, and the location named in errors. Must not know what
//! a key means.
//!
//! The file is a Java properties file (`java_properties`); keys and values are trimmed, as in
//! ZooKeeper. A file that is not UTF-8 is read as Latin-1, which Java uses for every file. Of a key
//! given twice, the last value is used. A byte order mark (U+FEFF) at the start is skipped.
//!
//! Options are those of the environment variables `SERVER_JVMFLAGS` and `JVMFLAGS`, with which
//! ZooKeeper's scripts set its system properties. As in ZooKeeper, the file overrides them.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::ops::RangeInclusive;

use super::java_properties::{self, Fault};
use super::keys::{self, Flag};
use super::text::{millionths, printable, shown, trim, words};
use super::trace::{EntryId, Fate, Trace};

/// The environment variables with Java options, in the order in which `zkServer.sh` passes them:
/// the last one takes precedence.
pub(crate) const FLAGS: [&str; 2] = ["SERVER_JVMFLAGS", "JVMFLAGS"];

/// The entries of the file and of the options, by key. The reader of a key removes its entry.
#[derive(Debug, Default)]
pub(crate) struct Properties {
    file: String,
    /// The file that `dynamicConfigFile` names.
    dynamic_file: String,
    entries: BTreeMap<String, Entry>,
    /// Warnings for the operator; the server starts nevertheless.
    pub(crate) warnings: Vec<String>,
    /// What became of each entry.
    pub(crate) trace: Trace,
}

/// One value and its location.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Entry {
    pub(crate) place: Place,
    /// The key as it is written.
    pub(crate) key: String,
    pub(crate) value: String,
}

/// The location of a value.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Place {
    /// This line of the file, from 1.
    Line(usize),
    /// This line of the file that `dynamicConfigFile` names.
    Dynamic(usize),
    /// An option in this environment variable.
    Flag(&'static str),
}

/// An invalid setting: the server does not start.
#[derive(Debug, PartialEq, Eq)]
pub struct BadSetting {
    text: String,
    /// The entry and what is wrong with it, if one entry is to blame.
    pub(crate) at: Option<(EntryId, String)>,
}

impl Properties {
    /// Reads `text`, the content of `file`, whose name is used in messages only.
    ///
    /// # Errors
    /// A `\u` that is not followed by four hexadecimal digits.
    pub(crate) fn read(file: &str, text: &str) -> Result<Properties, BadSetting> {
        Properties::read_without(file, text, BTreeSet::new())
    }

    /// The same, as if these entries were absent from all sources.
    ///
    /// # Errors
    /// Those of [`Properties::read`].
    pub(crate) fn read_without(
        file: &str,
        text: &str,
        skipped: BTreeSet<EntryId>,
    ) -> Result<Properties, BadSetting> {
        let trace = Trace::without(skipped);
        let mut all = Properties { file: file.to_owned(), trace, ..Properties::default() };
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        for pair in java_properties::read(text) {
            let [key, value] = [&pair.key, &pair.value].map(|text| trim(text).to_owned());
            let entry = Entry { place: Place::Line(pair.line), key, value };
            if !all.trace.add(&entry) {
                continue;
            }
            match pair.fault {
                None => {}
                Some(Fault::Unicode) => {
                    let what = "\\u has to be followed by four hexadecimal digits, as in \\u00e9; \
                        write \
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
            let before = all.entries.insert(key, entry.clone());
            if let Some(before @ Entry { place: Place::Line(line), .. }) = before {
                let what = format!("given again in line {}, which counts", pair.line);
                all.trace.settle(&before, Fate::NoEffect(what));
                all.warn(&entry, &format!("given before in line {line}; this one counts"));
            }
        }
        Ok(all)
    }

    /// Adds the lines of `text`, the content of the dynamic file `file`: servers, groups and
    /// weights only (RECONF-14).
    ///
    /// # Errors
    /// Another key, or a server, a group or a weight in the first file, too.
    pub(crate) fn add_dynamic(&mut self, file: &str, text: &str) -> Result<(), BadSetting> {
        let moves =
            |key: &str| ["server.", "group.", "weight."].iter().any(|own| key.starts_with(own));
        file.clone_into(&mut self.dynamic_file);
        let left = self.entries.values().filter(|entry| moves(&entry.key));
        if let Some(first) = left.min_by_key(|entry| entry.place) {
            let what = "the dynamic file holds all members; move the line there, or remove it";
            return Err(self.refuse(first, what));
        }
        for (key, mut entry) in Properties::read(file, text)?.entries {
            let Place::Line(line) = entry.place else { continue };
            entry.place = Place::Dynamic(line);
            if !self.trace.add(&entry) {
                continue;
            }
            if !moves(&key) {
                let what = "a dynamic file holds server.N, group.N and weight.N; its name ends \
                            with the version, as in zoo.cfg.dynamic.100000000";
                return Err(self.refuse(&entry, what));
            }
            self.entries.insert(key, entry);
        }
        Ok(())
    }

    /// Adds the `-Dname=value` options among `flags`, the value of `variable`, split into words as
    /// a shell does. Other words are ignored. Existing entries take precedence.
    ///
    /// # Errors
    /// An unterminated quotation.
    pub(crate) fn add_flags(
        &mut self,
        variable: &'static str,
        flags: &str,
    ) -> Result<(), BadSetting> {
        let words = words(flags).ok_or_else(|| {
            BadSetting::new(format!("{variable}: a quotation mark without its other half; add it"))
        })?;
        // Java uses the last of several options, so the words are read from the end.
        for (name, value) in words.iter().rev().filter_map(|word| option(word)) {
            let entry = Entry { place: Place::Flag(variable), key: name.clone(), value };
            let known = keys::of_flag(&name);
            if known == Flag::Foreign || !self.trace.add(&entry) {
                continue;
            }
            match known {
                Flag::Key(key) => match self.entries.get(key) {
                    None => {
                        self.entries.insert(key.to_owned(), entry);
                    }
                    Some(Entry { place: Place::Line(line), value, .. })
                        if *value != entry.value =>
                    {
                        let warning =
                            format!("line {line} of {} says otherwise and counts", self.file);
                        self.warn_without_effect(&entry, &warning);
                    }
                    Some(_) => {
                        let what = "the same is set elsewhere, and counts there".to_owned();
                        self.trace.settle(&entry, Fate::NoEffect(what));
                    }
                },
                Flag::Misplaced(what) => {
                    self.warn_without_effect(&entry, &format!("ignored: {what}"));
                }
                Flag::Unknown => self.warn_unknown(&entry),
                Flag::Foreign => {}
            }
        }
        Ok(())
    }

    /// The entry of a key, which stays.
    pub(crate) fn entry(&self, key: &str) -> Option<&Entry> {
        self.entries.get(key)
    }

    /// Removes and returns the entry of a key.
    pub(crate) fn take(&mut self, key: &str) -> Option<Entry> {
        let entry = self.entries.remove(key)?;
        self.in_force(&entry, entry.value.clone());
        Some(entry)
    }

    /// Removes and returns all entries that nobody has read, in the order of their places.
    pub(crate) fn take_rest(&mut self) -> Vec<Entry> {
        let mut rest: Vec<Entry> = std::mem::take(&mut self.entries).into_values().collect();
        rest.sort_by_key(|entry| entry.place);
        rest
    }

    /// The values by key, without those that name the members.
    pub(crate) fn values(&self) -> BTreeMap<String, String> {
        let is_member = |key: &str| MEMBERS.iter().any(|own| key.starts_with(own));
        let others = self.entries.iter().filter(|(key, _)| !is_member(key));
        others.map(|(key, entry)| (key.clone(), entry.value.clone())).collect()
    }

    /// The value of an entry was understood like this.
    fn in_force(&mut self, entry: &Entry, understood: String) {
        self.trace.settle(entry, Fate::InForce(understood));
    }

    /// Removes and returns a text that must not be empty. `hint` describes a valid value.
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

    /// Removes and returns a whole number within `range`. `hint` describes a valid value and its
    /// unit.
    ///
    /// # Errors
    /// Any other value.
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
            Ok(number) if range.contains(&number) => {
                self.in_force(&entry, number.to_string());
                Ok(Some(number))
            }
            Ok(_) => {
                let (least, most) = range.into_inner();
                Err(self.refuse(&entry, &format!("out of range {least} to {most}; use {hint}")))
            }
            Err(_) => Err(self.refuse(&entry, &format!("not a whole number; use {hint}"))),
        }
    }

    /// Removes a number from 0 to `most` with up to six decimals, and returns it in millionths.
    /// `hint` describes a valid value.
    ///
    /// # Errors
    /// Any other value.
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

    /// Removes and returns a switch, whose value is one of two words in any case.
    ///
    /// # Errors
    /// Any other value.
    pub(crate) fn switch(
        &mut self,
        key: &str,
        [on, off]: [&str; 2],
    ) -> Result<Option<bool>, BadSetting> {
        let Some(entry) = self.take(key) else {
            return Ok(None);
        };
        match &entry.value {
            value if value.eq_ignore_ascii_case(on) => {
                self.in_force(&entry, on.to_owned());
                Ok(Some(true))
            }
            value if value.eq_ignore_ascii_case(off) => {
                self.in_force(&entry, off.to_owned());
                Ok(Some(false))
            }
            _ => Err(self.refuse(&entry, &format!("use {on} or {off}"))),
        }
    }

    /// Removes and returns a comma-separated list; its words are trimmed, empty ones skipped.
    pub(crate) fn list(&mut self, key: &str) -> Option<(Entry, Vec<String>)> {
        let entry = self.take(key)?;
        let words = entry.value.split(',').map(str::trim).filter(|word| !word.is_empty());
        let words: Vec<String> = words.map(str::to_owned).collect();
        self.in_force(&entry, words.join(", "));
        Some((entry, words))
    }

    /// Removes and returns all entries whose key begins with `prefix`, in the order of their lines.
    pub(crate) fn take_prefixed(&mut self, prefix: &str) -> Vec<Entry> {
        let keys: Vec<String> =
            self.entries.keys().filter(|key| key.starts_with(prefix)).cloned().collect();
        let mut taken: Vec<Entry> = keys.iter().filter_map(|key| self.take(key)).collect();
        taken.sort_by_key(|entry| entry.place);
        taken
    }

    /// Adds a warning about an entry.
    pub(crate) fn warn(&mut self, entry: &Entry, what: &str) {
        let warning = self.place(entry, what);
        self.warnings.push(warning);
        self.trace.note(entry, what);
    }

    /// Adds a warning about an entry that has no effect.
    pub(crate) fn warn_without_effect(&mut self, entry: &Entry, what: &str) {
        self.warn(entry, what);
        self.trace.settle(entry, Fate::NoEffect(what.to_owned()));
    }

    /// Adds a warning about an entry whose key nobody knows.
    pub(crate) fn warn_unknown(&mut self, entry: &Entry) {
        let what = "unknown key, ignored; is it spelt right?";
        self.warn(entry, what);
        self.trace.settle(entry, Fate::Unknown(what.to_owned()));
    }

    /// The error for an invalid entry.
    pub(crate) fn refuse(&self, entry: &Entry, what: &str) -> BadSetting {
        let text = self.place(entry, what);
        BadSetting { text, at: Some((entry.id(), what.to_owned())) }
    }

    /// The error for a missing key.
    pub(crate) fn missing(&self, key: &str, hint: &str) -> BadSetting {
        BadSetting::new(format!("{}: {key} is missing; add {hint}", self.file))
    }

    fn place(&self, entry: &Entry, what: &str) -> String {
        format!("{}: {what}", self.setting(entry))
    }

    /// Where an entry is, its key and its value, in one line.
    pub(crate) fn setting(&self, entry: &Entry) -> String {
        let Entry { place, key, value } = entry;
        let value = shown(key, value);
        let key = printable(key);
        match place {
            Place::Line(line) => format!("{}:{line}: {key}={value}", self.file),
            Place::Dynamic(line) => format!("{}:{line}: {key}={value}", self.dynamic_file),
            Place::Flag(variable) => format!("{variable}: -D{key}={value}"),
        }
    }
}

/// The keys that name the members begin with these words.
const MEMBERS: [&str; 4] = ["server.", "group.", "weight.", "dynamicConfigFile"];

/// The properties that options for Java set, in order; none if a quotation is unterminated.
pub(super) fn options(flags: &str) -> Vec<(String, String)> {
    words(flags).unwrap_or_default().iter().filter_map(|word| option(word)).collect()
}

/// Name and value of an option `-Dname=value`.
fn option(word: &str) -> Option<(String, String)> {
    let option = word.strip_prefix("-D")?;
    let (name, value) = option.split_once('=').unwrap_or((option, ""));
    Some((name.to_owned(), value.trim().to_owned()))
}

impl BadSetting {
    pub(crate) fn new(text: String) -> BadSetting {
        BadSetting { text, at: None }
    }
}

impl fmt::Display for BadSetting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
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
    fn lines_split_as_in_java() {
        check("tickTime=2000", "tickTime", "2000");
        check("  tickTime =  2000  ", "tickTime", "2000");
        check("tickTime: 2000", "tickTime", "2000");
        check("tickTime 2000", "tickTime", "2000");
        check("server.1=a:2888:3888;2181", "server.1", "a:2888:3888;2181");
        check("# c\n! d\n\nempty=", "empty", "");
        check("alone", "alone", "");
    }

    #[test]
    fn byte_order_mark_is_skipped() {
        let mut read = Properties::read("zoo.cfg", "\u{feff}a=1\nb=\u{feff}2").expect("reads");
        assert_eq!(read.take("a").expect("is there").value, "1");
        assert_eq!(read.take("b").expect("is there").value, "\u{feff}2");
    }

    #[test]
    fn last_value_of_repeated_key_is_used_with_warning() {
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
    fn options_are_split_as_in_a_shell() {
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
    fn file_overrides_options_and_last_option_is_used() {
        let mut read =
            Properties::read("zoo.cfg", "snapCount=7\nzookeeper.maxCnxns=3").expect("reads");
        let flags = "-server -Dzookeeper.snapCount=9 -Dzookeeper.maxCnxns=3 -Djute.maxbuffer=1 \
                     -Djute.maxbuffer=2 -DsnapCount=1 -Dzookeeper.tickTime=5 -Dzookeeper.nope \
                     -Dmine=1";
        read.add_flags("SERVER_JVMFLAGS", flags).expect("reads");
        assert_eq!(
            read.warnings,
            [
                "SERVER_JVMFLAGS: -Dzookeeper.nope=: unknown key, ignored; is it spelt right?",
                "SERVER_JVMFLAGS: -Dzookeeper.tickTime=5: ignored: only zoo.cfg can say this",
                "SERVER_JVMFLAGS: -DsnapCount=1: ignored: write -Dzookeeper. in front of it",
                "SERVER_JVMFLAGS: -Dzookeeper.snapCount=9: line 1 of zoo.cfg says otherwise and \
                 counts",
            ]
        );
        for (key, value) in [("snapCount", "7"), ("maxCnxns", "3"), ("jute.maxbuffer", "2")] {
            assert_eq!(read.take(key).expect("is there").value, value);
        }
        let error = read.add_flags("JVMFLAGS", "-Da='b").expect_err("refused").to_string();
        assert_eq!(error, "JVMFLAGS: a quotation mark without its other half; add it");
    }

    #[test]
    fn escapes_are_decoded_as_in_java() {
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
            Err("zoo.cfg:2: ssl.password=(not shown): \\u has to be followed by four hexadecimal \
                digits, as in \
                 \\u00e9; write \\\\ for a backslash"
                .to_owned())
        );
    }
}
