//! The phases of a run: faults, heal, liveness, settling, audit.
//!
//! Owns their order and bounds. Must not check promises to clients: oracles do.

use zabkeeper_core::io::Mark;
use zabkeeper_core::{ConnId, Instant, Limits, ServerId, Status, Zxid};

use super::World;
use super::dispatch::DIAL_TIMEOUT;
use crate::check::checker::Check;
use crate::check::observe::{Holder, Observation};
use crate::engine::seed::Rng;
use crate::machine::node::{Node, is_snapshot};
use crate::record::role::Role;
use crate::record::trace::Kind;

const MS: u64 = 1_000_000;
/// Clients added after the heal, which prove that new sessions work.
const NEWCOMERS: u32 = 2;
/// Upper bound of any wait after the heal, ns, apart from the time for servers that are left out.
const LIVENESS_MAX: u64 = 120_000 * MS;
/// Attempts that a client may make before it finds a serving server.
const ROUNDS: u64 = 4;
/// Time in which queues must drain without requests, ns.
const SETTLE_MAX: u64 = 30_000 * MS;
/// Leaders that may be elected after the heal, apart from those that follow an exhausted epoch: one
/// that no server could reach yet, one whose followers come too late, and the final one.
const LEADERSHIPS_MAX: u64 = 3;
/// Notifications that an election may take per pair of servers. Each server sends its vote to all,
/// changes it at most as often as there are other servers, and repeats it with growing intervals.
const NOTIFICATIONS_MAX: u64 = 40;
/// Interval at which the world checks whether a phase is over, ns.
const LOOK: u64 = 20 * MS;
/// Handles that a store may hold: a segment, the state file, a snapshot, some for its next
/// operations, and the snapshots that its reader has sent to up to 64 links.
const HANDLES_MAX: u32 = 8 + 64;
/// Ticks, by the slowest clock, within which a server without room for a snapshot tries again.
const PAUSE_TICKS: u32 = 2 * 256;

/// Time of the recovery after the heal, and its bound.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Liveness {
    /// Time until all probe writes had succeeded, ns.
    pub took: u64,
    /// The bound of `took`, ns.
    pub bound: u64,
    /// Leaders elected since the heal.
    pub leaderships: u64,
    /// Notifications sent since the heal.
    pub notifications: u64,
}

impl World {
    /// Runs all phases. Returns whether there is a verdict.
    pub(super) fn phases(&mut self) -> bool {
        self.begin_phase("faults");
        self.await_fork();
        let done = self.faults_phase()
            && (self.shared.options.unhealed
                || self.liveness_phase() && self.settle() && self.audit());
        done || self.shared.checker.failure().is_some()
    }

    /// A fork may move the end of the phase, even a fork at the phase's last event.
    fn faults_phase(&mut self) -> bool {
        let bounded = self.shared.options.fault_events > 0;
        loop {
            while self.shared.now < self.ends && !self.has_used_up_its_events() {
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

    /// Whether the run has reached its limit of events: another run then finds more per CPU second.
    fn has_used_up_its_events(&self) -> bool {
        let most = self.shared.options.fault_events;
        most > 0 && self.shared.recorder.trace.events() >= most
    }

    fn begin_phase(&mut self, name: &'static str) {
        self.shared.note(Kind::Phase, (0, 0), name.as_bytes(), || name.to_owned());
    }

    /// The bound of the liveness phase. A client notices a dead connection within its session
    /// timeout and reconnects within its delays; servers meanwhile may have to notice the same,
    /// start, elect a leader and join it, possibly in a second attempt. Each server left out may
    /// cost a client one vain attempt per round, and other servers as much.
    fn liveness_bound(&self) -> u64 {
        let options = &self.shared.options;
        // The library derives both its ping and its disconnect time from one timeout, so a client
        // that pings late also disconnects late.
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

    /// Heals the world; then it must recover within the bound.
    pub(super) fn liveness_phase(&mut self) -> bool {
        self.heal();
        self.prove_liveness()
    }

    /// New writes of all old sessions and of new ones must succeed.
    fn prove_liveness(&mut self) -> bool {
        let healed = self.shared.now;
        self.liveness.bound = self.liveness_bound();
        for number in 0..NEWCOMERS {
            let start: Rng = self.shared.seeds.stream("client/newcomer", number.into());
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
        self.shared.check(Check::LEADER, Ok(()));
        self.shared.check(Check::JOINS, Ok(()));
        self.shared.check(Check::WRITES, Ok(()));
        true
    }

    /// Reports missing progress with the wait-for relation. `idle` are the servers that do not
    /// serve.
    fn report_waiting(&mut self, idle: &[ServerId]) {
        let waits = self.waits().join("\n");
        if !idle.is_empty() {
            let leads = |status: Status| Role::of(&status) == Role::Leads;
            let led = self.core().any(|node| node.status().is_some_and(leads));
            let check = if led { Check::JOINS } else { Check::LEADER };
            self.shared.check(check, Err(waits.clone()));
        }
        self.shared.check(Check::WRITES, Err(waits));
    }

    /// Without further requests queues must drain; after a rest, if configured, they must be empty
    /// again.
    pub(super) fn settle(&mut self) -> bool {
        self.begin_phase("settle");
        if self.shared.options.custom.is_some() {
            // They may write without a pause, and queues would never drain.
            self.clients.values_mut().for_each(|client| client.pause_program());
        }
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
        self.shared.checker.failure().is_none()
    }

    /// Some clients leave, so their sessions expire during the rest. A schedule stores the odds;
    /// its seed decides which.
    fn some_leave(&mut self) {
        let one_in = u64::from(self.shared.options.gone_one_in);
        if one_in == 0 {
            return;
        }
        for (id, client) in &mut self.clients {
            let mut rng: Rng = self.shared.seeds.stream("client/gone", id.0.into());
            if rng.chance(1, one_in) {
                client.leave(rng.chance(1, 3), &mut self.shared);
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
                self.shared.check(Check::DRAINED, unrest.map_or(Ok(()), Err));
                self.shared.check(Check::CONVERGES, apart.map_or(Ok(()), Err));
                return self.shared.checker.failure().is_none();
            }
        }
    }

    /// No fault was injected since the heal, so elections are rare, apart from exhausted epochs.
    /// Notifications from before the heal that reach a paused server late still change its vote or
    /// its round; it sends that to all others, and each may answer. Examples: 0xd28005a6 of the
    /// session profile, where two servers repeated notifications to a third one for seconds, and a
    /// fork of 0x2d00070016e8 of the swarm with 155 rounds among five servers.
    fn count_elections(&mut self) {
        let (before, counts) = (&self.healed, &self.shared.recorder.counters.counts);
        let leaderships = counts.leaderships - before.leaderships;
        let outside = counts.notifications_outside - before.notifications_outside;
        let notifications = counts.notifications - before.notifications - outside;
        self.liveness.leaderships = leaderships;
        self.liveness.notifications = notifications;
        let used_up = (counts.commits - before.commits)
            / u64::from(self.shared.options.server.limits.epoch_txns);
        let servers = self.nodes.len() as u64;
        let late = counts.notifications_late - before.notifications_late;
        // A server without room for a snapshot repeats its vote until it tries again, and each
        // server that it notifies answers (0x11411 of the swarm: 17 s).
        let resting = counts.notifications_resting - before.notifications_resting;
        let allowed = NOTIFICATIONS_MAX * servers * servers * (1 + leaderships)
            + late * 2 * (servers - 1)
            + resting * 2;
        let few = leaderships <= LEADERSHIPS_MAX + used_up && notifications <= allowed;
        let held = few.then_some(()).ok_or_else(|| {
            format!("{leaderships} leaders were elected by {notifications} notifications")
        });
        self.shared.check(Check::ELECTIONS, held);
    }

    /// An attempt from before the heal fails when its timeout is over. Until then its two servers
    /// may have no connection, and a server that reaches both elects one of them again and again,
    /// each time for `initLimit`: L6 counts the notifications that follow. Example: 0x84 of the
    /// swarm, where the attempts took 3.2 s and `initLimit` was 104 ms.
    pub(super) fn election_dial_failed(&mut self, conn: ConnId) {
        if !self.shared.is_faulty() && conn <= self.last_unhealed {
            let counts = &self.shared.recorder.counters.counts;
            self.healed.notifications = counts.notifications;
            self.healed.notifications_outside = counts.notifications_outside;
            self.healed.notifications_resting = counts.notifications_resting;
            self.healed.notifications_late = counts.notifications_late;
        }
    }

    fn unrest(&self) -> Option<String> {
        let calls: usize = self.clients.values().map(|client| client.calls()).sum();
        if calls > 0 {
            return Some(format!("{calls} calls under way"));
        }
        if self.bad_clients() > 0 {
            return Some(format!("{} bad clients connected", self.bad_clients()));
        }
        self.core().find_map(|node| node.unrest(&self.shared.outside))
    }

    /// The difference in what servers have applied, if any. The audit compares the trees.
    fn apart(&self) -> Option<String> {
        let applied = |node: &Node| Some((node.id(), node.status()?.applied));
        let all: Vec<_> = self.core().filter_map(applied).collect();
        let alike = all.windows(2).all(|pair| pair[0].1 == pair[1].1);
        (!alike).then(|| format!("applied: {all:?}"))
    }

    /// Compares disks with what servers report, and checks that no resource is left over.
    pub(super) fn audit(&mut self) -> bool {
        self.begin_phase("audit");
        let shared = &mut self.shared;
        let mut digests = Vec::new();
        let held_back = shared.recorder.counters.has_hit(Mark::PurgeHeld);
        for node in self.nodes.values_mut() {
            let (Some(status), Some(digest)) = (node.status(), node.digest()) else {
                node.examine_left(shared);
                continue;
            };
            let server = node.id();
            if shared.outside.contains_key(&server) {
                // Its disk must be recoverable, and hold what the server was ordered to write.
                node.examine(shared);
                continue;
            }
            let (applied, sessions) = (status.applied, node.sessions());
            let same = match node.examine(shared) {
                Some(found) if found == (applied, digest) => Ok(()),
                Some((last, other)) => Err(format!(
                    "s{server} holds {applied} with digest {digest:#x}, its disk {last} with \
                     {other:#x}"
                )),
                None => Err(format!("s{server}: its disk could not be examined")),
            };
            shared.check(Check::RECOVERS, same);
            digests.push((applied, digest));
            let holder = Holder(node.server());
            shared.observe(Observation::Final { server, applied, digest, holder, sessions });
            let handles = node.disk().borrow().handle_count();
            let few = if handles <= HANDLES_MAX { Ok(()) } else { Err(format!("{handles} open")) };
            shared.check(Check::HANDLES, few);
            let limits = node.limits();
            let longest = shared.options.server.tick() * PAUSE_TICKS;
            let waits = node.lacked_room().is_some_and(|at| shared.now < at.after(longest));
            // A slow learner holds old snapshots until the next snapshot is complete.
            let most =
                if held_back { usize::MAX } else { 1 + limits.snapshots_kept.max(1) as usize };
            let kept = left_over(&node.disk().borrow().names(), most)
                .and_then(|()| goes_on((status.snapshot, applied), limits, waits));
            shared.check(Check::FILES, kept.map_err(|what| format!("s{server}: {what}")));
        }
        self.end_digest = digests.first().map(|(_, digest)| *digest);
        let alike = digests.windows(2).all(|pair| pair[0] == pair[1]);
        let same = if alike { Ok(()) } else { Err(format!("positions and digests: {digests:x?}")) };
        shared.check(Check::CONVERGES, same);
        let (at, event) = (shared.now, shared.recorder.trace.events());
        shared.checker.finish(at, event);
        shared.checker.failure().is_none()
    }
}

/// Fails if a disk has unfinished files, or more than `most` snapshots. Nothing is being written
/// any more.
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

/// Fails if snapshots are taken less often than configured. Only the newest epoch counts, since its
/// counters have no gaps. One or two snapshots may have been dropped for a leader's snapshot that
/// did not arrive. A server without room (`waits`) retries with growing delays.
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
        "its last snapshot is that of {snapshot}, at least {since} transactions before {applied}; \
         one is \
         wanted every {wanted}"
    ))
}

#[cfg(test)]
mod tests;
