//! The doors and the sink of a session: everything that goes in and everything that comes out, as plain data.
//!
//! Owns [`Input`], [`Outbox`] and the rules that bind both sides. Must not decide anything.
//!
//! Rules:
//! 1. Effects are carried out in order.
//! 2. Links are dealt by the session, rising, and never dealt again; what is said of an old link is ignored, so a
//!    late message of an old connection cannot pass for a new one.
//! 3. Each [`Effect::Dial`] is answered by [`Input::Dialled`] or [`Input::DialFailed`], unless [`Effect::HangUp`]
//!    comes first. After [`Effect::HangUp`] nothing need be said of the link any more.
//! 4. The driver loses bytes of a link only by reporting [`Input::Disconnected`].

use std::fmt;

use bytes::Bytes;
use zabkeeper_core::wire::{ReplyBody, Request, WatchEvent};
use zabkeeper_core::{ErrorCode, Malformed, SessionId, Zxid};

/// One connection to one server, counted by the session from 1.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct LinkId(pub u64);

/// One call, named by the caller; the session only hands it back.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct CallId(pub u64);

/// Everything that can happen to a session.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Input {
    /// The deadline has come that [`Session::next_deadline`](crate::Session::next_deadline) gave. Harmless early.
    Timeout,
    /// The connection asked for stands.
    Dialled {
        /// Which.
        link: LinkId,
    },
    /// The connection asked for could not be made.
    DialFailed {
        /// Which.
        link: LinkId,
    },
    /// The server has sent bytes; in any cut.
    Received {
        /// On which connection.
        link: LinkId,
        /// What.
        bytes: Bytes,
    },
    /// The connection is gone.
    Disconnected {
        /// Which.
        link: LinkId,
    },
    /// A call of the user. Auth is one (its reply may overtake others); ping, setWatches and closeSession are the
    /// session's own affair and fail with [`Failure::NotACall`].
    Submit(CallId, Request),
    /// End the session: its ephemeral nodes go, once all calls before are answered. Without a connection nobody can
    /// be told, and the session is left to expire.
    Close,
}

/// Everything that a step asks of the world. The driver empties it.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Outbox {
    /// To be carried out in order.
    pub effects: Vec<Effect>,
}

/// One thing to do or to tell.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Effect {
    /// Connect.
    Dial {
        /// The name of the new connection.
        link: LinkId,
        /// Position of the server in the connect string, from zero.
        server: usize,
    },
    /// Send bytes.
    Send {
        /// On which connection.
        link: LinkId,
        /// What: whole frames.
        bytes: Bytes,
    },
    /// Give up a connection, or the attempt to make it.
    HangUp {
        /// Which.
        link: LinkId,
    },
    /// A call has ended: once for each [`Input::Submit`].
    Completed(CallId, Result<Done, Failure>),
    /// A watch of this session has fired, and is gone unless it is persistent.
    Event(WatchEvent),
    /// The session's state has changed.
    State(State),
}

/// What the user may know of the session's state (CLIENT-03).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum State {
    /// There is no connection; one is being made. Where a session begins.
    Connecting,
    /// A server has accepted the session.
    Connected,
    /// A server has said that the session is no more. Final (CLIENT-10).
    Expired,
    /// A server has refused authentication. Final.
    AuthFailed,
    /// The session was ended by [`Input::Close`]. Final.
    Closed,
}

/// A call that has succeeded.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Done {
    /// Last transaction that the server had applied when it answered; zero for auth.
    pub zxid: Zxid,
    /// The answer, its paths as the caller knows them.
    pub body: ReplyBody,
}

/// Why a call has failed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Failure {
    /// The server has refused.
    Code(ErrorCode),
    /// The server has refused, with a code that is not known here.
    UnknownCode(i32),
    /// The connection was lost before the answer: whether the call was carried out is not known. The session goes on.
    ConnectionLoss,
    /// The session has expired.
    SessionExpired,
    /// The session has failed to authenticate.
    AuthFailed,
    /// The session was closed by its user.
    Closed,
    /// Too many calls are under way ([`Config::calls_max`](crate::Config::calls_max)): wait for some.
    Full,
    /// The request is larger than [`Config::request_bytes_max`](crate::Config::request_bytes_max).
    TooLarge,
    /// A path that does not begin with a slash, in a session with a chroot.
    RelativePath,
    /// The request is one that only the session itself makes.
    NotACall,
}

/// Why a link, or the attempt to make one, was given up.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Disconnect {
    /// The connection could not be made.
    DialFailed,
    /// The connection was not made in time.
    DialTimeout,
    /// The server did not answer the handshake in time.
    HandshakeTimeout,
    /// The server was silent for two thirds of the session timeout.
    Silent,
    /// The connection was closed, by the server or between.
    Disconnected,
    /// The server has sent what is no frame of the protocol.
    Malformed(Malformed),
    /// A reply to another request than the oldest one waiting (CLIENT-13).
    WrongXid {
        /// The oldest waiting, if any is.
        expected: Option<i32>,
        /// The reply's.
        got: i32,
    },
    /// The server has answered the handshake with another session than asked for.
    WrongSession {
        /// The session to go on with.
        expected: SessionId,
        /// The one answered.
        got: SessionId,
    },
    /// The server would not set the watches again; going on would lose them silently.
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
                "request too large; raise request_bytes_max here and jute.maxbuffer at the servers, or store less"
            ),
            Failure::RelativePath => write!(f, "path does not begin with a slash"),
            Failure::NotACall => {
                write!(f, "ping, setWatches and closeSession are made by the session itself")
            }
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
