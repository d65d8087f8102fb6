//! The requests of one connection that wait for their turn (Java `CommitProcessor`).
//!
//! Owns the order of answers: a read waits only for earlier writes of its own connection, a write for nothing. Must not
//! execute anything.

use std::collections::VecDeque;

use crate::wire::{Request, RequestFrame};

/// One connection's queue. Bounded by the driver, which stops reading a connection at
/// `Limits::requests_per_conn` unanswered requests.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    waiting: VecDeque<Waiting>,
    writes: u64,
}

#[derive(Debug)]
enum Waiting {
    /// A write on its way through the log.
    Write(Write),
    /// Anything that waits for its turn.
    Request(RequestFrame),
}

/// What is needed to answer a write when its transaction is applied.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Write {
    /// Number of the write on its connection.
    pub(crate) request: u64,
    /// Of the request.
    pub(crate) xid: i32,
    /// What the answer has to look like.
    pub(crate) form: Form,
}

/// The transaction says what has happened; the request, how it is answered.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Form {
    /// As the operation has it.
    Plain,
    /// A creation that is answered with the Stat.
    WithStat,
    /// One answer for each operation of a multi.
    Multi(Vec<Form>),
}

impl Form {
    fn of(request: &Request) -> Form {
        if let Request::Multi(requests) = request {
            return Form::Multi(requests.iter().map(Form::of).collect());
        }
        if matches!(request, Request::Create { with_stat: true, .. }) {
            Form::WithStat
        } else {
            Form::Plain
        }
    }
}

impl Queue {
    /// Must a request that is no write wait?
    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// A write has been proposed; its number goes into the transaction.
    pub(crate) fn push_write(&mut self, frame: &RequestFrame) -> u64 {
        self.writes += 1;
        let form = Form::of(&frame.request);
        let write = Write { request: self.writes, xid: frame.xid, form };
        self.waiting.push_back(Waiting::Write(write));
        self.writes
    }

    /// A request waits for its turn.
    pub(crate) fn push(&mut self, frame: RequestFrame) {
        self.waiting.push_back(Waiting::Request(frame));
    }

    /// The write whose transaction was applied: it is the first in the queue, because transactions are applied in the
    /// order in which they were proposed.
    pub(crate) fn applied(&mut self, request: u64) -> Write {
        match self.waiting.pop_front() {
            Some(Waiting::Write(write)) if write.request == request => write,
            other => panic!("write {request} was applied while {other:?} is the first to answer"),
        }
    }

    /// All that waits, once no write is under way any more.
    pub(crate) fn take(&mut self) -> Vec<RequestFrame> {
        std::mem::take(&mut self.waiting)
            .into_iter()
            .map(|waiting| match waiting {
                Waiting::Request(frame) => frame,
                Waiting::Write(write) => panic!("{write:?} is still under way"),
            })
            .collect()
    }

    /// The next request that is no write and whose turn has come.
    pub(crate) fn next_read(&mut self) -> Option<RequestFrame> {
        let is_read = |waiting: &mut Waiting| match waiting {
            Waiting::Request(frame) => !frame.request.is_write(),
            Waiting::Write(_) => false,
        };
        match self.waiting.pop_front_if(is_read)? {
            Waiting::Request(frame) => Some(frame),
            Waiting::Write(_) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(xid: i32, request: Request) -> RequestFrame {
        RequestFrame { xid, request }
    }

    #[test]
    fn cons_02_edge_201_reads_wait_for_earlier_writes_only() {
        let mut queue = Queue::default();
        let first = queue.push_write(&frame(1, Request::CloseSession));
        queue.push(frame(2, Request::Ping));
        let second = queue.push_write(&frame(3, Request::CloseSession));
        queue.push(frame(4, Request::Ping));
        assert_eq!(queue.next_read(), None);
        assert_eq!(queue.applied(first).xid, 1);
        assert_eq!(queue.next_read().map(|f| f.xid), Some(2));
        assert_eq!(queue.next_read(), None);
        assert_eq!(queue.applied(second).xid, 3);
        assert_eq!(queue.next_read().map(|f| f.xid), Some(4));
        assert!(queue.is_empty());
    }
}
