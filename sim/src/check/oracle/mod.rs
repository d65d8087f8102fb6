//! The oracles: checks of every property that can be checked from outside, during the run.
//!
//! Owns [`Oracles`], which consumes the world's observations and fails at the first violated
//! property. Must not influence the world, and must not trust what servers or the client library
//! report about themselves.
//!
//! Every reply names the zxid of the state that it shows. A committed transaction is compared with
//! the only outcome that the reference model ([`crate::check::model`]) allows for its request; a
//! reply is compared with the model at its zxid. So no check has to search through histories.
//!
//! | file | checks | oracles |
//! | --- | --- | --- |
//! | `mod` | server trees, and the audit | T1 S2 C7 |
//! | `zab` | commits, applies and roles | Z1 Z2 Z3 Z4 Z5 Z6 Z8 Z9 Z11 Z13 Z18 Z20 Z24 |
//! | `logs` | commands to disks | Z1 Z2 Z3 Z5 Z7 Z10 Z12 Z14 Z15 Z19 Z23 |
//! | `configs` | configurations of the ensemble | Z22 |
//! | `peer_messages` | messages between servers | Z1 Z13 Z14 Z16 Z17 Z27 L8 |
//! | `sync_evidence` | leaders that answer a sync are confirmed by a quorum | C5 |
//! | `quorum_contact` | serving without messages of a leader or majority | Z25 |
//! | `hand_over` | leaders that are to stop | Z28 |
//! | `outside` | servers that an established epoch leaves out | Z26 |
//! | `progress` | delays, and links closed too early | L8 L11 L13 |
//! | `notifications` | number of election notifications | L14 |
//! | `disks` | disk contents | Z1 Z12 Z14 Z17 Z18 T2 C7 |
//! | `session_liveness` | when servers touched sessions | T10 S3 S7 |
//! | `commit` | committed transactions | Z2 Z4 Z22 T6 T7 T8 S1 S3 S4 S5 S6 S8 C8 C9 C10 C11 |
//! | `handshake` | handshakes | S2 S4 S6 C6 C13 W2 W6 W7 |
//! | `read_only` | read-only servers and their clients | C12 |
//! | `local` | local sessions | S2 S3 S4 S6 S7 S8 |
//! | `reply` | replies and events | T7 T8 S5 C1 C2 C3 C4 C5 C6 C7 C8 C9 C11 W2 W4 W7 |
//! | `watch` | watch events | T7 W1 W3 W4 W5 W6 W7 W8 |
//! | `recipes` | programs that use recipes | R1 R2 R3 R4 R5 R6 R7 R8 R9 |
//! | `operators` | reports of servers on themselves | O1 |
//! | `four_letter` | answers to operators | O2 |
//!
//! False alarms are the worst fault: where a correct server has a choice, both outcomes pass, for
//! example for requests on a connection that broke.

mod catalog;
mod commit;
mod configs;
mod conn;
mod difference;
mod disk_model;
mod disks;
mod epochs;
mod four_letter;
mod hand_over;
mod handshake;
mod history;
mod link;
mod local;
mod logs;
mod notifications;
mod operators;
mod outside;
mod peer_messages;
mod progress;
mod quorum_contact;
mod read_only;
mod recipes;
mod reply;
mod session_liveness;
mod sessions;
mod sync_evidence;
#[cfg(test)]
mod tests;
mod text;
mod timeouts;
mod voters;
mod watch;
mod zab;

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use zabkeeper_core::store::{DiskCommand, DurableState};
use zabkeeper_core::wire::Password;
use zabkeeper_core::{ConnId, Input, Instant, ServerId, SessionId, Zxid};

pub use catalog::Violation;

use crate::check::model::{Model, Rules};
use crate::check::observe::{ClientId, Holder, Observation, Observed, Wait};
use crate::check::weights::Weights;
use catalog::{Broken, Checks, Id, Verdict};
use conn::{Conn, Phase, Who};
use disks::Disk;
use four_letter::Answers;
use hand_over::HandOvers;
use local::Locals;
use notifications::Notifications;
use outside::Outside;
use progress::Progress;
use read_only::ReadOnly;
use recipes::Recipes;
use session_liveness::SessionLiveness;
use sessions::SessionView;
use watch::{Armed, Held};
use zab::{Acts, Zab};

/// All oracles of a run.
#[derive(Clone, Debug)]
pub struct Oracles {
    checks: Checks,
    model: Model,
    zab: Zab,
    /// Boxed: a `BTreeMap` filled in ascending order leaves its nodes half empty.
    conns: BTreeMap<ConnId, Box<Conn>>,
    sessions: BTreeMap<SessionId, SessionView>,
    /// The session that each password was given to.
    passwords: BTreeMap<Password, SessionId>,
    locals: Locals,
    armed: Armed,
    answers: Answers,
    hand_overs: HandOvers,
    liveness: SessionLiveness,
    notifications: Notifications,
    outside: Outside,
    progress: Progress,
    read_only: ReadOnly,
    recipes: Recipes,
    /// Hashes of data that only one write attempt may have written (C8).
    written: BTreeSet<u64>,
    /// When each transaction was committed.
    stamps: Vec<(Zxid, Instant)>,
    /// When leaders deleted containers and TTL nodes that had expired.
    lapsed: Vec<Instant>,
    /// Highest zxid in any reply that any client has read.
    seen: Zxid,
    /// Highest zxid of a write whose reply its client has read.
    acknowledged: Zxid,
    /// Time of the audit at the end of the run.
    audit: Option<Instant>,
    /// Servers that the audit covered.
    audited: BTreeSet<ServerId>,
    /// Whether clients other than the client library's may name watches that they do not hold.
    bad_clients: bool,
    /// Number of the present observation; other `order` fields refer to it.
    order: u64,
    now: Instant,
}

impl Oracles {
    /// Oracles for a new ensemble of these voters that is configured with `rules`.
    pub fn new(voters: &[ServerId], rules: Rules) -> Oracles {
        Oracles {
            checks: Checks::new(),
            zab: Zab::new(voters, rules.first_config.is_some()),
            model: Model::new(rules),
            conns: BTreeMap::new(),
            sessions: BTreeMap::new(),
            passwords: BTreeMap::new(),
            locals: Locals::default(),
            armed: Armed::default(),
            answers: Answers::default(),
            hand_overs: HandOvers::default(),
            liveness: SessionLiveness::default(),
            notifications: Notifications::default(),
            outside: Outside::default(),
            progress: Progress::default(),
            read_only: ReadOnly::default(),
            recipes: Recipes::default(),
            written: BTreeSet::new(),
            stamps: Vec::new(),
            lapsed: Vec::new(),
            seen: Zxid::ZERO,
            acknowledged: Zxid::ZERO,
            audit: None,
            audited: BTreeSet::new(),
            bad_clients: false,
            order: 0,
            now: Instant::default(),
        }
    }

    /// The voters have these groups and weights.
    #[must_use]
    pub fn with_weights(mut self, weights: Option<Weights>) -> Oracles {
        self.zab.voters.weights = weights;
        self
    }

    /// Clients are not those of the client library: the watches that they claim to hold are not
    /// checked.
    #[must_use]
    pub fn with_bad_clients(mut self) -> Oracles {
        self.bad_clients = true;
        self
    }

    /// Violations of the oracle with this id are ignored from now on.
    pub fn mute(&mut self, name: &str) {
        self.checks.mute(name);
    }

    /// Checks the next observation.
    ///
    /// # Errors
    /// A property is violated. The caller must not observe anything more.
    pub fn observe(&mut self, seen: &Observed<'_>) -> Result<(), Violation> {
        self.order += 1;
        self.now = seen.at;
        self.check(&seen.what).map_err(|fault| fault.at(seen.at))
    }

    /// Runs the checks that need the end of the run.
    ///
    /// # Errors
    /// A property is violated.
    pub fn finish(&mut self) -> Result<(), Violation> {
        let verdict = self.zab.compare_disks(&mut self.checks, &self.model);
        let verdict = verdict.and_then(|()| self.no_orphan_is_left());
        let verdict = verdict.and_then(|()| self.no_local_orphan_is_left());
        let verdict = verdict.and_then(|()| self.nothing_is_overdue());
        let verdict = verdict.and_then(|()| self.recipes.finish(&mut self.checks, &self.model));
        verdict.map_err(|fault| fault.at(self.now))
    }

    /// Test set-up: cuts the server's disk model to `last`, as if it had never logged more.
    #[cfg(test)]
    fn pretend(&mut self, id: ServerId, last: Zxid) {
        self.zab.pretend(id, last);
    }

    /// The reference model.
    pub(crate) fn model(&self) -> &Model {
        &self.model
    }

    /// The ids of all oracles.
    pub fn ids() -> impl Iterator<Item = &'static str> {
        Id::ALL.into_iter().map(Id::name)
    }

    /// How often each oracle has been checked, by id.
    pub fn checks(&self) -> Vec<(&'static str, u64)> {
        self.checks.counts()
    }

    fn check(&mut self, what: &Observation<'_>) -> Verdict {
        match what {
            Observation::ConnOpened { client, conn, server } => {
                self.opened(*client, *conn, *server)
            }
            Observation::ToServer { conn, frame } => self.on_frame_to_server(*conn, frame),
            Observation::ToClient { conn, frame } => self.on_frame_to_client(*conn, frame),
            Observation::ConnClosed { conn } => {
                self.answers.closed(*conn);
                self.closed(*conn);
                Ok(())
            }
            Observation::Input { server, input } => self.entered(*server, input),
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
            Observation::DurableAudit { server, state, last, digest, holder } => {
                let disk = Disk { server: *server, state, last: *last };
                self.zab.sampled(&mut self.checks, &self.model, &disk, (*digest, *holder))
            }
            Observation::CachedAudit { server, state, last } => {
                let disk = Disk { server: *server, state, last: *last };
                self.zab.cached(&mut self.checks, &disk)
            }
            Observation::Wiped { server } => {
                self.zab.wiped(*server);
                self.hand_overs.erased(*server, self.now);
                Ok(())
            }
            Observation::Forgotten { session } => self.forgotten(*session),
            Observation::Told { client, session, told } => {
                self.recipes.told(&mut self.checks, &self.model, (*client, *session), *told)
            }
            Observation::Waits { server, conn, wait } => self.waits(*server, (*conn, *wait)),
            Observation::Grown { voters } => {
                self.zab.grown(voters);
                Ok(())
            }
            Observation::InForce { server, version } => {
                self.outside.begins_anew(*server);
                self.zab.in_force(&mut self.checks, *server, *version)
            }
            Observation::FaultInjected { servers, until } => {
                self.progress.unwell_until(servers, *until);
                Ok(())
            }
            Observation::StandsStill { server, until } => {
                self.liveness.stands_still(*server, self.now, *until);
                Ok(())
            }
            Observation::Started { server, sessions } => {
                self.restarted(*server);
                self.locals.configure(*server, *sessions);
                Ok(())
            }
            Observation::Stopped { server } => {
                self.restarted(*server);
                Ok(())
            }
            Observation::Serves { server, syncs, held } => {
                self.zab.asks_anew(&mut self.checks, *server, *syncs)?;
                let used_up = self.zab.has_used_up(*server, self.model.rules().epoch_txns);
                progress::passes_nobody_over(&mut self.checks, *server, *held, used_up)
            }
            Observation::Locals { server, sessions } => self.lists(*server, sessions),
            Observation::Answered { conn, answer } => {
                self.answer_is_sent(*conn, answer);
                Ok(())
            }
            Observation::AnswerRead { conn, text } => self.answer_is_read(*conn, text),
            Observation::Reported { server, report, open } => self.reported(*server, report, open),
            Observation::Recovered { server, state, last } => self.recovered(*server, state, *last),
            Observation::Final { server, applied, digest, holder, sessions } => {
                self.audited(*server, *applied, (*digest, *holder), sessions)
            }
        }
    }

    fn opened(&mut self, client: ClientId, conn: ConnId, server: ServerId) -> Verdict {
        let rules = self.model.rules();
        let local = self.locals.are_begun_by(server, &rules.local);
        self.conns.insert(conn, Box::new(Conn::new(client, server, local, rules)));
        Ok(())
    }

    fn on_frame_to_server(&mut self, conn: ConnId, frame: &Bytes) -> Verdict {
        match self.conns.get(&conn).map(|c| c.phase) {
            Some(Phase::Fresh) => self.greeted(conn, frame),
            Some(Phase::Greeted | Phase::Open | Phase::Over) => self.asked(conn, frame),
            Some(Phase::Opaque) | None => Ok(()),
        }
    }

    fn on_frame_to_client(&mut self, conn: ConnId, frame: &Bytes) -> Verdict {
        match self.conns.get(&conn).map(|c| c.phase) {
            Some(Phase::Greeted) => self.welcomed(conn, frame),
            Some(Phase::Fresh | Phase::Open | Phase::Over) => self.read(conn, frame),
            Some(Phase::Opaque) | None => Ok(()),
        }
    }

    /// The server is about to handle this input.
    fn entered(&mut self, server: ServerId, input: &Input) -> Verdict {
        if *input == Input::Stop {
            self.hand_overs.stops(&self.zab, server);
            return Ok(());
        }
        if let Input::Oracle(permits) = input {
            self.zab.server(server).permitted = *permits;
        }
        self.liveness.relayed((&self.zab, &self.model), server, input, self.now);
        self.progress.entered(&self.zab, server, input, self.now);
        self.notifications.entered(server, input);
        let times = (self.now, self.liveness.awake_since(server));
        let (checks, zab) = (&mut self.checks, &self.zab);
        self.outside.entered(checks, zab, (server, input), times)?;
        self.zab.entered(&mut self.checks, server, input, self.now)
    }

    /// The client has lost what it knew of its session, besides id and password.
    fn forgotten(&mut self, session: SessionId) -> Verdict {
        if let Some(view) = self.sessions.get_mut(&session) {
            view.held = Held::default();
            view.believed.clear();
            (view.seen, view.acknowledged) = (Zxid::ZERO, Zxid::ZERO);
        }
        Ok(())
    }

    /// A request of this connection has waited this long for its answer.
    fn waits(&mut self, server: ServerId, of_conn: (ConnId, Wait)) -> Verdict {
        let times = (self.now, self.awake_with(server));
        let bound = self.model.rules().answer_within;
        self.progress.answers_in_time((&mut self.checks, &self.zab), server, of_conn, times, bound)
    }

    /// When the last pause of a server, or of the one that it follows, ended.
    fn awake_with(&self, server: ServerId) -> Instant {
        let leader = self.zab.follows(server).map_or(server, |(leader, _)| leader);
        self.liveness.awake_since(server).max(self.liveness.awake_since(leader))
    }

    fn restarted(&mut self, server: ServerId) {
        self.notifications.restarted(server);
        self.zab.restarted(server, self.now);
        self.liveness.restarted(server);
        self.outside.restarted(server);
        self.progress.restarted(server);
        self.hand_overs.restarted(server);
        self.read_only.ends(server, (self.order, self.now));
        self.locals.restarted(server, self.order);
    }

    /// The client's end of the connection is closed. The server may still execute what the client
    /// asked.
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

    /// A server has finished a step.
    fn acted(&mut self, id: ServerId, acts: &Acts<'_>) -> Verdict {
        let (checks, zab, now) = (&mut self.checks, &mut self.zab, self.now);
        // Progress is checked on the old role: a leader that closes a learner's link may lose its
        // quorum, and its role, in the same step.
        self.progress.is_patient((checks, zab, self.model.rules()), id, acts.peers, now)?;
        self.hand_overs.acted(checks, zab, id, acts)?;
        let stops = self.hand_overs.is_stopping(id);
        let rules = self.model.rules();
        let limits = (now, rules.sync_limit, rules.tick);
        self.progress.stays((checks, zab), id, acts.peers, (acts.status, stops), limits)?;
        zab.closes(id, acts.peers);
        self.liveness.acts(id, now);
        if zab.role(id, acts.status, now) {
            self.liveness.restarted(id);
            if !zab.leads(id) {
                self.progress.restarted(id);
            }
        }
        if zab.leads(id) {
            for command in acts.disk {
                if let DiskCommand::Append { entry, .. } = command {
                    self.liveness.proposed(id, entry, &self.sessions);
                }
            }
        }
        zab.commanded(checks, id, acts.disk, (self.order, now))?;
        if acts.status.serving && zab.leads(id) {
            zab.establishes(checks, id, now)?;
        }
        if let Some(zxid) = zab.claims(checks, id, acts.status.committed)? {
            self.commit_up_to(id, zxid)?;
        }
        self.zab.is_committed_config(&mut self.checks, id)?;
        for command in acts.disk {
            if let DiskCommand::SaveState { state, .. } = command {
                self.zab.names_known_voters(&mut self.checks, id, state)?;
            }
        }
        let awake = self.liveness.awake_since(id);
        if self.zab.leads(id) {
            self.progress.acted(&self.zab, id, (acts.disk, acts.peers), acts.status, now);
        }
        let (checks, zab) = (&mut self.checks, &mut self.zab);
        zab.keeps_a_majority(checks, id, acts.status, now, awake)?;
        let rules = self.model.rules();
        self.outside.acted(checks, id, acts, (now, awake), rules.tick)?;
        zab.has_quorum_contact(checks, id, (now, awake), rules.silence_limit())?;
        self.progress.leaves_in_time((checks, zab), id, (now, awake), rules.sync_limit)?;
        let limits = (rules.sync_limit, rules.tick);
        self.progress.hands_over_in_time((checks, zab), id, (now, awake), limits)?;
        let since = zab.role_since(id).max(awake);
        self.progress.begins_in_time(checks, id, (now, since), rules.begin_limit)?;
        self.progress.commits_in_time(checks, zab, id, (now, awake), rules.commit_within)?;
        zab.on_sent(checks, id, acts.peers, now)?;
        zab.votes((checks, &self.hand_overs), id, acts.election)?;
        self.notifications.acted((checks, zab), id, acts.election, now)?;
        zab.watermarks(checks, id, acts.status)?;
        self.read_only.acted(checks, id, acts.status, (self.order, now))?;
        self.nothing_is_local_and_global(id)?;
        self.relays(id, acts.peers)
    }

    fn applied(
        &mut self,
        server: ServerId,
        zxid: Zxid,
        digest: Option<(u64, Holder<'_>)>,
    ) -> Verdict {
        self.zab.apply(&mut self.checks, server, zxid)?;
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
        self.checks.check(Id::T1, digest == right, || {
            let mut evidence =
                vec![format!("server {server} holds {digest:#x} at {zxid}; the model {right:#x}")];
            evidence.extend(difference::first(&self.model, zxid, holder));
            evidence.extend(self.model.txn(zxid).map(|txn| format!("last transaction: {txn}")));
            evidence
        })
    }

    fn recovered(&mut self, id: ServerId, state: &DurableState, last: Zxid) -> Verdict {
        let disk = Disk { server: id, state, last };
        self.zab.recovered(&mut self.checks, &disk, self.acknowledged)?;
        if self.zab.is_alone() {
            // With one voter, a recovery ends all requests that are not in its log.
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
        self.checks.check(Id::C7, self.model.at_or_before(applied) >= self.acknowledged, || {
            let acknowledged = self.acknowledged;
            vec![format!("server {server} ends at {applied}; {acknowledged} was acknowledged")]
        })?;
        let right = self.model.sessions_at(applied);
        let found: BTreeSet<SessionId> = sessions.iter().copied().collect();
        self.checks.check(Id::S2, found.iter().eq(&right), || {
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
