//! Sessions that only one server knows.
//!
//! Owns which server has which, as its steps show, and why one may begin or end. Must not know transactions but by what
//! they have made of a session.
//!
//! A local session has no transaction that could prove it, so servers are watched: what is on their lists after each step.
//! One comes onto a list by a handshake, and leaves it because its upgrade is applied, its client has closed it, its time
//! has come, or the process has ended.

use std::collections::{BTreeMap, BTreeSet};
use std::slice;
use std::time::Duration;

use zabkeeper_core::txn::{Lifetime, TxnOp};
use zabkeeper_core::wire::Request;
use zabkeeper_core::{ConnId, Instant, ServerId, SessionId, SessionOptions};

use super::catalog::{Id, Verdict};
use super::conn::{Conn, Who};
use super::heard::Pause;
use super::words::made_for_another;
use super::{Oracles, SessionView};
use crate::model::LocalRules;

/// What a session that nobody holds may outlive its timeout by, at most, while its server serves.
const ORPHAN_SLACK: Duration = Duration::from_secs(10);

/// See the module.
#[derive(Clone, Default, Debug)]
pub(super) struct Locals {
    /// All that ever were.
    known: BTreeMap<SessionId, Local>,
    /// Those that each server has now.
    lists: BTreeMap<ServerId, BTreeSet<SessionId>>,
    /// What each server was told when it was started. An operator may change that from start to start.
    told: BTreeMap<ServerId, SessionOptions>,
}

#[derive(Clone, Debug)]
struct Local {
    server: ServerId,
    /// When it came onto the list: a place among all observations.
    came: u64,
    /// When it left it.
    left: Option<u64>,
    /// The connection that it was made for, once that is known.
    conn: Option<ConnId>,
    /// Did its server upgrade sessions when it began?
    upgrades: bool,
}

impl Locals {
    /// A server is started, and told this.
    pub(super) fn is_told(&mut self, server: ServerId, sessions: SessionOptions) {
        self.told.insert(server, sessions);
    }

    /// Does a server keep new sessions to itself? Nobody has started it: then by what all are told.
    pub(super) fn are_begun_by(&self, server: ServerId, rules: &LocalRules) -> bool {
        self.told.get(&server).map_or_else(|| rules.servers.contains(&server), |told| told.local)
    }

    fn are_upgraded_by(&self, server: ServerId, rules: &LocalRules) -> bool {
        self.told.get(&server).map_or(rules.upgrade, |told| told.upgrade)
    }

    /// Was there ever a local session of this id?
    pub(super) fn ever_had(&self, session: SessionId) -> bool {
        self.known.contains_key(&session)
    }

    /// Is the session's server one that upgrades it?
    fn is_upgraded(&self, session: SessionId) -> bool {
        self.known.get(&session).is_some_and(|local| local.upgrades)
    }

    /// Is it this server's own now?
    pub(super) fn is_of(&self, session: SessionId, server: ServerId) -> bool {
        self.lists.get(&server).is_some_and(|list| list.contains(&session))
    }

    /// Was the session ever this server's own?
    pub(super) fn was_of(&self, session: SessionId, server: ServerId) -> bool {
        self.known.get(&session).is_some_and(|local| local.server == server)
    }

    /// Was it, when this was asked for or later?
    pub(super) fn was_of_since(&self, session: SessionId, server: ServerId, asked: u64) -> bool {
        let here = self.known.get(&session).filter(|local| local.server == server);
        here.is_some_and(|local| local.left.is_none_or(|left| left > asked))
    }

    /// Has it been, ever since this was asked for?
    fn is_of_since(&self, session: SessionId, server: ServerId, asked: u64) -> bool {
        let here = self.known.get(&session).filter(|local| local.server == server);
        here.is_some_and(|local| local.left.is_none() && local.came < asked)
    }

    /// Was the session made for this connection, or can it have been?
    pub(super) fn is_made_for(&mut self, session: SessionId, server: ServerId, id: ConnId) -> bool {
        let here = self.known.get_mut(&session).filter(|local| local.server == server);
        here.is_some_and(|local| *local.conn.get_or_insert(id) == id)
    }

    /// A server begins or ends a life: its sessions have gone with the last one.
    pub(super) fn restarted(&mut self, id: ServerId, order: u64) {
        for session in self.lists.remove(&id).unwrap_or_default() {
            self.leaves(session, order);
        }
    }

    /// It has come and gone within one step, unless it was ever there before.
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
    /// The list of a server has changed.
    pub(super) fn lists(&mut self, id: ServerId, sessions: &[SessionId]) -> Verdict {
        let now: BTreeSet<SessionId> = sessions.iter().copied().collect();
        let before = self.locals.lists.insert(id, now.clone()).unwrap_or_default();
        let order = self.order;
        for session in now.difference(&before) {
            let rules = &self.model.rules().local;
            let allowed = self.locals.are_begun_by(id, rules);
            let upgrades = self.locals.are_upgraded_by(id, rules);
            self.tally.hold(Id::S8, allowed, || {
                vec![format!("server {id} keeps session {session} to itself, and may keep none")]
            })?;
            let fresh =
                !self.locals.known.contains_key(session) && self.model.session(*session).is_none();
            self.tally.hold(Id::S4, fresh, || {
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

    /// S8: the promotion of a session is one step.
    pub(super) fn nothing_is_local_and_global(&mut self, id: ServerId) -> Verdict {
        let Oracles { tally, model, locals, ledger, .. } = self;
        let applied = ledger.applied_by(id);
        for session in locals.lists.get(&id).into_iter().flatten() {
            let known = model.session(*session).filter(|known| Some(known.created) <= applied);
            tally.hold(Id::S8, known.is_none(), || {
                vec![format!(
                    "server {id} has applied up to {applied:?} and keeps session {session} to \
                     itself, which is everybody's: {known:?}"
                )]
            })?;
        }
        Ok(())
    }

    /// Why is a session no longer on the list of its server?
    fn may_leave(&mut self, id: ServerId, session: SessionId) -> Verdict {
        let applied = self.ledger.applied_by(id);
        if self.model.session(session).is_some_and(|known| Some(known.created) <= applied) {
            return Ok(());
        }
        if self.asked_by(session, id).any(|request| *request == Request::CloseSession) {
            return Ok(());
        }
        if !self.ledger.serves(id) && self.locals.is_upgraded(session) {
            // It was being upgraded when a leader's snapshot came, and what has become of that cannot be known.
            return Ok(());
        }
        let view = self.sessions.get(&session);
        let timeout_ms = view.map_or(0, |view| view.timeouts.least(true));
        let timeout = Duration::from_millis(timeout_ms.into());
        let silent = self.silence_of(session, id, self.now);
        self.tally.hold(Id::S3, silent >= timeout * 7 / 8, || {
            vec![format!(
                "server {id} ends session {session}, which only it knows: silent for {silent:?}, \
                 and its timeout is {timeout:?}"
            )]
        })?;
        // Who stood still for longer than a client may be silent has not listened to any, and a deadline may be two ticks late.
        let Pause { begin: stood, end: awake, .. } = self.heard.last_pause(id);
        let tick = self.model.rules().tick;
        let greatest_ms = view.map_or(0, |view| view.timeouts.greatest());
        let longest = Duration::from_millis(greatest_ms.into()) + tick * 2;
        let deaf = !tick.is_zero()
            && self.ledger.role_since(id) < stood
            && awake <= self.now
            && awake.since(stood) > longest * 9 / 8;
        let listened = self.now.since(awake);
        self.tally.hold(Id::S3, !deaf || listened >= timeout * 7 / 8, || {
            let still = awake.since(stood);
            vec![format!(
                "server {id} ends session {session}, which only it knows: it stood still for {still:?} and has listened for \
                 {listened:?} since; the timeout is {timeout:?}"
            )]
        })
    }

    /// For how long has the server not heard of its session, while it served?
    fn silence_of(&self, session: SessionId, id: ServerId, until: Instant) -> Duration {
        let serves = self.ledger.role_since(id);
        until.since(self.heard.by_server(session, id).max(serves))
    }

    /// What was asked for a session on connections with a server, and is not answered.
    fn asked_by(&self, session: SessionId, id: ServerId) -> impl Iterator<Item = &Request> {
        let is_its = move |conn: &&Conn| {
            let unknown = conn.session == SessionId(0) && conn.asks_for_new_session();
            conn.server == id && (conn.session == session || unknown)
        };
        let conns = self.conns.values().map(|conn| &**conn).filter(is_its);
        conns.flat_map(|conn| conn.asked.iter().map(|asked| &asked.request))
    }

    /// A new session of a server that keeps them to itself: its own, for this connection, and for no other.
    pub(super) fn is_made_here(&mut self, id: ConnId, session: SessionId, who: Who) -> Verdict {
        let conn = &self.conns[&id];
        let (server, before) = (conn.server, conn.session);
        // A handshake that was held, and the end of its session right behind it, are done in one step: no list shows it.
        let ends = conn.asked.iter().any(|asked| asked.request == Request::CloseSession);
        if ends && self.model.session(session).is_none() {
            let upgrades = self.locals.are_upgraded_by(server, &self.model.rules().local);
            let order = self.order;
            let brief = Local { server, came: order, left: Some(order), conn: None, upgrades };
            self.locals.passes_by(session, brief);
        }
        let known = self.locals.was_of(session, server);
        self.tally.hold(Id::S6, known, || {
            vec![format!("{who}: got the session {session}, which its server does not have")]
        })?;
        let attached = self.sessions.get(&session).and_then(|view| view.attached);
        let first = before == SessionId(0) || before == session;
        let mine = first && self.locals.is_made_for(session, server, id) && attached.is_none();
        self.tally.hold(Id::S4, mine, || vec![made_for_another(who, session, attached)])?;
        self.conns.get_mut(&id).expect("has a phase").session = session;
        Ok(())
    }

    /// A transaction of a session whose client has not read yet that it has one.
    pub(super) fn learns_its_session(&mut self, id: ConnId, session: SessionId) {
        if let Some(conn) = self.conns.get_mut(&id)
            && conn.session == SessionId(0)
            && conn.asks_for_new_session()
            && self.locals.is_made_for(session, conn.server, id)
        {
            conn.session = session;
        }
    }

    /// A session that its server had all the time is not refused there.
    pub(super) fn is_not_refused(&mut self, id: ConnId, session: SessionId, asked: u64) -> Verdict {
        let (server, who) = (self.conns[&id].server, self.who(id));
        let had = self.locals.is_of_since(session, server, asked);
        let upgraded = self.model.session(session).is_some();
        self.tally.hold(Id::S2, !had || upgraded, || {
            vec![format!("{who}: refused session {session}, which is its server's and alive")]
        })
    }

    /// S8: only its own server has a session upgraded, once, for a write that needs it.
    pub(super) fn upgrade_was_asked_for(
        &mut self,
        session: SessionId,
        server: ServerId,
        txn: &dyn Fn() -> String,
    ) -> Verdict {
        let may = self.locals.is_upgraded(session);
        let own = self.locals.was_of(session, server);
        let wanted = self.asked_by(session, server).any(creates_ephemeral);
        self.tally.hold(Id::S8, may && own && wanted, || {
            let what = format!(
                "an upgrade for server {server} (is it told to: {may}, is the session its own: \
                 {own}, does a request need it: {wanted})"
            );
            vec![what, format!("transaction: {}", txn())]
        })
    }

    /// S8: a local session owns nothing. Where upgrades are on, what would make it an owner comes behind one.
    pub(super) fn owns_nothing(
        &mut self,
        session: SessionId,
        (request, op): (&Request, &TxnOp),
        who: Who,
    ) -> Verdict {
        self.tally.hold(Id::S8, !owns(op), || {
            vec![format!("{who}: {request} became {op}, and the session is not everybody's")]
        })?;
        let late = self.locals.is_upgraded(session) && creates_ephemeral(request);
        self.tally.hold(Id::S8, !late, || {
            vec![format!("{who}: {request} was decided, and the session is not upgraded")]
        })
    }

    /// S7 of local sessions, at the end.
    pub(super) fn no_local_orphan_is_left(&mut self) -> Verdict {
        let Some(audit) = self.audit else {
            return Ok(());
        };
        // Whom the heal has left out serves nobody, and lets nobody expire.
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
            let awake = left.max(self.heard.awake_since(id));
            let silent = self.silence_of(session, id, audit).min(audit.since(awake));
            let granted = view.map_or(0, SessionView::longest_ms);
            let timeout = Duration::from_millis(granted.into());
            // Whoever went before its handshake was answered has left nothing that would say what was granted.
            self.tally.hold(Id::S7, granted == 0 || silent <= timeout * 5 / 4 + ORPHAN_SLACK, || {
                vec![format!(
                    "server {id} keeps session {session}; nobody has held it for {silent:?}, and \
                     its timeout is {timeout:?}"
                )]
            })?;
        }
        Ok(())
    }
}

/// Does it leave a node that goes with its session?
fn owns(op: &TxnOp) -> bool {
    let ops = if let TxnOp::Multi(ops) = op { ops } else { slice::from_ref(op) };
    ops.iter().any(|op| matches!(op, TxnOp::Create { lifetime: Lifetime::Ephemeral, .. }))
}

/// Would it leave a node that goes with its session? What no server understands ends the search: it refuses the request.
fn creates_ephemeral(request: &Request) -> bool {
    let parts =
        if let Request::Multi(requests) = request { requests } else { slice::from_ref(request) };
    let understood = |part: &&Request| !matches!(part, Request::Create { flags, .. } if !(0..=4).contains(flags));
    let ephemeral = |part: &Request| matches!(part, Request::Create { flags: 1 | 3, .. });
    parts.iter().take_while(understood).any(ephemeral)
}
