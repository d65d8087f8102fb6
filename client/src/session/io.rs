//! The inputs and effects of a session, as plain data.
//!
//! Owns [`Input`], [`Outbox`] and the rules that bind a session and its host. Must not decide
//! anything.
//!
//! Rules:
//! 1. The host carries out effects in order.
//! 2. The session assigns link ids in ascending order and never reuses one. It ignores inputs of an
//!    old link, so that a late message of an old connection is not taken for one of a new
//!    connection.
//! 3. The host answers each [`Effect::Dial`] by [`Input::Dialled`] or [`Input::DialFailed`],
//!    unless [`Effect::HangUp`] comes first. After [`Effect::HangUp`] no input of the link is
//!    required.
//! 4. If the host drops bytes of a link, it reports [`Input::Disconnected`].
//! 5. There are at most two links at a time: while a read-only server serves the session, another
//!    one may be asked for its mode.

use std::fmt;

use bytes::Bytes;
use zabkeeper_core::wire::{ReplyBody, Request, WatchEvent};
use zabkeeper_core::{ErrorCode, Malformed, SessionId, Zxid};

use super::connect::{ConnectString, ServerAddr};

/// The id of a connection to a server, assigned by the session from 1.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct LinkId(pub u64);

/// The id of a call, chosen by the caller; the session only returns it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct CallId(pub u64);

/// An input of [`Session::step`](crate::Session::step).
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Input {
    /// The deadline of [`Session::next_deadline`](crate::Session::next_deadline) has passed. An
    /// early timeout has no effect.
    Timeout,
    /// The requested connection is established.
    Dialled {
        /// The connection.
        link: LinkId,
    },
    /// The requested connection could not be established.
    DialFailed {
        /// The connection.
        link: LinkId,
    },
    /// The server has sent bytes, which need not end with a frame.
    Received {
        /// The connection.
        link: LinkId,
        /// The bytes.
        bytes: Bytes,
    },
    /// The connection is closed.
    Disconnected {
        /// The connection.
        link: LinkId,
    },
    /// A call of the user. Auth is allowed (its reply may overtake others); the session itself
    /// sends ping, setWatches and closeSession, so as calls they fail with [`Failure::NotACall`].
    Submit(CallId, Request),
    /// A call of the user that reads the ensemble's configuration, and watches it if the flag is
    /// set: getData of `/zookeeper/config`, to which no chroot is added (CLIENT-02).
    ReadConfig(CallId, bool),
    /// The ensemble consists of these servers now. The session leaves its server if that one is not
    /// listed, or so that the clients of a grown ensemble spread over it (CLIENT-06). The chroot of
    /// the string does not count.
    Servers(ConnectString),
    /// Closes the session, after all earlier calls are answered; the server then deletes its
    /// ephemeral nodes. Without a connection closeSession cannot be sent, so the session expires on
    /// the servers.
    Close,
}

impl Input {
    /// The link that this comes from.
    pub(crate) fn link(&self) -> Option<LinkId> {
        match self {
            Input::Dialled { link }
            | Input::DialFailed { link }
            | Input::Received { link, .. }
            | Input::Disconnected { link } => Some(*link),
            Input::Timeout
            | Input::Submit(..)
            | Input::ReadConfig(..)
            | Input::Servers(_)
            | Input::Close => None,
        }
    }
}

/// The effects of steps. The host empties it.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Outbox {
    /// Effects for the host to carry out, in order.
    pub effects: Vec<Effect>,
}

/// One action or notification for the host.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Effect {
    /// Connect to a server.
    Dial {
        /// The id of the new connection.
        link: LinkId,
        /// The server.
        server: ServerAddr,
    },
    /// Send bytes.
    Send {
        /// The connection.
        link: LinkId,
        /// Complete frames, or a four-letter command.
        bytes: Bytes,
    },
    /// Close a connection, or cancel the attempt to establish it.
    HangUp {
        /// The connection.
        link: LinkId,
    },
    /// A call has ended; emitted exactly once for each [`Input::Submit`].
    Completed(CallId, Result<Done, Failure>),
    /// A watch of this session has fired; it is removed unless it is persistent.
    Event(WatchEvent),
    /// The session's state has changed.
    State(State),
    /// No server has answered for the session timeout: the servers may have ended the session
    /// (Curator's `LOST`). A later answer may show that it lives.
    PresumedExpired,
}

/// The state of the session as the user sees it (CLIENT-03).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum State {
    /// No server serves the session; the session is connecting or waits to connect. The initial
    /// state. It comes at the latest after two thirds of the session timeout without a word from
    /// the server. The client does not know then whether the servers keep the session: see
    /// [`Effect::PresumedExpired`].
    Connecting,
    /// A server has accepted the session.
    Connected,
    /// A read-only server has accepted the session: it answers reads from a state that may be old,
    /// and refuses all else with -119 (RO-02).
    ConnectedReadOnly,
    /// A server has reported that the session has expired. Final (CLIENT-10).
    Expired,
    /// A server has refused an auth request. Final.
    AuthFailed,
    /// The session was ended by [`Input::Close`]. Final.
    Closed,
}

impl State {
    /// Has the session ended?
    pub fn is_final(self) -> bool {
        self.failure().is_some()
    }

    /// Does a server serve the session?
    pub fn is_connected(self) -> bool {
        matches!(self, State::Connected | State::ConnectedReadOnly)
    }

    /// Why all calls fail in this state; `None` while the session lives.
    pub(crate) fn failure(self) -> Option<Failure> {
        match self {
            State::Connecting | State::Connected | State::ConnectedReadOnly => None,
            State::Expired => Some(Failure::SessionExpired),
            State::AuthFailed => Some(Failure::AuthFailed),
            State::Closed => Some(Failure::Closed),
        }
    }
}

/// The result of a successful call.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Done {
    /// The zxid in the reply header: the last transaction that the server had applied; zero for
    /// auth.
    pub zxid: Zxid,
    /// The body of the reply, with paths as the caller knows them.
    pub body: ReplyBody,
}

/// Why a call has failed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Failure {
    /// The server has returned this error.
    Code(ErrorCode),
    /// The server has returned an error code that this client does not know.
    UnknownCode(i32),
    /// The connection was lost before the reply, so it is unknown whether the server executed the
    /// call. The session continues.
    ConnectionLoss,
    /// The session has expired.
    SessionExpired,
    /// The session has failed to authenticate.
    AuthFailed,
    /// The session was closed by its user.
    Closed,
    /// Too many calls are outstanding ([`Config::calls_max`](crate::Config::calls_max)).
    Full,
    /// The request is larger than [`Config::request_bytes_max`](crate::Config::request_bytes_max).
    TooLarge,
    /// The path is none that ZooKeeper accepts; the text says why. The session itself reports this
    /// only for a path without a slash, to which it cannot add its chroot (CLIENT-15).
    InvalidPath(&'static str),
    /// The request is one that only the session itself sends.
    NotACall,
    /// No reply came within the handle's request timeout; the server may still execute the call
    /// (CLIENT-14). The session itself never reports this.
    TimedOut,
    /// A stream of watch events was not read, and is full. The session itself never reports this.
    Lagged,
    /// The program has removed the watch. The session itself never reports this.
    WatchRemoved,
    /// The data of a node are not what a recipe keeps there, or cannot hold the new value. The
    /// session itself never reports this.
    UnexpectedData,
    /// The reply has another form than the operation expects. The session itself never reports
    /// this.
    OtherReply,
}

/// Why a connection, or the attempt to establish one, ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Disconnect {
    /// The connection could not be established.
    DialFailed,
    /// The connection was not established in time.
    DialTimeout,
    /// The server did not answer the handshake in time.
    HandshakeTimeout,
    /// The server sent nothing for two thirds of the session timeout.
    Silent,
    /// The connection was closed by the server or the network.
    Disconnected,
    /// The list of servers has changed, and the session moves to another one.
    Moves,
    /// The session moves from a read-only server to a read-write one (RO-04).
    ReadWriteFound,
    /// The server has sent bytes that are no valid frame.
    Malformed(Malformed),
    /// The server has answered another request than the oldest outstanding one (CLIENT-13).
    WrongXid {
        /// The xid of the oldest outstanding request, if there is one.
        expected: Option<i32>,
        /// The xid of the reply.
        got: i32,
    },
    /// The server has answered the handshake with another session than the requested one.
    WrongSession {
        /// The requested session.
        expected: SessionId,
        /// The session in the server's answer.
        got: SessionId,
    },
    /// The server has answered setWatches with this error; to continue would lose the watches
    /// silently.
    WatchesRefused(i32),
}

impl fmt::Display for LinkId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "l{}", self.0)
    }
}

impl fmt::Display for CallId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "call {}", self.0)
    }
}

impl fmt::Display for Input {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Input::Timeout => write!(f, "timeout"),
            Input::Dialled { link } => write!(f, "dialled {link}"),
            Input::DialFailed { link } => write!(f, "dial {link} failed"),
            Input::Received { link, bytes } => write!(f, "received {link} {}B", bytes.len()),
            Input::Disconnected { link } => write!(f, "disconnected {link}"),
            Input::Submit(call, request) => write!(f, "submit {call} {request}"),
            Input::ReadConfig(call, watch) => {
                write!(f, "submit {call} getConfig{}", if *watch { " watch" } else { "" })
            }
            Input::Servers(servers) => write!(f, "servers {servers}"),
            Input::Close => write!(f, "close"),
        }
    }
}

impl fmt::Display for Effect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Effect::Dial { link, server } => write!(f, "dial {link} server {server}"),
            Effect::Send { link, bytes } => write!(f, "send {link} {}B", bytes.len()),
            Effect::HangUp { link } => write!(f, "hang up {link}"),
            Effect::Completed(call, Ok(done)) => write!(f, "{call} done {done}"),
            Effect::Completed(call, Err(failure)) => write!(f, "{call} failed: {failure}"),
            Effect::Event(e) => write!(f, "event {:?} {}", e.event, e.path),
            Effect::State(state) => write!(f, "state {state:?}"),
            Effect::PresumedExpired => f.write_str("presumed expired"),
        }
    }
}

/// One line per effect: the trace that tests compare.
impl fmt::Display for Outbox {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for effect in &self.effects {
            writeln!(f, "{effect}")?;
        }
        Ok(())
    }
}

impl fmt::Display for Done {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.zxid)?;
        match &self.body {
            ReplyBody::Empty => Ok(()),
            ReplyBody::Path(path) => write!(f, " {path}"),
            ReplyBody::PathStat(path, stat) => write!(f, " {path} v={}", stat.version),
            ReplyBody::Stat(stat) => write!(f, " v={}", stat.version),
            ReplyBody::Data(Some(data), stat) => write!(f, " {}B v={}", data.len(), stat.version),
            ReplyBody::Data(None, stat) => write!(f, " null v={}", stat.version),
            ReplyBody::Children(names) => write!(f, " {names:?}"),
            ReplyBody::ChildrenStat(names, stat) => {
                write!(f, " {names:?} cv={}", stat.cversion)
            }
            ReplyBody::Multi(results) => write!(f, " {results:?}"),
            ReplyBody::Acl(list, stat) => write!(f, " {list:?} av={}", stat.aversion),
            ReplyBody::Number(number) => write!(f, " {number}"),
            ReplyBody::Token(_) => write!(f, " ***"),
            ReplyBody::NullPath => write!(f, " null"),
            ReplyBody::BrokenMulti(_) => write!(f, " not read"),
            ReplyBody::Identities(ids) => write!(f, " {ids:?}"),
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::Code(code) => write!(f, "{code}"),
            Failure::UnknownCode(code) => write!(f, "unknown error code {code}"),
            Failure::ConnectionLoss => {
                write!(f, "connection lost before the answer; the call may have been carried out")
            }
            Failure::SessionExpired => write!(f, "session expired; open a new one"),
            Failure::AuthFailed => write!(f, "authentication failed; open a new session"),
            Failure::Closed => write!(f, "session closed"),
            Failure::Full => write!(f, "too many calls under way; wait for some to end"),
            Failure::TooLarge => write!(
                f,
                "request too large; raise request_bytes_max here and jute.maxbuffer at the \
                 servers, or store less"
            ),
            Failure::InvalidPath(why) => write!(f, "the path {why}"),
            Failure::NotACall => {
                write!(f, "ping, setWatches and closeSession are made by the session itself")
            }
            Failure::TimedOut => {
                write!(f, "no answer within the request timeout; the call may be carried out yet")
            }
            Failure::Lagged => {
                write!(f, "too many unread events; set the watch again, and read the nodes anew")
            }
            Failure::WatchRemoved => write!(f, "the watch was removed"),
            Failure::UnexpectedData => {
                write!(f, "the node's data are not this recipe's, or the new value does not fit")
            }
            Failure::OtherReply => write!(f, "the server's reply has another form; report a bug"),
        }
    }
}

impl std::error::Error for Failure {}

impl fmt::Display for Disconnect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Disconnect::DialFailed => write!(f, "server cannot be reached"),
            Disconnect::DialTimeout => write!(f, "connecting took too long"),
            Disconnect::HandshakeTimeout => {
                write!(f, "server did not answer the handshake in time")
            }
            Disconnect::Silent => {
                write!(f, "server was silent for two thirds of the session timeout")
            }
            Disconnect::Disconnected => write!(f, "connection closed"),
            Disconnect::Moves => write!(f, "moves to another server of the new list"),
            Disconnect::ReadWriteFound => write!(f, "moves to a read-write server"),
            Disconnect::Malformed(malformed) => write!(f, "server sent bad data: {malformed}"),
            Disconnect::WrongXid { expected: Some(expected), got } => {
                write!(f, "server answered request {got} while {expected} was waiting")
            }
            Disconnect::WrongXid { expected: None, got } => {
                write!(f, "server answered request {got} while none was waiting")
            }
            Disconnect::WrongSession { expected, got } => {
                write!(f, "server answered with session {got}, not {expected}")
            }
            Disconnect::WatchesRefused(code) => {
                write!(f, "server refused to set watches again, error {code}")
            }
        }
    }
}
