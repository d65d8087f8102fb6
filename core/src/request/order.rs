//! The requests of one connection that wait for their turn (Java `CommitProcessor`).
//!
//! Owns the order of answers: a read waits only for earlier writes and syncs of its own connection, a write for nothing.
//! Must not execute anything.

use std::collections::VecDeque;

use crate::auth::Ids;
use crate::wire::{Request, RequestFrame};

/// One connection's queue. Bounded by the driver, which stops reading a connection at
/// `Limits::requests_per_conn` unanswered requests.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    waiting: VecDeque<Waiting>,
    /// Writes and syncs so far.
    numbers: u64,
}

#[derive(Debug)]
enum Waiting {
    /// A write on its way through the log. The request is kept: a new leader may have to be asked for it again.
    Write { number: u64, asked: PendingRequest },
    /// A sync on its way to a quorum.
    Sync { number: u64, asked: PendingRequest, confirmed: bool },
    /// Anything that waits for its turn.
    Request(PendingRequest),
    /// The end of a session that only this server knows: it needs nobody's word, and waits for its turn. Nothing is done
    /// behind it.
    CloseLocalSession(PendingRequest),
    /// Came before there was a session. Looked at when there is one, because what comes before it may be an auth packet.
    BeforeSession(RequestFrame),
}

/// A request, and who asks: whom the client had shown to be when the request was read (ACL-17).
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct PendingRequest {
    pub(crate) frame: RequestFrame,
    pub(crate) ids: Ids,
}

/// A request that is to be carried out as if it came now.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Resubmit {
    /// It was looked at before.
    PendingRequest(PendingRequest),
    /// It was not.
    BeforeSession(RequestFrame),
}

/// What the answer to a write has to look like: the transaction says what has happened; the request, how it is answered.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum ReplyShape {
    /// As the operation has it.
    Plain,
    /// A creation that is answered with the Stat.
    WithStat,
    /// One answer for each operation of a multi.
    Multi(Vec<ReplyShape>),
}

/// What has to be done about the requests of a connection when service begins anew.
#[derive(PartialEq, Eq, Debug)]
pub(crate) struct Resumed {
    /// Numbers of the syncs that have to be confirmed by the new leader.
    pub(crate) syncs: Vec<u64>,
    /// Requests to carry out as if they came now, in this order. They are no longer in the queue.
    pub(crate) anew: Vec<Resubmit>,
    /// Is there a write among them that a leader has been asked for before?
    pub(crate) lost: bool,
}

impl ReplyShape {
    pub(crate) fn of(request: &Request) -> ReplyShape {
        match request {
            Request::Multi(requests) => {
                ReplyShape::Multi(requests.iter().map(ReplyShape::of).collect())
            }
            Request::Create { with_stat: true, .. }
            | Request::CreateContainer { .. }
            | Request::CreateTtl { .. } => ReplyShape::WithStat,
            Request::Create { with_stat: false, .. }
            | Request::Delete { .. }
            | Request::Exists { .. }
            | Request::GetData { .. }
            | Request::SetData { .. }
            | Request::GetChildren { .. }
            | Request::Sync { .. }
            | Request::Check { .. }
            | Request::Ping
            | Request::Watches { .. }
            | Request::Auth { .. }
            | Request::SetWatches(_)
            | Request::CloseSession
            | Request::Undecodable { .. }
            | Request::Unknown { .. }
            | Request::GetAcl { .. }
            | Request::SetAcl { .. }
            | Request::MultiRead(_)
            | Request::GetEphemerals { .. }
            | Request::GetAllChildrenNumber { .. }
            | Request::AddWatch { .. }
            | Request::WhoAmI
            | Request::NoPath { .. }
            | Request::Sasl { .. }
            | Request::Reconfig
            | Request::Throttled { .. } => ReplyShape::Plain,
        }
    }
}

impl Queue {
    /// Does nothing wait that a request which is no write would have to wait for?
    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// How many wait.
    pub(crate) fn len(&self) -> usize {
        self.waiting.len()
    }

    /// A write is handed to the leader; its number goes into the transaction.
    pub(crate) fn push_write(&mut self, asked: PendingRequest) -> u64 {
        self.numbers += 1;
        self.waiting.push_back(Waiting::Write { number: self.numbers, asked });
        self.numbers
    }

    /// A sync is handed to the leader; its number comes back.
    pub(crate) fn push_sync(&mut self, asked: PendingRequest) -> u64 {
        self.numbers += 1;
        let sync = Waiting::Sync { number: self.numbers, asked, confirmed: false };
        self.waiting.push_back(sync);
        self.numbers
    }

    /// A request waits for its turn.
    pub(crate) fn push(&mut self, asked: PendingRequest) {
        self.waiting.push_back(Waiting::Request(asked));
    }

    /// The session's end waits for its turn.
    pub(crate) fn push_farewell(&mut self, asked: PendingRequest) {
        self.waiting.push_back(Waiting::CloseLocalSession(asked));
    }

    /// Does the session end when its turn has come?
    pub(crate) fn ends(&self) -> bool {
        self.waiting.iter().any(|waiting| matches!(waiting, Waiting::CloseLocalSession(_)))
    }

    /// A request waits for the session.
    pub(crate) fn push_early(&mut self, frame: RequestFrame) {
        self.waiting.push_back(Waiting::BeforeSession(frame));
    }

    /// The write whose transaction was applied: it is the first in the queue, because transactions are applied in the
    /// order in which they were proposed. `None` where it is not: somebody else has spoken for this connection.
    pub(crate) fn applied(&mut self, request: u64) -> Option<RequestFrame> {
        let is_it = |waiting: &mut Waiting| matches!(waiting, Waiting::Write { number, .. } if *number == request);
        match self.waiting.pop_front_if(is_it)? {
            Waiting::Write { asked, .. } => Some(asked.frame),
            Waiting::Sync { .. }
            | Waiting::Request(_)
            | Waiting::CloseLocalSession(_)
            | Waiting::BeforeSession(_) => None,
        }
    }

    /// The transaction of a write is about to be applied. A sync before it on its connection is confirmed by that: it
    /// reached the leader first, and a transaction that was proposed after it has been committed, so nobody else can have
    /// committed anything in between. Is something ready now that was not?
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

    /// The leader has confirmed a sync.
    pub(crate) fn confirm(&mut self, request: u64) {
        for waiting in &mut self.waiting {
            if let Waiting::Sync { number, confirmed, .. } = waiting
                && *number == request
            {
                *confirmed = true;
            }
        }
    }

    /// Service begins anew. Writes among `found` are in the log, and are answered when they are applied. Every other one
    /// is lost, and nobody can commit it any more; since the leader was asked in order, nothing behind it was found.
    pub(crate) fn resume(&mut self, found: impl Fn(u64) -> bool) -> Resumed {
        let stays = |waiting: &Waiting| match waiting {
            Waiting::Write { number, .. } => found(*number),
            Waiting::Sync { .. } | Waiting::CloseLocalSession(_) => true,
            Waiting::Request(asked) => is_read(asked),
            Waiting::BeforeSession(_) => false,
        };
        let kept = self.waiting.iter().take_while(|waiting| stays(waiting)).count();
        let mut lost = false;
        let anew = self.waiting.split_off(kept).into_iter().map(|waiting| match waiting {
            Waiting::Write { number, asked } => {
                assert!(!found(number), "write {number} was found behind one that was lost");
                lost = true;
                Resubmit::PendingRequest(asked)
            }
            Waiting::Sync { asked, .. }
            | Waiting::Request(asked)
            | Waiting::CloseLocalSession(asked) => Resubmit::PendingRequest(asked),
            Waiting::BeforeSession(frame) => Resubmit::BeforeSession(frame),
        });
        let anew = anew.collect();
        Resumed { syncs: self.unconfirmed().collect(), anew, lost }
    }

    /// Numbers of the syncs that wait for the leader's word.
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

    /// Has the turn come of a request that waits for no transaction?
    pub(crate) fn has_read(&self) -> bool {
        match self.waiting.front() {
            Some(Waiting::Request(asked)) => is_read(asked),
            Some(Waiting::Sync { confirmed, .. }) => *confirmed,
            Some(Waiting::CloseLocalSession(_)) => true,
            Some(Waiting::Write { .. } | Waiting::BeforeSession(_)) | None => false,
        }
    }

    /// That request.
    pub(crate) fn next_read(&mut self) -> Option<PendingRequest> {
        if !self.has_read() {
            return None;
        }
        match self.waiting.pop_front()? {
            Waiting::Request(asked)
            | Waiting::Sync { asked, .. }
            | Waiting::CloseLocalSession(asked) => Some(asked),
            Waiting::Write { .. } | Waiting::BeforeSession(_) => None,
        }
    }
}

/// Can it be answered without a word of the leader?
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

    #[test]
    fn cons_02_edge_201_reads_wait_for_earlier_writes_only() {
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

    #[test]
    fn cons_04_a_sync_waits_for_its_turn_and_for_its_quorum() {
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
    fn a_write_that_is_committed_confirms_the_syncs_before_it() {
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
    fn what_a_leader_has_lost_is_asked_for_again_in_order() {
        let mut queue = Queue::default();
        let first = queue.push_write(write(1));
        queue.push(frame(2, Request::Ping));
        let second = queue.push_sync(sync(3));
        queue.push_write(write(4));
        queue.push(frame(5, Request::Ping));
        queue.push_sync(sync(6));
        queue.push(write(7));
        let Resumed { syncs, anew, lost } = queue.resume(|number| number == first);
        assert!(lost);
        assert_eq!(syncs, [second]);
        let expected = [write(4), frame(5, Request::Ping), sync(6), write(7)];
        assert_eq!(anew, expected.map(Resubmit::PendingRequest));
        assert_eq!(queue.applied(first).map(|f| f.xid), Some(1));
        assert_eq!(queue.next_read().map(|f| f.frame.xid), Some(2));
        assert_eq!(queue.next_read(), None);
    }
}
