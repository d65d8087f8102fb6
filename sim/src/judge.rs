//! What ends a run: a broken promise, a panic, a wait without end.
//!
//! Owns the first failure and passes observations to the oracles. Must not know how the world works.

use std::fmt;

use zabkeeper_core::{Instant, ServerId};

use crate::guard;
use crate::model::Rules;
use crate::observe::{Observation, Observed};
use crate::oracle::{Oracles, Violation};

/// Of which kind a failure is: decides the exit code.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Class {
    /// A promise to clients or between servers is broken.
    Safety,
    /// What should have happened by now has not.
    Liveness,
    /// Code under test has panicked.
    Panic,
    /// Two runs of one seed differ.
    Determinism,
    /// The simulator contradicts itself.
    Simulator,
}

/// Why a run has failed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Failure {
    /// Decides the exit code.
    pub class: Class,
    /// Of the promise.
    pub id: &'static str,
    /// The promise.
    pub sentence: &'static str,
    /// What was seen.
    pub evidence: Vec<String>,
    /// When.
    pub at: Instant,
    /// Number of the event.
    pub event: u64,
}

/// Watches a run.
#[derive(Debug)]
pub struct Judge {
    oracles: Oracles,
    failure: Option<Failure>,
    checks: Vec<(&'static str, u64)>,
    /// Promises whose breaking does not count.
    without: Vec<String>,
    /// An oracle has panicked behind a promise that does not count: it knows no more what is going on.
    blind: bool,
}

impl Judge {
    /// Watches an ensemble of these voters, which follow these rules.
    pub fn new(voters: &[ServerId], rules: Rules) -> Judge {
        let (checks, without) = (Vec::new(), Vec::new());
        Judge { oracles: Oracles::new(voters, rules), failure: None, checks, without, blind: false }
    }

    /// From now on sees nothing: for measuring what looking on costs.
    pub(crate) fn stop(&mut self) {
        self.blind = true;
    }

    /// The same, but it does not matter whether these promises are kept.
    pub fn without(mut self, names: &[String]) -> Judge {
        names.iter().for_each(|name| self.oracles.mute(name));
        self.without = names.to_vec();
        self
    }

    /// From now on only this promise counts, and those that no run goes on without.
    pub fn look_only_for(&mut self, id: &str) {
        for other in promises().into_iter().filter(|other| *other != id) {
            self.oracles.mute(other);
            self.without.push(other.to_owned());
        }
    }

    /// Can a run go on after this promise is broken, and be judged?
    pub fn may_go_without(name: &str) -> bool {
        promises().contains(&name)
    }

    /// Shows the oracles what has happened.
    pub fn observe(&mut self, at: Instant, event: u64, what: Observation<'_>) {
        if self.failure.is_some() || self.blind {
            return;
        }
        let oracles = &mut self.oracles;
        match guard::catch(|| oracles.observe(&Observed { at, what })) {
            Ok(Ok(())) => {}
            Ok(Err(violation)) => self.violated(at, event, violation),
            Err(_) if !self.without.is_empty() => self.blind = true,
            Err(panic) => self.hold(at, event, Check::SIMULATOR, Err(format!("oracle: {panic}"))),
        }
    }

    /// Counts a check of the world's own, and fails the run where it does not hold.
    pub fn hold(&mut self, at: Instant, event: u64, check: Check, found: Result<(), String>) {
        match self.checks.iter_mut().find(|(id, _)| *id == check.id) {
            Some((_, count)) => *count += 1,
            None => self.checks.push((check.id, 1)),
        }
        if let Err(evidence) = found {
            let Check { class, id, sentence } = check;
            self.fail(Failure { class, id, sentence, evidence: vec![evidence], at, event });
        }
    }

    /// Records a failure, unless there was one already: the first is the one to look at.
    pub fn fail(&mut self, failure: Failure) {
        if !self.without.iter().any(|name| name == failure.id) {
            self.failure.get_or_insert(failure);
        }
    }

    /// The run has come to its end: the checks that need all of it.
    pub fn finish(&mut self, at: Instant, event: u64) {
        if self.failure.is_none()
            && !self.blind
            && let Err(violation) = self.oracles.finish()
        {
            self.violated(at, event, violation);
        }
    }

    /// The failure, if there is one.
    pub fn failure(&self) -> Option<&Failure> {
        self.failure.as_ref()
    }

    /// How often each promise was checked.
    pub fn checks(&self) -> Vec<(&'static str, u64)> {
        let mut checks = self.oracles.checks();
        checks.extend_from_slice(&self.checks);
        checks
    }

    fn violated(&mut self, at: Instant, event: u64, violation: Violation) {
        let Violation { id, sentence, evidence, .. } = violation;
        // Promises go by families: all of liveness begin like that.
        let class = if id.starts_with('L') { Class::Liveness } else { Class::Safety };
        self.fail(Failure { class, id, sentence, evidence, at, event });
    }
}

/// The ids of all promises that a run can be judged without.
pub fn promises() -> Vec<&'static str> {
    let checks = [
        Check::RECOVERS,
        Check::REFUSES,
        Check::HALTS,
        Check::BOUNDED,
        Check::CLIENTS,
        Check::DRAINED,
        Check::HANDLES,
        Check::LEADER,
        Check::JOINS,
        Check::WELCOME,
        Check::ELECTIONS,
        Check::CONVERGES,
        Check::WRITES,
        Check::CALLS,
        Check::PROTOCOL,
        Check::PATIENCE,
        Check::MEMORY,
        Check::RATE,
    ];
    let mut ids: Vec<&'static str> = Oracles::ids().collect();
    // Some are checked by oracles and by the world.
    let own = checks.iter().map(|check| check.id).filter(|id| !Oracles::ids().any(|o| o == *id));
    ids.extend(own);
    ids
}

/// A check that the world makes itself.
#[derive(Clone, Copy, Debug)]
pub struct Check {
    /// What its failure means.
    pub class: Class,
    /// Stable id.
    pub id: &'static str,
    /// What is promised.
    pub sentence: &'static str,
}

impl Check {
    /// Ground truth opens.
    pub const RECOVERS: Check = Check {
        class: Class::Safety,
        id: "T2",
        sentence: "what any legal crash leaves can be recovered",
    };
    /// What can be recovered is.
    pub const REFUSES: Check = Check {
        class: Class::Safety,
        id: "T11",
        sentence: "a store is refused only where what it has acknowledged cannot be recovered",
    };
    /// Only who speaks in the place of a server may be refused.
    pub const WELCOME: Check = Check {
        class: Class::Liveness,
        id: "L12",
        sentence: "no server refuses what another one says",
    };
    /// An error of the disk stops the server.
    pub const HALTS: Check =
        Check { class: Class::Safety, id: "L9", sentence: "a server whose disk has failed stops" };
    /// Steps are bounded.
    pub const BOUNDED: Check = Check {
        class: Class::Safety,
        id: "E2",
        sentence: "the outputs of one step are bounded by what the server holds",
    };
    /// So is what clients take up.
    pub const CLIENTS: Check = Check {
        class: Class::Safety,
        id: "E6",
        sentence: "what others take up is bounded as the driver is told, and is counted right",
    };
    /// Nothing is left over.
    pub const DRAINED: Check = Check {
        class: Class::Safety,
        id: "E3",
        sentence: "queues are empty when nothing is going on",
    };
    /// Names are of those who bear them.
    pub const NAMES: Check = Check {
        class: Class::Safety,
        id: "E3",
        sentence: "each connection is known as that of its session, and no other one",
    };
    /// The end of the log is in memory, too.
    pub const TAIL: Check = Check {
        class: Class::Safety,
        id: "E3",
        sentence: "what is kept of the log in memory is its end, and its bytes are counted",
    };
    /// Servers compare their states by themselves.
    pub const ALIKE: Check = Check {
        class: Class::Safety,
        id: "T1",
        sentence: "no server finds that its state is another one than its leader's",
    };
    /// No handle is left over.
    pub const HANDLES: Check =
        Check { class: Class::Safety, id: "E4", sentence: "files and connections are given back" };
    /// Files come and go: snapshots are taken, and what they replace is removed.
    pub const FILES: Check = Check {
        class: Class::Safety,
        id: "E4",
        sentence: "disks do not fill with what nobody needs",
    };
    /// Somebody leads once nothing goes wrong any more.
    pub const LEADER: Check = Check {
        class: Class::Liveness,
        id: "L1",
        sentence: "somebody leads once nothing goes wrong any more",
    };
    /// Everybody gets to serve.
    pub const JOINS: Check = Check {
        class: Class::Liveness,
        id: "L5",
        sentence: "every server joins the leader and serves once nothing goes wrong any more",
    };
    /// Elections end.
    pub const ELECTIONS: Check = Check {
        class: Class::Liveness,
        id: "L6",
        sentence: "elections settle within few rounds and messages once nothing goes wrong any more",
    };
    /// All servers get to the same state.
    pub const CONVERGES: Check = Check {
        class: Class::Liveness,
        id: "L3",
        sentence: "all servers reach the same state once nobody writes any more",
    };
    /// Writes get through once nothing goes wrong any more.
    pub const WRITES: Check = Check {
        class: Class::Liveness,
        id: "L2",
        sentence: "fresh writes of old and new sessions succeed once nothing goes wrong any more",
    };
    /// No panic.
    pub const PANIC: Check =
        Check { class: Class::Panic, id: "E1", sentence: "nothing makes the code panic" };
    /// Each call of the client library ends once.
    pub const CALLS: Check = Check {
        class: Class::Safety,
        id: "CLIENT-12",
        sentence: "the client library ends each call once",
    };
    /// The client library finds no fault with the server.
    pub const PROTOCOL: Check = Check {
        class: Class::Safety,
        id: "CLIENT-13",
        sentence: "the client library finds answers in order, and frames well formed",
    };
    /// The client library keeps its session alive, and does not wait for a dead server.
    pub const PATIENCE: Check = Check {
        class: Class::Safety,
        id: "CLIENT-05",
        sentence: "the client library pings in time, and gives up a silent server in time",
    };
    /// The client library keeps what it has heard.
    pub const MEMORY: Check = Check {
        class: Class::Safety,
        id: "CLIENT-07",
        sentence: "the client library says how far it has seen, and passes every event on",
    };
    /// Clients are let in at the configured rate.
    pub const RATE: Check = Check {
        class: Class::Safety,
        id: "THR-05",
        sentence: "clients connect at the rate that is configured, no faster and no slower",
    };
    /// Wrong passwords are refused.
    pub const PASSWORD: Check = Check {
        class: Class::Safety,
        id: "S4",
        sentence: "session ids are unique, and passwords are checked",
    };
    /// A schedule says that a fault is a failure.
    pub const TRIP: Check =
        Check { class: Class::Safety, id: "TRIP", sentence: "this fault does not strike" };
    /// The simulator's own clients keep their rules.
    pub const SIMULATOR: Check =
        Check { class: Class::Simulator, id: "SIM", sentence: "the simulator keeps its own rules" };
}

impl Class {
    /// The exit code of the program.
    pub fn exit_code(self) -> u8 {
        match self {
            Class::Safety => 1,
            Class::Liveness => 3,
            Class::Panic => 4,
            Class::Determinism => 5,
            Class::Simulator => 6,
        }
    }

    /// As verdicts are counted.
    pub fn name(self) -> &'static str {
        match self {
            Class::Safety => "safety",
            Class::Liveness => "liveness",
            Class::Panic => "panic",
            Class::Determinism => "determinism",
            Class::Simulator => "simulator",
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{} {}: {}", self.class.name(), self.id, self.sentence)?;
        for line in &self.evidence {
            writeln!(f, "  {}", line.replace('\n', "\n  "))?;
        }
        write!(f, "at {} (event {})", self.at, self.event)
    }
}

#[cfg(test)]
mod tests {
    use zabkeeper_core::SessionOptions;

    use super::*;
    use crate::observe::Holder;

    const SERVER: ServerId = ServerId(1);

    #[test]
    fn the_first_failure_stays_and_checks_are_counted() {
        let mut judge = Judge::new(&[SERVER], Rules::default());
        judge.hold(Instant(1), 1, Check::HALTS, Ok(()));
        assert_eq!(judge.failure(), None);
        judge.hold(Instant(2), 2, Check::WRITES, Err("client 3 waits".into()));
        judge.hold(Instant(3), 3, Check::HALTS, Err("later".into()));
        let failure = judge.failure().expect("two of them");
        assert_eq!((failure.class.exit_code(), failure.id, failure.event), (3, "L2", 2));
        assert!(judge.checks().contains(&("L9", 2)));
        assert_eq!(
            failure.to_string(),
            "liveness L2: fresh writes of old and new sessions succeed once nothing goes wrong any \
             more\n  client 3 waits\nat 0.000000s (event 2)"
        );
    }

    #[test]
    fn what_does_not_count_does_not_hide_what_does() {
        let mut judge = Judge::new(&[SERVER], Rules::default()).without(&["L2".to_owned()]);
        judge.hold(Instant(1), 1, Check::WRITES, Err("client 3 waits".into()));
        assert_eq!(judge.failure(), None);
        judge.hold(Instant(2), 2, Check::JOINS, Err("server 2 does not serve".into()));
        assert_eq!(judge.failure().map(|failure| failure.id), Some("L5"));
        assert!(Judge::may_go_without("Z1") && Judge::may_go_without("L2"));
        assert!(!Judge::may_go_without("E1") && !Judge::may_go_without("z1"));
    }

    #[test]
    fn a_broken_promise_that_the_oracles_see_is_a_safety_failure() {
        let mut judge = Judge::new(&[SERVER], Rules::default());
        let zxid = zabkeeper_core::Zxid(0x1_0000_0001);
        // Applied, and never proposed by anybody.
        judge.observe(
            Instant(5),
            9,
            Observation::Started { server: SERVER, sessions: SessionOptions::default() },
        );
        let state = zabkeeper_core::store::DurableState::default();
        let last = zabkeeper_core::Zxid::ZERO;
        judge.observe(Instant(5), 9, Observation::Recovered { server: SERVER, state, last });
        judge.observe(
            Instant(6),
            10,
            Observation::Applied { server: SERVER, zxid, digest: None, holder: Holder(None) },
        );
        let failure = judge.failure().expect("Z2");
        assert_eq!((failure.class.exit_code(), failure.at, failure.event), (1, Instant(6), 10));
    }

    #[test]
    fn the_rules_that_servers_keep_among_themselves_name_promises() {
        let page = include_str!("../../docs/compatibility.md");
        let is_rule = |row: &&str| ["| FLE-", "| QV-", "| ZAB-"].iter().any(|f| row.starts_with(f));
        let rows = Vec::from_iter(page.lines().filter(is_rule));
        assert!(rows.len() > 20, "{rows:?}");
        for row in rows {
            let named = row.trim_end_matches(" |").rsplit_once(" | ").expect("four columns").1;
            let known = named.split(", ").all(|id| promises().contains(&id));
            assert!(known, "{row}");
        }
    }
}
