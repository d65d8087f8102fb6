//! A connection on which a server has accepted the session: sends requests, receives replies and
//! events.
//!
//! Owns the outstanding requests and their order. Must not handle the loss of the connection: it
//! returns the reason, and `session` acts.
//!
//! Invariant: `awaited` holds the outstanding requests that the server answers in order, in the
//! order sent; the next reply is for the front one (WIRE-12).

use std::collections::VecDeque;

use bytes::{Bytes, BytesMut};
use zabkeeper_core::wire::{
    FromServer, ReplyBody, ReplyKind, Request, RequestFrame, ServerFrames, WatchEvent, XID_AUTH,
    XID_PING, XID_SET_WATCHES,
};
use zabkeeper_core::{ErrorCode, Instant, Zxid};

use super::chroot;
use super::io::{CallId, Disconnect, Done, Effect, Failure, LinkId, Outbox, State};
use super::kept::{Credential, SessionState};
use super::search::Search;
use super::watches::Change;

/// Largest accepted frame of a server, bytes. `jute.maxbuffer` does not limit replies, and a node
/// may have a million children; but an invalid length must not exhaust the memory.
pub(crate) const REPLY_BYTES_MAX: u32 = 256 << 20;

/// Memory that is allocated for requests at once, bytes: enough for some tens of small ones.
const OUTBOUND_BYTES: usize = 8 << 10;

#[derive(Debug)]
pub(crate) struct Serving {
    pub(crate) link: LinkId,
    /// [`State::Connected`], or that of a read-only server.
    state: State,
    inbound: BytesMut,
    /// Encoded requests of the present step. Its memory serves several steps.
    outbound: BytesMut,
    awaited: VecDeque<Awaited>,
    /// Outstanding auth requests. Their replies come in order, but may overtake other replies.
    auths: VecDeque<AwaitedAuth>,
    heard: Instant,
    sent: Instant,
    /// When the pings were sent that are not answered.
    pings: VecDeque<Instant>,
    /// When requests were sent, and the number of replies until they are answered. Later requests
    /// leave the mark alone, so there is one at most.
    marked: Option<(usize, Instant)>,
    closing: bool,
    /// Present while a read-only server serves the session, which is rare; hence the box.
    pub(crate) search: Option<Box<Search>>,
}

#[derive(Debug)]
struct Awaited {
    xid: i32,
    /// The kind of the reply's body, if the request succeeds.
    kind: ReplyKind,
    what: What,
}

#[derive(Debug)]
enum What {
    Call { call: CallId, change: Change },
    SetWatches,
    CloseSession,
}

#[derive(Debug)]
struct AwaitedAuth {
    /// `None` if the session itself repeats an earlier auth request.
    call: Option<CallId>,
    credential: Credential,
}

/// Whether the session continues after a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Flow {
    On,
    Ended(End),
}

/// How a session can end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum End {
    Expired,
    AuthFailed,
    Closed,
}

impl End {
    pub(crate) fn state(self) -> State {
        match self {
            End::Expired => State::Expired,
            End::AuthFailed => State::AuthFailed,
            End::Closed => State::Closed,
        }
    }

    /// The failure of outstanding and later calls.
    pub(crate) fn failure(self) -> Failure {
        self.state().failure().expect("each end is a final state")
    }
}

impl Serving {
    /// Starts after the handshake; `inbound` holds the bytes received after its answer. Sends the
    /// kept authentications, watches and queued calls, in this order (HS-13).
    pub(crate) fn begin(
        now: Instant,
        (link, state): (LinkId, State),
        inbound: BytesMut,
        kept: &mut SessionState,
        out: &mut Outbox,
    ) -> Serving {
        let mut serving = Serving {
            link,
            state,
            inbound,
            outbound: BytesMut::with_capacity(OUTBOUND_BYTES),
            awaited: VecDeque::new(),
            auths: VecDeque::new(),
            heard: now,
            sent: now,
            pings: VecDeque::new(),
            marked: None,
            closing: false,
            search: (state == State::ConnectedReadOnly).then(|| Box::new(Search::begin(now))),
        };
        for credential in &kept.auths {
            serving.auth(None, credential.clone());
        }
        for batch in kept.set_watches() {
            let frame = RequestFrame { xid: XID_SET_WATCHES, request: Request::SetWatches(batch) };
            serving.ask(&frame, What::SetWatches);
        }
        for (call, request) in std::mem::take(&mut kept.queue) {
            serving.call(call, request, kept, out);
        }
        serving.send(now, out);
        serving
    }

    pub(crate) fn state(&self) -> State {
        self.state
    }

    /// Number of outstanding requests.
    pub(crate) fn load(&self) -> usize {
        self.awaited.len() + self.auths.len()
    }

    /// Has closeSession been sent?
    pub(crate) fn is_closing(&self) -> bool {
        self.closing
    }

    pub(crate) fn submit(
        &mut self,
        now: Instant,
        call: CallId,
        request: Request,
        kept: &mut SessionState,
        out: &mut Outbox,
    ) {
        self.call(call, request, kept, out);
        self.send(now, out);
    }

    pub(crate) fn close(&mut self, now: Instant, kept: &mut SessionState, out: &mut Outbox) {
        if self.closing {
            return;
        }
        self.closing = true;
        self.end_search(out);
        let frame = RequestFrame { xid: kept.next_xid(), request: Request::CloseSession };
        self.ask(&frame, What::CloseSession);
        self.send(now, out);
    }

    /// Looks for no other server any more.
    pub(crate) fn end_search(&mut self, out: &mut Outbox) {
        if let Some(mut search) = self.search.take() {
            search.hang_up(out);
        }
    }

    pub(crate) fn next_deadline(&self, kept: &SessionState) -> Instant {
        let own = self.heard.after(kept.read_timeout()).min(self.sent.after(kept.ping_interval()));
        self.search.as_ref().map_or(own, |search| own.min(search.next_deadline()))
    }

    pub(crate) fn timeout(
        &mut self,
        now: Instant,
        kept: &mut SessionState,
        out: &mut Outbox,
    ) -> Result<(), Disconnect> {
        if now >= self.heard.after(kept.read_timeout()) {
            return Err(Disconnect::Silent);
        }
        if now >= self.sent.after(kept.ping_interval()) {
            RequestFrame { xid: XID_PING, request: Request::Ping }.encode(&mut self.outbound);
            self.pings.push_back(now);
            self.send(now, out);
        }
        if let Some(search) = &mut self.search {
            search.timeout(now, kept, out);
        }
        Ok(())
    }

    pub(crate) fn received(&mut self, now: Instant, bytes: Bytes) {
        self.heard = now;
        if self.inbound.is_empty() {
            // Without a copy, unless the host has kept the bytes.
            self.inbound = bytes.into();
        } else {
            self.inbound.extend_from_slice(&bytes);
        }
    }

    /// Handles all complete frames that have been received.
    pub(crate) fn frames(
        &mut self,
        kept: &mut SessionState,
        out: &mut Outbox,
    ) -> Result<Flow, Disconnect> {
        let frames = ServerFrames::new(REPLY_BYTES_MAX);
        while let Some(frame) = frames.next(&mut self.inbound).map_err(Disconnect::Malformed)? {
            let flow = match frame {
                FromServer::Event(event) => {
                    emit_event(event, kept, out);
                    Flow::On
                }
                FromServer::Reply { xid: XID_PING, .. } => {
                    let sent = self.pings.pop_front();
                    self.prove(sent, kept);
                    Flow::On
                }
                FromServer::Reply { xid: XID_AUTH, err, .. } => self.auth_reply(err, kept, out)?,
                FromServer::Reply { xid, zxid, err, body } => {
                    self.reply(xid, zxid, err, body, kept, out)?
                }
            };
            if flow != Flow::On {
                return Ok(flow);
            }
        }
        Ok(Flow::On)
    }

    /// Fails all outstanding calls.
    pub(crate) fn fail(self, failure: Failure, out: &mut Outbox) {
        let auths = self.auths.into_iter().filter_map(|auth| auth.call);
        let calls = self.awaited.into_iter().filter_map(|awaited| match awaited.what {
            What::Call { call, .. } => Some(call),
            What::SetWatches | What::CloseSession => None,
        });
        for call in auths.chain(calls) {
            out.effects.push(Effect::Completed(call, Err(failure)));
        }
    }

    fn call(&mut self, call: CallId, request: Request, kept: &mut SessionState, out: &mut Outbox) {
        if let Request::Auth { scheme, auth } = request {
            return self.auth(Some(call), Credential { scheme, auth });
        }
        let change = Change::of(&request);
        let begin = self.outbound.len();
        let frame = RequestFrame { xid: kept.next_xid(), request };
        self.ask(&frame, What::Call { call, change });
        let frame_length = self.outbound.len() - begin - 4;
        if frame_length > kept.config.request_bytes_max as usize {
            self.outbound.truncate(begin);
            self.awaited.pop_back();
            out.effects.push(Effect::Completed(call, Err(Failure::TooLarge)));
        }
    }

    fn ask(&mut self, frame: &RequestFrame, what: What) {
        frame.encode(&mut self.outbound);
        let kind = frame.request.reply_kind();
        self.awaited.push_back(Awaited { xid: frame.xid, kind, what });
    }

    fn auth(&mut self, call: Option<CallId>, credential: Credential) {
        let Credential { scheme, auth } = credential.clone();
        let request = Request::Auth { scheme, auth };
        RequestFrame { xid: XID_AUTH, request }.encode(&mut self.outbound);
        self.auths.push_back(AwaitedAuth { call, credential });
    }

    /// Sends what has been encoded since the last time.
    fn send(&mut self, now: Instant, out: &mut Outbox) {
        if !self.outbound.is_empty() {
            self.sent = now;
            if self.marked.is_none() && !self.awaited.is_empty() {
                self.marked = Some((self.awaited.len(), now));
            }
            let bytes = self.outbound.split().freeze();
            out.effects.push(Effect::Send { link: self.link, bytes });
        }
    }

    fn reply(
        &mut self,
        xid: i32,
        zxid: i64,
        err: i32,
        body: Bytes,
        kept: &mut SessionState,
        out: &mut Outbox,
    ) -> Result<Flow, Disconnect> {
        let expected = self.awaited.front().map(|oldest| (oldest.xid, oldest.kind));
        let kind = match expected {
            Some((expected, kind)) if expected == xid => kind,
            Some(_) | None => {
                return Err(Disconnect::WrongXid {
                    expected: expected.map(|(xid, _)| xid),
                    got: xid,
                });
            }
        };
        // Decoded before its request leaves the queue: a malformed reply makes the call fail with
        // all other outstanding calls.
        let result = read(xid, zxid, err, body, kind)?;
        let Awaited { what, .. } = self.awaited.pop_front().expect("the front was looked at");
        if let Some((replies, sent)) = &mut self.marked {
            *replies -= 1;
            if *replies == 0 {
                let sent = *sent;
                self.marked = None;
                self.prove(Some(sent), kept);
            }
        }
        // All setWatches requests were sent before other requests, so only the next one is checked.
        let next = self.awaited.front().map(|next| &next.what);
        kept.saw(zxid, !matches!(next, Some(What::SetWatches)));
        match what {
            What::Call { call, change } => {
                kept.watches.answered(change, err);
                let result = result.map(|body| Done {
                    zxid: Zxid::from_wire(zxid),
                    body: chroot::take_off(&kept.config.servers, body),
                });
                out.effects.push(Effect::Completed(call, result));
                Ok(Flow::On)
            }
            What::SetWatches if err != 0 => Err(Disconnect::WatchesRefused(err)),
            What::SetWatches => Ok(Flow::On),
            What::CloseSession => Ok(Flow::Ended(End::Closed)),
        }
    }

    /// The server has answered what was sent at this time. A read-only server keeps no session of
    /// the ensemble alive.
    fn prove(&self, sent: Option<Instant>, kept: &mut SessionState) {
        if let Some(sent) = sent.filter(|_| self.state == State::Connected) {
            kept.prove(sent);
        }
    }

    fn auth_reply(
        &mut self,
        err: i32,
        kept: &mut SessionState,
        out: &mut Outbox,
    ) -> Result<Flow, Disconnect> {
        let Some(AwaitedAuth { call, credential }) = self.auths.pop_front() else {
            return Err(Disconnect::WrongXid { expected: None, got: XID_AUTH });
        };
        let result = match err {
            0 => {
                if !kept.auths.contains(&credential) {
                    kept.auths.push(credential);
                }
                Ok(Done { zxid: Zxid::ZERO, body: ReplyBody::Empty })
            }
            err => Err(refusal(err)),
        };
        if let Some(call) = call {
            out.effects.push(Effect::Completed(call, result));
        }
        let failed = err == ErrorCode::AuthFailed.wire();
        Ok(if failed { Flow::Ended(End::AuthFailed) } else { Flow::On })
    }
}

/// Emits an event if it fires a watch of this session.
fn emit_event(event: WatchEvent, kept: &mut SessionState, out: &mut Outbox) {
    if kept.watches.fired(event.event, &event.path) {
        let path = kept.config.servers.to_caller(event.path);
        out.effects.push(Effect::Event(WatchEvent { path, ..event }));
    }
}

fn read(
    xid: i32,
    zxid: i64,
    err: i32,
    body: Bytes,
    kind: ReplyKind,
) -> Result<Result<ReplyBody, Failure>, Disconnect> {
    if err != 0 {
        return Ok(Err(refusal(err)));
    }
    let reply = FromServer::reply(xid, zxid, err, body, kind).map_err(Disconnect::Malformed)?;
    Ok(reply.result.map_err(Failure::Code))
}

fn refusal(err: i32) -> Failure {
    ErrorCode::from_wire(err).map_or(Failure::UnknownCode(err), Failure::Code)
}
