//! Election notifications: they travel on connections of the election channel, which the driver
//! opens, or in a part of the runs each by itself, as a datagram.
//!
//! Owns the faults that hit them. Must not decide which notification is sent: the driver does where
//! there are connections.

use bytes::BytesMut;
use zabkeeper_core::peer::{Notification, frame};
use zabkeeper_core::{ConnId, Input, Instant, ServerId};

use super::Process;
use super::inbox::Delivered;
use crate::check::checker::Check;
use crate::faults::catalog::Fault;
use crate::network::stream::{Break, End, Party};
use crate::record::trace::Kind;
use crate::world::options::PeerOptions;
use crate::world::shared::{Event, Shared};

/// A notification that travels without a connection: its sender, its content, and when it was sent.
pub(crate) type ReceivedNotification = (ServerId, Notification, Instant);

/// Ticks for which a server without room for a leader's snapshot follows no leader, by the slowest
/// clock.
const REST_TICKS: u32 = 2 * 16;
/// Mean delay of a late notification, ns.
const VOTE_LATE: u64 = 300_000_000;

impl Process {
    /// A notification has arrived.
    pub(in crate::machine::node) fn notified(
        &mut self,
        notified: ReceivedNotification,
        shared: &mut Shared,
    ) {
        self.inbox.push_back(Delivered::Notified(notified));
        self.ask_to_run(shared);
    }

    pub(super) fn take_notification(
        &mut self,
        (from, what, sent): ReceivedNotification,
        shared: &mut Shared,
    ) {
        let late = shared.healed.is_some_and(|healed| sent <= healed);
        shared.recorder.counters.counts.notifications_late += u64::from(late);
        self.driver.push(Input::Election(from, what));
    }

    /// Counts notifications, checks their encoding, and sends those that travel without a
    /// connection. The driver sends the others.
    pub(super) fn send_notifications(
        &mut self,
        notifications: &mut Vec<(ServerId, Notification)>,
        shared: &mut Shared,
    ) {
        for (to, notification) in notifications.iter().copied() {
            shared.recorder.counters.counts.notifications += 1;
            let outside = [self.id, to].iter().any(|id| shared.outside.contains_key(id));
            shared.recorder.counters.counts.notifications_outside += u64::from(outside);
            let rest = shared.options.server.tick() * REST_TICKS;
            let rests = self.lacked_room.is_some_and(|at| shared.now.since(at) <= rest);
            shared.recorder.counters.counts.notifications_resting += u64::from(rests);
            let mut bytes = Vec::new();
            frame::encode(&notification, &mut bytes);
            shared.note(Kind::Send, (self.id.0, to.0), &bytes, || {
                format!("s{} tells s{to}: {notification}", self.id)
            });
            let what = frame::decode(&mut BytesMut::from(&bytes[..]));
            let same =
                if what == Ok(Some(notification)) { Ok(()) } else { Err(format!("{what:?}")) };
            shared.check(Check::SIMULATOR, same);
            if !shared.options.peers.election_conns {
                self.post(to, notification, shared);
            } else if shared.healed.is_none() {
                shared.unreceived.sent(self.id, to, notification);
            }
        }
        if !shared.options.peers.election_conns {
            notifications.clear();
        }
    }

    /// Sends a notification, which may be lost, late or duplicated.
    fn post(&mut self, to: ServerId, what: Notification, shared: &mut Shared) {
        let PeerOptions { link, votes, .. } = shared.options.peers;
        let from = self.id;
        let rng = self.between(Party::Server(to), shared);
        let mut bad = |one_in| one_in > 0 && rng.chance(1, one_in);
        let (lost, twice, late) =
            (bad(votes.lost_one_in), bad(votes.twice_one_in), bad(votes.late_one_in));
        shared.recorder.counters.faults[Fault::NetVotes as usize] +=
            u64::from(lost || twice || late);
        if lost {
            return;
        }
        let event = Event::Notified { from, to, what, sent: shared.now };
        let mut after = link.draw(rng);
        if late {
            after += rng.exponential(VOTE_LATE);
        }
        shared.after(after, event);
        if twice {
            shared.after(after + rng.exponential(VOTE_LATE), event);
        }
    }
}

/// The core receives a notification.
pub(super) fn received((from, to): (ServerId, ServerId), what: &Notification, shared: &mut Shared) {
    if shared.options.peers.election_conns && shared.unreceived.received(from, to, *what) {
        let late = shared.healed.is_some();
        shared.recorder.counters.counts.notifications_late += u64::from(late);
    }
}

/// Delays or breaks a connection on which a notification, or the greeting before it, has just been
/// sent, if the run has that fault. A break loses what is in flight.
pub(super) fn disturb(conn: ConnId, shared: &mut Shared) {
    let votes = shared.options.peers.votes;
    let Some(rng) = shared.net.rng(conn, End::Dialler) else { return };
    let mut bad = |one_in| one_in > 0 && rng.chance(1, one_in);
    let (lost, late) = (bad(votes.lost_one_in), bad(votes.late_one_in));
    let stall = if late { rng.exponential(VOTE_LATE) } else { 0 };
    shared.recorder.counters.faults[Fault::NetVotes as usize] += u64::from(lost || late);
    if late {
        shared.net.stall(conn, End::Acceptor, Instant(shared.now.0 + stall));
    }
    if lost {
        shared.net.break_off(shared.now, conn, Break::Both);
    }
}
