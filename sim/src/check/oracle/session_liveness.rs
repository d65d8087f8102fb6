//! When a server last touched a session: by a request of its own client, or by the report of the
//! follower that the client is connected to. ZooKeeper's term is `touchSession`.
//!
//! Owns these times and each server's last pause, by which other files extend deadlines; at the end
//! of a run, whether expired sessions and nodes are still there (S7, T10). Must not decide when a
//! session ends.
//!
//! A follower answers pings and reads alone and reports the sessions to its leader with its next
//! pong, so a client may have read an answer before the leader knows of its request. S3 therefore
//! has two parts. A leader expires no session within its timeout after the last message that
//! touched the session there. A follower reports each session whose client has read an answer, no
//! later than with its next pong. While it has read no clients for longer than a tick, it reports
//! all connected sessions with each pong.

use std::collections::BTreeMap;
use std::time::Duration;

use zabkeeper_core::io::{PeerCommand, PeerEvent};
use zabkeeper_core::peer::{FromLearner, PeerMessage};
use zabkeeper_core::store::Entry;
use zabkeeper_core::txn::Txn;
use zabkeeper_core::{ConnId, Input, Instant, LinkId, ServerId, SessionId, Zxid};

use super::Oracles;
use super::catalog::{Id, Verdict};
use super::conn::Phase;
use super::sessions::SessionView;
use super::zab::Zab;
use crate::check::model::Model;

/// How long a session without a client may outlive its timeout while there is a leader: leaders
/// round deadlines up, and a clock may be slow.
const ORPHAN_SLACK: Duration = Duration::from_secs(10);
/// Other causes that delay a leader's deletion of containers: disks, elections, a round that has
/// just begun.
const CONTAINER_SLACK: Duration = Duration::from_secs(20);

/// See the module.
#[derive(Clone, Default, Debug)]
pub(super) struct SessionLiveness {
    /// Per session and server: when the server last touched it, by the client or by the report of a
    /// learner.
    here: BTreeMap<(SessionId, ServerId), Instant>,
    /// The same, without reports of learners.
    directly: BTreeMap<(SessionId, ServerId), Instant>,
    /// Per follower and session: when the follower last reported it to its leader.
    reported: BTreeMap<(ServerId, SessionId), Instant>,
    /// When the session's creation was proposed: a follower need not report earlier requests.
    begun: BTreeMap<SessionId, Instant>,
    /// Per session and server: when the server last touched it with its granted timeout, by the
    /// server that its client is connected to.
    renewed: BTreeMap<(SessionId, ServerId), Instant>,
    /// Per leader and observer: the leader's link with the follower that feeds the observer.
    masters: BTreeMap<(ServerId, ServerId), LinkId>,
    /// Expiries that are proposed and not committed.
    expiring: BTreeMap<Zxid, Expiry>,
    /// Sessions that a follower must report with its next pong, and the connection of the answered
    /// request.
    owed: BTreeMap<ServerId, BTreeMap<SessionId, ConnId>>,
    /// Sessions that the pong of the present step must report, because the server reads no clients.
    unread: Vec<SessionId>,
    /// The last pause of each server.
    pauses: BTreeMap<ServerId, Pause>,
}

/// A time in which a server does not run.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Pause {
    pub(super) begin: Instant,
    /// When it ends.
    pub(super) end: Instant,
    /// The server has acted since the end, so that the next pause is another one even if it begins
    /// at the same time.
    over: bool,
}

/// What a leader knew of a session when it proposed its closeSession.
#[derive(Clone, Copy, Debug)]
pub(super) struct Expiry {
    /// When it last touched the session.
    pub(super) received: Instant,
    /// When it last touched the session with its granted timeout.
    renewed: Instant,
    /// The least timeouts that it may use, ms: if `renewed` is after the begin of its epoch, and if
    /// it is not.
    least_ms: [u32; 2],
    pub(super) greatest_ms: u32,
    /// The leader's last pause.
    pub(super) stood_still: Pause,
}

impl Expiry {
    /// The least timeout that the leader may use, if it has led since `leads_since`.
    pub(super) fn timeout_in(self, leads_since: Instant) -> Duration {
        let [renewed, first] = self.least_ms;
        let ms = if self.renewed > leads_since { renewed } else { first };
        Duration::from_millis(ms.into())
    }
}

impl SessionLiveness {
    fn note(&mut self, session: SessionId, server: ServerId, at: Instant) {
        let received = self.here.entry((session, server)).or_default();
        *received = (*received).max(at);
    }

    /// The leader has created the session.
    pub(super) fn created(&mut self, session: SessionId, leader: ServerId, at: Instant) {
        self.note(session, leader, at);
        self.begun.insert(session, at);
    }

    /// Whether the leader touched the session with its granted timeout after `since`.
    pub(super) fn is_renewed(&self, session: SessionId, leader: ServerId, since: Instant) -> bool {
        self.renewed.get(&(session, leader)).is_some_and(|at| *at > since)
    }

    /// The server is about to handle this input: notes the sessions that a learner reports to its
    /// leader.
    pub(super) fn relayed(
        &mut self,
        (zab, model): (&Zab, &Model),
        id: ServerId,
        input: &Input,
        at: Instant,
    ) {
        // If the previous step had to send a pong, it has sent it by now, or never will.
        self.unread.clear();
        let Input::Peer(link, PeerEvent::Message(message)) = input else {
            return;
        };
        if !zab.leads(id) || !zab.has_link(id, *link) {
            return;
        }
        let peer = zab.peer_of(id, *link);
        if let PeerMessage::Learner(FromLearner::Pong { touched, .. }) = message {
            self.reports((zab, model), (id, peer), touched, at);
        } else if let PeerMessage::Learner(FromLearner::TouchedBehind { behind, touched, .. }) =
            message
        {
            if self.masters.get(&(id, behind.server)) == Some(link) {
                self.reports((zab, model), (id, Some(behind.server)), touched, at);
            }
        } else if let PeerMessage::Learner(FromLearner::Attach { behind }) = message {
            self.masters.insert((id, behind.server), *link);
        } else if let PeerMessage::Learner(FromLearner::FollowerInfo { .. }) = message {
            peer.map(|peer| self.masters.remove(&(id, peer)));
        } else if let PeerMessage::Learner(FromLearner::Request { session, origin, .. }) = message {
            // The leader ignores what a follower relays for an observer that another one feeds.
            let relayed = peer != Some(origin.server);
            if !relayed || self.masters.get(&(id, origin.server)) == Some(link) {
                self.note(*session, id, at);
            }
        }
    }

    /// A server reports sessions to this leader, itself or through the follower that feeds it.
    fn reports(
        &mut self,
        (zab, model): (&Zab, &Model),
        (leader, server): (ServerId, Option<ServerId>),
        touched: &[(SessionId, u32)],
        at: Instant,
    ) {
        let follower = server.filter(|server| zab.serves(*server));
        for (session, _) in touched {
            self.note(*session, leader, at);
            // A report counts for the granted timeout only from the server that the client has
            // moved to (SESS-16).
            let reported = model.session(*session);
            if follower.is_some()
                && follower == reported.and_then(|reported| reported.server_at(model.tip()))
            {
                self.renewed.insert((*session, leader), at);
            }
        }
    }

    /// A client has read this server's answer to a request sent at `asked`. `follows_since`: since
    /// when the server follows its leader, if it does.
    pub(super) fn answered(
        &mut self,
        (session, conn, server): (SessionId, ConnId, ServerId),
        asked: Instant,
        follows_since: Option<Instant>,
    ) {
        self.note(session, server, asked);
        let directly = self.directly.entry((session, server)).or_default();
        *directly = asked.max(*directly);
        let renewed = self.renewed.entry((session, server)).or_default();
        *renewed = asked.max(*renewed);
        let reported = self.reported.get(&(server, session));
        let known = self.begun.get(&session).max(reported);
        if follows_since.is_some_and(|since| since < asked) && known.is_none_or(|at| *at < asked) {
            self.owed.entry(server).or_default().insert(session, conn);
        }
    }

    /// When this server last touched a session by a message of the client itself.
    pub(super) fn by_server(&self, session: SessionId, server: ServerId) -> Instant {
        self.directly.get(&(session, server)).copied().unwrap_or_default()
    }

    /// When this leader last touched a session, also by reports of learners.
    fn by_leader(&self, session: SessionId, leader: ServerId) -> Instant {
        self.here.get(&(session, leader)).copied().unwrap_or_default()
    }

    /// A leader has made this proposal: if it is an expiry, keeps what the leader knew.
    pub(super) fn proposed(
        &mut self,
        leader: ServerId,
        entry: &Entry,
        sessions: &BTreeMap<SessionId, SessionView>,
    ) {
        if let Ok(Txn { session, origin: None, .. }) = Txn::decode(entry)
            && let Some(SessionView { timeouts, .. }) = sessions.get(&session)
        {
            let expiry = Expiry {
                received: self.by_leader(session, leader),
                renewed: self.renewed.get(&(session, leader)).copied().unwrap_or_default(),
                least_ms: [true, false].map(|renewed| timeouts.least(renewed)),
                greatest_ms: timeouts.greatest(),
                stood_still: self.pauses.get(&leader).copied().unwrap_or_default(),
            };
            self.expiring.entry(entry.zxid).or_insert(expiry);
        }
    }

    /// What the leader knew of a session when it proposed the expiry with this zxid.
    pub(super) fn before_expiry(&mut self, zxid: Zxid) -> Option<Expiry> {
        self.expiring.remove(&zxid)
    }

    /// When any server last touched a session.
    fn by_any(&self, session: SessionId) -> Instant {
        let servers = (session, ServerId(0))..=(session, ServerId(u64::MAX));
        self.here.range(servers).map(|(_, at)| *at).max().unwrap_or_default()
    }

    /// The last pause of a server.
    pub(super) fn last_pause(&self, id: ServerId) -> Pause {
        self.pauses.get(&id).copied().unwrap_or_default()
    }

    /// When the last pause of a server ended.
    pub(super) fn awake_since(&self, id: ServerId) -> Instant {
        self.pauses.get(&id).map(|pause| pause.end).unwrap_or_default()
    }

    /// A server does not run from `at` to `until`.
    pub(super) fn stands_still(&mut self, id: ServerId, at: Instant, until: Instant) {
        let before = self.pauses.get(&id).filter(|before| before.end >= at && !before.over);
        let begin = before.map_or(at, |before| before.begin);
        self.pauses.insert(id, Pause { begin, end: until, over: false });
    }

    /// A server takes a step.
    pub(super) fn acts(&mut self, id: ServerId, at: Instant) {
        if let Some(pause) = self.pauses.get_mut(&id) {
            pause.over |= pause.end <= at;
        }
    }

    /// The server's process starts or ends, or its role changes.
    pub(super) fn restarted(&mut self, id: ServerId) {
        self.owed.remove(&id);
    }
}

impl Oracles {
    /// A server that reads no clients is about to handle its leader's ping while it has these
    /// connections.
    pub(super) fn reads_nobody(&mut self, id: ServerId, open: &[ConnId]) {
        let conns = open.iter().filter_map(|conn| self.conns.get(conn));
        let sessions = conns.filter(|conn| conn.phase == Phase::Open).map(|conn| conn.session);
        let of_all = |session: &SessionId| !self.locals.is_of(*session, id);
        self.liveness.unread = sessions.filter(of_all).collect();
    }

    /// Checks the sessions that a follower reports to its leader.
    pub(super) fn relays(&mut self, id: ServerId, commands: &[PeerCommand]) -> Verdict {
        for command in commands {
            let PeerCommand::Send(_, message) = command else {
                continue;
            };
            if let PeerMessage::Learner(FromLearner::Pong { touched, .. }) = message {
                self.has_reported(id, touched)?;
            } else if let PeerMessage::Learner(FromLearner::Request { session, .. }) = message {
                self.liveness.reported.insert((id, *session), self.now);
                if let Some(owed) = self.liveness.owed.get_mut(&id) {
                    owed.remove(session);
                }
            }
        }
        Ok(())
    }

    fn has_reported(&mut self, id: ServerId, touched: &[(SessionId, u32)]) -> Verdict {
        for (session, _) in touched {
            self.liveness.reported.insert((id, *session), self.now);
        }
        for session in std::mem::take(&mut self.liveness.unread) {
            let reported = |session| touched.iter().any(|(reported, _)| *reported == session);
            let tells = reported(session) || !self.model.is_alive(session);
            self.checks.check(Id::S3, tells, || {
                vec![format!(
                    "server {id} reads no clients, and does not tell its leader of session \
                     {session}, which is connected; it \
                     tells {touched:?}"
                )]
            })?;
        }
        for (session, conn) in self.liveness.owed.remove(&id).unwrap_or_default() {
            let holds = self.conns.get(&conn).is_some_and(|conn| !conn.closed);
            if !holds || !self.model.is_alive(session) {
                continue;
            }
            let tells = touched.iter().any(|(reported, _)| *reported == session);
            self.checks.check(Id::S3, tells, || {
                vec![format!(
                    "server {id} has answered session {session} on {conn}, and does not tell its \
                     leader; it tells {touched:?}"
                )]
            })?;
        }
        Ok(())
    }

    /// Since when the present leader has been running. During a pause a leader receives nothing,
    /// and then gives all sessions their full timeout again.
    fn led_since(&self) -> Instant {
        let awake = self.liveness.pauses.iter().filter(|(id, _)| self.zab.leads(**id));
        let awake = awake.map(|(_, pause)| pause.end).max().unwrap_or_default();
        self.zab.last_established().max(awake)
    }

    /// T10, at the end: a leader checks for expired containers and TTL nodes at its interval and
    /// deletes them at its rate (DATA-22).
    pub(super) fn nothing_is_overdue(&mut self) -> Verdict {
        let Some(audit) = self.audit else {
            return Ok(());
        };
        let since = self.led_since();
        let tree = &self.model.rules().tree;
        let fleeting = self.model.fleeting();
        let pace = Duration::from_secs(60) / tree.container_max_per_minute.max(1);
        let count = u32::try_from(fleeting.len()).unwrap_or(u32::MAX);
        for (path, node) in fleeting {
            let Some(due) = self.model.overdue_since(node) else {
                continue;
            };
            let due = self.stamps.partition_point(|(zxid, _)| *zxid < due);
            let due = self.stamps.get(due).map_or(audit, |(_, at)| (*at).max(since));
            let waits = audit.since(due);
            // Nodes deleted meanwhile took turns in the rate limit, too.
            let gone = self.lapsed.len() - self.lapsed.partition_point(|at| *at < due);
            let count = count.saturating_add(u32::try_from(gone).unwrap_or(u32::MAX));
            let turn = Duration::from_millis(tree.container_check_ms) + pace.saturating_mul(count);
            self.checks.check(Id::T10, waits <= turn * 4 + CONTAINER_SLACK, || {
                vec![format!(
                    "{path} has been there for {waits:?} longer than it may; a round takes {turn:?}"
                )]
            })?;
        }
        Ok(())
    }

    /// S7, at the end: a session without a client has expired.
    pub(super) fn no_orphan_is_left(&mut self) -> Verdict {
        let Some(audit) = self.audit else {
            return Ok(());
        };
        let since = self.led_since();
        for session in self.model.sessions_at(self.model.tip()) {
            let view = self.sessions.get(&session);
            let conn = view.and_then(|view| view.attached).map(|attached| attached.conn);
            if conn.and_then(|conn| self.conns.get(&conn)).is_some_and(|conn| !conn.closed) {
                continue;
            }
            let left = view.map_or(Instant::default(), |view| view.left);
            let silent = audit.since(self.liveness.by_any(session).max(left).max(since));
            let known = self.model.session(session).map_or(0, |session| session.timeout_ms);
            let granted = view.map_or(0, SessionView::longest_ms);
            let timeout = Duration::from_millis(known.max(granted).into());
            self.checks.check(Id::S7, silent <= timeout * 5 / 4 + ORPHAN_SLACK, || {
                vec![format!(
                    "session {session} is alive; nobody has held it for {silent:?}, and its \
                     timeout is {timeout:?}"
                )]
            })?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn adjacent_pauses_merge_unless_the_server_acts_between() {
        let (id, mut liveness) = (ServerId(1), SessionLiveness::default());
        let last =
            |liveness: &SessionLiveness| (liveness.pauses[&id].begin, liveness.pauses[&id].end);
        liveness.stands_still(id, Instant(10), Instant(20));
        liveness.stands_still(id, Instant(20), Instant(30));
        assert_eq!(last(&liveness), (Instant(10), Instant(30)), "it had no turn");
        liveness.acts(id, Instant(29));
        liveness.stands_still(id, Instant(30), Instant(40));
        assert_eq!(last(&liveness), (Instant(10), Instant(40)), "its turn was before the end");
        liveness.acts(id, Instant(40));
        liveness.stands_still(id, Instant(40), Instant(50));
        assert_eq!(last(&liveness), (Instant(40), Instant(50)));
    }
}
