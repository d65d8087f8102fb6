//! What the server makes of each line of `zoo.cfg`, for operators who do not start it yet.
//!
//! Owns the repeated reading: a line that is refused is left out of the next reading, so that one
//! check finds all of them. Must not judge a line: the parser does.

use std::collections::BTreeSet;
use std::io;
use std::path::Path;

use super::properties::{BadSetting, Properties};
use super::text::shown;
use super::trace::{EntryId, Fate};
use super::{Settings, flags, read_file, settle};

/// The result of a check.
#[derive(Debug)]
pub(crate) struct Checked {
    /// The settings, if the server would accept them; lines that are refused are left out.
    pub(crate) settings: Option<Settings>,
    /// Where each line is, with its key and value, and the verdict on it.
    pub(crate) lines: Vec<(String, Verdict)>,
    /// What is wrong with the file as a whole.
    pub(crate) failure: Option<String>,
    /// A warning about the file as a whole.
    pub(crate) warning: Option<String>,
}

/// The verdict on a line.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Verdict {
    /// It is in force, with this value, and with these warnings.
    InForce(String, Vec<String>),
    /// It is accepted without effect.
    NoEffect(String),
    /// Its key is unknown.
    Unknown(String),
    /// The server does not start with it.
    Refused(String),
    /// Something else stopped the check before it.
    NotReached,
}

impl Checked {
    /// Checks a file and the options for Java in the environment.
    ///
    /// # Errors
    /// The file cannot be read.
    pub(crate) fn file(path: &Path) -> Result<Checked, BadSetting> {
        let (file, text, warning) = read_file(path)?;
        let flags = flags()?;
        let flags: Vec<_> = flags.iter().map(|(variable, text)| (*variable, &**text)).collect();
        let read = |path: &Path| std::fs::read_to_string(path);
        Ok(Checked { warning, ..check(&file, &text, &flags, &read) })
    }
}

/// Checks `text`, the content of `file`; the parameters are those of [`super::parse`].
fn check(
    file: &str,
    text: &str,
    flags: &[(&'static str, &str)],
    read: &dyn Fn(&Path) -> io::Result<String>,
) -> Checked {
    let mut refused: Vec<(EntryId, String)> = Vec::new();
    loop {
        let skipped: BTreeSet<EntryId> = refused.iter().map(|(id, _)| id.clone()).collect();
        let mut keys = Properties::default();
        let end = read_once(&mut keys, file, text, flags, read, skipped.clone());
        let failure = match end {
            Err(BadSetting { at: Some((id, what)), .. }) if !skipped.contains(&id) => {
                refused.push((id, what));
                continue;
            }
            // A key that is missing because its line is refused is no second fault.
            Err(error) => refused.is_empty().then(|| error.to_string()),
            Ok(settings) => {
                let lines = lines(&keys, &refused);
                return Checked { settings: Some(settings), lines, failure: None, warning: None };
            }
        };
        let lines = lines(&keys, &refused);
        return Checked { settings: None, lines, failure, warning: None };
    }
}

fn read_once(
    keys: &mut Properties,
    file: &str,
    text: &str,
    flags: &[(&'static str, &str)],
    read: &dyn Fn(&Path) -> io::Result<String>,
    skipped: BTreeSet<EntryId>,
) -> Result<Settings, BadSetting> {
    *keys = Properties::read_without(file, text, skipped)?;
    for (variable, text) in flags.iter().rev() {
        keys.add_flags(variable, text)?;
    }
    let settings = settle(keys, file, read)?;
    if let Some(secret_file) =
        settings.ensemble.as_ref().and_then(|ensemble| ensemble.secret_file.as_ref())
    {
        secret_file.read(file)?;
    }
    Ok(settings)
}

fn lines(keys: &Properties, refused: &[(EntryId, String)]) -> Vec<(String, Verdict)> {
    let entries = keys.trace.entries();
    let verdict = |entry| {
        let entry: &super::Entry = entry;
        if let Some((_, what)) = refused.iter().find(|(id, _)| *id == entry.id()) {
            return Verdict::Refused(what.clone());
        }
        match keys.trace.fate(entry) {
            None => Verdict::NotReached,
            Some(Fate::InForce(value)) => {
                let notes = keys.trace.notes_of(entry).into_iter().map(str::to_owned).collect();
                Verdict::InForce(shown(&entry.key, value), notes)
            }
            Some(Fate::NoEffect(what)) => Verdict::NoEffect(what.clone()),
            Some(Fate::Unknown(what)) => Verdict::Unknown(what.clone()),
        }
    };
    entries.into_iter().map(|entry| (keys.setting(entry), verdict(entry))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verdicts(text: &str, flags: &str) -> Vec<Verdict> {
        let no_myid = |_: &Path| Err(io::ErrorKind::NotFound.into());
        let checked = check("zoo.cfg", text, &[("JVMFLAGS", flags)], &no_myid);
        checked.lines.into_iter().map(|(_, verdict)| verdict).collect()
    }

    fn in_force(value: &str) -> Verdict {
        Verdict::InForce(value.to_owned(), Vec::new())
    }

    #[test]
    fn every_line_has_a_verdict() {
        let text = "dataDir=/d\nclientPort=0x885\ntickTime=1\ntickTime=2000\nreconfigEnabled=TRUE\n\
                    snapCount=many\nflushDelay=3\nsyncEnabled=true\njvm.pause.monitor=false\n\
                    jvm.pause.monitor.sleepTimeMs=9\ntickTimes=1\n4lw.commands.whitelist=ruok,,srvr\n\
                    DigestAuthenticationProvider.superDigest=super:x\nmaxCnxns=-2\n\
                    autopurge.snapRetainCount=1";
        let none = |what: &str| Verdict::NoEffect(what.to_owned());
        let expected = [
            in_force("/d"),
            in_force("2181"),
            none("given again in line 4, which counts"),
            Verdict::InForce("2000".into(), vec!["given before in line 3; this one counts".into()]),
            in_force("true"),
            Verdict::Refused("not a whole number; use transactions, such as 100000".into()),
            none("has no effect here: writes are synced together as they come"),
            none("this server does so anyway"),
            none("this server does so anyway"),
            none("jvm.pause.monitor=false switches it off"),
            Verdict::Unknown("unknown key, ignored; is it spelt right?".into()),
            in_force("ruok, srvr"),
            in_force("(not shown)"),
            Verdict::Refused(
                "out of range 0 to 2147483647; use a number of connections, or 0 for no bound"
                    .into(),
            ),
            Verdict::InForce("1".into(), vec!["fewer than 3 is not safe; 3 are kept".into()]),
            none("ignored: write -Dzookeeper. in front of it"),
        ];
        assert_eq!(verdicts(text, "-DsnapCount=7 -Xmx1g -Dlog.dir=/l"), expected);
    }

    #[test]
    fn what_is_missing_is_a_failure_of_the_file() {
        let no_myid = |_: &Path| Err(io::ErrorKind::NotFound.into());
        let failure = |text: &str| check("zoo.cfg", text, &[], &no_myid).failure;
        let expected = "zoo.cfg: clientPort is missing; add clientPort=2181";
        assert_eq!(failure("dataDir=/d"), Some(expected.to_owned()));
        // The line is refused, and that suffices.
        assert_eq!(failure("dataDir=/d\nclientPort=x"), None);
        assert_eq!(failure("dataDir=/d\nclientPort=1"), None);
    }
}
