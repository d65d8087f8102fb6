//! The phases of a session: connecting, handshake, serving, and again after a loss, until it ends.
//!
//! Owns the phase; no other file changes it. Must not know the protocol after the handshake:
//! `serving` does.

mod chroot;
mod config;
mod connect;
mod io;
mod kept;
mod rng;
mod search;
mod servers;
mod serving;
pub(crate) mod watches;

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use zabkeeper_core::wire::{ConnectResponse, Password, Request, ServerFrames};
use zabkeeper_core::{Instant, SessionId, Zxid};

pub use self::config::Config;
use self::connect::RELATIVE;
#[cfg(feature = "dns-srv")]
pub(crate) use self::connect::SRV_PREFIX;
pub(crate) use self::connect::path_fault;
pub use self::connect::{ConnectString, ConnectStringError, ServerAddr};
pub use self::io::{CallId, Disconnect, Done, Effect, Failure, Input, LinkId, Outbox, State};
use self::kept::SessionState;
use self::search::Search;
use self::serving::{End, Flow, REPLY_BYTES_MAX, Serving};

/// The node that shows the ensemble's configuration.
const CONFIG_NODE: &str = "/zookeeper/config";

/// One client's session, from the first connection attempt to its end.
#[derive(Debug)]
pub struct Session {
    phase: Phase,
    kept: SessionState,
}

/// ```text
///              due              Dialled               accepted
///  Waiting ---------> Dialling ---------> Handshaking ---------> Serving
///     ^                  |                     |  |                |  |
///     |                  |   loss of the link  |  |                |  | closeSession answered,
///     |                  |                     |  |                |  | or link lost after it,
///     +------------------+---------------------+--|----------------+  | or auth refused
///                                                 | refused           |
///                                                 +-------> Over <----+
///                                              Close, from any but Serving
/// ```
#[derive(Debug)]
enum Phase {
    /// Waits until it is time to connect.
    Waiting { until: Instant },
    /// The host is connecting.
    Dialling { link: LinkId, deadline: Instant },
    /// The connect request is sent, its response outstanding.
    Handshaking { link: LinkId, sent: Instant, deadline: Instant, inbound: BytesMut },
    /// The server has accepted the session.
    Serving(Serving),
    /// The session has ended.
    Over(End),
}

impl Session {
    /// Creates a session. It starts connecting at the first [`Input::Timeout`], which is due at
    /// once. The seed determines the order of servers and the delays.
    pub fn new(config: Config, seed: u64) -> Session {
        Session {
            phase: Phase::Waiting { until: Instant::default() },
            kept: SessionState::new(config, seed),
        }
    }

    /// Handles one input and appends effects to `out`. `now` must not go back.
    pub fn step(&mut self, now: Instant, input: Input, out: &mut Outbox) {
        if let Some(search) = input.link().and_then(|link| self.search_on(link)) {
            if let Some(server) = search.step(&input, out) {
                self.kept.servers.try_next(&server);
                self.lose(now, Disconnect::ReadWriteFound, out);
            }
            return;
        }
        match input {
            Input::Timeout => self.timeout(now, out),
            Input::Dialled { link } => self.dialled(now, link, out),
            Input::DialFailed { link } if self.link() == Some(link) => {
                self.lose(now, Disconnect::DialFailed, out);
            }
            Input::Received { link, bytes } if self.link() == Some(link) => {
                self.received(now, bytes, out);
            }
            Input::Disconnected { link } if self.link() == Some(link) => {
                self.lose(now, Disconnect::Disconnected, out);
            }
            // Inputs of a link that the session has left.
            Input::DialFailed { .. } | Input::Received { .. } | Input::Disconnected { .. } => {}
            Input::Submit(call, request) => {
                let request = self.admit(request);
                self.submit(now, call, request, out);
            }
            Input::ReadConfig(call, watch) => {
                let request = Request::GetData { path: CONFIG_NODE.to_owned(), watch };
                let request = self.has_room().map(|()| request);
                self.submit(now, call, request, out);
            }
            Input::Servers(servers) => self.replace_servers(now, &servers, out),
            Input::Close => self.close(now, out),
        }
    }

    /// When the next [`Input::Timeout`] is due; `None` once the session is over.
    pub fn next_deadline(&self) -> Option<Instant> {
        let own = match &self.phase {
            Phase::Waiting { until } => *until,
            Phase::Dialling { deadline, .. } | Phase::Handshaking { deadline, .. } => *deadline,
            Phase::Serving(serving) => serving.next_deadline(&self.kept),
            Phase::Over(_) => return None,
        };
        self.kept.presume_at().into_iter().chain([own]).min()
    }

    /// Is the session presumed to have expired? See [`Effect::PresumedExpired`].
    pub fn is_presumed_expired(&self) -> bool {
        self.kept.is_presumed_expired()
    }

    /// The state of the session as the user sees it.
    pub fn state(&self) -> State {
        match &self.phase {
            Phase::Waiting { .. } | Phase::Dialling { .. } | Phase::Handshaking { .. } => {
                State::Connecting
            }
            Phase::Serving(serving) => serving.state(),
            Phase::Over(end) => end.state(),
        }
    }

    /// The session's id; zero until a server has accepted it.
    pub fn id(&self) -> SessionId {
        self.kept.id
    }

    /// The password with which another client object can resume the session; zeros until a server
    /// has accepted the session.
    pub fn password(&self) -> Password {
        self.kept.password
    }

    /// Highest zxid in any reply header; a server whose last zxid is lower refuses the session
    /// (HS-05).
    pub fn last_zxid(&self) -> Zxid {
        self.kept.last_zxid
    }

    /// The session timeout that the server has granted; before that the requested one.
    pub fn session_timeout(&self) -> Duration {
        self.kept.timeout
    }

    /// Why the last connection ended, for logs; `None` if none has ended.
    pub fn last_loss(&self) -> Option<&Disconnect> {
        self.kept.last_loss.as_ref()
    }

    fn link(&self) -> Option<LinkId> {
        match &self.phase {
            Phase::Dialling { link, .. } | Phase::Handshaking { link, .. } => Some(*link),
            Phase::Serving(serving) => Some(serving.link),
            Phase::Waiting { .. } | Phase::Over(_) => None,
        }
    }

    /// The search that asks a server on this link.
    fn search_on(&mut self, link: LinkId) -> Option<&mut Search> {
        match &mut self.phase {
            Phase::Serving(serving) => {
                serving.search.as_deref_mut().filter(|search| search.link() == Some(link))
            }
            Phase::Waiting { .. }
            | Phase::Dialling { .. }
            | Phase::Handshaking { .. }
            | Phase::Over(_) => None,
        }
    }

    fn timeout(&mut self, now: Instant, out: &mut Outbox) {
        if !matches!(self.phase, Phase::Over(_)) && self.kept.presume(now) {
            out.effects.push(Effect::PresumedExpired);
        }
        let lost = match &mut self.phase {
            Phase::Waiting { until } if now >= *until => {
                let link = self.kept.next_link();
                let server = self.kept.servers.take();
                let deadline = now.after(self.kept.connect_timeout());
                self.phase = Phase::Dialling { link, deadline };
                out.effects.push(Effect::Dial { link, server });
                return;
            }
            Phase::Dialling { deadline, .. } if now >= *deadline => Disconnect::DialTimeout,
            Phase::Handshaking { deadline, .. } if now >= *deadline => Disconnect::HandshakeTimeout,
            Phase::Serving(serving) => match serving.timeout(now, &mut self.kept, out) {
                Ok(()) => return,
                Err(loss) => loss,
            },
            Phase::Waiting { .. }
            | Phase::Dialling { .. }
            | Phase::Handshaking { .. }
            | Phase::Over(_) => return,
        };
        self.lose(now, lost, out);
    }

    fn dialled(&mut self, now: Instant, dialled: LinkId, out: &mut Outbox) {
        let Phase::Dialling { link, .. } = self.phase else {
            return;
        };
        if link != dialled {
            return;
        }
        let mut bytes = BytesMut::new();
        self.kept.handshake().encode(&mut bytes);
        out.effects.push(Effect::Send { link, bytes: bytes.freeze() });
        let deadline = now.after(self.kept.connect_timeout());
        self.phase = Phase::Handshaking { link, sent: now, deadline, inbound: BytesMut::new() };
    }

    fn received(&mut self, now: Instant, bytes: Bytes, out: &mut Outbox) {
        let outcome = match &mut self.phase {
            Phase::Handshaking { inbound, .. } => {
                inbound.extend_from_slice(&bytes);
                match ServerFrames::new(REPLY_BYTES_MAX).first(inbound) {
                    Ok(None) => return,
                    Ok(Some(response)) => return self.answered(now, &response, out),
                    Err(malformed) => Err(Disconnect::Malformed(malformed)),
                }
            }
            Phase::Serving(serving) => {
                serving.received(now, bytes);
                serving.frames(&mut self.kept, out)
            }
            // No bytes count before `Input::Dialled`.
            Phase::Waiting { .. } | Phase::Dialling { .. } | Phase::Over(_) => return,
        };
        self.follow(now, outcome, out);
    }

    /// Handles the response to the connect request; `inbound` may hold later frames, too.
    fn answered(&mut self, now: Instant, response: &ConnectResponse, out: &mut Outbox) {
        let Phase::Handshaking { link, sent, inbound, .. } = &mut self.phase else {
            return;
        };
        let (link, sent, inbound) = (*link, *sent, std::mem::take(inbound));
        if response.timeout_ms <= 0 {
            return self.end(End::Expired, out);
        }
        let expected = self.kept.identity().0;
        if expected != SessionId(0) && expected != response.session {
            return self.lose(
                now,
                Disconnect::WrongSession { expected, got: response.session },
                out,
            );
        }
        let read_only = response.read_only == Some(true);
        self.kept.accepted(response, read_only, sent);
        let state = if read_only { State::ConnectedReadOnly } else { State::Connected };
        out.effects.push(Effect::State(state));
        let mut serving = Serving::begin(now, (link, state), inbound, &mut self.kept, out);
        let outcome = serving.frames(&mut self.kept, out);
        self.phase = Phase::Serving(serving);
        self.follow(now, outcome, out);
    }

    fn follow(&mut self, now: Instant, outcome: Result<Flow, Disconnect>, out: &mut Outbox) {
        match outcome {
            Ok(Flow::On) => {}
            Ok(Flow::Ended(end)) => self.end(end, out),
            Err(loss) => self.lose(now, loss, out),
        }
    }

    fn submit(
        &mut self,
        now: Instant,
        call: CallId,
        request: Result<Request, Failure>,
        out: &mut Outbox,
    ) {
        match request {
            Err(failure) => out.effects.push(Effect::Completed(call, Err(failure))),
            Ok(request) => match &mut self.phase {
                Phase::Serving(serving) => serving.submit(now, call, request, &mut self.kept, out),
                Phase::Waiting { .. }
                | Phase::Dialling { .. }
                | Phase::Handshaking { .. }
                | Phase::Over(_) => self.kept.queue.push_back((call, request)),
            },
        }
    }

    /// Checks the request, and adds the chroot. Fails if the session refuses it.
    fn admit(&self, request: Request) -> Result<Request, Failure> {
        self.has_room()?;
        if matches!(request, Request::Ping | Request::SetWatches(_) | Request::CloseSession) {
            return Err(Failure::NotACall);
        }
        let request = chroot::put_on(&self.kept.config.servers, request);
        request.ok_or(Failure::InvalidPath(RELATIVE))
    }

    /// Fails if the session takes no call.
    fn has_room(&self) -> Result<(), Failure> {
        let load = match &self.phase {
            Phase::Over(end) => return Err(end.failure()),
            Phase::Serving(serving) if serving.is_closing() => return Err(Failure::Closed),
            Phase::Serving(serving) => serving.load(),
            Phase::Waiting { .. } | Phase::Dialling { .. } | Phase::Handshaking { .. } => {
                self.kept.queue.len()
            }
        };
        if load >= self.kept.config.calls_max.max(1) {
            return Err(Failure::Full);
        }
        Ok(())
    }

    fn replace_servers(&mut self, now: Instant, servers: &ConnectString, out: &mut Outbox) {
        let moves = self.kept.replace_servers(servers);
        let leaves = match &self.phase {
            Phase::Dialling { .. } | Phase::Handshaking { .. } => moves,
            Phase::Serving(serving) => moves && !serving.is_closing(),
            Phase::Waiting { .. } | Phase::Over(_) => false,
        };
        if leaves {
            self.lose(now, Disconnect::Moves, out);
        }
    }

    /// The path of the ensemble's configuration, as the caller knows it.
    pub(crate) fn config_path(&self) -> String {
        self.kept.config.servers.to_caller(CONFIG_NODE.to_owned())
    }

    fn close(&mut self, now: Instant, out: &mut Outbox) {
        match &mut self.phase {
            Phase::Serving(serving) => serving.close(now, &mut self.kept, out),
            Phase::Waiting { .. } | Phase::Dialling { .. } | Phase::Handshaking { .. } => {
                self.end(End::Closed, out);
            }
            Phase::Over(_) => {}
        }
    }

    /// Leaves the connection: all calls fail, also those not sent yet (CLIENT-09). No call is
    /// queued while a server serves the session, so either `awaited` or `queue` is empty.
    fn lose(&mut self, now: Instant, loss: Disconnect, out: &mut Outbox) {
        let gone = matches!(loss, Disconnect::DialFailed | Disconnect::Disconnected);
        if let Some(link) = self.link().filter(|_| !gone) {
            out.effects.push(Effect::HangUp { link });
        }
        self.kept.last_loss = Some(loss);
        let until = self.kept.redial_at(now);
        let lost = std::mem::replace(&mut self.phase, Phase::Waiting { until });
        if let Phase::Serving(mut serving) = lost {
            serving.end_search(out);
            let closing = serving.is_closing();
            serving.fail(Failure::ConnectionLoss, out);
            if closing {
                self.phase = Phase::Over(End::Closed);
            }
            out.effects.push(Effect::State(self.state()));
        }
        self.kept.fail_queue(Failure::ConnectionLoss, out);
    }

    fn end(&mut self, end: End, out: &mut Outbox) {
        if let Some(link) = self.link() {
            out.effects.push(Effect::HangUp { link });
        }
        let failure = end.failure();
        if let Phase::Serving(mut serving) = std::mem::replace(&mut self.phase, Phase::Over(end)) {
            serving.end_search(out);
            serving.fail(failure, out);
        }
        self.kept.fail_queue(failure, out);
        out.effects.push(Effect::State(end.state()));
    }
}
