//! The phases of a run: faults, heal, liveness, settling, audit.
//!
//! Owns their order and bounds. Must not judge promises to clients: oracles do.

use zabkeeper_core::io::Mark;
use zabkeeper_core::{Instant, Limits, ServerId, Status, Zxid};

use super::{DIAL_TIMEOUT, World};
use crate::judge::Check;
use crate::node::{Node, is_snapshot};
use crate::observe::{Holder, Observation};
use crate::roles::Role;
use crate::seed::Dice;
use crate::trace::Kind;

const MS: u64 = 1_000_000;
/// New clients that come after the heal, to prove that new sessions work.
const NEWCOMERS: u32 = 2;
/// Nothing waits longer than this, once nothing goes wrong, ns.
const LIVENESS_MAX: u64 = 120_000 * MS;
/// Rounds that a client may make before it finds a server that serves.
const ROUNDS: u64 = 4;
/// How long queues may take to drain when nobody asks for anything, ns.
const SETTLE_MAX: u64 = 30_000 * MS;
/// Leaders that may be elected after the heal, besides those that follow a used up epoch: one that nobody could hear
/// yet, one whose followers come too late, and the one that stays.
const REIGNS_MAX: u64 = 3;
/// Notifications that an election may take for each pair of servers. Each says its vote to all, changes it at most as
/// often as there are others, and repeats it more and more rarely while it waits.
const NOTIFICATIONS_MAX: u64 = 40;
/// How often the world looks whether a phase is over, ns.
const LOOK: u64 = 20 * MS;
/// Handles that a store may hold: a segment, the state file, a snapshot, some for what it is about to do, and the
/// snapshots that its reader has sent to as many links.
const HANDLES_MAX: u32 = 8 + 64;
/// Ticks, by the slowest clock, after which a server that had no room for a snapshot has tried again at the latest.
const PAUSE_TICKS: u32 = 2 * 256;

/// How long the service took to recover, and how long it might have.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Liveness {
    /// ns until all fresh writes had succeeded.
    pub took: u64,
    /// ns allowed.
    pub bound: u64,
    /// Leaders that have been elected since the heal.
    pub reigns: u64,
    /// Notifications that were sent since then.
    pub notifications: u64,
}

impl World {
    /// All phases. Says whether there is a verdict.
    pub(super) fn phases(&mut self) -> bool {
        self.begin_phase("faults");
        self.await_fork();
        let done = self.faults_phase()
            && (self.shared.options.unhealed
                || self.liveness_phase() && self.settle() && self.audit());
        done || self.shared.judge.failure().is_some()
    }

    /// A fork may move its end, also one at the last thing that happens before it.
    fn faults_phase(&mut self) -> bool {
        let bounded = self.shared.options.fault_events > 0;
        loop {
            while self.shared.now < self.ends && !self.is_worn_out() {
                let look = if bounded { Instant(self.shared.now.0 + LOOK) } else { self.ends };
                if !self.run_until(look.min(self.ends)) {
                    return false;
                }
            }
            if !self.forks_before(self.shared.now) {
                return true;
            }
            self.fork();
        }
    }

    /// Has so much happened that more is rather to be expected of another run?
    fn is_worn_out(&self) -> bool {
        let most = self.shared.options.fault_events;
        most > 0 && self.shared.trace.events() >= most
    }

    fn begin_phase(&mut self, name: &'static str) {
        self.shared.note(Kind::Phase, (0, 0), name.as_bytes(), || name.to_owned());
    }

    /// The bound of the liveness phase: a client notices a dead connection within its session timeout, connects again
    /// within its pauses, and servers may meanwhile have to notice the same, start, elect a leader and join it, for
    /// which they may need a second attempt. Each server that is left out may cost a client a vain attempt in each round,
    /// and servers as much.
    fn liveness_bound(&self) -> u64 {
        let options = &self.shared.options;
        // Who pings late is as late to give up a server.
        let late = if options.workload.late_one_in > 0 { options.workload.late_percent } else { 0 };
        let longest_ms = options.workload.session_ms.1 * u64::from(late * 3).max(100) / 100;
        let vain = DIAL_TIMEOUT + longest_ms * MS / u64::from(options.servers);
        let left_out = self.shared.outside.len() as u64 * ROUNDS * vain;
        let (init, sync) = options.server.phase_ticks;
        let ms = u64::from(options.server.tick_ms) * u64::from(40 + 2 * (init + sync))
            + 2 * longest_ms
            + 4 * options.workload.reconnect_ms
            + 2 * options.peers.dial_timeout_ms
            + 10_000;
        (ms * MS).min(LIVENESS_MAX) + left_out
    }

    /// Servers of the core that do not serve.
    fn not_serving(&self) -> Vec<ServerId> {
        let serves = |role| matches!(role, Role::Leads | Role::Follows);
        self.core()
            .filter(|node| !node.status().is_some_and(|status| serves(Role::of(&status))))
            .map(Node::id)
            .collect()
    }

    /// Everything is well again, or a quorum is, and that must show.
    pub(super) fn liveness_phase(&mut self) -> bool {
        self.heal();
        self.prove_liveness()
    }

    /// Fresh writes of all old sessions and of new ones must succeed.
    fn prove_liveness(&mut self) -> bool {
        let healed = self.shared.now;
        self.liveness.bound = self.liveness_bound();
        for number in 0..NEWCOMERS {
            let start: Dice = self.shared.seeds.stream("client/newcomer", number.into());
            self.add_client(start);
        }
        for client in self.clients.values_mut() {
            client.ask_for_probe(&mut self.shared);
        }
        loop {
            let proven = self.clients.values().all(|client| client.is_proven());
            let idle = self.not_serving();
            if proven && idle.is_empty() {
                break;
            }
            let next = Instant(self.shared.now.0 + LOOK);
            if !self.run_until(next) {
                return false;
            }
            if self.shared.now.0 - healed.0 > self.liveness.bound {
                self.report_waiting(&idle);
                return false;
            }
        }
        self.liveness.took = self.shared.now.0 - healed.0;
        self.shared.hold(Check::LEADER, Ok(()));
        self.shared.hold(Check::JOINS, Ok(()));
        self.shared.hold(Check::WRITES, Ok(()));
        true
    }

    /// Nothing goes on, and who waits for whom. `idle` do not serve.
    fn report_waiting(&mut self, idle: &[ServerId]) {
        let waits = self.waits().join("\n");
        if !idle.is_empty() {
            let leads = |status: Status| Role::of(&status) == Role::Leads;
            let led = self.core().any(|node| node.status().is_some_and(leads));
            let check = if led { Check::JOINS } else { Check::LEADER };
            self.shared.hold(check, Err(waits.clone()));
        }
        self.shared.hold(Check::WRITES, Err(waits));
    }

    /// Nobody asks for anything: queues must drain, and where there is a rest, they must be empty after it, too.
    pub(super) fn settle(&mut self) -> bool {
        self.begin_phase("settle");
        self.some_leave();
        if !self.drain() {
            return false;
        }
        let rest = self.shared.options.rest;
        if !rest.is_zero() {
            let rested = self.run_until(self.shared.now.after(rest));
            if !rested || !self.drain() {
                return false;
            }
        }
        self.count_elections();
        self.shared.judge.failure().is_none()
    }

    /// Whose sessions end by themselves while nobody asks for anything. A schedule keeps how many leave, and its seed who.
    fn some_leave(&mut self) {
        let one_in = u64::from(self.shared.options.gone_one_in);
        if one_in == 0 {
            return;
        }
        for (id, client) in &mut self.clients {
            let mut dice: Dice = self.shared.seeds.stream("client/gone", id.0.into());
            if dice.chance(1, one_in) {
                client.leave(dice.chance(1, 3), &mut self.shared);
            }
        }
    }

    fn drain(&mut self) -> bool {
        let since = self.shared.now;
        loop {
            let next = Instant(self.shared.now.0 + LOOK);
            if !self.run_until(next) {
                return false;
            }
            let unrest = self.unrest();
            let apart = self.apart();
            let calm = unrest.is_none() && apart.is_none();
            if calm || self.shared.now.0 - since.0 > SETTLE_MAX {
                self.shared.hold(Check::DRAINED, unrest.map_or(Ok(()), Err));
                self.shared.hold(Check::CONVERGES, apart.map_or(Ok(()), Err));
                return self.shared.judge.failure().is_none();
            }
        }
    }

    /// Nothing has gone wrong since the heal, so there was little reason to elect anybody, but that epochs are used up.
    /// What was said before it, and is heard by a server that stood still, still changes its vote, or its round, which it
    /// tells to all others, and each of them may answer: two servers had repeated themselves to a third one for seconds
    /// (0xd28005a6 of the session profile), five had gone through 155 rounds (a fork of 0x2d00070016e8 of the swarm).
    fn count_elections(&mut self) {
        let (before, counts) = (&self.healed, &self.shared.tally.counts);
        let reigns = counts.reigns - before.reigns;
        let outside = counts.notifications_outside - before.notifications_outside;
        let notifications = counts.notifications - before.notifications - outside;
        self.liveness.reigns = reigns;
        self.liveness.notifications = notifications;
        let used_up = (counts.commits - before.commits)
            / u64::from(self.shared.options.server.limits.epoch_txns);
        let servers = self.nodes.len() as u64;
        let late = counts.notifications_late - before.notifications_late;
        let told = NOTIFICATIONS_MAX * servers * servers * (1 + reigns) + late * 2 * (servers - 1);
        let few = reigns <= REIGNS_MAX + used_up && notifications <= told;
        let held = few.then_some(()).ok_or_else(|| {
            format!("{reigns} leaders were elected by {notifications} notifications")
        });
        self.shared.hold(Check::ELECTIONS, held);
    }

    fn unrest(&self) -> Option<String> {
        let calls: usize = self.clients.values().map(|client| client.calls()).sum();
        if calls > 0 {
            return Some(format!("{calls} calls under way"));
        }
        if self.intruders() > 0 {
            return Some(format!("{} intruders connected", self.intruders()));
        }
        self.core().find_map(|node| node.unrest(&self.shared.outside))
    }

    /// How servers differ in what they have applied, if they do. Whether the trees are equal is for the audit.
    fn apart(&self) -> Option<String> {
        let applied = |node: &Node| Some((node.id(), node.status()?.applied));
        let all: Vec<_> = self.core().filter_map(applied).collect();
        let alike = all.windows(2).all(|pair| pair[0].1 == pair[1].1);
        (!alike).then(|| format!("applied: {all:?}"))
    }

    /// Ground truth against what servers say, and nothing left over.
    pub(super) fn audit(&mut self) -> bool {
        self.begin_phase("audit");
        let shared = &mut self.shared;
        let mut digests = Vec::new();
        let held_back = shared.tally.has_hit(Mark::PurgeHeld);
        for node in self.nodes.values_mut() {
            let (Some(status), Some(digest)) = (node.status(), node.digest()) else {
                node.examine_left(shared);
                continue;
            };
            let server = node.id();
            if shared.outside.contains_key(&server) {
                // What is on its disk must be something that can be recovered, and what it was commanded to hold.
                node.examine(shared);
                continue;
            }
            let (applied, sessions) = (status.applied, node.sessions());
            let same = match node.examine(shared) {
                Some(found) if found == (applied, digest) => Ok(()),
                Some((last, other)) => Err(format!(
                    "s{server} holds {applied} with digest {digest:#x}, its disk {last} with {other:#x}"
                )),
                None => Err(format!("s{server}: its disk could not be examined")),
            };
            shared.hold(Check::RECOVERS, same);
            digests.push((applied, digest));
            let holder = Holder(node.server());
            shared.observe(Observation::Final { server, applied, digest, holder, sessions });
            let handles = node.disk().borrow().handle_count();
            let few = if handles <= HANDLES_MAX { Ok(()) } else { Err(format!("{handles} open")) };
            shared.hold(Check::HANDLES, few);
            let limits = node.limits();
            let longest = shared.options.server.tick() * PAUSE_TICKS;
            let waits = node.lacked_room().is_some_and(|at| shared.now < at.after(longest));
            // Where a learner was slow, older ones stay until the next one is complete.
            let most =
                if held_back { usize::MAX } else { 1 + limits.snapshots_kept.max(1) as usize };
            let kept = left_over(&node.disk().borrow().names(), most)
                .and_then(|()| goes_on((status.snapshot, applied), limits, waits));
            shared.hold(Check::FILES, kept.map_err(|what| format!("s{server}: {what}")));
        }
        self.end_digest = digests.first().map(|(_, digest)| *digest);
        let alike = digests.windows(2).all(|pair| pair[0] == pair[1]);
        let same = if alike { Ok(()) } else { Err(format!("positions and digests: {digests:x?}")) };
        shared.hold(Check::CONVERGES, same);
        let (at, event) = (shared.now, shared.trace.events());
        shared.judge.finish(at, event);
        shared.judge.failure().is_none()
    }
}

/// Is there more on a disk than its server needs, which has at most so many snapshots? Nothing is being written any more.
fn left_over(names: &[String], most: usize) -> Result<(), String> {
    let which = |is: fn(&str) -> bool| -> Vec<&str> {
        names.iter().map(String::as_str).filter(|name| is(name)).collect()
    };
    let (unfinished, snapshots) = (which(|name| name.ends_with(".tmp")), which(is_snapshot));
    if !unfinished.is_empty() {
        return Err(format!("these files were never finished: {}", unfinished.join(" ")));
    }
    let (count, there) = (snapshots.len(), snapshots.join(" "));
    if count > most {
        return Err(format!("{count} snapshots are left, where {most} are kept: {there}"));
    }
    Ok(())
}

/// Are snapshots taken as often as they are wanted? Counted within the newest epoch, whose counters have no gaps. One or two
/// may have been given up for a leader's, which then did not arrive. Who had no room waits longer each time.
fn goes_on((snapshot, applied): (Zxid, Zxid), limits: &Limits, waits: bool) -> Result<(), String> {
    if waits {
        return Ok(());
    }
    let before = if snapshot.epoch() == applied.epoch() { snapshot.counter() } else { 0 };
    let since = applied.counter().saturating_sub(before);
    let wanted = limits.snapshot_txns.saturating_add(1);
    if since <= wanted.saturating_mul(4) {
        return Ok(());
    }
    Err(format!(
        "its last snapshot is that of {snapshot}, at least {since} transactions before {applied}; one is \
         wanted every {wanted}"
    ))
}

#[cfg(test)]
mod tests;
