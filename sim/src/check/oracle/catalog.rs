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
    Z22,
    Z23,
    Z24,
    Z25,
    Z26,
    Z27,
    Z28,
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
    R1,
    R2,
    R3,
    R4,
    R5,
    R6,
    R7,
    R8,
    R9,
}

impl Id {
    /// All ids, in order of declaration.
    pub(super) const ALL: [Id; 77] = [
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
        Id::Z22,
        Id::Z23,
        Id::Z24,
        Id::Z25,
        Id::Z26,
        Id::Z27,
        Id::Z28,
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
        Id::R1,
        Id::R2,
        Id::R3,
        Id::R4,
        Id::R5,
        Id::R6,
        Id::R7,
        Id::R8,
        Id::R9,
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
                "each epoch has one leader, and a quorum has promised the epoch, holds its initial \
                 history and stores its voters",
            ),
            Id::Z2 => (
                "Z2",
                "servers log and apply only transactions that a leader has proposed, byte for byte",
            ),
            Id::Z3 => ("Z3", "the committed transactions of all servers form one history"),
            Id::Z4 => ("Z4", "each server applies transactions in strictly rising zxid order"),
            Id::Z5 => ("Z5", "servers propose, log and apply transactions without a gap"),
            Id::Z6 => (
                "Z6",
                "every committed transaction of an epoch precedes every committed transaction of a \
                 later epoch",
            ),
            Id::Z7 => {
                ("Z7", "a leader that proposes holds every committed transaction of earlier epochs")
            }
            Id::Z8 => (
                "Z8",
                "the initial history of an established epoch is a prefix of the later established \
                 ones",
            ),
            Id::Z9 => (
                "Z9",
                "a server applies the whole initial history of an epoch before the proposals of \
                 that epoch",
            ),
            Id::Z10 => ("Z10", "the logs of all followers of a leader differ only in length"),
            Id::Z11 => ("Z11", "an established leader holds every committed transaction"),
            Id::Z12 => (
                "Z12",
                "a committed transaction is final: logs keep its bytes, and disks keep the \
                 transaction",
            ),
            Id::Z13 => (
                "Z13",
                "a leader commits only what a quorum holds durably; other servers commit, and \
                 observers are sent, only what a leader has committed",
            ),
            Id::Z14 => (
                "Z14",
                "the epochs of a server never decrease, and each server keeps its promise of an \
                 epoch",
            ),
            Id::Z15 => ("Z15", "leaders propose each zxid at most once"),
            Id::Z16 => (
                "Z16",
                "a vote names the voter's durable history or a better one, and the voter's true \
                 history status",
            ),
            Id::Z17 => (
                "Z17",
                "a server acknowledges only durable epochs and transactions, and disks keep what \
                 they have confirmed",
            ),
            Id::Z18 => (
                "Z18",
                "a server stores an epoch as current only after the initial history of that epoch",
            ),
            Id::Z19 => ("Z19", "a truncation removes no committed or applied transaction"),
            Id::Z20 => (
                "Z20",
                "the snapshot, applied, committed and logged zxids of a server ascend in this \
                 order",
            ),
            Id::Z22 => (
                "Z22",
                "configurations come into force in the order of their versions, only committed \
                 ones do, and a quorum of the new voters follows the leader that proposes one",
            ),
            Id::Z23 => (
                "Z23",
                "messages of an earlier leader, or on a link that its peer has replaced, change \
                 nothing",
            ),
            Id::Z24 => ("Z24", "a leader without a majority of synced followers steps down"),
            Id::Z25 => (
                "Z25",
                "a serving leader receives messages of a majority, and a serving follower receives \
                 messages of its leader",
            ),
            Id::Z26 => (
                "Z26",
                "a looking server joins a leader that a quorum follows, and a leader steps down \
                 after a peer's later promise",
            ),
            Id::Z27 => (
                "Z27",
                "a leader begins an epoch with the best history of all servers that have promised \
                 the epoch",
            ),
            Id::Z28 => (
                "Z28",
                "a leader that is to stop proposes nothing more, and names another server; who is \
                 named has all that is committed, and the leader steps down",
            ),
            Id::T1 => {
                ("T1", "at the same zxid every server holds the state of the reference model")
            }
            Id::T2 => ("T2", "recovery restores exactly the state at the last durable zxid"),
            Id::T6 => ("T6", "a multi executes completely or not at all, at one zxid"),
            Id::T7 => (
                "T7",
                "every server enforces access control lists, for writes, reads and events alike",
            ),
            Id::T8 => (
                "T8",
                "quota usage matches the tree, and servers refuse writes beyond a hard limit",
            ),
            Id::T10 => {
                ("T10", "the leader deletes emptied containers and expired TTL nodes in time")
            }
            Id::S1 => ("S1", "an ephemeral node lives exactly as long as its session"),
            Id::S2 => ("S2", "a session lives until its closeSession is committed"),
            Id::S3 => (
                "S3",
                "a session expires only a full timeout after its last message and after its leader \
                 began to serve",
            ),
            Id::S4 => ("S4", "session ids and passwords are unique, and servers check passwords"),
            Id::S5 => (
                "S5",
                "the old connection of a moved session neither executes writes nor shows later \
                 states",
            ),
            Id::S6 => {
                ("S6", "a handshake yields the session that its client requested, or a refusal")
            }
            Id::S7 => ("S7", "a session without a client expires"),
            Id::S8 => (
                "S8",
                "a local session owns no ephemeral node, and an upgrade makes the session global \
                 in one step",
            ),
            Id::C1 => (
                "C1",
                "a write gets a later zxid than every state that clients had read when the write \
                 was sent",
            ),
            Id::C2 => ("C2", "a server executes and answers the requests of a connection in order"),
            Id::C3 => (
                "C3",
                "the states that a session reads never go back, and each reply shows the state at \
                 its zxid",
            ),
            Id::C4 => ("C4", "a session reads its own writes"),
            Id::C5 => {
                ("C5", "reads after a sync show every write that was acknowledged before the sync")
            }
            Id::C6 => (
                "C6",
                "a server refuses a client that has seen a later state than the server has applied",
            ),
            Id::C7 => ("C7", "an acknowledged write is committed and never lost"),
            Id::C8 => (
                "C8",
                "a request executes at most once, and a request with an error reply leaves no \
                 effect",
            ),
            Id::C9 => {
                ("C9", "each request gets exactly the result that the reference model computes")
            }
            Id::C10 => ("C10", "the names of sequential nodes follow the counter of the parent"),
            Id::C11 => (
                "C11",
                "every value comes from a client's write, and servers on their own only delete \
                 emptied containers and expired nodes",
            ),
            Id::C12 => (
                "C12",
                "read-only servers know no leader, serve only clients that accept them, show one \
                 state and refuse writes; connect responses tell who is read-only",
            ),
            Id::C13 => (
                "C13",
                "a client that resumes a session sends its credentials before other requests",
            ),
            Id::W1 => ("W1", "a one-shot watch fires at most once"),
            Id::W2 => ("W2", "a client keeps every watch when it reconnects"),
            Id::W3 => {
                ("W3", "events arrive in zxid order, each before any reply that shows its change")
            }
            Id::W4 => ("W4", "each event has the right type, path and zxid"),
            Id::W5 => ("W5", "a persistent watch reports each change that it covers exactly once"),
            Id::W6 => ("W6", "a removed watch never fires"),
            Id::W7 => ("W7", "each event belongs to a watch and to a committed change"),
            Id::W8 => ("W8", "a failed read sets no watch"),
            Id::O1 => ("O1", "the figures that a server reports to operators match its state"),
            Id::O2 => ("O2", "every line of an answer to a four-letter command is true"),
            Id::L8 => (
                "L8",
                "a healthy quorum commits in time; followers acknowledge and forward syncs at \
                 once; leaders drop learners that acknowledge late, and step down if they cannot \
                 serve or their own disk is that late",
            ),
            Id::L11 => (
                "L11",
                "a server closes a link for silence only after the time limit, and leaves its role \
                 only with cause",
            ),
            Id::L13 => (
                "L13",
                "a healthy server in a healthy quorum reads and answers its clients in time, and \
                 admits waiting clients when it begins to serve",
            ),
            Id::L14 => (
                "L14",
                "a server sends a bounded number of notifications in one round of an election",
            ),
            Id::R1 => (
                "R1",
                "while their sessions live, programs share a lock only as the recipe says, and \
                 fencing tokens rise from holder to holder",
            ),
            Id::R2 => ("R2", "an item that was put into a queue is taken once, and none is lost"),
            Id::R3 => ("R3", "a counter has the sum of the additions that were made"),
            Id::R4 => (
                "R4",
                "nobody enters a double barrier before enough have come, or has left it before \
                 all others have",
            ),
            Id::R6 => (
                "R6",
                "a complete copy of a subtree is what the subtree was at its zxid, and a cached \
                 value that of its version",
            ),
            Id::R7 => ("R7", "nobody passes a barrier before somebody has removed it"),
            Id::R8 => ("R8", "who is listed has joined, and a member finds itself in its list"),
            Id::R9 => ("R9", "a node that is kept has the data that its program has written last"),
            Id::R5 => (
                "R5",
                "all sites of a transaction learn the same decision, and commit only if all voted \
                 for it",
            ),
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
