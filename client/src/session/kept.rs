//! The state of a session that survives its connections.
//!
//! Owns session id and password, watches, authentications, queued calls and the times derived from
//! the timeout. Must not know which phase the session is in.

use std::collections::VecDeque;
use std::fmt;
use std::time::Duration;

use zabkeeper_core::wire::{
    ConnectRequest, ConnectResponse, Password, Request, Secret, SetWatches,
};
use zabkeeper_core::{Instant, SessionId, Zxid};

use super::config::Config;
use super::connect::ConnectString;
use super::io::{CallId, Disconnect, Effect, Failure, LinkId, Outbox};
use super::rng::Rng;
use super::servers::Servers;
use super::watches::Watches;

/// Upper bound of the ping interval, for any session timeout (CLIENT-05).
const PING_MAX: Duration = Duration::from_secs(10);

#[derive(Debug)]
pub(crate) struct SessionState {
    pub(crate) config: Config,
    pub(crate) servers: Servers,
    /// Zero until a server has accepted the session.
    pub(crate) id: SessionId,
    pub(crate) password: Password,
    /// A read-write server has accepted the session, or the caller resumes it. The session of a
    /// read-only server is known to that server alone.
    is_known: bool,
    pub(crate) last_zxid: Zxid,
    /// Every watch has received the events of changes up to this zxid. It is behind `last_zxid`
    /// while several setWatches requests are outstanding: a reply to one of them confirms only the
    /// watches in that one.
    told: Zxid,
    pub(crate) watches: Watches,
    /// Credentials that a server has accepted, sent again on each new connection (HS-13).
    pub(crate) auths: Vec<Credential>,
    /// Calls that wait for a connection, with paths as the server knows them.
    pub(crate) queue: VecDeque<(CallId, Request)>,
    pub(crate) last_loss: Option<Disconnect>,
    /// The negotiated session timeout; before the first handshake the requested one.
    pub(crate) timeout: Duration,
    /// When the last message was sent that a read-write server has answered: the servers keep the
    /// session for the timeout from then on, or longer.
    proven: Option<Instant>,
    presumed_expired: bool,
    rng: Rng,
    last_link: u64,
    last_xid: i32,
}

/// The content of an auth request.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Credential {
    pub(crate) scheme: String,
    pub(crate) auth: Secret,
}

impl fmt::Debug for Credential {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // `auth` may be a password, so it is not printed.
        write!(f, "{}:***", self.scheme)
    }
}

impl SessionState {
    pub(crate) fn new(config: Config, seed: u64) -> SessionState {
        let mut rng = Rng::new(seed);
        let (id, password) = config.resume.unwrap_or_default();
        SessionState {
            servers: Servers::new(config.servers.servers(), &mut rng),
            id,
            password,
            is_known: config.resume.is_some(),
            last_zxid: Zxid::ZERO,
            told: Zxid::ZERO,
            watches: Watches::default(),
            auths: Vec::new(),
            queue: VecDeque::new(),
            last_loss: None,
            timeout: millis(config.session_timeout_ms),
            proven: None,
            presumed_expired: false,
            rng,
            last_link: 0,
            last_xid: 0,
            config,
        }
    }

    /// Records that a server has accepted the session, which was asked to at `sent`.
    pub(crate) fn accepted(&mut self, response: &ConnectResponse, read_only: bool, sent: Instant) {
        self.id = response.session;
        self.password = response.password;
        self.is_known |= !read_only;
        self.timeout = millis(response.timeout_ms);
        self.servers.accepted();
        if !read_only {
            self.prove(sent);
        }
    }

    /// A read-write server has answered what was sent at this time.
    pub(crate) fn prove(&mut self, sent: Instant) {
        self.proven = self.proven.max(Some(sent));
        self.presumed_expired = false;
    }

    /// When to presume that the session has expired, unless a server answers before.
    pub(crate) fn presume_at(&self) -> Option<Instant> {
        let proven = self.proven.filter(|_| !self.presumed_expired)?;
        Some(proven.after(self.timeout))
    }

    /// Presumes that the session has expired, if no server has answered for so long. Returns
    /// whether it does so now.
    pub(crate) fn presume(&mut self, now: Instant) -> bool {
        let presumes = self.presume_at().is_some_and(|at| at <= now);
        self.presumed_expired |= presumes;
        presumes
    }

    /// Is the session presumed to have expired?
    pub(crate) fn is_presumed_expired(&self) -> bool {
        self.presumed_expired
    }

    /// The session to resume; zeros for a new one, also while only read-only servers have accepted
    /// the session (RO-04).
    pub(crate) fn identity(&self) -> (SessionId, Password) {
        if self.is_known { (self.id, self.password) } else { Default::default() }
    }

    pub(crate) fn handshake(&self) -> ConnectRequest {
        let (session, password) = self.identity();
        ConnectRequest {
            last_zxid_seen: self.last_zxid,
            timeout_ms: self.config.session_timeout_ms,
            session,
            password: password.to_vec().into(),
            read_only: Some(self.config.read_only),
        }
    }

    /// How long a server may send nothing before the session leaves the connection.
    pub(crate) fn read_timeout(&self) -> Duration {
        self.timeout * 2 / 3
    }

    /// How long the session may send nothing before it sends a ping: half of the read timeout, so
    /// that the reply has the other half.
    pub(crate) fn ping_interval(&self) -> Duration {
        (self.timeout / 3).min(PING_MAX)
    }

    /// How long connecting may take, and the handshake after it: the session timeout divided by the
    /// number of servers.
    pub(crate) fn connect_timeout(&self) -> Duration {
        let count = u32::try_from(self.servers.count()).unwrap_or(u32::MAX);
        (self.timeout / count).max(Duration::from_millis(1))
    }

    /// When to reconnect after a loss (CLIENT-04).
    pub(crate) fn redial_at(&mut self, now: Instant) -> Instant {
        let bound = self.config.reconnect_delay_max.as_nanos();
        let bound = u64::try_from(bound).unwrap_or(u64::MAX);
        let delay = Duration::from_nanos(self.rng.below(bound));
        let pause =
            if self.servers.round_is_over() { self.config.round_pause } else { Duration::ZERO };
        now.after(delay.saturating_add(pause))
    }

    /// Replaces the list of servers. Returns whether the session is to leave its server.
    pub(crate) fn replace_servers(&mut self, servers: &ConnectString) -> bool {
        self.config.servers.replace_servers(servers.servers().to_vec());
        self.servers.replace(servers.servers(), &mut self.rng)
    }

    pub(crate) fn next_link(&mut self) -> LinkId {
        self.last_link += 1;
        LinkId(self.last_link)
    }

    /// The xid of the next request; wraps from `i32::MAX` to 1 (WIRE-11).
    pub(crate) fn next_xid(&mut self) -> i32 {
        self.last_xid = self.last_xid.checked_add(1).unwrap_or(1);
        self.last_xid
    }

    /// Records the zxid of a reply header; `all_set` is false while setWatches requests are
    /// outstanding.
    pub(crate) fn saw(&mut self, zxid: i64, all_set: bool) {
        self.last_zxid = self.last_zxid.max(Zxid::from_wire(zxid));
        if all_set {
            self.told = self.last_zxid;
        }
    }

    /// The requests that set all watches again on a new connection.
    pub(crate) fn set_watches(&self) -> Vec<SetWatches> {
        self.watches.batches(self.told, self.config.watches_bytes)
    }

    pub(crate) fn fail_queue(&mut self, failure: Failure, out: &mut Outbox) {
        for (call, _) in self.queue.drain(..) {
            out.effects.push(Effect::Completed(call, Err(failure)));
        }
    }
}

fn millis(ms: i32) -> Duration {
    Duration::from_millis(u64::try_from(ms).unwrap_or(0).max(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// WIRE-11.
    #[test]
    fn xids_wrap_to_1() {
        let mut kept = SessionState::new(Config::new("a".parse().expect("valid"), 1), 0);
        assert_eq!((kept.next_xid(), kept.next_xid()), (1, 2));
        kept.last_xid = i32::MAX - 1;
        assert_eq!((kept.next_xid(), kept.next_xid()), (i32::MAX, 1));
    }

    #[test]
    fn last_zxid_is_positive_and_never_decreases() {
        let mut kept = SessionState::new(Config::new("a".parse().expect("valid"), 1), 0);
        for zxid in [-1, 7, 0, 5, -9] {
            kept.saw(zxid, true);
        }
        assert_eq!(kept.last_zxid, Zxid(7));
    }
}
