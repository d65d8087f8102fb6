//! Which client's input comes next.
//!
//! Owns the order between clients; the inputs of each stay as they came. Must not know what an
//! input means.
//!
//! Of the clients that wait, the one comes next for whom least work was done, in the units that the
//! core counts. So whoever asks for little waits for one request of somebody else, and not behind
//! all that others have asked for before.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use crate::ids::ConnId;
use crate::io::{ClientEvent, Input};

/// Units that one client may have done in a row: as long as requests are cheap, those of one client
/// share a turn.
const QUANTUM: u64 = 256;

/// Inputs of clients that have arrived.
#[derive(Debug, Default)]
pub(super) struct FairQueue {
    clients: BTreeMap<ConnId, Client>,
    /// Those with inputs that may be taken, by what was done for them.
    turns: BTreeSet<(u64, ConnId)>,
    /// Whose turn it is.
    current: Option<Turn>,
    /// What was done for whoever came last. Those who ask for nothing do not save up.
    level: u64,
}

/// A client's turn.
#[derive(Debug)]
struct Turn {
    conn: ConnId,
    /// What is left of what had come when it began.
    events: VecDeque<ClientEvent>,
    /// Units of work done for it, and where it ends.
    used: u64,
    until: u64,
}

#[derive(Debug, Default)]
struct Client {
    events: VecDeque<ClientEvent>,
    /// Units of work done for it.
    used: u64,
    /// Does it not take its output?
    is_parked: bool,
    /// Has something come that the core has not heard of?
    is_unheard: bool,
}

impl FairQueue {
    pub(super) fn push(&mut self, conn: ConnId, event: ClientEvent) {
        if matches!(event, ClientEvent::Opened(..)) {
            let used = self.level;
            self.clients.insert(conn, Client { used, ..Client::default() });
        }
        // The core knows nothing of a connection that has not opened, or has closed.
        let Some(client) = self.clients.get_mut(&conn) else { return };
        // Nothing leaves any more, so nothing is waited for.
        let resumes = matches!(event, ClientEvent::Closed) && client.is_parked;
        client.is_parked &= !resumes;
        client.is_unheard = true;
        client.events.push_back(event);
        if client.events.len() == 1 || resumes {
            self.enlist(conn);
        }
    }

    /// The next input of a client; the one before has cost so much.
    pub(super) fn next(&mut self, cost: u64) -> Option<Input> {
        if let Some(turn) = &mut self.current
            && turn.used + cost < turn.until
            && let Some(event) = turn.events.pop_front()
        {
            turn.used += cost;
            return Some(self.take(event));
        }
        self.end_turn(cost);
        let (used, conn) = self.turns.pop_first()?;
        self.level = self.level.max(used);
        let client = self.clients.get_mut(&conn).expect("who waits is known");
        let mut events = std::mem::take(&mut client.events);
        let event = events.pop_front().expect("who has a turn waits");
        self.current = Some(Turn { conn, events, used, until: used + QUANTUM });
        Some(self.take(event))
    }

    fn take(&mut self, event: ClientEvent) -> Input {
        let conn = self.current.as_ref().expect("it is somebody's turn").conn;
        if matches!(event, ClientEvent::Closed) {
            self.clients.remove(&conn);
        }
        Input::Client(conn, event)
    }

    /// The driver turns to other things; the last input of a client has cost so much. What that
    /// client has not got done waits before what has come since.
    pub(super) fn end_turn(&mut self, cost: u64) {
        let Some(Turn { conn, mut events, used, .. }) = self.current.take() else { return };
        if let Some(client) = self.clients.get_mut(&conn) {
            client.used = used + cost;
            events.append(&mut client.events);
            client.events = events;
            self.enlist(conn);
        }
    }

    /// Between turns: is there nothing that may be taken?
    pub(super) fn is_empty(&self) -> bool {
        self.turns.is_empty()
    }

    /// Is nothing remembered of any client?
    #[cfg(test)]
    pub(super) fn knows_nobody(&self) -> bool {
        self.clients.is_empty()
    }

    /// Between turns: clients of which something has come that waits for its turn; each once, until
    /// more comes.
    pub(super) fn unheard(&mut self) -> Vec<ConnId> {
        let waiting = self.turns.iter().map(|(_, conn)| *conn);
        let clients = &mut self.clients;
        let is_unheard = |conn: &ConnId| {
            let client = clients.get_mut(conn);
            client.is_some_and(|client| {
                !client.events.is_empty() && std::mem::take(&mut client.is_unheard)
            })
        };
        waiting.filter(is_unheard).collect()
    }

    /// The client does not take its output: what it has asked for waits.
    pub(super) fn park(&mut self, conn: ConnId) {
        if let Some(client) = self.clients.get_mut(&conn) {
            client.is_parked = true;
            self.turns.remove(&(client.used, conn));
        }
    }

    /// It has taken its output. Was anything waiting for that?
    pub(super) fn resume(&mut self, conn: ConnId) -> bool {
        let Some(client) = self.clients.get_mut(&conn) else { return false };
        let waited = std::mem::take(&mut client.is_parked) && !client.events.is_empty();
        if waited {
            self.enlist(conn);
        }
        waited
    }

    /// Gives a client a turn if it waits for one.
    fn enlist(&mut self, conn: ConnId) {
        if self.current.as_ref().is_some_and(|turn| turn.conn == conn) {
            return;
        }
        if let Some(client) = self.clients.get_mut(&conn)
            && !client.events.is_empty()
            && !client.is_parked
        {
            client.used = client.used.max(self.level);
            self.turns.insert((client.used, conn));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::connect_request;
    use super::*;
    use crate::wire::{Request, RequestFrame};

    const A: ConnId = ConnId(1);
    const B: ConnId = ConnId(2);
    /// What one request of somebody costs who asks for much.
    const DEAR: u64 = 100_000;

    fn open(queue: &mut FairQueue, conn: ConnId) {
        queue.push(conn, ClientEvent::Opened(connect_request(), Vec::new()));
        assert!(queue.next(0).is_some());
        queue.end_turn(1);
    }

    fn ask(queue: &mut FairQueue, conn: ConnId, xid: i32) {
        let frame = RequestFrame { xid, request: Request::Ping };
        queue.push(conn, ClientEvent::Request(frame));
    }

    /// Who is next, where each request costs so much.
    fn order(queue: &mut FairQueue, cost: impl Fn(ConnId) -> u64) -> Vec<(u64, i32)> {
        let (mut order, mut last) = (Vec::new(), 0);
        while let Some(input) = queue.next(last) {
            let Input::Client(conn, ClientEvent::Request(RequestFrame { xid, .. })) = input else {
                panic!("{input} is no request");
            };
            last = cost(conn);
            order.push((conn.0, xid));
        }
        order
    }

    #[test]
    fn cheap_requests_of_one_client_come_together_and_in_order() {
        let mut queue = FairQueue::default();
        for conn in [A, B] {
            open(&mut queue, conn);
        }
        for xid in 0..3 {
            ask(&mut queue, A, xid);
            ask(&mut queue, B, xid);
        }
        let expected = [(1, 0), (1, 1), (1, 2), (2, 0), (2, 1), (2, 2)];
        assert_eq!(order(&mut queue, |_| 1), expected);
        assert!(queue.is_empty());
    }

    #[test]
    fn who_asks_for_little_waits_for_one_dear_request_at_most() {
        let mut queue = FairQueue::default();
        for conn in [A, B] {
            open(&mut queue, conn);
        }
        for xid in 0..100 {
            ask(&mut queue, A, xid);
        }
        let first = queue.next(0);
        assert!(matches!(first, Some(Input::Client(A, _))));
        for xid in 0..100 {
            ask(&mut queue, B, xid);
        }
        let mut last = DEAR;
        for number in 0..100 {
            if number % 10 == 0 {
                // The driver's turn may end at any time.
                queue.end_turn(std::mem::take(&mut last));
            }
            let next = queue.next(last);
            assert!(matches!(next, Some(Input::Client(B, _))), "{next:?}");
            last = 2;
        }
        // Having been idle, it has nothing saved up, and having asked for much, the other one is
        // not forgotten.
        assert!(matches!(queue.next(last), Some(Input::Client(A, _))));
    }

    #[test]
    fn who_takes_no_output_waits_and_its_end_does_not() {
        let mut queue = FairQueue::default();
        for conn in [A, B] {
            open(&mut queue, conn);
        }
        ask(&mut queue, A, 0);
        queue.park(A);
        ask(&mut queue, A, 1);
        ask(&mut queue, B, 0);
        assert_eq!(queue.unheard(), [B]);
        assert_eq!(queue.unheard(), []);
        assert_eq!(order(&mut queue, |_| 1), [(2, 0)]);
        assert!(queue.is_empty());
        assert!(queue.resume(A) && !queue.resume(A) && !queue.resume(B));
        assert_eq!(order(&mut queue, |_| 1), [(1, 0), (1, 1)]);
        queue.park(A);
        ask(&mut queue, A, 2);
        queue.push(A, ClientEvent::Closed);
        assert!(matches!(queue.next(0), Some(Input::Client(A, ClientEvent::Request(_)))));
        assert_eq!(queue.next(0), Some(Input::Client(A, ClientEvent::Closed)));
        ask(&mut queue, A, 3);
        assert!(queue.is_empty() && queue.clients.len() == 1, "it is forgotten");
    }
}
