//! The verdict of a run: the first violated promise, panic or missed deadline.
//!
//! Owns the first failure and passes observations to the oracles. Must not know how the world
//! works.

use std::fmt;

use zabkeeper_core::{Instant, ServerId};

use crate::check::guard;
use crate::check::judge::{Judging, Origin, Said, Truth};
use crate::check::model::Rules;
use crate::check::observe::{Observation, Observed};
use crate::check::oracle::{Oracles, Violation};
use crate::check::weights::Weights;

/// The kind of a failure; decides the exit code.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Class {
    /// A promise to clients or between servers is violated.
    Safety,
    /// An event that was due has not happened.
    Liveness,
    /// Code under test panicked.
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
    /// Id of the violated promise.
    pub id: &'static str,
    /// The promise in words.
    pub sentence: &'static str,
    /// The observations that contradict it.
    pub evidence: Vec<String>,
    /// Virtual time of the failure.
    pub at: Instant,
    /// Number of the trace event.
    pub event: u64,
}

/// Watches a run and keeps its first failure.
#[derive(Debug)]
pub struct Checker {
    oracles: Oracles,
    /// The judge of the user's workload.
    judging: Option<Judging>,
    failure: Option<Failure>,
    checks: Vec<(&'static str, u64)>,
    /// Index of the check that was made last: each turn of a server makes one several times.
    last: usize,
    /// Ids of promises whose violation does not fail the run.
    without: Vec<String>,
    /// An oracle panicked after a muted violation: its state is invalid, so nothing is checked any
    /// more.
    blind: bool,
}

impl Checker {
    /// A checker for an ensemble of these voters with these rules.
    pub fn new(voters: &[ServerId], rules: Rules) -> Checker {
        let (checks, without) = (Vec::new(), Vec::new());
        Checker {
            oracles: Oracles::new(voters, rules),
            judging: None,
            failure: None,
            checks,
            last: 0,
            without,
            blind: false,
        }
    }

    /// The voters have these groups and weights.
    pub fn with_weights(mut self, weights: Option<Weights>) -> Checker {
        self.oracles = self.oracles.with_weights(weights);
        self
    }

    /// The user's workload has this judge.
    pub(crate) fn judged_by(mut self, judging: Option<Judging>) -> Checker {
        self.judging = judging;
        self
    }

    /// Disables all checks, to measure their cost.
    pub(crate) fn stop(&mut self) {
        self.blind = true;
    }

    /// Ignores violations of these promises.
    pub fn without(mut self, names: &[String]) -> Checker {
        names.iter().for_each(|name| self.oracles.mute(name));
        self.without = names.to_vec();
        self
    }

    /// Ignores violations of every promise but `id`; checks that cannot be muted still count.
    pub fn look_only_for(&mut self, id: &str) {
        for other in promises().into_iter().filter(|other| *other != id) {
            self.oracles.mute(other);
            self.without.push(other.to_owned());
        }
    }

    /// Whether the promise can be muted.
    pub fn may_go_without(name: &str) -> bool {
        promises().contains(&name)
    }

    /// Passes an observation to the oracles.
    pub fn observe(&mut self, at: Instant, event: u64, what: Observation<'_>) {
        if self.failure.is_some() || self.blind {
            return;
        }
        let oracles = &mut self.oracles;
        match guard::catch(|| oracles.observe(&Observed { at, what })) {
            Ok(Ok(())) => {}
            Ok(Err(violation)) => self.violated(at, event, violation),
            Err(_) if !self.without.is_empty() => self.blind = true,
            Err(panic) => self.check(at, event, Check::SIMULATOR, Err(format!("oracle: {panic}"))),
        }
    }

    /// Passes what a program of the user's workload says to its judge.
    pub(crate) fn hear(&mut self, event: u64, origin: Origin, said: &Said) {
        let Some(judging) = self.judging.as_mut().filter(|_| self.failure.is_none() && !self.blind)
        else {
            return;
        };
        let truth = Truth::of(self.oracles.model());
        let found = match said {
            Said::Report(report) => judged(|| judging.judge.hear(origin, &**report, &truth)),
            Said::Panic(message) => {
                Err(format!("the program of client {} panics: {message}", origin.client.0))
            }
        };
        let check = Check { sentence: judging.promise, ..Check::WORKLOAD };
        self.check(origin.at, event, check, found);
    }

    /// Counts a check that the world makes, and fails the run if it does not hold.
    pub fn check(&mut self, at: Instant, event: u64, check: Check, found: Result<(), String>) {
        let is_it = |(id, _): &(&str, u64)| *id == check.id;
        if !self.checks.get(self.last).is_some_and(is_it) {
            self.last = self.checks.iter().position(is_it).unwrap_or(self.checks.len());
        }
        match self.checks.get_mut(self.last) {
            Some((_, count)) => *count += 1,
            None => self.checks.push((check.id, 1)),
        }
        if let Err(evidence) = found {
            let Check { class, id, sentence } = check;
            self.fail(Failure { class, id, sentence, evidence: vec![evidence], at, event });
        }
    }

    /// Records a failure unless it is muted; only the first failure is kept.
    pub fn fail(&mut self, failure: Failure) {
        if !self.without.iter().any(|name| name == failure.id) {
            self.failure.get_or_insert(failure);
        }
    }

    /// Runs the checks that need the complete run.
    pub fn finish(&mut self, at: Instant, event: u64) {
        if self.failure.is_none()
            && !self.blind
            && let Err(violation) = self.oracles.finish()
        {
            self.violated(at, event, violation);
        }
        if let Some(judging) =
            self.judging.as_mut().filter(|_| self.failure.is_none() && !self.blind)
        {
            let truth = Truth::of(self.oracles.model());
            let found = judged(|| judging.judge.finish(&truth));
            let check = Check { sentence: judging.promise, ..Check::WORKLOAD };
            self.check(at, event, check, found);
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
        // Ids of liveness promises begin with `L`.
        let class = if id.starts_with('L') { Class::Liveness } else { Class::Safety };
        self.fail(Failure { class, id, sentence, evidence, at, event });
    }
}

/// The verdict of a user's judge; a panic is one, too.
fn judged(judge: impl FnOnce() -> Result<(), String>) -> Result<(), String> {
    guard::catch(judge).unwrap_or_else(|panic| Err(format!("the judge panics: {panic}")))
}

/// The ids of all promises that can be muted.
pub fn promises() -> Vec<&'static str> {
    let checks = [
        Check::RECOVERS,
        Check::REFUSES,
        Check::HALTS,
        Check::EXITS,
        Check::BOUNDED,
        Check::CLIENTS,
        Check::REPORTS,
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
        Check::CLIENT_DEADLINES,
        Check::MEMORY,
        Check::RATE,
        Check::WORKLOAD,
    ];
    let mut ids: Vec<&'static str> = Oracles::ids().collect();
    // Some promises are checked both by an oracle and by the world.
    let own = checks.iter().map(|check| check.id).filter(|id| !Oracles::ids().any(|o| o == *id));
    ids.extend(own);
    ids
}

/// A check that the world itself makes.
#[derive(Clone, Copy, Debug)]
pub struct Check {
    /// The class of its failure.
    pub class: Class,
    /// Stable id.
    pub id: &'static str,
    /// The promise in words.
    pub sentence: &'static str,
}

impl Check {
    /// A store recovers from any legal crash.
    pub const RECOVERS: Check =
        Check { class: Class::Safety, id: "T2", sentence: "a store recovers from any legal crash" };
    /// A store is refused only if data that it acknowledged cannot be recovered.
    pub const REFUSES: Check = Check {
        class: Class::Safety,
        id: "T11",
        sentence: "a store refuses to open only if acknowledged data cannot be recovered",
    };
    /// Servers never refuse messages of real servers.
    pub const WELCOME: Check = Check {
        class: Class::Liveness,
        id: "L12",
        sentence: "servers accept every message that a real server sends",
    };
    /// A server stops after a disk error.
    pub const HALTS: Check =
        Check { class: Class::Safety, id: "L9", sentence: "a server stops after a disk error" };
    /// A leader that is to stop hands over in time.
    pub const EXITS: Check = Check {
        class: Class::Liveness,
        id: "L15",
        sentence: "a tick after a server is told to stop, the ensemble needs it no longer",
    };
    /// The outputs of one step are bounded.
    pub const BOUNDED: Check = Check {
        class: Class::Safety,
        id: "E2",
        sentence: "the state of a server bounds the outputs of one step",
    };
    /// The memory that clients take up is bounded and counted.
    pub const CLIENTS: Check = Check {
        class: Class::Safety,
        id: "E6",
        sentence: "clients and peers stay within the limits, and the driver counts them correctly",
    };
    /// All queues are empty when the ensemble is idle.
    pub const DRAINED: Check =
        Check { class: Class::Safety, id: "E3", sentence: "an idle ensemble has empty queues" };
    /// The operator's log says what a server does.
    pub const REPORTS: Check = Check {
        class: Class::Safety,
        id: "O3",
        sentence: "servers report each change of role once, and waits for other servers in time",
    };
    /// Each connection is associated with exactly its session.
    pub const NAMES: Check = Check {
        class: Class::Safety,
        id: "E3",
        sentence: "each session and its connection refer to each other",
    };
    /// The in-memory tail of the log matches the end of the log.
    pub const TAIL: Check = Check {
        class: Class::Safety,
        id: "E3",
        sentence: "the in-memory tail of the log is the end of the log, with the right byte count",
    };
    /// The servers' own digest comparison finds no divergence.
    pub const ALIKE: Check = Check {
        class: Class::Safety,
        id: "T1",
        sentence: "digest comparisons between servers find no divergence",
    };
    /// File and connection handles are released.
    pub const HANDLES: Check =
        Check { class: Class::Safety, id: "E4", sentence: "servers release files and connections" };
    /// Snapshots are taken, and files that they replace are removed.
    pub const FILES: Check = Check {
        class: Class::Safety,
        id: "E4",
        sentence: "servers take snapshots and remove files that no server needs",
    };
    /// A leader exists after the heal.
    pub const LEADER: Check =
        Check { class: Class::Liveness, id: "L1", sentence: "after the heal a server leads" };
    /// Every server serves after the heal.
    pub const JOINS: Check = Check {
        class: Class::Liveness,
        id: "L5",
        sentence: "after the heal every server joins the leader and serves",
    };
    /// Elections after the heal settle within bounds.
    pub const ELECTIONS: Check = Check {
        class: Class::Liveness,
        id: "L6",
        sentence: "after the heal elections settle within few rounds and messages",
    };
    /// All servers reach the same state once writes have ended.
    pub const CONVERGES: Check = Check {
        class: Class::Liveness,
        id: "L3",
        sentence: "all servers reach the same state after the last write",
    };
    /// Writes succeed after the heal.
    pub const WRITES: Check = Check {
        class: Class::Liveness,
        id: "L2",
        sentence: "after the heal new writes of old and new sessions succeed",
    };
    /// Code under test does not panic.
    pub const PANIC: Check =
        Check { class: Class::Panic, id: "E1", sentence: "the code under test never panics" };
    /// Each call of the client library completes exactly once.
    pub const CALLS: Check = Check {
        class: Class::Safety,
        id: "CLIENT-12",
        sentence: "the client library completes each call exactly once",
    };
    /// The client library sees no protocol violation by the server.
    pub const PROTOCOL: Check = Check {
        class: Class::Safety,
        id: "CLIENT-13",
        sentence: "the client library receives well-formed frames, and replies in order",
    };
    /// The client library pings in time, and disconnects from a silent server in time.
    pub const CLIENT_DEADLINES: Check = Check {
        class: Class::Safety,
        id: "CLIENT-05",
        sentence: "the client library pings in time, and disconnects from a silent server in time",
    };
    /// The client library reports its last zxid and delivers every event.
    pub const MEMORY: Check = Check {
        class: Class::Safety,
        id: "CLIENT-07",
        sentence: "the client library reports its last zxid, and delivers every event",
    };
    /// Clients are admitted at the configured rate.
    pub const RATE: Check = Check {
        class: Class::Safety,
        id: "THR-05",
        sentence: "servers admit clients at exactly the configured rate",
    };
    /// The judge of the user's workload finds no fault. The workload states the promise.
    pub const WORKLOAD: Check = Check {
        class: Class::Safety,
        id: "WORKLOAD",
        sentence: "the programs of the user's workload keep its promise",
    };
    /// Wrong session passwords are refused.
    pub const PASSWORD: Check = Check {
        class: Class::Safety,
        id: "S4",
        sentence: "session ids and passwords are unique, and servers check passwords",
    };
    /// A schedule may declare a fault to be a failure.
    pub const TRIP: Check = Check {
        class: Class::Safety,
        id: "TRIP",
        sentence: "the run injects no fault that its schedule forbids",
    };
    /// The simulated clients keep their own rules.
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

    /// The name that reports and counters use.
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
    use crate::check::observe::Holder;

    const SERVER: ServerId = ServerId(1);

    #[test]
    fn checker_keeps_first_failure_and_counts_checks() {
        let mut checker = Checker::new(&[SERVER], Rules::default());
        checker.check(Instant(1), 1, Check::HALTS, Ok(()));
        assert_eq!(checker.failure(), None);
        checker.check(Instant(2), 2, Check::WRITES, Err("client 3 waits".into()));
        checker.check(Instant(3), 3, Check::HALTS, Err("later".into()));
        let failure = checker.failure().expect("two of them");
        assert_eq!((failure.class.exit_code(), failure.id, failure.event), (3, "L2", 2));
        assert!(checker.checks().contains(&("L9", 2)));
        assert_eq!(
            failure.to_string(),
            "liveness L2: after the heal new writes of old and new sessions succeed\n  \
             client 3 waits\nat 0.000000s (event 2)"
        );
    }

    #[test]
    fn muted_promise_does_not_hide_later_failure() {
        let mut checker = Checker::new(&[SERVER], Rules::default()).without(&["L2".to_owned()]);
        checker.check(Instant(1), 1, Check::WRITES, Err("client 3 waits".into()));
        assert_eq!(checker.failure(), None);
        checker.check(Instant(2), 2, Check::JOINS, Err("server 2 does not serve".into()));
        assert_eq!(checker.failure().map(|failure| failure.id), Some("L5"));
        assert!(Checker::may_go_without("Z1") && Checker::may_go_without("L2"));
        assert!(!Checker::may_go_without("E1") && !Checker::may_go_without("z1"));
    }

    #[test]
    fn oracle_violation_is_a_safety_failure() {
        let mut checker = Checker::new(&[SERVER], Rules::default());
        let zxid = zabkeeper_core::Zxid(0x1_0000_0001);
        // Server 1 applies a transaction that no leader proposed.
        checker.observe(
            Instant(5),
            9,
            Observation::Started { server: SERVER, sessions: SessionOptions::default() },
        );
        let state = zabkeeper_core::store::DurableState::default();
        let last = zabkeeper_core::Zxid::ZERO;
        checker.observe(Instant(5), 9, Observation::Recovered { server: SERVER, state, last });
        checker.observe(
            Instant(6),
            10,
            Observation::Applied { server: SERVER, zxid, digest: None, holder: Holder(None) },
        );
        let failure = checker.failure().expect("Z2");
        assert_eq!((failure.class.exit_code(), failure.at, failure.event), (1, Instant(6), 10));
    }

    #[test]
    fn compatibility_rows_of_peer_rules_name_known_promises() {
        let page = include_str!("../../../docs/compatibility.md");
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
