//! The table of oracles: stable ids, the property of each, and how often each was checked.
//!
//! Owns ids, sentences and check counts. Must not check anything.

use std::fmt;

use zabkeeper_core::Instant;

/// A property of the service that is checked on every run. Reports print the ids; they never
/// change.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Id {
    Z1,
    Z2,
    Z3,
    Z4,
    Z5,
    Z6,
    Z7,
    Z8,
    Z9,
    Z10,
    Z11,
    Z12,
    Z13,
    Z14,
    Z15,
    Z16,
    Z17,
    Z18,
    Z19,
    Z20,
    Z23,
    Z24,
    Z25,
    Z26,
    Z27,
    T1,
    T2,
    T6,
    T7,
    T8,
    T10,
    S1,
    S2,
    S3,
    S4,
    S5,
    S6,
    S7,
    S8,
    C1,
    C2,
    C3,
    C4,
    C5,
    C6,
    C7,
    C8,
    C9,
    C10,
    C11,
    C12,
    C13,
    W1,
    W2,
    W3,
    W4,
    W5,
    W6,
    W7,
    W8,
    O1,
    O2,
    L8,
    L11,
    L13,
    L14,
}

impl Id {
    /// All ids, in order of declaration.
    pub(super) const ALL: [Id; 66] = [
        Id::Z1,
        Id::Z2,
        Id::Z3,
        Id::Z4,
        Id::Z5,
        Id::Z6,
        Id::Z7,
        Id::Z8,
        Id::Z9,
        Id::Z10,
        Id::Z11,
        Id::Z12,
        Id::Z13,
        Id::Z14,
        Id::Z15,
        Id::Z16,
        Id::Z17,
        Id::Z18,
        Id::Z19,
        Id::Z20,
        Id::Z23,
        Id::Z24,
        Id::Z25,
        Id::Z26,
        Id::Z27,
        Id::T1,
        Id::T2,
        Id::T6,
        Id::T7,
        Id::T8,
        Id::T10,
        Id::S1,
        Id::S2,
        Id::S3,
        Id::S4,
        Id::S5,
        Id::S6,
        Id::S7,
        Id::S8,
        Id::C1,
        Id::C2,
        Id::C3,
        Id::C4,
        Id::C5,
        Id::C6,
        Id::C7,
        Id::C8,
        Id::C9,
        Id::C10,
        Id::C11,
        Id::C12,
        Id::C13,
        Id::W1,
        Id::W2,
        Id::W3,
        Id::W4,
        Id::W5,
        Id::W6,
        Id::W7,
        Id::W8,
        Id::O1,
        Id::O2,
        Id::L8,
        Id::L11,
        Id::L13,
        Id::L14,
    ];

    /// The id as reports print it.
    pub(super) fn name(self) -> &'static str {
        self.row().0
    }

    /// The property, as docs/oracles.md states it.
    pub(super) fn sentence(self) -> &'static str {
        self.row().1
    }

    fn row(self) -> (&'static str, &'static str) {
        match self {
            Id::Z1 => (
                "Z1",
                "an epoch has one leader, promised it and followed into it by a quorum that keeps \
                 its voters",
            ),
            Id::Z2 => ("Z2", "what a server logs or applies was proposed, byte for byte"),
            Id::Z3 => ("Z3", "what servers take as committed is one history"),
            Id::Z4 => ("Z4", "a server applies in strictly rising zxid order"),
            Id::Z5 => ("Z5", "a server leaves out nothing, and the counter of an epoch has no gap"),
            Id::Z6 => ("Z6", "all that is committed of an epoch comes before all of a later one"),
            Id::Z7 => {
                ("Z7", "a leader that proposes holds all that is committed of earlier epochs")
            }
            Id::Z8 => ("Z8", "what an epoch began with is a prefix of what later ones began with"),
            Id::Z9 => ("Z9", "nothing of an epoch is applied before all that it began with"),
            Id::Z10 => ("Z10", "the logs of all that follow one leader differ only in length"),
            Id::Z11 => ("Z11", "an established leader holds all that was ever committed"),
            Id::Z12 => ("Z12", "what is committed is final: no other bytes, and no disk loses it"),
            Id::Z13 => (
                "Z13",
                "nothing is committed before a quorum holds it durably, on its leader's word",
            ),
            Id::Z14 => ("Z14", "epochs never go back, and a promise binds whoever has made it"),
            Id::Z15 => ("Z15", "a zxid is dealt once"),
            Id::Z16 => (
                "Z16",
                "a vote names what is durable, or better, and says the true history status of its \
                 sender",
            ),
            Id::Z17 => ("Z17", "what a server vouches for is durable when it says so"),
            Id::Z18 => ("Z18", "an epoch is stored behind the history that it began with"),
            Id::Z19 => ("Z19", "cutting off the end of a log takes nothing committed or applied"),
            Id::Z20 => ("Z20", "snapshot, applied, committed and logged come in this order"),
            Id::Z23 => (
                "Z23",
                "what comes from a leader of the past, or on a link that another has replaced, \
                 changes nothing",
            ),
            Id::Z24 => ("Z24", "a leader whom no majority follows any more steps down"),
            Id::Z25 => {
                ("Z25", "who serves has received messages of its majority, or of its leader")
            }
            Id::Z26 => (
                "Z26",
                "who hears that a quorum follows a leader joins it, and a leader gives way to a \
                 later promise",
            ),
            Id::Z27 => (
                "Z27",
                "a leader begins an epoch with the best history of all who have promised it",
            ),
            Id::T1 => ("T1", "at the same zxid every server holds what the model holds"),
            Id::T2 => ("T2", "recovery reaches exactly the state at its last durable zxid"),
            Id::T6 => ("T6", "a multi is done whole or not at all, in one place"),
            Id::T7 => ("T7", "access control lists are enforced, everywhere alike"),
            Id::T8 => ("T8", "quotas count what is there, and refuse what they must"),
            Id::T10 => ("T10", "what may go by itself goes in time"),
            Id::S1 => ("S1", "an ephemeral node lives exactly as long as its session"),
            Id::S2 => ("S2", "a session lives until a committed closeSession"),
            Id::S3 => (
                "S3",
                "no session expires within its timeout of its last message, or of a new leader",
            ),
            Id::S4 => ("S4", "session ids are unique, and passwords are checked"),
            Id::S5 => (
                "S5",
                "a connection whose session has moved on changes nothing, and shows nothing newer",
            ),
            Id::S6 => ("S6", "a client gets the session that it asked for, or is refused"),
            Id::S7 => ("S7", "a session that nobody holds ends"),
            Id::S8 => ("S8", "a local session owns nothing, and becomes everybody's in one step"),
            Id::C1 => ("C1", "a write that began after another was seen comes after it"),
            Id::C2 => ("C2", "the requests of a connection are done and answered in order"),
            Id::C3 => ("C3", "reads never go back, and show the state at the zxid they name"),
            Id::C4 => ("C4", "a session reads its own writes"),
            Id::C5 => ("C5", "after a sync, reads show all that was acknowledged before it"),
            Id::C6 => ("C6", "a server that is behind what a client has seen refuses it"),
            Id::C7 => ("C7", "an acknowledged write is committed, and never lost"),
            Id::C8 => ("C8", "no request is done twice, and none that failed is done"),
            Id::C9 => ("C9", "each request has exactly the result that the state demands"),
            Id::C10 => ("C10", "sequential names follow the parent's counter"),
            Id::C11 => ("C11", "every value was written by someone"),
            Id::C12 => ("C12", "nobody is served as by a read-only server who did not ask for it"),
            Id::C13 => ("C13", "who goes on with a session has first shown again who it is"),
            Id::W1 => ("W1", "a one-shot watch fires at most once"),
            Id::W2 => ("W2", "no watch is lost when its client reconnects"),
            Id::W3 => {
                ("W3", "events come in zxid order, each before any reply that shows its change")
            }
            Id::W4 => ("W4", "an event has the right type, path and zxid"),
            Id::W5 => ("W5", "a persistent watch tells of each change that it covers, once"),
            Id::W6 => ("W6", "a removed watch is silent"),
            Id::W7 => ("W7", "every event has its cause"),
            Id::W8 => ("W8", "a read that fails registers nothing"),
            Id::O1 => ("O1", "what operators are told is what there is"),
            Id::O2 => ("O2", "each answer to a four-letter command is true, line by line"),
            Id::L8 => (
                "L8",
                "a quorum that is well commits in time; who owes a word says it at once, who says \
                 none is given up, and \
                 who leads nobody gives up",
            ),
            Id::L11 => ("L11", "nobody is given up without cause, or before the time that it has"),
            Id::L13 => (
                "L13",
                "clients of a server that is well, in a quorum that is well, are read and answered \
                 in time; whoever came \
                 before service goes on when it begins",
            ),
            Id::L14 => {
                ("L14", "a server says little in one round of an election, whatever goes wrong")
            }
        }
    }
}

/// A violated property: the run has failed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Violation {
    /// Id of the oracle.
    pub id: &'static str,
    /// The property, as docs/oracles.md states it.
    pub sentence: &'static str,
    /// The observations that prove it: first what is wrong, then its context.
    pub evidence: Vec<String>,
    /// Virtual time of the observation that failed.
    pub at: Instant,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{} at {}: {}", self.id, self.at, self.sentence)?;
        for line in &self.evidence {
            writeln!(f, "  {line}")?;
        }
        Ok(())
    }
}

/// A violation before its time is known.
#[derive(Debug)]
pub(super) struct Broken {
    id: Id,
    evidence: Vec<String>,
}

/// The result of a check.
pub(super) type Verdict = Result<(), Broken>;

impl Broken {
    pub(super) fn new(id: Id, evidence: Vec<String>) -> Broken {
        Broken { id, evidence }
    }

    pub(super) fn at(self, at: Instant) -> Violation {
        let Broken { id, evidence } = self;
        Violation { id: id.name(), sentence: id.sentence(), evidence, at }
    }
}

/// How often each oracle was checked, and which ones are muted.
#[derive(Clone, Debug)]
pub(super) struct Checks {
    asked: [u64; Id::ALL.len()],
    muted: [bool; Id::ALL.len()],
}

impl Checks {
    pub(super) fn new() -> Checks {
        Checks { asked: [0; Id::ALL.len()], muted: [false; Id::ALL.len()] }
    }

    /// Violations of this oracle are ignored from now on.
    pub(super) fn mute(&mut self, name: &str) {
        for id in Id::ALL.into_iter().filter(|id| id.name() == name) {
            self.muted[id as usize] = true;
        }
    }

    /// Counts a check, and fails with the evidence if it does not hold.
    pub(super) fn check(
        &mut self,
        id: Id,
        holds: bool,
        evidence: impl FnOnce() -> Vec<String>,
    ) -> Verdict {
        self.asked[id as usize] += 1;
        if holds || self.muted[id as usize] { Ok(()) } else { Err(Broken::new(id, evidence())) }
    }

    /// The result of a check, with violations of muted oracles ignored.
    pub(super) fn unless_muted(&self, found: Verdict) -> Verdict {
        found.or_else(|broken| if self.muted[broken.id as usize] { Ok(()) } else { Err(broken) })
    }

    pub(super) fn counts(&self) -> Vec<(&'static str, u64)> {
        Id::ALL.into_iter().map(|id| (id.name(), self.asked[id as usize])).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use super::*;

    #[test]
    fn each_id_is_its_index_in_all() {
        for (index, id) in Id::ALL.into_iter().enumerate() {
            assert_eq!(id as usize, index, "{}", id.name());
        }
    }

    #[test]
    fn module_table_lists_the_oracles_that_each_file_checks() {
        let rows = include_str!("mod.rs").lines().filter_map(|line| line.strip_prefix("//! | `"));
        let mut rows: BTreeMap<&str, BTreeSet<&str>> = rows
            .filter_map(|row| {
                let (file, rest) = row.trim_end_matches(" |").split_once("` | ")?;
                Some((file, rest.rsplit_once(" | ")?.1.split(' ').collect()))
            })
            .collect();
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/src/check/oracle");
        for entry in std::fs::read_dir(folder).expect("our own folder") {
            let path = entry.expect("our own folder").path();
            let file = path.file_stem().and_then(|stem| stem.to_str()).expect("a plain name");
            if path.is_dir() || file == "catalog" {
                continue;
            }
            let text = std::fs::read_to_string(&path).expect("our own source");
            let word = |rest: &str| rest.split(|c: char| !c.is_alphanumeric()).next() == Some("");
            let names = Id::ALL.into_iter().map(Id::name);
            let asks = |name: &&str| text.split(&format!("Id::{name}")).skip(1).any(word);
            let asked: BTreeSet<&str> = names.filter(asks).collect();
            assert_eq!(rows.remove(file).unwrap_or_default(), asked, "{file}.rs");
        }
        assert!(rows.is_empty(), "no such files: {rows:?}");
    }

    fn text_of_folder(folder: &std::path::Path) -> String {
        let entries = std::fs::read_dir(folder).expect("our own folder");
        let paths = entries.map(|entry| entry.expect("our own file").path());
        let text = |path: std::path::PathBuf| match path.is_dir() {
            true => text_of_folder(&path),
            false => std::fs::read_to_string(path).expect("our own scenarios"),
        };
        paths.map(text).collect()
    }

    #[test]
    fn docs_list_each_oracle_with_its_sentence_and_tests() {
        let page = include_str!("../../../../docs/oracles.md");
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/src/check/oracle/tests");
        let scenarios = text_of_folder(folder.as_ref());
        for id in Id::ALL {
            let head = format!("| {} | {} |", id.name(), id.sentence());
            let row = page.lines().find(|line| line.starts_with(&head));
            let row = row.unwrap_or_else(|| panic!("docs/oracles.md lacks the row {head:?}"));
            let tests: Vec<&str> = row.split('`').skip(1).step_by(2).collect();
            assert!(!tests.is_empty(), "no test proves that {} fires", id.name());
            for test in tests {
                let body = scenarios.split(&format!("fn {test}() {{\n    ")).nth(1).unwrap_or("");
                let scenario = body.lines().next().unwrap_or("");
                let is_about = scenario.starts_with("check_pair")
                    && scenario.contains(&format!("\"{}\"", id.name()));
                assert!(is_about, "{test} is no scenario about {}: {scenario}", id.name());
            }
        }
    }
}
