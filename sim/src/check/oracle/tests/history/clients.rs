//! Steps of clients: connections, handshakes, requests, and what they read of the answers.
//!
//! Owns the steps that a client takes part in. Must not change the ensemble.

use std::collections::VecDeque;

use bytes::{Bytes, BytesMut};
use zabkeeper_core::wire::{
    ConnectRequest, ConnectResponse, EventType, Reply, ReplyBody, Request, RequestFrame, Secret,
    WatchEvent, XID_AUTH,
};
use zabkeeper_core::{ConnId, ErrorCode, ServerId, SessionId, Zxid};

use super::{ClientConn, History, SERVER, password};
use crate::check::model::{self, Asker};
use crate::check::observe::{ClientId, Observation};

impl History {
    /// A client connects and gets a new session.
    pub(in crate::check::oracle::tests) fn client(&mut self, client: u32) -> ConnId {
        self.client_of(SERVER, client)
    }

    /// A client connects to this server and gets a new session.
    pub(in crate::check::oracle::tests) fn client_of(
        &mut self,
        server: ServerId,
        client: u32,
    ) -> ConnId {
        let conn = self.greets_at(server, client, SessionId(0), Zxid::ZERO);
        let session = SessionId(0x100 + i64::try_from(conn.0).unwrap());
        let txn = self.session_txn(conn, session);
        self.commits(txn);
        self.catches_up(server);
        self.welcomes(conn, session);
        conn
    }

    /// A client sends the connect request for a new session, which is not answered.
    pub(in crate::check::oracle::tests) fn client_unanswered(&mut self, client: u32) -> ConnId {
        self.greets(client, SessionId(0), Zxid::ZERO)
    }

    /// A client connects and sends a connect request with the right password.
    pub(in crate::check::oracle::tests) fn greets(
        &mut self,
        client: u32,
        session: SessionId,
        seen: Zxid,
    ) -> ConnId {
        self.greets_with(client, session, seen, &password(session))
    }

    /// A client asks for another timeout and closes the connection before the response.
    pub(in crate::check::oracle::tests) fn greets_in_vain(
        &mut self,
        session: SessionId,
        asks_ms: i32,
    ) {
        self.asks_ms = asks_ms;
        let conn = self.greets(0, session, Zxid::ZERO);
        self.closes(conn);
    }

    /// The connection breaks; its client reconnects to the same server and gets another timeout.
    pub(in crate::check::oracle::tests) fn is_granted(&mut self, conn: ConnId, ms: i32) -> ConnId {
        self.asks_ms = ms;
        self.moves_without_memory(conn, self.client_conn(conn).server)
    }

    pub(in crate::check::oracle::tests) fn greets_at(
        &mut self,
        server: ServerId,
        client: u32,
        session: SessionId,
        seen: Zxid,
    ) -> ConnId {
        let hello = (session, seen, &password(session)[..]);
        self.hello(server, client, hello)
    }

    pub(in crate::check::oracle::tests) fn greets_with(
        &mut self,
        client: u32,
        session: SessionId,
        seen: Zxid,
        password: &[u8],
    ) -> ConnId {
        self.hello(SERVER, client, (session, seen, password))
    }

    fn hello(
        &mut self,
        server: ServerId,
        client: u32,
        (session, seen, password): (SessionId, Zxid, &[u8]),
    ) -> ConnId {
        let conn = ConnId(self.client_conns.len() as u64);
        let client = ClientId(client);
        let asked = VecDeque::new();
        let ids = vec![model::ip(&client.address())];
        self.client_conns.push(ClientConn {
            client,
            server,
            session,
            ids,
            seen,
            xid: 0,
            asked,
            writes: 0,
        });
        self.sees(Observation::ConnOpened { client, conn, server });
        let mut out = BytesMut::new();
        let password = Bytes::copy_from_slice(password);
        let last_zxid_seen = seen;
        ConnectRequest {
            last_zxid_seen,
            timeout_ms: self.asks_ms,
            session,
            password,
            read_only: self.accepts_read_only,
        }
        .encode(&mut out);
        self.sees(Observation::ToServer { conn, frame: cut(out) });
        conn
    }

    /// The server accepts the client into this session, with the requested timeout.
    pub(in crate::check::oracle::tests) fn welcomes(&mut self, conn: ConnId, session: SessionId) {
        let timeout_ms = self.asks_ms;
        let password = password(session);
        self.welcomes_as(conn, ConnectResponse { timeout_ms, session, password, read_only: None });
    }

    pub(in crate::check::oracle::tests) fn welcomes_as(
        &mut self,
        conn: ConnId,
        response: ConnectResponse,
    ) {
        self.client_conn_mut(conn).session = response.session;
        let mut out = BytesMut::new();
        response.encode(&mut out);
        self.sees(Observation::ToClient { conn, frame: cut(out) });
    }

    pub(in crate::check::oracle::tests) fn refuses(&mut self, conn: ConnId) {
        self.welcomes_as(conn, ConnectResponse::refused(None));
    }

    pub(in crate::check::oracle::tests) fn closes(&mut self, conn: ConnId) {
        self.sees(Observation::ConnClosed { conn });
    }

    /// The connection breaks, and its client reconnects with the session.
    pub(in crate::check::oracle::tests) fn reconnects(&mut self, conn: ConnId) -> ConnId {
        self.moves(conn, SERVER)
    }

    /// The connection breaks, and its client reconnects to this server.
    pub(in crate::check::oracle::tests) fn moves(
        &mut self,
        conn: ConnId,
        server: ServerId,
    ) -> ConnId {
        self.closes(conn);
        let ClientConn { client, session, seen, .. } = *self.client_conn(conn);
        let conn = self.greets_at(server, client.0, session, seen);
        self.welcomes(conn, session);
        conn
    }

    /// As [`Self::moves`], with zxid zero as last seen.
    pub(in crate::check::oracle::tests) fn moves_without_memory(
        &mut self,
        conn: ConnId,
        server: ServerId,
    ) -> ConnId {
        self.closes(conn);
        let ClientConn { client, session, .. } = *self.client_conn(conn);
        let conn = self.greets_at(server, client.0, session, Zxid::ZERO);
        self.welcomes(conn, session);
        conn
    }

    /// The transaction of the connection's last write is lost.
    pub(in crate::check::oracle::tests) fn undoes(&mut self, conn: ConnId) {
        let client_conn = self.client_conn_mut(conn);
        client_conn.writes -= 1;
        client_conn.asked.back_mut().expect("a write").1 = None;
    }

    pub(in crate::check::oracle::tests) fn asks(&mut self, conn: ConnId, request: Request) {
        let client_conn = self.client_conn_mut(conn);
        client_conn.xid += 1;
        let frame = RequestFrame { xid: client_conn.xid, request };
        client_conn.asked.push_back((frame.clone(), None));
        let mut out = BytesMut::new();
        frame.encode(&mut out);
        self.sees(Observation::ToServer { conn, frame: cut(out) });
    }

    /// The client sends an auth packet of the scheme `digest`, which is not answered yet.
    pub(in crate::check::oracle::tests) fn shows_user(&mut self, conn: ConnId, auth: &str) {
        let request = Request::Auth {
            scheme: "digest".into(),
            auth: Secret(Some(Bytes::copy_from_slice(auth.as_bytes()))),
        };
        let mut out = BytesMut::new();
        RequestFrame { xid: XID_AUTH, request }.encode(&mut out);
        self.sees(Observation::ToServer { conn, frame: cut(out) });
        let mut ids = std::mem::take(&mut self.client_conn_mut(conn).ids);
        let rules = self.model.rules();
        rules.authenticate(&mut ids, "digest", auth.as_bytes()).expect("always");
        self.client_conn_mut(conn).ids = ids;
    }

    /// The server answers the auth packet with success.
    pub(in crate::check::oracle::tests) fn believes(&mut self, conn: ConnId) {
        self.replies(conn, &Reply { xid: XID_AUTH, zxid: 0, result: Ok(ReplyBody::Empty) });
    }

    /// The server answers the next request of the connection.
    pub(in crate::check::oracle::tests) fn answers(&mut self, conn: ConnId) -> Reply {
        self.answers_as(conn, |_| {})
    }

    pub(in crate::check::oracle::tests) fn answers_as(
        &mut self,
        conn: ConnId,
        change: impl Fn(&mut Reply),
    ) -> Reply {
        let tip = self.tip();
        self.answers_at(conn, tip, change)
    }

    /// As [`Self::answers_as`], with a read answered as it would have been at an earlier zxid.
    pub(in crate::check::oracle::tests) fn answers_at(
        &mut self,
        conn: ConnId,
        at: Zxid,
        change: impl Fn(&mut Reply),
    ) -> Reply {
        let client_conn = self.client_conn_mut(conn);
        let (frame, txn) = client_conn.asked.pop_front().expect("a request to answer");
        let at = txn.unwrap_or(at);
        let result = match txn {
            Some(txn) => self.outcome(&frame.request, txn),
            None => {
                let ClientConn { session, ids, .. } = self.client_conn(conn);
                let asker = Asker { session: *session, ids };
                self.model.read(asker, &frame.request, at).unwrap_or(Ok(ReplyBody::Empty))
            }
        };
        let mut reply = Reply { xid: frame.xid, zxid: at.wire(), result };
        change(&mut reply);
        let client_conn = self.client_conn_mut(conn);
        client_conn.seen = client_conn.seen.max(Zxid::from_wire(reply.zxid));
        self.replies(conn, &reply);
        reply
    }

    pub(in crate::check::oracle::tests) fn replies(&mut self, conn: ConnId, reply: &Reply) {
        let mut out = BytesMut::new();
        reply.encode(&mut out);
        self.sees(Observation::ToClient { conn, frame: cut(out) });
    }

    fn outcome(&self, request: &Request, zxid: Zxid) -> Result<ReplyBody, ErrorCode> {
        match self.model.logged(zxid) {
            Some(logged) => logged.answer(request),
            None => Ok(ReplyBody::Empty),
        }
    }

    /// The client asks for a write; the server executes and answers it.
    pub(in crate::check::oracle::tests) fn writes(
        &mut self,
        conn: ConnId,
        request: Request,
    ) -> Zxid {
        self.asks(conn, request);
        let zxid = self.does(conn);
        self.answers(conn);
        zxid
    }

    /// The client asks for a read, and the server answers it.
    pub(in crate::check::oracle::tests) fn reads(
        &mut self,
        conn: ConnId,
        request: Request,
    ) -> Reply {
        self.asks(conn, request);
        self.answers(conn)
    }

    pub(in crate::check::oracle::tests) fn notifies(
        &mut self,
        conn: ConnId,
        event: EventType,
        path: &str,
        zxid: Zxid,
    ) {
        self.sends_event(conn, &WatchEvent { zxid: Some(zxid), event, path: path.into() });
    }

    /// An event without a zxid, which answers setWatches.
    pub(in crate::check::oracle::tests) fn notifies_without_zxid(
        &mut self,
        conn: ConnId,
        event: EventType,
        path: &str,
    ) {
        self.sends_event(conn, &WatchEvent { zxid: None, event, path: path.into() });
    }

    fn sends_event(&mut self, conn: ConnId, event: &WatchEvent) {
        let mut out = BytesMut::new();
        event.encode(&mut out);
        self.sees(Observation::ToClient { conn, frame: cut(out) });
    }
}

/// The frame without its length prefix.
fn cut(frame: BytesMut) -> Bytes {
    frame.freeze().slice(4..)
}
