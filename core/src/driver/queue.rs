//! Fair scheduling of the inputs of clients.
//!
//! Owns the order between clients; the inputs of one client stay in order. Must not interpret an
//! input.
//!
//! The next turn goes to the waiting client with the least work done for it, in the units that the
//! core counts. So a client with cheap requests waits for one request of another client, and not
//! for all requests that others have sent before.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use crate::ids::ConnId;
use crate::io::{ClientEvent, Input};

/// Units of work in one turn of a client: while requests are cheap, those of one client share a
/// turn.
const QUANTUM: u64 = 256;

/// Inputs of clients that have arrived.
#[derive(Debug, Default)]
pub(super) struct FairQueue {
    clients: BTreeMap<ConnId, Client>,
    /// Clients with inputs that may be taken, by the work done for them.
    turns: BTreeSet<(u64, ConnId)>,
    /// The client whose turn it is.
    current: Option<Turn>,
    /// Work done for the client that had the last turn. An idle client restarts at this level, so
    /// it cannot save up work.
    level: u64,
}

/// A client's turn.
#[derive(Debug)]
struct Turn {
    conn: ConnId,
    /// The rest of the inputs that had arrived when the turn began.
    events: VecDeque<ClientEvent>,
    /// Units of work done for the client, and the value at which the turn ends.
    used: u64,
    until: u64,
}

#[derive(Debug, Default)]
struct Client {
    events: VecDeque<ClientEvent>,
    /// Units of work done for it.
    used: u64,
    /// Does it take no output?
    is_blocked: bool,
    /// Has input arrived since the client was last returned by [`FairQueue::take_waiting`]?
    awaits_heartbeat: bool,
}

impl FairQueue {
    pub(super) fn push(&mut self, conn: ConnId, event: ClientEvent) {
        if matches!(event, ClientEvent::Opened(..)) {
            let used = self.level;
            self.clients.insert(conn, Client { used, ..Client::default() });
        }
        // The core does not know a connection that has not opened, or has closed.
        let Some(client) = self.clients.get_mut(&conn) else { return };
        // A closed connection sends no output any more, so its inputs are not blocked by it.
        let resumes = matches!(event, ClientEvent::Closed) && client.is_blocked;
        client.is_blocked &= !resumes;
        client.awaits_heartbeat = true;
        client.events.push_back(event);
        if client.events.len() == 1 || resumes {
            self.enlist(conn);
        }
    }

    /// The next input of a client; `cost` is the cost of the previous one.
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

    /// Ends the current turn; `cost` is the cost of its last input. The inputs left in the turn
    /// stay ahead of those that have arrived since.
    pub(super) fn end_turn(&mut self, cost: u64) {
        let Some(Turn { conn, mut events, used, .. }) = self.current.take() else { return };
        if let Some(client) = self.clients.get_mut(&conn) {
            client.used = used + cost;
            events.append(&mut client.events);
            client.events = events;
            self.enlist(conn);
        }
    }

    /// Between turns: is there no input that may be taken?
    pub(super) fn is_empty(&self) -> bool {
        self.turns.is_empty()
    }

    /// Is no state of any client left?
    #[cfg(test)]
    pub(super) fn knows_nobody(&self) -> bool {
        self.clients.is_empty()
    }

    /// Between turns: the clients with waiting input; each is returned once, until further input
    /// arrives. The core does not know a client whose handshake waits: it is returned later.
    pub(super) fn take_waiting(&mut self) -> Vec<ConnId> {
        let waiting = self.turns.iter().map(|(_, conn)| *conn);
        let clients = &mut self.clients;
        let awaits_heartbeat = |conn: &ConnId| {
            let client = clients.get_mut(conn);
            client.is_some_and(|client| {
                let is_known =
                    !matches!(client.events.front(), None | Some(ClientEvent::Opened(..)));
                is_known && std::mem::take(&mut client.awaits_heartbeat)
            })
        };
        waiting.filter(awaits_heartbeat).collect()
    }

    /// Blocks the inputs of a client that does not take its output.
    pub(super) fn block(&mut self, conn: ConnId) {
        if let Some(client) = self.clients.get_mut(&conn) {
            client.is_blocked = true;
            self.turns.remove(&(client.used, conn));
        }
    }

    /// Unblocks the inputs of a client that has taken its output. Returns whether any were waiting.
    pub(super) fn resume(&mut self, conn: ConnId) -> bool {
        let Some(client) = self.clients.get_mut(&conn) else { return false };
        let waited = std::mem::take(&mut client.is_blocked) && !client.events.is_empty();
        if waited {
            self.enlist(conn);
        }
        waited
    }

    /// Gives a client a turn if it has inputs that may be taken.
    fn enlist(&mut self, conn: ConnId) {
        if self.current.as_ref().is_some_and(|turn| turn.conn == conn) {
            return;
        }
        if let Some(client) = self.clients.get_mut(&conn)
            && !client.events.is_empty()
            && !client.is_blocked
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
    /// Cost of one expensive request.
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

    /// The order in which requests are taken, where each costs `cost` units.
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
    fn cheap_requests_of_a_client_share_a_turn_in_order() {
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
    fn cheap_client_waits_for_one_expensive_request_at_most() {
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
        // The client has not saved up work while it was idle, and the client of the expensive
        // requests has its turn.
        assert!(matches!(queue.next(last), Some(Input::Client(A, _))));
    }

    #[test]
    fn heartbeats_follow_the_handshake() {
        let mut queue = FairQueue::default();
        queue.push(A, ClientEvent::Opened(connect_request(), Vec::new()));
        ask(&mut queue, A, 0);
        assert_eq!(queue.take_waiting(), []);
        assert!(matches!(queue.next(0), Some(Input::Client(A, ClientEvent::Opened(..)))));
        queue.end_turn(1);
        assert_eq!(queue.take_waiting(), [A]);
        assert_eq!(queue.take_waiting(), []);
    }

    #[test]
    fn inputs_of_a_client_that_takes_no_output_are_blocked_until_it_closes() {
        let mut queue = FairQueue::default();
        for conn in [A, B] {
            open(&mut queue, conn);
        }
        ask(&mut queue, A, 0);
        queue.block(A);
        ask(&mut queue, A, 1);
        ask(&mut queue, B, 0);
        assert_eq!(queue.take_waiting(), [B]);
        assert_eq!(queue.take_waiting(), []);
        assert_eq!(order(&mut queue, |_| 1), [(2, 0)]);
        assert!(queue.is_empty());
        assert!(queue.resume(A) && !queue.resume(A) && !queue.resume(B));
        assert_eq!(order(&mut queue, |_| 1), [(1, 0), (1, 1)]);
        queue.block(A);
        ask(&mut queue, A, 2);
        queue.push(A, ClientEvent::Closed);
        assert!(matches!(queue.next(0), Some(Input::Client(A, ClientEvent::Request(_)))));
        assert_eq!(queue.next(0), Some(Input::Client(A, ClientEvent::Closed)));
        ask(&mut queue, A, 3);
        assert!(queue.is_empty() && queue.clients.len() == 1, "it is forgotten");
    }
}
