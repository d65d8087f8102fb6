//! When a leader has last heard of a session: directly, or from the follower that its client is connected to.
//!
//! Owns these times, and since when each server has stood still no more, which others take off what a server may be late; at the
//! end of a run, whether sessions and nodes whose time is over are still there (S7, T10). Must not decide when a session ends.
//!
//! A follower answers pings and reads on its own and tells its leader with its next pong, so a client may have been
//! answered and its leader not know it yet. That is in the nature of sessions on followers; S3 therefore has two parts.
//! A leader lets no session expire within its timeout of the last word that has reached it. A follower tells all that
//! it has heard: of a session whose client has read an answer, no later than with the next pong. While it reads no clients
//! for longer than a tick it cannot hear them, and tells with each pong of all that are connected.

use std::collections::BTreeMap;
use std::time::Duration;

use zabkeeper_core::io::{PeerCommand, PeerEvent};
use zabkeeper_core::peer::{FromLearner, PeerMessage};
use zabkeeper_core::store::Entry;
use zabkeeper_core::txn::Txn;
use zabkeeper_core::{ConnId, Input, Instant, ServerId, SessionId, Zxid};

use super::catalog::{Id, Verdict};
use super::conn::Phase;
use super::ledger::Ledger;
use super::{Oracles, SessionView};
use crate::model::Model;

/// What a session that nobody holds may outlive its timeout by, at most, while there is a leader: a leader rounds
/// deadlines up, and its clock may be slow.
const ORPHAN_SLACK: Duration = Duration::from_secs(10);
/// What else may keep a leader from deleting a container: disks, elections, a round that has just begun.
const CONTAINER_SLACK: Duration = Duration::from_secs(20);

/// See the module.
#[derive(Clone, Default, Debug)]
pub(super) struct Heard {
    /// When a server has heard of a session in a way that counts where it leads.
    here: BTreeMap<(SessionId, ServerId), Instant>,
    /// The same without what others have told it.
    directly: BTreeMap<(SessionId, ServerId), Instant>,
    /// When a follower has told its leader of a session.
    told: BTreeMap<(ServerId, SessionId), Instant>,
    /// When a session was made: whatever was asked before that counts from then.
    begun: BTreeMap<SessionId, Instant>,
    /// When a server has heard it with the timeout that was granted, from where its client is.
    renewed: BTreeMap<(SessionId, ServerId), Instant>,
    /// Each expiry that is proposed and not committed.
    expiring: BTreeMap<Zxid, Expiry>,
    /// What a follower must tell with its next pong, and on which connection that was heard.
    owed: BTreeMap<ServerId, BTreeMap<SessionId, ConnId>>,
    /// What the step under way must tell with its pong, as the server reads no clients.
    unread: Vec<SessionId>,
    /// The last pause of each server.
    pauses: BTreeMap<ServerId, Pause>,
}

/// When a server gets no time.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Pause {
    pub(super) begin: Instant,
    /// When it has ended, or will.
    pub(super) end: Instant,
    /// Has the server acted since? Then what comes next is another pause, be it at the same instant.
    over: bool,
}

/// What a leader went by when it proposed the end of a session.
#[derive(Clone, Copy, Debug)]
pub(super) struct Expiry {
    /// When it had last heard of it.
    pub(super) heard: Instant,
    /// When it had last heard what was granted.
    renewed: Instant,
    /// The least timeout that may have held, ms: where that was in this reign, and where not.
    least_ms: [u32; 2],
    pub(super) greatest_ms: u32,
    /// The leader's last pause.
    pub(super) stood_still: Pause,
}

impl Expiry {
    /// The least timeout that may have held for a leader since then.
    pub(super) fn timeout_in(self, leads_since: Instant) -> Duration {
        let [renewed, first] = self.least_ms;
        let ms = if self.renewed > leads_since { renewed } else { first };
        Duration::from_millis(ms.into())
    }
}

impl Heard {
    fn note(&mut self, session: SessionId, server: ServerId, at: Instant) {
        let heard = self.here.entry((session, server)).or_default();
        *heard = (*heard).max(at);
    }

    /// A session begins by a transaction of this leader.
    pub(super) fn created(&mut self, session: SessionId, leader: ServerId, at: Instant) {
        self.note(session, leader, at);
        self.begun.insert(session, at);
    }

    /// Has this leader heard of the session, with what was granted, since then?
    pub(super) fn is_renewed(&self, session: SessionId, leader: ServerId, since: Instant) -> bool {
        self.renewed.get(&(session, leader)).is_some_and(|at| *at > since)
    }

    /// What a leader is about to hear from its learners.
    pub(super) fn relayed(
        &mut self,
        (ledger, model): (&Ledger, &Model),
        id: ServerId,
        input: &Input,
        at: Instant,
    ) {
        // Another step: what the last one owed it has told, or it has answered nobody.
        self.unread.clear();
        let Input::Peer(link, PeerEvent::Message(message)) = input else {
            return;
        };
        if !ledger.leads(id) || !ledger.has_link(id, *link) {
            return;
        }
        if let PeerMessage::Learner(FromLearner::Pong { touched, .. }) = message {
            let follower = ledger.peer_of(id, *link).filter(|peer| ledger.serves(*peer));
            for (session, _) in touched {
                self.note(*session, id, at);
                // What a server says that its client has left, or has not been granted yet, does not count (SESS-16).
                let told = model.session(*session);
                if follower.is_some()
                    && follower == told.and_then(|told| told.server_at(model.tip()))
                {
                    self.renewed.insert((*session, id), at);
                }
            }
        } else if let PeerMessage::Learner(FromLearner::Request { session, .. }) = message {
            self.note(*session, id, at);
        }
    }

    /// A client has read an answer of this server to what it sent at `asked`. `role_since`: for how long the server
    /// has been what it is now.
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
        let told = self.told.get(&(server, session));
        let known = self.begun.get(&session).max(told);
        if follows_since.is_some_and(|since| since < asked) && known.is_none_or(|at| *at < asked) {
            self.owed.entry(server).or_default().insert(session, conn);
        }
    }

    /// When this server has last heard of a session itself.
    pub(super) fn by_server(&self, session: SessionId, server: ServerId) -> Instant {
        self.directly.get(&(session, server)).copied().unwrap_or_default()
    }

    /// When this leader has last heard of a session.
    fn by_leader(&self, session: SessionId, leader: ServerId) -> Instant {
        self.here.get(&(session, leader)).copied().unwrap_or_default()
    }

    /// A leader has proposed something: if it is an expiry, it goes by what was heard before.
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
                heard: self.by_leader(session, leader),
                renewed: self.renewed.get(&(session, leader)).copied().unwrap_or_default(),
                least_ms: [true, false].map(|renewed| timeouts.least(renewed)),
                greatest_ms: timeouts.greatest(),
                stood_still: self.pauses.get(&leader).copied().unwrap_or_default(),
            };
            self.expiring.entry(entry.zxid).or_insert(expiry);
        }
    }

    /// What was known of a session when the expiry at this zxid was proposed.
    pub(super) fn before_expiry(&mut self, zxid: Zxid) -> Option<Expiry> {
        self.expiring.remove(&zxid)
    }

    /// When any server has.
    fn by_any(&self, session: SessionId) -> Instant {
        let servers = (session, ServerId(0))..=(session, ServerId(u64::MAX));
        self.here.range(servers).map(|(_, at)| *at).max().unwrap_or_default()
    }

    /// When a server got no time last.
    pub(super) fn last_pause(&self, id: ServerId) -> Pause {
        self.pauses.get(&id).copied().unwrap_or_default()
    }

    /// When the last pause of a server ended.
    pub(super) fn awake_since(&self, id: ServerId) -> Instant {
        self.pauses.get(&id).map(|pause| pause.end).unwrap_or_default()
    }

    /// A server gets no time from `at` to `until`.
    pub(super) fn stands_still(&mut self, id: ServerId, at: Instant, until: Instant) {
        let before = self.pauses.get(&id).filter(|before| before.end >= at && !before.over);
        let begin = before.map_or(at, |before| before.begin);
        self.pauses.insert(id, Pause { begin, end: until, over: false });
    }

    /// A server acts.
    pub(super) fn acts(&mut self, id: ServerId, at: Instant) {
        if let Some(pause) = self.pauses.get_mut(&id) {
            pause.over |= pause.end <= at;
        }
    }

    /// A server begins or ends a life, or a role.
    pub(super) fn restarted(&mut self, id: ServerId) {
        self.owed.remove(&id);
    }
}

impl Oracles {
    /// A server that reads no clients is asked by its leader, and has these connections.
    pub(super) fn reads_nobody(&mut self, id: ServerId, open: &[ConnId]) {
        let conns = open.iter().filter_map(|conn| self.conns.get(conn));
        let sessions = conns.filter(|conn| conn.phase == Phase::Open).map(|conn| conn.session);
        let of_all = |session: &SessionId| !self.locals.is_of(*session, id);
        self.heard.unread = sessions.filter(of_all).collect();
    }

    /// What a follower tells its leader of sessions.
    pub(super) fn relays(&mut self, id: ServerId, commands: &[PeerCommand]) -> Verdict {
        for command in commands {
            let PeerCommand::Send(_, message) = command else {
                continue;
            };
            if let PeerMessage::Learner(FromLearner::Pong { touched, .. }) = message {
                self.has_told(id, touched)?;
            } else if let PeerMessage::Learner(FromLearner::Request { session, .. }) = message {
                self.heard.told.insert((id, *session), self.now);
                if let Some(owed) = self.heard.owed.get_mut(&id) {
                    owed.remove(session);
                }
            }
        }
        Ok(())
    }

    fn has_told(&mut self, id: ServerId, touched: &[(SessionId, u32)]) -> Verdict {
        for (session, _) in touched {
            self.heard.told.insert((id, *session), self.now);
        }
        for session in std::mem::take(&mut self.heard.unread) {
            let told = |session| touched.iter().any(|(told, _)| *told == session);
            let tells = told(session) || !self.model.is_alive(session);
            self.tally.hold(Id::S3, tells, || {
                vec![format!(
                    "server {id} reads no clients, and does not tell its leader of session {session}, which is connected; it \
                     tells {touched:?}"
                )]
            })?;
        }
        for (session, conn) in self.heard.owed.remove(&id).unwrap_or_default() {
            let holds = self.conns.get(&conn).is_some_and(|conn| !conn.closed);
            if !holds || !self.model.is_alive(session) {
                continue;
            }
            let tells = touched.iter().any(|(told, _)| *told == session);
            self.tally.hold(Id::S3, tells, || {
                vec![format!(
                    "server {id} has answered session {session} on {conn}, and does not tell its \
                     leader; it tells {touched:?}"
                )]
            })?;
        }
        Ok(())
    }

    /// Since when the same leader has had time. One that stood still could hear nobody, and gives all sessions their time
    /// anew.
    fn led_since(&self) -> Instant {
        let awake = self.heard.pauses.iter().filter(|(id, _)| self.ledger.leads(**id));
        let awake = awake.map(|(_, pause)| pause.end).max().unwrap_or_default();
        self.ledger.last_established().max(awake)
    }

    /// T10, at the end: a leader looks for what may go at its intervals, and deletes it at its pace (DATA-22).
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
            // Whatever went meanwhile had its turn, too.
            let gone = self.lapsed.len() - self.lapsed.partition_point(|at| *at < due);
            let count = count.saturating_add(u32::try_from(gone).unwrap_or(u32::MAX));
            let turn = Duration::from_millis(tree.container_check_ms) + pace.saturating_mul(count);
            self.tally.hold(Id::T10, waits <= turn * 4 + CONTAINER_SLACK, || {
                vec![format!(
                    "{path} has been there for {waits:?} longer than it may; a round takes {turn:?}"
                )]
            })?;
        }
        Ok(())
    }

    /// S7, at the end: a session that no client holds has had its time.
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
            let silent = audit.since(self.heard.by_any(session).max(left).max(since));
            let known = self.model.session(session).map_or(0, |session| session.timeout_ms);
            let granted = view.map_or(0, SessionView::longest_ms);
            let timeout = Duration::from_millis(known.max(granted).into());
            self.tally.hold(Id::S7, silent <= timeout * 5 / 4 + ORPHAN_SLACK, || {
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
    fn pauses_are_one_unless_the_server_has_acted_between() {
        let (id, mut heard) = (ServerId(1), Heard::default());
        let last = |heard: &Heard| (heard.pauses[&id].begin, heard.pauses[&id].end);
        heard.stands_still(id, Instant(10), Instant(20));
        heard.stands_still(id, Instant(20), Instant(30));
        assert_eq!(last(&heard), (Instant(10), Instant(30)), "it had no turn");
        heard.acts(id, Instant(29));
        heard.stands_still(id, Instant(30), Instant(40));
        assert_eq!(last(&heard), (Instant(10), Instant(40)), "its turn was before the end");
        heard.acts(id, Instant(40));
        heard.stands_still(id, Instant(40), Instant(50));
        assert_eq!(last(&heard), (Instant(40), Instant(50)));
    }
}
