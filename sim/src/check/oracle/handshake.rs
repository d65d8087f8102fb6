//! Handshakes: the session that a connection gets, and whether it may get it.
//!
//! Owns the checks of connect responses, and what a connection takes over from earlier ones of its
//! session. A session's password is the one in its first connect response: no other session has it,
//! and it cannot be computed from the id as ZooKeeper's can (HS-08); ZooKeeper's definition is
//! repeated here.

use std::sync::Arc;

use bytes::Bytes;
use zabkeeper_core::wire::{
    ConnectRequest, ConnectResponse, Password, Request, RequestFrame, SetWatches, XID_PING,
};
use zabkeeper_core::{ConnId, Instant, SessionId, Zxid};

use super::Oracles;
use super::catalog::{Id, Verdict};
use super::conn::{Asked, Attached, AuthAsked, Conn, Hello, Phase, Who, made_for_another};
use super::watch::{Held, Kept, Slot};

/// The salt that ZooKeeper mixes into the seed of a password.
const PASSWORD_SALT: i64 = 0xb341_5c00;

impl Oracles {
    /// The client has sent its first frame, the connect request.
    pub(super) fn greeted(&mut self, id: ConnId, frame: &Bytes) -> Verdict {
        let (at, order) = (self.now, self.order);
        let conn = self.conns.get_mut(&id).expect("has a phase");
        match ConnectRequest::decode(frame.clone()) {
            Err(_) => conn.phase = Phase::Opaque,
            Ok(request) => {
                if let Some(view) = self.sessions.get_mut(&request.session) {
                    let bounds = &self.model.rules().timeouts;
                    let asked_ms = u32::try_from(request.timeout_ms).unwrap_or(0);
                    let granted_ms = bounds.granted_ms(conn.server, request.timeout_ms);
                    view.timeouts.are_asked(id, granted_ms.unwrap_or(asked_ms));
                }
                conn.phase = Phase::Greeted;
                conn.session = request.session;
                let alive = self.model.is_alive(request.session);
                conn.hello = Some(Hello { request, at, order, alive });
            }
        }
        Ok(())
    }

    /// The client has read the connect response.
    pub(super) fn welcomed(&mut self, id: ConnId, frame: &Bytes) -> Verdict {
        let who = self.who(id);
        let conn = self.conns.get_mut(&id).expect("has a phase");
        let Hello { request: hello, at, order: asked, alive } =
            conn.hello.clone().expect("greeted");
        let response = match ConnectResponse::decode(frame.clone()) {
            Ok(response) => response,
            Err(error) => {
                return Oracles::fault(
                    Id::S6,
                    vec![format!("{who}: answer to handshake: {error}")],
                );
            }
        };
        if response.session == SessionId(0) {
            conn.phase = Phase::Over;
            if let Some(view) = self.sessions.get_mut(&hello.session) {
                view.timeouts.are_answered(id);
            }
            let clean = response.timeout_ms == 0 && response.password == [0; 16];
            self.checks
                .check(Id::S6, clean, || vec![format!("{who}: refused with {response:?}")])?;
            if self.is_password(&hello) {
                self.is_over(id, hello.session, alive)?;
                self.is_not_refused(id, hello.session, asked)?;
            }
            return Ok(());
        }
        conn.phase = Phase::Open;
        self.says_what_it_is((&hello, asked), &response, who)?;
        if hello.session != SessionId(0) {
            self.may_go_on(&hello, asked, &response, who)?;
        } else if self.conns[&id].begins_local {
            self.is_made_here(id, response.session, who)?;
        } else {
            self.is_made_for(id, &response, who)?;
        }
        self.is_given_its_password(&response, who)?;
        self.is_not_ahead(id, &hello, who)?;
        self.is_granted(&hello, &response, who)?;
        self.attach(id, &response, hello.last_zxid_seen, (at, asked))
    }

    /// S2: with the right password, a session may be refused only if it was not alive at the
    /// request or is not alive now. A proposed closeSession is no reason: it may be lost with its
    /// leader. A session that was local to another server at the request (SESS-15) may be refused,
    /// even if it has been upgraded since.
    fn is_over(&mut self, id: ConnId, session: SessionId, was_alive: bool) -> Verdict {
        let (who, lives) = (self.who(id), was_alive && self.model.is_alive(session));
        self.checks.check(Id::S2, !lives, || {
            vec![format!("{who}: refused session {session}, which was alive all the time")]
        })
    }

    /// A new session: its creation is committed, for this connection and no other.
    fn is_made_for(&mut self, id: ConnId, response: &ConnectResponse, who: Who) -> Verdict {
        let session = response.session;
        let made = self.model.session(session);
        self.checks.check(Id::S6, made.is_some(), || {
            vec![format!("{who}: got the session {session}, whose creation is not committed")]
        })?;
        let conn = self.conns.get_mut(&id).expect("has a phase");
        let attached = self.sessions.get(&session).and_then(|view| view.attached);
        let mine = conn.session == SessionId(0) || conn.session == session;
        self.checks.check(Id::S4, mine && attached.is_none(), || {
            vec![made_for_another(who, session, attached)]
        })?;
        conn.session = session;
        let timeout_ms = made.map(|made| made.timeout_ms);
        self.checks.check(Id::S6, timeout_ms == u32::try_from(response.timeout_ms).ok(), || {
            vec![format!("{who}: timeout {} ms, not {timeout_ms:?}", response.timeout_ms)]
        })
    }

    /// An existing session: the one asked for, with its password. Its closeSession was not even
    /// proposed when the client asked: a leader that a quorum has confirmed since has revalidated
    /// the session.
    fn may_go_on(
        &mut self,
        hello: &ConnectRequest,
        asked: u64,
        response: &ConnectResponse,
        who: Who,
    ) -> Verdict {
        let session = hello.session;
        self.checks.check(Id::S6, response.session == session, || {
            vec![format!("{who}: asked for {session} and got {}", response.session)]
        })?;
        let right = self.is_password(hello);
        self.checks.check(Id::S4, right, || {
            vec![format!("{who}: accepted with the password {:?}", hello.password)]
        })?;
        let known = self.model.session(session);
        let ended = self.sessions.get(&session).and_then(|view| view.ended);
        let alive = known.is_some() && ended.is_none_or(|proposed| asked < proposed);
        let server = self.conns[&who.id].server;
        let alive = alive || self.locals.was_of_since(session, server, asked);
        self.checks.check(Id::S6, alive, || {
            vec![format!("{who}: accepted, and the session is not alive: {known:?}")]
        })
    }

    /// Whether the request has the password that was given for the session.
    fn is_password(&self, hello: &ConnectRequest) -> bool {
        let view = self.sessions.get(&hello.session);
        let given = view.and_then(|view| view.password);
        given.is_some_and(|given| hello.password[..] == given)
    }

    /// The password is the one of the session's first response, and no other session's.
    fn is_given_its_password(&mut self, response: &ConnectResponse, who: Who) -> Verdict {
        let (session, password) = (response.session, response.password);
        let computed = zookeeper_password(session);
        self.checks.check(Id::S4, password != computed, || {
            vec![format!("{who}: got a password that follows from the id: {password:?}")]
        })?;
        let owner = *self.passwords.entry(password).or_insert(session);
        let view = self.sessions.entry(session).or_default();
        let given = *view.password.get_or_insert(password);
        self.checks.check(Id::S4, given == password && owner == session, || {
            vec![format!(
                "{who}: got the password {password:?}; {given:?} is the one of session {session}, \
                 and session {owner} has \
                 this one"
            )]
        })
    }

    /// The timeout is the requested one, clamped to the bounds of this server (HS-06).
    fn is_granted(
        &mut self,
        hello: &ConnectRequest,
        response: &ConnectResponse,
        who: Who,
    ) -> Verdict {
        let server = self.conns[&who.id].server;
        let granted_ms = self.model.rules().timeouts.granted_ms(server, hello.timeout_ms);
        let answered_ms = u32::try_from(response.timeout_ms).ok();
        let right = granted_ms.is_none() || granted_ms == answered_ms;
        self.checks.check(Id::S6, right, || {
            let (asked, got) = (hello.timeout_ms, response.timeout_ms);
            vec![format!(
                "{who}: asked for a timeout of {asked} ms, was granted {got} ms, and server \
                 {server} grants {granted_ms:?}"
            )]
        })
    }

    /// C6, HS-05: a server must not accept a client that has seen a higher zxid than it has
    /// applied.
    fn is_not_ahead(&mut self, id: ConnId, hello: &ConnectRequest, who: Who) -> Verdict {
        let server = self.conns[&id].server;
        let applied = self.zab.applied_by(server).unwrap_or(self.model.tip());
        let seen = match hello.last_zxid_seen {
            // The zxid at which an epoch begins is no transaction that a server could lack.
            epoch if epoch.counter() == 0 => self.model.at_or_before(epoch),
            seen => seen,
        };
        self.checks.check(Id::C6, seen <= applied, || {
            vec![format!("{who}: accepted, has seen {seen}; the server has applied {applied}")]
        })
    }

    /// The connection resumes the session, with the state that earlier connections left.
    fn attach(
        &mut self,
        id: ConnId,
        response: &ConnectResponse,
        claimed: Zxid,
        (received, asked): (Instant, u64),
    ) -> Verdict {
        let session = response.session;
        let granted_ms = u32::try_from(response.timeout_ms).unwrap_or(0);
        let claimed = self.model.at_or_before(claimed);
        let view = self.sessions.entry(session).or_default();
        let conn = self.conns.get_mut(&id).expect("has a phase");
        // Another client that resumes the session knows only what its own handshake states.
        let same_client = view.attached.is_none_or(|before| before.client == conn.client);
        let held = std::mem::take(&mut view.held);
        conn.held = if same_client { held } else { Held::default() };
        if !same_client {
            view.believed.clear();
            view.shared = true;
        }
        conn.knows = !view.shared && !self.bad_clients;
        conn.unshown = view.believed.clone();
        // Auth packets sent before the response arrived.
        conn.auths.iter().for_each(|asked| {
            conn.unshown.remove(&asked.credential);
        });
        conn.claimed = claimed;
        conn.floor = if same_client { claimed.max(view.seen) } else { claimed };
        conn.acknowledged = if same_client { view.acknowledged } else { Zxid::ZERO };
        view.granted_ms = view.granted_ms.max(granted_ms);
        view.timeouts.are_answered(id);
        view.timeouts.are_granted((asked, self.order), granted_ms);
        conn.welcomed = Some(self.order);
        let (client, order, at) = (conn.client, self.order, self.now);
        view.attached = Some(Attached { conn: id, client, asked, order, at });
        let ends = (session, id, conn.server);
        // A leader needs no report of the session: it has created or revalidated it.
        self.liveness.answered(ends, received, None);
        let early: Vec<SetWatches> = conn.asked.iter().filter_map(set_watches).cloned().collect();
        for watches in early {
            self.sets_again(id, &watches)?;
        }
        Ok(())
    }

    /// setWatches names only watches that its client holds; nothing else would handle their events.
    /// A watch in the `exist` list fires if the node exists (WATCH-21), so it must have been set
    /// while there was no node.
    fn sets_again(&mut self, id: ConnId, watches: &SetWatches) -> Verdict {
        let conn = self.conns.get_mut(&id).expect("has a phase");
        let accepts = |hello: &Hello| hello.request.read_only == Some(true);
        if conn.asks_for_new_session() && conn.hello.as_ref().is_some_and(accepts) {
            // Only read-only servers have accepted its session until now: it begins anew, and the
            // client sets the watches of the earlier one (RO-04).
            conn.knows = false;
            self.sessions.entry(conn.session).or_default().shared = true;
        }
        let knows = conn.knows && conn.phase == Phase::Open;
        let strange = conn.resend(watches).filter(|_| knows);
        let promise = strange.as_ref().map_or(Id::W6, |(promise, _)| *promise);
        self.checks.check(promise, strange.is_none(), || {
            let (_, watch) = strange.expect("does not hold");
            vec![format!("{id} sets {watch}")]
        })
    }

    /// The client has sent a frame after its connect request.
    pub(super) fn asked(&mut self, id: ConnId, frame: &Bytes) -> Verdict {
        let (seen, acknowledged, at) = (self.seen, self.acknowledged, self.now);
        let conn = self.conns.get_mut(&id).expect("has a phase");
        if conn.garbled || conn.phase == Phase::Over {
            return Ok(());
        }
        let Ok(RequestFrame { xid, request }) = RequestFrame::decode(frame.clone()) else {
            conn.garbled = true;
            return Ok(());
        };
        match &request {
            Request::Auth { scheme, auth } => {
                let mut ids = conn.shown.sent.to_vec();
                let packet = auth.0.as_deref().unwrap_or_default();
                if self.model.rules().hangs_up(scheme, packet) {
                    conn.garbled = true;
                    return Ok(());
                }
                let right = self.model.rules().authenticate(&mut ids, scheme, packet);
                // The server reads nothing after a failed auth.
                conn.garbled = right.is_err();
                conn.shown.sent = Arc::from(ids);
                let credential = (scheme.clone(), auth.0.clone());
                conn.unshown.remove(&credential);
                let ids = conn.shown.sent.clone();
                conn.auths.push_back(AuthAsked { credential, right, ids });
                return Ok(());
            }
            Request::SetWatches(watches) => {
                self.sets_again(id, watches)?;
                self.shows_who_it_is(id, &request)?;
            }
            Request::Ping => {}
            Request::Create { .. }
            | Request::Delete { .. }
            | Request::Exists { .. }
            | Request::GetData { .. }
            | Request::SetData { .. }
            | Request::GetChildren { .. }
            | Request::Sync { .. }
            | Request::Watches { .. }
            | Request::Check { .. }
            | Request::Multi(_)
            | Request::CloseSession
            | Request::GetAcl { .. }
            | Request::SetAcl { .. }
            | Request::CreateContainer { .. }
            | Request::CreateTtl { .. }
            | Request::MultiRead(_)
            | Request::GetEphemerals { .. }
            | Request::GetAllChildrenNumber { .. }
            | Request::AddWatch { .. }
            | Request::WhoAmI
            | Request::NoPath { .. }
            | Request::Reconfig
            | Request::Reconfigure(_)
            | Request::Throttled { .. }
            | Request::Sasl { .. }
            | Request::Undecodable { .. }
            | Request::Unknown { .. } => {
                self.shows_who_it_is(id, &request)?;
                self.holds_its_watches(id, &request)?;
            }
        }
        // A ping is answered with the ping xid, whatever xid it has (WIRE-08).
        let xid = if request == Request::Ping { XID_PING } else { xid };
        let conn = self.conns.get_mut(&id).expect("has a phase");
        let ids = conn.shown.sent.clone();
        conn.asked.push_back(Asked { xid, request, ids, seen, acknowledged, at, txn: None });
        Ok(())
    }

    /// C13: before any other request, setWatches included, a client that resumes a session has
    /// sent its auth packets again (HS-13): servers do not share identities.
    fn shows_who_it_is(&mut self, id: ConnId, request: &Request) -> Verdict {
        let conn = &self.conns[&id];
        let shown = conn.phase != Phase::Open || conn.unshown.is_empty();
        self.checks.check(Id::C13, shown, || {
            let unshown: Vec<&str> = conn.unshown.iter().map(|(scheme, _)| &scheme[..]).collect();
            vec![format!("{id}: {request} comes before auth with {unshown:?}")]
        })
    }

    /// W2: before any request but setWatches, a client that resumes a session has set its
    /// watches again (HS-13).
    fn holds_its_watches(&mut self, id: ConnId, request: &Request) -> Verdict {
        let conn = &self.conns[&id];
        let kept = conn.phase != Phase::Open || conn.held.is_empty();
        self.checks.check(Id::W2, kept, || {
            vec![format!("{id}: {request} comes before setWatches for {:?}", conn.held)]
        })
    }
}

impl Conn {
    /// Moves the watches that setWatches names to `resent`. Returns one that the session does not
    /// hold in this form, with the oracle that this violates.
    fn resend(&mut self, watches: &SetWatches) -> Option<(Id, String)> {
        type IsSuch = fn(&Kept) -> bool;
        let SetWatches { data, exist, child, persistent, recursive, .. } = watches;
        let lists: [(&str, Slot, &[String], IsSuch); 5] = [
            ("data", Slot::Data, data, |kept| kept.present),
            ("exist", Slot::Data, exist, |kept| kept.absent),
            ("child", Slot::Child, child, |_| true),
            ("persistent", Slot::Persistent, persistent, |_| true),
            ("recursive", Slot::Recursive, recursive, |_| true),
        ];
        let mut strange = None;
        for (list, slot, paths, is_such) in lists {
            for path in paths {
                self.held.hand_over(slot, path, &mut self.resent);
                let kept = self.resent.of(slot).get(path).copied();
                if !kept.as_ref().is_some_and(is_such) {
                    let promise = if kept.is_some() { Id::W7 } else { Id::W6 };
                    let watch = format!("its {list} watch of {path} again, and holds {kept:?}");
                    strange = Some((promise, watch));
                }
            }
        }
        strange
    }
}

fn set_watches(asked: &Asked) -> Option<&SetWatches> {
    match &asked.request {
        Request::SetWatches(watches) => Some(watches),
        Request::Create { .. }
        | Request::Delete { .. }
        | Request::Exists { .. }
        | Request::GetData { .. }
        | Request::SetData { .. }
        | Request::GetChildren { .. }
        | Request::Sync { .. }
        | Request::Ping
        | Request::Watches { .. }
        | Request::Auth { .. }
        | Request::Check { .. }
        | Request::Multi(_)
        | Request::CloseSession
        | Request::GetAcl { .. }
        | Request::SetAcl { .. }
        | Request::CreateContainer { .. }
        | Request::CreateTtl { .. }
        | Request::MultiRead(_)
        | Request::GetEphemerals { .. }
        | Request::GetAllChildrenNumber { .. }
        | Request::AddWatch { .. }
        | Request::WhoAmI
        | Request::NoPath { .. }
        | Request::Reconfig
        | Request::Reconfigure(_)
        | Request::Throttled { .. }
        | Request::Sasl { .. }
        | Request::Undecodable { .. }
        | Request::Unknown { .. } => None,
    }
}

/// ZooKeeper's password: 16 bytes of Java's `Random.nextBytes`, seeded with the salted id.
pub(super) fn zookeeper_password(session: SessionId) -> Password {
    const MULTIPLIER: u64 = 0x5_deec_e66d;
    const MASK: u64 = (1 << 48) - 1;
    let mut state = ((session.0 ^ PASSWORD_SALT).cast_unsigned() ^ MULTIPLIER) & MASK;
    let mut bytes = [0; 16];
    for chunk in bytes.chunks_exact_mut(4) {
        state = state.wrapping_mul(MULTIPLIER).wrapping_add(0xb) & MASK;
        let word = (state >> 16).to_le_bytes();
        chunk.copy_from_slice(&word[..4]);
    }
    bytes
}
