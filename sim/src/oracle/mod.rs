//! The checkers: every promise that can be judged from outside, on every run, as it happens.
//!
//! Owns [`Oracles`], which is fed what the world observes and fails at the first broken promise. Must not influence
//! the world, and must believe nothing that servers or the client library say about themselves.
//!
//! The method: every reply names the zxid of the state that it shows, and that zxid is the witness. A committed
//! transaction is compared with the only one that its request allows on the reference model ([`crate::model`]); a
//! reply is compared with the model at its zxid; so nothing has to be searched for.
//!
//! | file | judges | by |
//! | --- | --- | --- |
//! | `mod` | what servers hold when they are looked at, and at the audit | T1 S2 C7 |
//! | `ledger` | what servers commit and apply, and whom they lead | Z1 Z2 Z3 Z4 Z5 Z6 Z8 Z9 Z11 Z13 Z18 Z20 Z24 |
//! | `logs` | what servers give to their disks | Z1 Z2 Z3 Z5 Z7 Z10 Z12 Z14 Z15 Z19 Z23 |
//! | `talk` | what servers say to each other, and what they owe each other | Z1 Z14 Z16 Z17 Z27 L8 |
//! | `proof` | whether a quorum has confirmed a leader that answers a sync | C5 |
//! | `silence` | who goes on although it hears nobody | Z25 |
//! | `outside` | whom a reign leaves outside | Z26 |
//! | `pace` | who keeps the others, or clients, waiting, and who does not wait | L8 L11 L13 |
//! | `notifications` | how much servers say in elections | L14 |
//! | `disks` | what servers keep | Z1 Z12 Z14 Z17 Z18 T2 C7 |
//! | `heard` | when a leader has heard of a session | T10 S3 S7 |
//! | `commit` | each committed transaction against its request | Z2 Z4 T6 T7 T8 S1 S3 S4 S5 S6 S8 C8 C9 C10 C11 |
//! | `handshake` | sessions and passwords | S2 S4 S6 C6 C12 C13 W2 W6 W7 |
//! | `local` | sessions that only one server knows | S2 S3 S4 S6 S7 S8 |
//! | `reply` | each reply and event against the model | T7 T8 S5 C1 C2 C3 C4 C5 C6 C7 C8 C9 C11 W2 W4 W7 |
//! | `watch` | events | T7 W1 W3 W4 W5 W6 W7 W8 |
//! | `operators` | what operators are told | O1 |
//!
//! Zero false alarms come before everything: what a correct server may or may not do is left open, for example all
//! that was asked on a connection that broke.

mod catalog;
mod commit;
mod conn;
mod difference;
mod disks;
mod epochs;
mod handshake;
mod heard;
mod history;
mod ledger;
mod local;
mod logs;
mod mirror;
mod notifications;
mod operators;
mod outside;
mod pace;
mod proof;
mod reply;
mod silence;
mod talk;
#[cfg(test)]
mod tests;
mod timeouts;
mod voters;
mod watch;
mod words;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use zabkeeper_core::io::PeerCommand;
use zabkeeper_core::peer::Notification;
use zabkeeper_core::store::{DiskCommand, DurableState};
use zabkeeper_core::wire::Password;
use zabkeeper_core::{ConnId, Instant, ServerId, SessionId, Status, Zxid};

pub use catalog::Violation;

use crate::model::{Model, Rules};
use crate::observe::{ClientId, Holder, Observation, Observed};
use catalog::{Broken, Id, Tally, Verdict};
use conn::{Conn, Credential, Phase, Who};
use disks::Disk;
use heard::Heard;
use ledger::Ledger;
use local::Locals;
use notifications::Notifications;
use outside::Outside;
use pace::Pace;
use timeouts::Timeouts;
use watch::{Armed, Held};

/// All checkers of a run.
#[derive(Clone, Debug)]
pub struct Oracles {
    tally: Tally,
    model: Model,
    ledger: Ledger,
    /// Boxed, because a map that is filled in order keeps room for as many again.
    conns: BTreeMap<ConnId, Box<Conn>>,
    sessions: BTreeMap<SessionId, SessionView>,
    /// Whose each password is.
    passwords: BTreeMap<Password, SessionId>,
    locals: Locals,
    armed: Armed,
    heard: Heard,
    notifications: Notifications,
    outside: Outside,
    pace: Pace,
    /// Hashes of data that only one write attempt may have written (C8).
    written: BTreeSet<u64>,
    /// When each transaction was committed.
    stamps: Vec<(Zxid, Instant)>,
    /// When leaders deleted something by themselves.
    lapsed: Vec<Instant>,
    /// Highest zxid in any reply that any client has read.
    seen: Zxid,
    /// Highest zxid of a write whose reply its client has read.
    acknowledged: Zxid,
    /// When the audit was, if it was.
    audit: Option<Instant>,
    /// Who was audited.
    audited: BTreeSet<ServerId>,
    /// May clients name watches that they do not hold?
    strangers: bool,
    /// Number of the observation.
    order: u64,
    now: Instant,
}

/// A session as its clients have seen it.
#[derive(Clone, Default, Debug)]
struct SessionView {
    /// As its clients were told.
    password: Option<Password>,
    /// Highest zxid in its replies.
    seen: Zxid,
    /// Highest zxid of its acknowledged writes.
    acknowledged: Zxid,
    /// The connection that was accepted last.
    attached: Option<Attached>,
    /// Which timeout it may have.
    timeouts: Timeouts,
    /// The greatest one that was granted, ms, as its clients have read.
    granted_ms: u32,
    /// When its end was proposed, if that is committed: place among all observations.
    ended: Option<u64>,
    /// It has had a write refused because it was closing: it does nothing any more.
    closing: bool,
    /// When its last connection ended, as its client knows.
    left: Instant,
    /// Watches that it holds while it has no connection.
    held: Held,
    /// Have several clients gone on with it? Each knows only what itself has heard.
    shared: bool,
    /// What its client was believed, as it has read.
    believed: BTreeSet<Credential>,
}

impl SessionView {
    /// The greatest timeout that a server may go by, ms: what was asked for may be granted, and whoever asked may never have
    /// read that.
    fn longest_ms(&self) -> u32 {
        self.granted_ms.max(self.timeouts.greatest())
    }
}

/// What came out of a step.
struct Acts<'a> {
    disk: &'a [DiskCommand],
    peers: &'a [PeerCommand],
    election: &'a [(ServerId, Notification)],
    status: &'a Status,
}

/// A session has been taken up on a connection.
#[derive(Clone, Copy, Debug)]
struct Attached {
    conn: ConnId,
    client: ClientId,
    /// When the client asked for it, and when it read so: places among all observations.
    asked: u64,
    order: u64,
    /// When it read so.
    at: Instant,
}

impl fmt::Display for Attached {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "client {} on {}", self.client.0, self.conn)
    }
}

impl Oracles {
    /// Checkers of a fresh ensemble of these voters, which follow these rules.
    pub fn new(voters: &[ServerId], rules: Rules) -> Oracles {
        Oracles {
            tally: Tally::new(),
            model: Model::new(rules),
            ledger: Ledger::new(voters),
            conns: BTreeMap::new(),
            sessions: BTreeMap::new(),
            passwords: BTreeMap::new(),
            locals: Locals::default(),
            armed: Armed::default(),
            heard: Heard::default(),
            notifications: Notifications::default(),
            outside: Outside::default(),
            pace: Pace::default(),
            written: BTreeSet::new(),
            stamps: Vec::new(),
            lapsed: Vec::new(),
            seen: Zxid::ZERO,
            acknowledged: Zxid::ZERO,
            audit: None,
            audited: BTreeSet::new(),
            strangers: false,
            order: 0,
            now: Instant::default(),
        }
    }

    /// Clients are not those of the client library: what they claim to hold is not judged.
    #[must_use]
    pub fn with_strangers(mut self) -> Oracles {
        self.strangers = true;
        self
    }

    /// The promise of this name counts as kept where it is checked.
    pub fn mute(&mut self, name: &str) {
        self.tally.mute(name);
    }

    /// Judges what has happened next.
    ///
    /// # Errors
    /// A promise is broken. Nothing more must be observed.
    pub fn observe(&mut self, seen: &Observed<'_>) -> Result<(), Violation> {
        self.order += 1;
        self.now = seen.at;
        self.judge(&seen.what).map_err(|fault| fault.at(seen.at))
    }

    /// Judges what can only be said at the end.
    ///
    /// # Errors
    /// A promise is broken.
    pub fn finish(&mut self) -> Result<(), Violation> {
        let verdict = self.ledger.compare_disks(&mut self.tally, &self.model);
        let verdict = verdict.and_then(|()| self.no_orphan_is_left());
        let verdict = verdict.and_then(|()| self.no_local_orphan_is_left());
        let verdict = verdict.and_then(|()| self.nothing_is_overdue());
        verdict.map_err(|fault| fault.at(self.now))
    }

    /// Lets a story begin with a log that is shorter than what was told.
    #[cfg(test)]
    fn pretend(&mut self, id: ServerId, last: Zxid) {
        self.ledger.pretend(id, last);
    }

    /// What all of them are called.
    pub fn ids() -> impl Iterator<Item = &'static str> {
        Id::ALL.into_iter().map(Id::name)
    }

    /// How often each oracle has judged.
    pub fn checks(&self) -> Vec<(&'static str, u64)> {
        self.tally.counts()
    }

    fn judge(&mut self, what: &Observation<'_>) -> Verdict {
        match what {
            Observation::ConnOpened { client, conn, server } => {
                let rules = self.model.rules();
                let local = self.locals.are_begun_by(*server, &rules.local);
                self.conns.insert(*conn, Box::new(Conn::new(*client, *server, local, rules)));
                Ok(())
            }
            Observation::ToServer { conn, frame } => match self.conns.get(conn).map(|c| c.phase) {
                Some(Phase::Fresh) => self.greeted(*conn, frame),
                Some(Phase::Greeted | Phase::Open | Phase::Over) => self.asked(*conn, frame),
                Some(Phase::Opaque) | None => Ok(()),
            },
            Observation::ToClient { conn, frame } => match self.conns.get(conn).map(|c| c.phase) {
                Some(Phase::Greeted) => self.welcomed(*conn, frame),
                Some(Phase::Fresh | Phase::Open | Phase::Over) => self.read(*conn, frame),
                Some(Phase::Opaque) | None => Ok(()),
            },
            Observation::ConnClosed { conn } => {
                self.closed(*conn);
                Ok(())
            }
            Observation::Input { server, input } => {
                self.heard.relayed((&self.ledger, &self.model), *server, input, self.now);
                self.pace.entered(&self.ledger, *server, input, self.now);
                self.notifications.entered(*server, input);
                let times = (self.now, self.heard.awake_since(*server));
                let (tally, ledger) = (&mut self.tally, &self.ledger);
                self.outside.entered(tally, ledger, (*server, input), times)?;
                self.ledger.entered(&mut self.tally, *server, input, self.now)
            }
            Observation::Unread { server, open } => {
                self.reads_nobody(*server, open);
                Ok(())
            }
            Observation::Output { server, disk, peers, election, status } => {
                self.acted(*server, &Acts { disk, peers, election, status })
            }
            Observation::Applied { server, zxid, digest, holder } => {
                self.applied(*server, *zxid, digest.map(|digest| (digest, *holder)))
            }
            Observation::DurableTruth { server, state, last, digest, holder } => {
                let disk = Disk { server: *server, state, last: *last };
                self.ledger.sampled(&mut self.tally, &self.model, &disk, (*digest, *holder))
            }
            Observation::CachedTruth { server, state, last } => {
                let disk = Disk { server: *server, state, last: *last };
                self.ledger.cached(&mut self.tally, &disk)
            }
            Observation::Wiped { server } => {
                self.ledger.wiped(*server);
                Ok(())
            }
            Observation::Forgotten { session } => {
                if let Some(view) = self.sessions.get_mut(session) {
                    view.held = Held::default();
                    view.believed.clear();
                    (view.seen, view.acknowledged) = (Zxid::ZERO, Zxid::ZERO);
                }
                Ok(())
            }
            Observation::Waits { server, conn, wait } => {
                let times = (self.now, self.awake_with(*server));
                let bound = self.model.rules().answer_within;
                let judged = (&mut self.tally, &self.ledger);
                self.pace.answers_in_time(judged, *server, (*conn, *wait), times, bound)
            }
            Observation::Grown { voters } => {
                self.ledger.grown(voters);
                Ok(())
            }
            Observation::Struck { servers, until } => {
                self.pace.strikes(servers, *until);
                Ok(())
            }
            Observation::StandsStill { server, until } => {
                self.heard.stands_still(*server, self.now, *until);
                Ok(())
            }
            Observation::Started { server, sessions } => {
                self.restarted(*server);
                self.locals.is_told(*server, *sessions);
                Ok(())
            }
            Observation::Stopped { server } => {
                self.restarted(*server);
                Ok(())
            }
            Observation::Serves { server, syncs, held } => {
                self.ledger.asks_anew(&mut self.tally, *server, *syncs)?;
                pace::passes_nobody_over(&mut self.tally, *server, *held)
            }
            Observation::Locals { server, sessions } => self.lists(*server, sessions),
            Observation::Reported { server, report, open } => self.reported(*server, report, open),
            Observation::Recovered { server, state, last } => self.recovered(*server, state, *last),
            Observation::Final { server, applied, digest, holder, sessions } => {
                self.audited(*server, *applied, (*digest, *holder), sessions)
            }
        }
    }

    /// When the last pause of a server, or of the one that it follows, ended.
    fn awake_with(&self, server: ServerId) -> Instant {
        let leader = self.ledger.follows(server).map_or(server, |(leader, _)| leader);
        self.heard.awake_since(server).max(self.heard.awake_since(leader))
    }

    fn restarted(&mut self, server: ServerId) {
        self.notifications.restarted(server);
        self.ledger.restarted(server, self.now);
        self.heard.restarted(server);
        self.outside.restarted(server);
        self.pace.restarted(server);
        self.locals.restarted(server, self.order);
    }

    /// The client's end is gone. What it asked may still be done.
    fn closed(&mut self, id: ConnId) {
        let Some(conn) = self.conns.get_mut(&id) else {
            return;
        };
        conn.closed = true;
        std::mem::take(&mut conn.watches).close(&mut self.armed, id);
        if let Some(session) = self.sessions.get_mut(&conn.session)
            && session.attached.is_some_and(|attached| attached.conn == id)
        {
            session.left = self.now;
            for held in [&mut conn.kept, &mut conn.resent, &mut conn.held] {
                session.held.join(std::mem::take(held));
            }
        }
        if !conn.may_execute() {
            self.conns.remove(&id);
        }
    }

    /// A server has made a step.
    fn acted(&mut self, id: ServerId, acts: &Acts<'_>) -> Verdict {
        let (tally, ledger, now) = (&mut self.tally, &mut self.ledger, self.now);
        // Before it is forgotten what they owed: who gives up a learner may lose its quorum with it.
        self.pace.is_patient((tally, ledger, self.model.rules()), id, acts.peers, now)?;
        self.pace.stays((tally, ledger), id, acts.peers, acts.status)?;
        self.heard.acts(id, now);
        if ledger.role(id, acts.status, now) {
            self.heard.restarted(id);
            if !ledger.leads(id) {
                self.pace.restarted(id);
            }
        }
        if ledger.leads(id) {
            for command in acts.disk {
                if let DiskCommand::Append { entry, .. } = command {
                    self.heard.proposed(id, entry, &self.sessions);
                }
            }
        }
        ledger.commanded(tally, id, acts.disk, (self.order, now))?;
        if acts.status.serving && ledger.leads(id) {
            ledger.establishes(tally, id, now)?;
        }
        if let Some(zxid) = ledger.claims(tally, id, acts.status.committed)? {
            self.commit_up_to(id, zxid)?;
        }
        let awake = self.heard.awake_since(id);
        if self.ledger.leads(id) {
            self.pace.acted(id, (acts.disk, acts.peers), acts.status, now);
        }
        let (tally, ledger) = (&mut self.tally, &mut self.ledger);
        ledger.keeps_a_majority(tally, id, acts.status, now, awake)?;
        let rules = self.model.rules();
        self.outside.acted(tally, id, acts, (now, awake), rules.tick)?;
        ledger.is_not_deaf(tally, id, (now, awake), rules.silence_limit())?;
        self.pace.gives_up_in_time(tally, id, (now, awake), rules.sync_limit)?;
        let since = ledger.role_since(id).max(awake);
        self.pace.begins_in_time(tally, id, (now, since), rules.begin_limit)?;
        self.pace.commits_in_time(tally, ledger, id, (now, awake), rules.commit_within)?;
        ledger.says(tally, id, acts.peers, now)?;
        ledger.votes(tally, id, acts.election)?;
        self.notifications.acted((tally, ledger), id, acts.election, now)?;
        ledger.watermarks(tally, id, acts.status)?;
        self.nothing_is_local_and_global(id)?;
        self.relays(id, acts.peers)
    }

    fn applied(
        &mut self,
        server: ServerId,
        zxid: Zxid,
        digest: Option<(u64, Holder<'_>)>,
    ) -> Verdict {
        self.ledger.apply(&mut self.tally, server, zxid)?;
        match digest {
            Some(held) => self.compare(server, zxid, held),
            None => Ok(()),
        }
    }

    fn compare(
        &mut self,
        server: ServerId,
        zxid: Zxid,
        (digest, holder): (u64, Holder<'_>),
    ) -> Verdict {
        let right = self.model.digest_at(zxid);
        self.tally.hold(Id::T1, digest == right, || {
            let mut evidence =
                vec![format!("server {server} holds {digest:#x} at {zxid}; the model {right:#x}")];
            evidence.extend(difference::first(&self.model, zxid, holder));
            evidence.extend(self.model.txn(zxid).map(|txn| format!("last transaction: {txn}")));
            evidence
        })
    }

    fn recovered(&mut self, id: ServerId, state: &DurableState, last: Zxid) -> Verdict {
        let disk = Disk { server: id, state, last };
        self.ledger.recovered(&mut self.tally, &disk, self.acknowledged)?;
        if self.ledger.is_alone() {
            // With the only voter's old life, everything asked of it and not in its log is gone.
            self.commit_up_to(id, last)?;
            self.conns.retain(|_, conn| !conn.closed || conn.server != id);
        }
        Ok(())
    }

    fn audited(
        &mut self,
        server: ServerId,
        applied: Zxid,
        held: (u64, Holder<'_>),
        sessions: &[SessionId],
    ) -> Verdict {
        self.audit = Some(self.now);
        self.audited.insert(server);
        self.tally.hold(Id::C7, self.model.at_or_before(applied) >= self.acknowledged, || {
            let acknowledged = self.acknowledged;
            vec![format!("server {server} ends at {applied}; {acknowledged} was acknowledged")]
        })?;
        let right = self.model.sessions_at(applied);
        let found: BTreeSet<SessionId> = sessions.iter().copied().collect();
        self.tally.hold(Id::S2, found.iter().eq(&right), || {
            vec![format!(
                "server {server} has the sessions {found:?} at {applied}; right: {right:?}"
            )]
        })?;
        self.compare(server, applied, held)
    }

    /// The connection, for evidence.
    fn who(&self, id: ConnId) -> Who {
        let conn = self.conns.get(&id);
        Who { id, ends: conn.map(|conn| (conn.client, conn.server, conn.session)) }
    }

    fn fault(id: Id, evidence: Vec<String>) -> Verdict {
        Err(Broken::new(id, evidence))
    }
}
