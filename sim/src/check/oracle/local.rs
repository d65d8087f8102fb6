//! Local sessions: sessions that only one server knows (SESS-14).
//!
//! Owns the local sessions of each server, as its steps list them, and the reasons for their begin
//! and end. Must not know transactions, except those that create, upgrade or close a session.
//!
//! No transaction proves a local session, so the server's list after each step counts. A session
//! enters the list by a handshake; it leaves when its upgrade is applied, its client closes it, it
//! expires, or the process ends.

use std::collections::{BTreeMap, BTreeSet};
use std::slice;
use std::time::Duration;

use zabkeeper_core::txn::{Lifetime, TxnOp};
use zabkeeper_core::wire::Request;
use zabkeeper_core::{ConnId, Instant, ServerId, SessionId, SessionOptions};

use super::Oracles;
use super::catalog::{Id, Verdict};
use super::conn::{Conn, Who, made_for_another};
use super::session_liveness::Pause;
use super::sessions::SessionView;
use crate::check::model::LocalRules;

/// How long a session without a client may outlive its timeout while its server serves.
const ORPHAN_SLACK: Duration = Duration::from_secs(10);

/// See the module.
#[derive(Clone, Default, Debug)]
pub(super) struct Locals {
    /// All local sessions ever.
    known: BTreeMap<SessionId, Local>,
    /// The present local sessions of each server.
    lists: BTreeMap<ServerId, BTreeSet<SessionId>>,
    /// The session options of each server's last start. They may differ from start to start.
    configured: BTreeMap<ServerId, SessionOptions>,
}

#[derive(Clone, Debug)]
struct Local {
    server: ServerId,
    /// Observation number at which it entered the list.
    came: u64,
    /// Observation number at which it left the list.
    left: Option<u64>,
    /// The connection that it was created for, once known.
    conn: Option<ConnId>,
    /// Whether its server upgraded sessions when it was created.
    upgrades: bool,
}

impl Locals {
    /// The server is started with these options.
    pub(super) fn configure(&mut self, server: ServerId, sessions: SessionOptions) {
        self.configured.insert(server, sessions);
    }

    /// Whether the server creates local sessions: by the options of its last start, or by `rules`
    /// if no start was observed.
    pub(super) fn are_begun_by(&self, server: ServerId, rules: &LocalRules) -> bool {
        self.configured
            .get(&server)
            .map_or_else(|| rules.servers.contains(&server), |configured| configured.local)
    }

    fn are_upgraded_by(&self, server: ServerId, rules: &LocalRules) -> bool {
        self.configured.get(&server).map_or(rules.upgrade, |configured| configured.upgrade)
    }

    /// Whether a local session ever had this id.
    pub(super) fn ever_had(&self, session: SessionId) -> bool {
        self.known.contains_key(&session)
    }

    /// Whether the session's server upgrades local sessions.
    fn is_upgraded(&self, session: SessionId) -> bool {
        self.known.get(&session).is_some_and(|local| local.upgrades)
    }

    /// Whether it is a local session of this server now.
    pub(super) fn is_of(&self, session: SessionId, server: ServerId) -> bool {
        self.lists.get(&server).is_some_and(|list| list.contains(&session))
    }

    /// Whether it was ever a local session of this server.
    pub(super) fn was_of(&self, session: SessionId, server: ServerId) -> bool {
        self.known.get(&session).is_some_and(|local| local.server == server)
    }

    /// Whether it was a local session of this server at observation `asked` or later.
    pub(super) fn was_of_since(&self, session: SessionId, server: ServerId, asked: u64) -> bool {
        let here = self.known.get(&session).filter(|local| local.server == server);
        here.is_some_and(|local| local.left.is_none_or(|left| left > asked))
    }

    /// Whether it has been a local session of this server since before observation `asked`.
    fn is_of_since(&self, session: SessionId, server: ServerId, asked: u64) -> bool {
        let here = self.known.get(&session).filter(|local| local.server == server);
        here.is_some_and(|local| local.left.is_none() && local.came < asked)
    }

    /// Whether the session was created for this connection. The first connection with the session's
    /// server counts as the one.
    pub(super) fn is_made_for(&mut self, session: SessionId, server: ServerId, id: ConnId) -> bool {
        let here = self.known.get_mut(&session).filter(|local| local.server == server);
        here.is_some_and(|local| *local.conn.get_or_insert(id) == id)
    }

    /// The server's process starts or ends, and its local sessions end.
    pub(super) fn restarted(&mut self, id: ServerId, order: u64) {
        for session in self.lists.remove(&id).unwrap_or_default() {
            self.leaves(session, order);
        }
    }

    /// The session was created and closed within one step, so that no list has shown it; an older
    /// entry stays.
    fn passes_by(&mut self, session: SessionId, brief: Local) {
        self.known.entry(session).or_insert(brief);
    }

    fn leaves(&mut self, session: SessionId, order: u64) {
        if let Some(local) = self.known.get_mut(&session) {
            local.left = Some(order);
        }
    }
}

impl Oracles {
    /// The server's list of local sessions has changed.
    pub(super) fn lists(&mut self, id: ServerId, sessions: &[SessionId]) -> Verdict {
        let now: BTreeSet<SessionId> = sessions.iter().copied().collect();
        let before = self.locals.lists.insert(id, now.clone()).unwrap_or_default();
        let order = self.order;
        for session in now.difference(&before) {
            let rules = &self.model.rules().local;
            let allowed = self.locals.are_begun_by(id, rules);
            let upgrades = self.locals.are_upgraded_by(id, rules);
            self.checks.check(Id::S8, allowed, || {
                vec![format!("server {id} keeps session {session} to itself, and may keep none")]
            })?;
            let fresh =
                !self.locals.known.contains_key(session) && self.model.session(*session).is_none();
            self.checks.check(Id::S4, fresh, || {
                vec![format!("server {id} begins session {session}, which there was before")]
            })?;
            let local = Local { server: id, came: order, left: None, conn: None, upgrades };
            self.locals.known.insert(*session, local);
        }
        for session in before.difference(&now) {
            self.may_leave(id, *session)?;
            self.locals.leaves(*session, order);
        }
        self.nothing_is_local_and_global(id)
    }

    /// S8: once a server has applied a session's upgrade, the session is not local there.
    pub(super) fn nothing_is_local_and_global(&mut self, id: ServerId) -> Verdict {
        let Oracles { checks, model, locals, zab, .. } = self;
        let applied = zab.applied_by(id);
        for session in locals.lists.get(&id).into_iter().flatten() {
            let known = model.session(*session).filter(|known| Some(known.created) <= applied);
            checks.check(Id::S8, known.is_none(), || {
                vec![format!(
                    "server {id} has applied up to {applied:?} and keeps session {session} to \
                     itself, which is everybody's: {known:?}"
                )]
            })?;
        }
        Ok(())
    }

    /// S3: a session may leave the list by its upgrade, by closeSession or by expiry.
    fn may_leave(&mut self, id: ServerId, session: SessionId) -> Verdict {
        let applied = self.zab.applied_by(id);
        if self.model.session(session).is_some_and(|known| Some(known.created) <= applied) {
            return Ok(());
        }
        if self.asked_by(session, id).any(|request| *request == Request::CloseSession) {
            return Ok(());
        }
        if !self.zab.serves(id) && self.locals.is_upgraded(session) {
            // A leader's snapshot may have contained its upgrade, which is not observed.
            return Ok(());
        }
        let view = self.sessions.get(&session);
        let timeout_ms = view.map_or(0, |view| view.timeouts.least(true));
        let timeout = Duration::from_millis(timeout_ms.into());
        let silent = self.silence_of(session, id, self.now);
        self.checks.check(Id::S3, silent >= timeout * 7 / 8, || {
            vec![format!(
                "server {id} ends session {session}, which only it knows: silent for {silent:?}, \
                 and its timeout is {timeout:?}"
            )]
        })?;
        // A server that stood still for longer than a client may be silent has not listened to any
        // client; a deadline may be two ticks late.
        let Pause { begin: stood, end: awake, .. } = self.liveness.last_pause(id);
        let tick = self.model.rules().tick;
        let greatest_ms = view.map_or(0, |view| view.timeouts.greatest());
        let longest = Duration::from_millis(greatest_ms.into()) + tick * 2;
        let deaf = !tick.is_zero()
            && self.zab.role_since(id) < stood
            && awake <= self.now
            && awake.since(stood) > longest * 9 / 8;
        let listened = self.now.since(awake);
        self.checks.check(Id::S3, !deaf || listened >= timeout * 7 / 8, || {
            let still = awake.since(stood);
            vec![format!(
                "server {id} ends session {session}, which only it knows: it stood still for \
                 {still:?} and has listened for \
                 {listened:?} since; the timeout is {timeout:?}"
            )]
        })
    }

    /// How long the server has not touched its session while it served, until `until`.
    fn silence_of(&self, session: SessionId, id: ServerId, until: Instant) -> Duration {
        let serves = self.zab.role_since_before(id, self.now);
        until.since(self.liveness.by_server(session, id).max(serves))
    }

    /// Unanswered requests of the session on connections to this server, and those of connections
    /// whose new session is not known yet.
    fn asked_by(&self, session: SessionId, id: ServerId) -> impl Iterator<Item = &Request> {
        let is_its = move |conn: &&Conn| {
            let unknown = conn.session == SessionId(0) && conn.asks_for_new_session();
            conn.server == id && (conn.session == session || unknown)
        };
        let conns = self.conns.values().map(|conn| &**conn).filter(is_its);
        conns.flat_map(|conn| conn.asked.iter().map(|asked| &asked.request))
    }

    /// A new session of a server that creates local ones: its own, for this connection and no
    /// other.
    pub(super) fn is_made_here(&mut self, id: ConnId, session: SessionId, who: Who) -> Verdict {
        let conn = &self.conns[&id];
        let (server, before) = (conn.server, conn.session);
        // A delayed handshake and a closeSession right behind it are handled in one step, and no
        // list shows the session.
        let ends = conn.asked.iter().any(|asked| asked.request == Request::CloseSession);
        if ends && self.model.session(session).is_none() {
            let upgrades = self.locals.are_upgraded_by(server, &self.model.rules().local);
            let order = self.order;
            let brief = Local { server, came: order, left: Some(order), conn: None, upgrades };
            self.locals.passes_by(session, brief);
        }
        let known = self.locals.was_of(session, server);
        self.checks.check(Id::S6, known, || {
            vec![format!("{who}: got the session {session}, which its server does not have")]
        })?;
        let attached = self.sessions.get(&session).and_then(|view| view.attached);
        let first = before == SessionId(0) || before == session;
        let mine = first && self.locals.is_made_for(session, server, id) && attached.is_none();
        self.checks.check(Id::S4, mine, || vec![made_for_another(who, session, attached)])?;
        self.conns.get_mut(&id).expect("has a phase").session = session;
        Ok(())
    }

    /// A transaction names the session of a connection whose client has not read its connect
    /// response yet.
    pub(super) fn learns_its_session(&mut self, id: ConnId, session: SessionId) {
        if let Some(conn) = self.conns.get_mut(&id)
            && conn.session == SessionId(0)
            && conn.asks_for_new_session()
            && self.locals.is_made_for(session, conn.server, id)
        {
            conn.session = session;
        }
    }

    /// S2: a server does not refuse its own local session that was alive since the request.
    pub(super) fn is_not_refused(&mut self, id: ConnId, session: SessionId, asked: u64) -> Verdict {
        let (server, who) = (self.conns[&id].server, self.who(id));
        let had = self.locals.is_of_since(session, server, asked);
        let upgraded = self.model.session(session).is_some();
        self.checks.check(Id::S2, !had || upgraded, || {
            vec![format!("{who}: refused session {session}, which is its server's and alive")]
        })
    }

    /// S8: a session is upgraded only by its own server, if that upgrades sessions, for a request
    /// that needs it.
    pub(super) fn upgrade_was_asked_for(
        &mut self,
        session: SessionId,
        server: ServerId,
        txn: &dyn Fn() -> String,
    ) -> Verdict {
        let may = self.locals.is_upgraded(session);
        let own = self.locals.was_of(session, server);
        let wanted = self.asked_by(session, server).any(creates_ephemeral);
        self.checks.check(Id::S8, may && own && wanted, || {
            let what = format!(
                "an upgrade for server {server} (is it configured to: {may}, is the session its \
                 own: {own}, does a request need it: {wanted})"
            );
            vec![what, format!("transaction: {}", txn())]
        })
    }

    /// S8: a local session owns no ephemeral node. Where sessions are upgraded, a write that could
    /// create one comes after the upgrade.
    pub(super) fn owns_nothing(
        &mut self,
        session: SessionId,
        (request, op): (&Request, &TxnOp),
        who: Who,
    ) -> Verdict {
        self.checks.check(Id::S8, !owns(op), || {
            vec![format!("{who}: {request} became {op}, and the session is not everybody's")]
        })?;
        let late = self.locals.is_upgraded(session) && creates_ephemeral(request);
        self.checks.check(Id::S8, !late, || {
            vec![format!("{who}: {request} was decided, and the session is not upgraded")]
        })
    }

    /// S7, at the end: a local session without a client has expired.
    pub(super) fn no_local_orphan_is_left(&mut self) -> Verdict {
        let Some(audit) = self.audit else {
            return Ok(());
        };
        // Servers outside the audit serve no client and expire no session.
        let lists = self.locals.lists.iter().filter(|(id, _)| self.audited.contains(id));
        let all: Vec<(ServerId, SessionId)> =
            lists.flat_map(|(id, list)| list.iter().map(|session| (*id, *session))).collect();
        for (id, session) in all {
            let view = self.sessions.get(&session);
            let conn = view.and_then(|view| view.attached).map(|attached| attached.conn);
            if conn.and_then(|conn| self.conns.get(&conn)).is_some_and(|conn| !conn.closed) {
                continue;
            }
            let left = view.map_or(Instant::default(), |view| view.left);
            let awake = left.max(self.liveness.awake_since(id));
            let silent = self.silence_of(session, id, audit).min(audit.since(awake));
            let granted = view.map_or(0, SessionView::longest_ms);
            let timeout = Duration::from_millis(granted.into());
            // If the handshake was never answered, the granted timeout is not known.
            self.checks.check(Id::S7, granted == 0 || silent <= timeout * 5 / 4 + ORPHAN_SLACK, || {
                vec![format!(
                    "server {id} keeps session {session}; nobody has held it for {silent:?}, and \
                     its timeout is {timeout:?}"
                )]
            })?;
        }
        Ok(())
    }
}

/// Whether the transaction creates an ephemeral node.
fn owns(op: &TxnOp) -> bool {
    let ops = if let TxnOp::Multi(ops) = op { ops } else { slice::from_ref(op) };
    ops.iter().any(|op| matches!(op, TxnOp::Create { lifetime: Lifetime::Ephemeral, .. }))
}

/// Whether the request could create an ephemeral node. A part with invalid flags ends the search:
/// the server refuses the request there.
fn creates_ephemeral(request: &Request) -> bool {
    let parts =
        if let Request::Multi(requests) = request { requests } else { slice::from_ref(request) };
    let understood = |part: &&Request| !matches!(part, Request::Create { flags, .. } if !(0..=4).contains(flags));
    let ephemeral = |part: &Request| matches!(part, Request::Create { flags: 1 | 3, .. });
    parts.iter().take_while(understood).any(ephemeral)
}
