//! Faults that are injected at coverage marks instead of at times: "at the n-th hit of this mark,
//! inject this fault into the server that hit it".
//!
//! Owns rules, their drawing and syntax, and the hit counts. Must not carry out a fault: the
//! process itself crashes between the outputs of a step, and the world does everything else.

use std::fmt;
use std::str::FromStr;

use zabkeeper_core::ServerId;
use zabkeeper_core::io::{Mark, Marks};

use crate::engine::seed::{Rng, Seeds};
use crate::faults::catalog::{Fault, FaultPlan};
use crate::record::role::Role;

/// A fault that is injected when a mark is hit.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Rule {
    /// The mark.
    pub mark: Mark,
    /// The number of the hit, from one on. Hits of all servers in the role count.
    pub nth: u32,
    /// The role that the server must have before or after the step; `None`: any.
    pub side: Option<RuleRole>,
    /// The fault.
    pub fault: Fault,
    /// The choices of the fault; `None`: drawn from the seed.
    pub choices: Option<Vec<u64>>,
    /// What the fault did, in words.
    pub effect: String,
}

/// The role of a server whose hits count.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[expect(missing_docs, reason = "the names are the documentation")]
pub enum RuleRole {
    Looking,
    Leading,
    Following,
}

/// The rules in force, and the hit counts.
#[derive(Debug)]
pub struct Targets {
    /// Steps that hit each mark: of all servers, and of servers in each role.
    hits: [[u32; Mark::ALL.len()]; 1 + RuleRole::ALL.len()],
    rules: Vec<Armed>,
    /// Rules that are due and were not executed by the process; the world takes them.
    pub met: Vec<Met>,
    /// The mark and the total hit count at which the run forks.
    fork: Option<(Mark, u32)>,
    off: bool,
}

/// A rule that is due.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Met {
    /// Index of the rule.
    pub rule: usize,
    /// The server that hit the mark.
    pub server: ServerId,
    /// The fault that is injected.
    pub fault: Fault,
}

#[derive(Debug)]
struct Armed {
    /// Its `nth` counts from the beginning of the run.
    rule: Rule,
    rng: Rng,
    injected: bool,
}

/// Faults that may be injected at a mark, with their weights. Crashes of the server itself are the
/// most frequent.
const AT_MARKS: [(Fault, u64); 20] = [
    (Fault::NodeKill, 12),
    (Fault::NodePower, 24),
    (Fault::NodeKillLeader, 6),
    (Fault::NodeBlackout, 6),
    (Fault::NodePause, 8),
    (Fault::NodeSlow, 2),
    (Fault::DiskSlow, 3),
    (Fault::DiskStall, 8),
    (Fault::DiskWriteError, 4),
    (Fault::DiskFull, 2),
    (Fault::DiskFsyncError, 4),
    (Fault::NetReset, 6),
    (Fault::NetHalfOpen, 3),
    (Fault::NetStall, 6),
    (Fault::NetSplit, 10),
    (Fault::NetOneWay, 6),
    (Fault::NetIsolateLeader, 8),
    (Fault::NetStragglers, 8),
    (Fault::NodeStop, 6),
    (Fault::DiskSnapshotsFull, 4),
];

/// Maximum number of drawn rules per run.
const RULES_MAX: u64 = 4;

impl RuleRole {
    const ALL: [RuleRole; 3] = [RuleRole::Looking, RuleRole::Leading, RuleRole::Following];

    fn name(self) -> &'static str {
        match self {
            RuleRole::Looking => "looking",
            RuleRole::Leading => "leading",
            RuleRole::Following => "following",
        }
    }

    fn is(self, role: Role) -> bool {
        match self {
            RuleRole::Looking => matches!(role, Role::Looking | Role::ReadOnly),
            RuleRole::Leading => matches!(role, Role::Begins | Role::Leads),
            RuleRole::Following => matches!(role, Role::Joins | Role::Follows),
        }
    }
}

impl Rule {
    /// Parses `MARK[#n][@role]=FAULT`.
    ///
    /// # Errors
    /// Says which part is invalid.
    pub fn parse(text: &str) -> Result<Rule, String> {
        let (place, fault) =
            text.split_once('=').ok_or("a rule is written MARK[#n][@role]=FAULT")?;
        Rule::of(place, fault)
    }

    /// Parses `MARK[#n][@role]` for a power failure between the outputs of that step.
    ///
    /// # Errors
    /// Says which part is invalid.
    pub fn parse_crash(place: &str) -> Result<Rule, String> {
        Rule::of(place, Fault::NodePower.name())
    }

    fn of(place: &str, fault: &str) -> Result<Rule, String> {
        let (place, side) = match place.split_once('@') {
            Some((place, side)) => (place, Some(side.parse()?)),
            None => (place, None),
        };
        let (mark, nth) = parse_place(place)?;
        let fault = Rule::faults().into_iter().find(|f| f.name() == fault);
        let fault = fault.ok_or_else(|| {
            let names = Rule::faults().map(Fault::name).join(" ");
            format!("no such fault can be injected at a mark; these can: {names}")
        })?;
        Ok(Rule { mark, nth, side, fault, choices: None, effect: String::new() })
    }

    /// The faults that may be injected at a mark.
    pub fn faults() -> [Fault; AT_MARKS.len()] {
        AT_MARKS.map(|(fault, _)| fault)
    }

    /// The mark, hit and role, as [`Rule::parse`] reads them.
    pub fn place(&self) -> String {
        let side = self.side.map_or(String::new(), |side| format!("@{}", side.name()));
        format!("{:?}#{}{side}", self.mark, self.nth)
    }

    /// Draws a rule with one of these weighted faults.
    fn draw(faults: &[(Fault, u64)], rng: &mut Rng) -> Rule {
        let mark = *weighted(&Mark::ALL.map(|mark| (mark, weight(mark))), rng);
        let nth = match weight(mark) {
            RARE => *rng.pick(&[1, 1, 1, 2, 2, 3, 5]),
            USUAL => rng.magnitude(1, 40),
            _ => rng.magnitude(1, 2_000),
        };
        let nth = u32::try_from(nth).expect("small");
        let side = rng.chance(1, 4).then(|| *rng.pick(&RuleRole::ALL));
        let fault = *weighted(faults, rng);
        Rule { mark, nth, side, fault, choices: None, effect: String::new() }
    }
}

/// The mark of this name.
pub fn mark_called(name: &str) -> Option<Mark> {
    Mark::ALL.into_iter().find(|mark| format!("{mark:?}") == name)
}

/// Parses `MARK[#n]`.
///
/// # Errors
/// Says which part is invalid.
pub fn parse_place(place: &str) -> Result<(Mark, u32), String> {
    let (name, nth) = place.split_once('#').unwrap_or((place, "1"));
    let mark = mark_called(name);
    let mark =
        mark.ok_or_else(|| format!("no mark is called {name:?}; `--at-mark list` shows all"))?;
    let nth = nth.parse().ok().filter(|nth| *nth > 0);
    Ok((mark, nth.ok_or("hits of a mark are counted from #1 on")?))
}

/// A random element, by weight.
fn weighted<'a, T>(things: &'a [(T, u64)], rng: &mut Rng) -> &'a T {
    let total = things.iter().map(|(_, weight)| weight).sum();
    let mut left = rng.below(total);
    for (thing, weight) in things {
        if left < *weight {
            return thing;
        }
        left -= weight;
    }
    unreachable!("the weights sum up to what was drawn from")
}

/// Draws rules for one run in `one_in`, with faults of `allowed` only.
pub fn draw(one_in: u64, allowed: &FaultPlan, rng: &mut Rng) -> Vec<Rule> {
    let rules = if rng.chance(1, one_in) { rng.range(1, RULES_MAX) } else { 0 };
    let faults: Vec<(Fault, u64)> =
        AT_MARKS.into_iter().filter(|(fault, _)| allowed.has(*fault)).collect();
    if faults.is_empty() {
        return Vec::new();
    }
    (0..rules).map(|_| Rule::draw(&faults, rng)).collect()
}

const RARE: u64 = 12;
const USUAL: u64 = 4;
const OFTEN: u64 = 1;

/// Weight of a mark in draws: the higher, the fewer hits it has in most runs.
pub fn weight(mark: Mark) -> u64 {
    match mark {
        Mark::BroadcastBegun
        | Mark::ConfigAdopted
        | Mark::Inapplicable
        | Mark::ConnHeldTooLong
        | Mark::SessionTakenOver
        | Mark::ClientAhead
        | Mark::EpochUsedUp
        | Mark::ElectionWon
        | Mark::ElectionJoined
        | Mark::LinkEarly
        | Mark::LeaderOutrun
        | Mark::LeaderBehind
        | Mark::LeaderNotEstablished
        | Mark::LeaderSilent
        | Mark::LeaderRefused
        | Mark::LeaderUnreachable
        | Mark::LearnerSilent
        | Mark::LearnerRefused
        | Mark::LearnerJoined
        | Mark::FollowingBegun
        | Mark::QuorumLost
        | Mark::PromiseOld
        | Mark::PromiseRefused
        | Mark::FoundEmpty
        | Mark::Refilled
        | Mark::DiscoveryPromised
        | Mark::SyncDiff
        | Mark::SyncFromDisk
        | Mark::SyncTrunc
        | Mark::SyncSnap
        | Mark::SyncMeanwhile
        | Mark::Truncated
        | Mark::SnapshotInstalled
        | Mark::SnapshotSetAside
        | Mark::WriteFound
        | Mark::WriteLost
        | Mark::WriteOfMovedSession
        | Mark::SessionUpgraded
        | Mark::UpgradeLost
        | Mark::ElectionLateVote
        | Mark::ElectionEstablished
        | Mark::ElectionNotCredible
        | Mark::ElectionOvertaken
        | Mark::ElectionByLinks
        | Mark::ElectionVoteHeld
        | Mark::ElectionDamaged
        | Mark::EpochOfLearner
        | Mark::PromiseRepeated
        | Mark::DiscoveryMinimal
        | Mark::DiscoveryTimedOut
        | Mark::SyncTimedOut
        | Mark::LearnerReplaced
        | Mark::SyncTruncOnly
        | Mark::SyncTruncDiff
        | Mark::SyncTruncAgain
        | Mark::SyncSnapDiff
        | Mark::SyncProposalLive
        | Mark::SyncInterrupted
        | Mark::SyncLeaderLost
        | Mark::SyncQuorumLost
        | Mark::SnapshotReplaced
        | Mark::SnapshotAbandoned
        | Mark::SnapshotFailed
        | Mark::SnapshotRefused
        | Mark::EnsembleDiffers
        | Mark::HistoryDiffers
        | Mark::SetsAside
        | Mark::SyncAwaitsSnapshot
        | Mark::VotersRenewed
        | Mark::StateDiffers
        | Mark::LoadSliced
        | Mark::ApplySliced
        | Mark::ReadsSliced
        | Mark::LeaderLeftUncommitted
        | Mark::LinkUnwanted
        | Mark::PurgeHeld
        | Mark::SyncSnapPreferred
        | Mark::SyncSnapSmaller
        | Mark::LogReadFailed
        | Mark::SessionsSpared
        | Mark::SessionsStalled
        | Mark::SessionMoveDead
        | Mark::SessionMoveClosing
        | Mark::ReadOnlyBegun
        | Mark::ReadOnlyEnded
        | Mark::ReadOnlyRefused
        | Mark::ReadOnlyNoSession
        | Mark::ReadOnlyServed
        | Mark::ReadOnlyRequestRefused
        | Mark::HandOverBegun
        | Mark::HandOverHeld
        | Mark::HandOverNamed
        | Mark::HandOverLate
        | Mark::HandOverToNobody
        | Mark::TakeOverReceived
        | Mark::ElectionNamed
        | Mark::ConfigSeen
        | Mark::LeaderServesNobody
        | Mark::ObserverHeld
        | Mark::ObserverVotes
        | Mark::ObserverAdopted
        | Mark::ObserverAhead
        | Mark::ObserverAttached
        | Mark::ObserverMoved
        | Mark::ObserverTriesNext
        | Mark::HandOverSlowDisk
        | Mark::ElectionByOracle
        | Mark::ElectionOracleRefuses
        | Mark::OracleAlone
        | Mark::OracleTakenBack => RARE,
        Mark::ElectionAlone
        | Mark::HistoryReplayed
        | Mark::ConnHeld
        | Mark::SessionNew
        | Mark::SessionReattached
        | Mark::SessionRefused
        | Mark::SessionExpired
        | Mark::SessionClosed
        | Mark::SetWatchesFired
        | Mark::SnapshotBegun
        | Mark::SnapshotDone
        | Mark::SnapshotPurged
        | Mark::RequestOnClosingSession
        | Mark::PressurePaused
        | Mark::DiskFailed
        | Mark::ElectionResent
        | Mark::SyncDiffEmpty
        | Mark::SessionMoved
        | Mark::SyncShared
        | Mark::SyncByWrite
        | Mark::NodeExpired
        | Mark::QuotaSoft
        | Mark::SessionLocal
        | Mark::ElectionRoundRaised
        | Mark::ElectionRoundOld
        | Mark::ElectionByEpoch
        | Mark::ElectionByZxid
        | Mark::ElectionById
        | Mark::ElectionComplete
        | Mark::ElectionWaited
        | Mark::ElectionHearsay
        | Mark::ElectionRepeatCapped
        | Mark::EpochOwn
        | Mark::SyncFromMemory
        | Mark::FollowerLeftUncommitted
        | Mark::LinkDead
        | Mark::StateDoneStale
        | Mark::SetWatchesDeleted
        | Mark::SetWatchesCreated
        | Mark::SetWatchesData
        | Mark::SetWatchesChildren
        | Mark::WatchRemoved
        | Mark::WatchMissing
        | Mark::InformedEarly
        | Mark::ObserverRelayed => USUAL,
        Mark::ReadBehindWrite
        | Mark::WriteRefused
        | Mark::CommitBatch
        | Mark::WatchFired
        | Mark::RequestUndecodable
        | Mark::RequestUnknown
        | Mark::WriteForwarded
        | Mark::AuthAccepted
        | Mark::AuthRefused
        | Mark::WatchFiltered
        | Mark::RecordTooLarge
        | Mark::CommitExact
        | Mark::CommitLeaderLast
        | Mark::CommitAckLate
        | Mark::SetWatchesKept
        | Mark::WatchShared
        | Mark::Informed => OFTEN,
    }
}

impl Targets {
    /// These rules, counted from the beginning of the run.
    pub fn new(rules: &[Rule], seeds: Seeds) -> Targets {
        let hits = [[0; Mark::ALL.len()]; 1 + RuleRole::ALL.len()];
        let mut targets =
            Targets { hits, rules: Vec::new(), met: Vec::new(), fork: None, off: false };
        targets.replace(rules, seeds);
        targets
    }

    /// Replaces the rules; hits count from now on. Rules whose faults were injected are kept for
    /// the record.
    pub fn replace(&mut self, rules: &[Rule], seeds: Seeds) {
        self.rules.retain(|armed| armed.injected);
        for (index, rule) in (0..).zip(rules) {
            let rng = match &rule.choices {
                Some(choices) => Rng::scripted(choices.clone()),
                None => seeds.stream("faults/marks", index),
            };
            let nth = self.count(rule.mark, rule.side).saturating_add(rule.nth);
            let rule = Rule { nth, ..rule.clone() };
            self.rules.push(Armed { rule, rng, injected: false });
        }
    }

    fn count(&self, mark: Mark, side: Option<RuleRole>) -> u32 {
        self.hits[side.map_or(0, |side| 1 + side as usize)][mark as usize]
    }

    /// No rule injects its fault any more.
    pub fn disarm(&mut self) {
        self.off = true;
        self.met.clear();
    }

    /// The run forks at this hit of a mark, counted from now on.
    pub fn await_fork(&mut self, mark: Mark, nth: u32) {
        self.fork = Some((mark, self.count(mark, None).saturating_add(nth)));
    }

    /// Whether the awaited hit has happened.
    pub fn is_at_fork(&self) -> bool {
        self.fork.is_some_and(|(mark, nth)| self.count(mark, None) >= nth)
    }

    /// Steps of all servers that hit each mark before the heal.
    pub fn hits(&self) -> &[u32; Mark::ALL.len()] {
        &self.hits[0]
    }

    /// Counts the marks that a step of `server` hit; `roles` are its roles before and after the
    /// step. Returns the rules that are due.
    pub fn hit(&mut self, server: ServerId, roles: [Role; 2], marks: Marks) -> Vec<Met> {
        if self.off {
            return Vec::new();
        }
        let is = |side: RuleRole| roles.into_iter().any(|role| side.is(role));
        for mark in marks.iter() {
            self.hits[0][mark as usize] += 1;
            for side in RuleRole::ALL.into_iter().filter(|side| is(*side)) {
                self.hits[1 + side as usize][mark as usize] += 1;
            }
        }
        let due = |(rule, Armed { rule: Rule { mark, nth, side, fault, .. }, injected, .. }): (
            usize,
            &Armed,
        )| {
            let now = marks.contains(*mark) && side.is_none_or(is) && !injected;
            (now && self.count(*mark, *side) == *nth).then_some(Met { rule, server, fault: *fault })
        };
        self.rules.iter().enumerate().filter_map(due).collect()
    }

    /// The stream for a rule's choices, which it records.
    pub fn rng(&mut self, rule: usize) -> Rng {
        let mut rng = self.rules[rule].rng.clone();
        rng.record();
        rng
    }

    /// The fault of a rule was injected.
    pub fn injected(&mut self, met: Met, choices: Vec<u64>, effect: String) {
        let armed = &mut self.rules[met.rule];
        armed.rule.choices = Some(choices);
        armed.rule.effect = effect;
        armed.injected = true;
    }

    /// Whether the fault of the rule was injected.
    pub fn is_injected(&self, rule: usize) -> bool {
        self.rules[rule].injected
    }

    /// The rules whose faults were injected, with their choices.
    pub fn take_injected(&mut self) -> Vec<Rule> {
        let rules = std::mem::take(&mut self.rules).into_iter();
        rules.filter(|armed| armed.injected).map(|armed| armed.rule).collect()
    }
}

impl FromStr for RuleRole {
    type Err = String;

    fn from_str(text: &str) -> Result<RuleRole, String> {
        let found = RuleRole::ALL.into_iter().find(|side| side.name() == text);
        found.ok_or_else(|| format!("{text:?} is none of looking, leading, following"))
    }
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}={}", self.place(), self.fault)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rule_text_round_trips() {
        for text in ["Truncated#1=node.power", "SyncSnap#7@leading=net.split"] {
            assert_eq!(Rule::parse(text).expect("valid").to_string(), text);
        }
        let crash = Rule::parse_crash("QuorumLost").expect("valid");
        assert_eq!(crash.to_string(), "QuorumLost#1=node.power");
        for bad in
            ["Truncated", "Nothing=node.kill", "Truncated#0=node.kill", "Truncated=disk.torn"]
        {
            assert!(Rule::parse(bad).is_err(), "{bad}");
        }
        assert!(Rule::parse("Truncated@king=node.kill").is_err());
    }

    #[test]
    fn rule_counts_hits_of_all_servers_in_its_role() {
        let rules = [Rule::parse("SyncSnap#2@leading=node.kill").expect("valid")];
        let mut targets = Targets::new(&rules, Seeds::new(1));
        let mut marks = Marks::default();
        marks.hit(Mark::SyncSnap);
        let mut hit = |server, role| targets.hit(ServerId(server), [role, role], marks).len();
        assert_eq!(hit(1, Role::Leads), 0);
        assert_eq!(hit(2, Role::Follows), 0);
        assert_eq!((hit(3, Role::Begins), hit(3, Role::Begins)), (1, 0));
    }

    #[test]
    fn drawn_rules_favour_rare_marks_and_use_only_allowed_faults() {
        let mut allowed = FaultPlan::none();
        allowed.switch_on(Fault::NodePause, (1, 1));
        let rng = |seed| Seeds::new(seed).stream("test", 0);
        let drawn: Vec<Rule> =
            (0..800).flat_map(|seed| draw(4, &allowed, &mut rng(seed))).collect();
        assert!((300..700).contains(&drawn.len()), "{}", drawn.len());
        assert!(drawn.iter().all(|rule| rule.fault == Fault::NodePause));
        let rare = drawn.iter().filter(|rule| weight(rule.mark) == RARE).count();
        assert!(rare * 2 > drawn.len(), "{rare} of {}", drawn.len());
        assert!(draw(4, &FaultPlan::none(), &mut rng(1)).is_empty());
    }
}
