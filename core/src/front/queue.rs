//! Queue of one connection's requests (Java `CommitProcessor`).
//!
//! Owns the order of replies: a read waits only for earlier writes and syncs of its own connection,
//! a write for nothing. Must not execute anything.

use std::collections::VecDeque;

use crate::auth::Ids;
use crate::wire::{Request, RequestFrame};

/// One connection's queue. Bounded by the driver, which stops reading a connection at
/// `Limits::requests_per_conn` unanswered requests.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    waiting: VecDeque<Waiting>,
    /// Number of the last write or sync.
    numbers: u64,
}

#[derive(Debug)]
enum Waiting {
    /// A write that was forwarded to the leader. The request is kept, to be forwarded again to a
    /// new leader.
    Write { number: u64, pending: PendingRequest },
    /// A sync that was forwarded to the leader.
    Sync { number: u64, pending: PendingRequest, confirmed: bool },
    /// A read behind a write, or any request held until service begins.
    Request(PendingRequest),
    /// closeSession of a local session: it needs no transaction, and waits for its turn. Requests
    /// behind it are not executed.
    CloseLocalSession(PendingRequest),
    /// A request that arrived before the session was established. It is not processed earlier,
    /// because an auth packet may precede it.
    BeforeSession(RequestFrame),
}

/// A request, and the client's identities at the time when the request was read (ACL-17).
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct PendingRequest {
    pub(crate) frame: RequestFrame,
    pub(crate) ids: Ids,
}

/// A request to execute as if it had just arrived.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Resubmit {
    /// It was processed before, so its identities are known.
    PendingRequest(PendingRequest),
    /// It waited for the session, unprocessed.
    BeforeSession(RequestFrame),
}

/// What to do with the requests of a connection when service resumes.
#[derive(PartialEq, Eq, Debug)]
pub(crate) struct Resumed {
    /// Numbers of the syncs that the new leader has to confirm.
    pub(crate) syncs: Vec<u64>,
    /// Requests to execute as if they had just arrived, in this order. They are no longer in the
    /// queue.
    pub(crate) resubmit: Vec<Resubmit>,
    /// Does `resubmit` contain a write that was forwarded to an earlier leader?
    pub(crate) lost: bool,
}

impl Queue {
    /// Is there no queued request that a read would have to wait for?
    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Number of queued requests.
    pub(crate) fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Queues a write that is forwarded to the leader. Returns its number, which its transaction
    /// carries.
    pub(crate) fn push_write(&mut self, pending: PendingRequest) -> u64 {
        self.numbers += 1;
        self.waiting.push_back(Waiting::Write { number: self.numbers, pending });
        self.numbers
    }

    /// Queues a sync that is forwarded to the leader. Returns its number.
    pub(crate) fn push_sync(&mut self, pending: PendingRequest) -> u64 {
        self.numbers += 1;
        let sync = Waiting::Sync { number: self.numbers, pending, confirmed: false };
        self.waiting.push_back(sync);
        self.numbers
    }

    /// Queues a request that waits for its turn.
    pub(crate) fn push(&mut self, pending: PendingRequest) {
        self.waiting.push_back(Waiting::Request(pending));
    }

    /// Queues the closeSession of a local session.
    pub(crate) fn push_close_local(&mut self, pending: PendingRequest) {
        self.waiting.push_back(Waiting::CloseLocalSession(pending));
    }

    /// Will a queued closeSession end the local session?
    pub(crate) fn ends(&self) -> bool {
        self.waiting.iter().any(|waiting| matches!(waiting, Waiting::CloseLocalSession(_)))
    }

    /// Queues a request that waits for the session.
    pub(crate) fn push_before_session(&mut self, frame: RequestFrame) {
        self.waiting.push_back(Waiting::BeforeSession(frame));
    }

    /// Removes the write whose transaction was applied. It is the first in the queue, because
    /// transactions are applied in the order of their proposals. `None` if it is not: another
    /// server sent a request in the name of this connection.
    pub(crate) fn applied(&mut self, request: u64) -> Option<RequestFrame> {
        let is_it = |waiting: &mut Waiting| matches!(waiting, Waiting::Write { number, .. } if *number == request);
        match self.waiting.pop_front_if(is_it)? {
            Waiting::Write { pending, .. } => Some(pending.frame),
            Waiting::Sync { .. }
            | Waiting::Request(_)
            | Waiting::CloseLocalSession(_)
            | Waiting::BeforeSession(_) => None,
        }
    }

    /// The transaction of a write is about to be applied. This confirms the syncs queued before the
    /// write: they reached the leader first, and the commit of a later proposal proves that no
    /// other leader can have committed anything in between. Returns whether there were any.
    pub(crate) fn confirm_before(&mut self, request: u64) -> bool {
        let mut any = false;
        for waiting in &mut self.waiting {
            match waiting {
                Waiting::Write { number, .. } if *number == request => break,
                Waiting::Sync { confirmed, .. } => {
                    *confirmed = true;
                    any = true;
                }
                Waiting::Write { .. }
                | Waiting::Request(_)
                | Waiting::CloseLocalSession(_)
                | Waiting::BeforeSession(_) => {}
            }
        }
        any
    }

    /// Marks a sync that the leader has confirmed.
    pub(crate) fn confirm(&mut self, request: u64) {
        for waiting in &mut self.waiting {
            if let Waiting::Sync { number, confirmed, .. } = waiting
                && *number == request
            {
                *confirmed = true;
            }
        }
    }

    /// Service resumes. Writes among `found` are in the log, and are answered when they are
    /// applied. All other writes are lost, and can no longer be committed; since writes are
    /// forwarded in order, none behind a lost one was found.
    pub(crate) fn resume(&mut self, found: impl Fn(u64) -> bool) -> Resumed {
        let stays = |waiting: &Waiting| match waiting {
            Waiting::Write { number, .. } => found(*number),
            Waiting::Sync { .. } | Waiting::CloseLocalSession(_) => true,
            Waiting::Request(pending) => is_read(pending),
            Waiting::BeforeSession(_) => false,
        };
        let kept = self.waiting.iter().take_while(|waiting| stays(waiting)).count();
        let mut lost = false;
        let resubmit = self.waiting.split_off(kept).into_iter().map(|waiting| match waiting {
            Waiting::Write { number, pending } => {
                assert!(!found(number), "write {number} was found behind one that was lost");
                lost = true;
                Resubmit::PendingRequest(pending)
            }
            Waiting::Sync { pending, .. }
            | Waiting::Request(pending)
            | Waiting::CloseLocalSession(pending) => Resubmit::PendingRequest(pending),
            Waiting::BeforeSession(frame) => Resubmit::BeforeSession(frame),
        });
        let resubmit = resubmit.collect();
        Resumed { syncs: self.unconfirmed().collect(), resubmit, lost }
    }

    /// Numbers of the syncs that the leader has not confirmed.
    pub(crate) fn unconfirmed(&self) -> impl Iterator<Item = u64> {
        self.waiting.iter().filter_map(|waiting| match waiting {
            Waiting::Sync { number, confirmed: false, .. } => Some(*number),
            Waiting::Sync { .. }
            | Waiting::Write { .. }
            | Waiting::Request(_)
            | Waiting::CloseLocalSession(_)
            | Waiting::BeforeSession(_) => None,
        })
    }

    /// Can the first request be answered without waiting for a transaction?
    pub(crate) fn has_read(&self) -> bool {
        match self.waiting.front() {
            Some(Waiting::Request(pending)) => is_read(pending),
            Some(Waiting::Sync { confirmed, .. }) => *confirmed,
            Some(Waiting::CloseLocalSession(_)) => true,
            Some(Waiting::Write { .. } | Waiting::BeforeSession(_)) | None => false,
        }
    }

    /// Takes the request that [`Queue::has_read`] refers to.
    pub(crate) fn next_read(&mut self) -> Option<PendingRequest> {
        if !self.has_read() {
            return None;
        }
        match self.waiting.pop_front()? {
            Waiting::Request(pending)
            | Waiting::Sync { pending, .. }
            | Waiting::CloseLocalSession(pending) => Some(pending),
            Waiting::Write { .. } | Waiting::BeforeSession(_) => None,
        }
    }
}

/// Can the request be answered without the leader?
fn is_read(PendingRequest { frame, .. }: &PendingRequest) -> bool {
    !frame.request.is_write() && !matches!(frame.request, Request::Sync { .. })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(xid: i32, request: Request) -> PendingRequest {
        PendingRequest { frame: RequestFrame { xid, request }, ids: Ids::default() }
    }

    fn write(xid: i32) -> PendingRequest {
        frame(xid, Request::CloseSession)
    }

    fn sync(xid: i32) -> PendingRequest {
        frame(xid, Request::Sync { path: "/".into() })
    }

    /// CONS-02.
    #[test]
    fn edge_201_read_waits_only_for_earlier_writes() {
        let mut queue = Queue::default();
        let first = queue.push_write(write(1));
        queue.push(frame(2, Request::Ping));
        let second = queue.push_write(write(3));
        queue.push(frame(4, Request::Ping));
        assert_eq!(queue.next_read(), None);
        assert_eq!(queue.applied(first).map(|f| f.xid), Some(1));
        assert_eq!(queue.next_read().map(|f| f.frame.xid), Some(2));
        assert_eq!(queue.next_read(), None);
        assert_eq!(queue.applied(second).map(|f| f.xid), Some(3));
        assert_eq!(queue.next_read().map(|f| f.frame.xid), Some(4));
        assert!(queue.is_empty());
    }

    /// CONS-04.
    #[test]
    fn sync_waits_for_its_turn_and_for_confirmation() {
        let mut queue = Queue::default();
        let first = queue.push_write(write(1));
        let second = queue.push_sync(sync(2));
        queue.push(frame(3, Request::Ping));
        queue.confirm(second);
        assert_eq!(queue.next_read(), None);
        queue.applied(first);
        assert_eq!(queue.next_read().map(|f| f.frame.xid), Some(2));
        let third = queue.push_sync(sync(4));
        assert_eq!(queue.next_read().map(|f| f.frame.xid), Some(3));
        assert_eq!(queue.next_read(), None);
        queue.confirm(third);
        assert_eq!(queue.next_read().map(|f| f.frame.xid), Some(4));
    }

    #[test]
    fn committed_write_confirms_earlier_syncs() {
        let mut queue = Queue::default();
        queue.push_sync(sync(1));
        queue.push(frame(2, Request::Ping));
        let write = queue.push_write(write(3));
        queue.push_sync(sync(4));
        assert!(queue.confirm_before(write));
        assert_eq!(queue.next_read().map(|f| f.frame.xid), Some(1));
        assert_eq!(queue.next_read().map(|f| f.frame.xid), Some(2));
        assert!(!queue.confirm_before(write));
        queue.applied(write);
        assert_eq!(queue.next_read(), None, "what came after the write is not confirmed by it");
    }

    #[test]
    fn lost_writes_are_resubmitted_in_order() {
        let mut queue = Queue::default();
        let first = queue.push_write(write(1));
        queue.push(frame(2, Request::Ping));
        let second = queue.push_sync(sync(3));
        queue.push_write(write(4));
        queue.push(frame(5, Request::Ping));
        queue.push_sync(sync(6));
        queue.push(write(7));
        let Resumed { syncs, resubmit, lost } = queue.resume(|number| number == first);
        assert!(lost);
        assert_eq!(syncs, [second]);
        let expected = [write(4), frame(5, Request::Ping), sync(6), write(7)];
        assert_eq!(resubmit, expected.map(Resubmit::PendingRequest));
        assert_eq!(queue.applied(first).map(|f| f.xid), Some(1));
        assert_eq!(queue.next_read().map(|f| f.frame.xid), Some(2));
        assert_eq!(queue.next_read(), None);
    }
}
