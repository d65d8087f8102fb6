//! What each event of the queue, and each decision, does to the world.
//!
//! Owns the dispatch of events, and connection attempts. Must not order events: the queue does.

use zabkeeper_core::driver::PeerDial;
use zabkeeper_core::peer::Notification;
use zabkeeper_core::peer::greeting::Channel;
use zabkeeper_core::{ConnId, Instant, ServerId};

use super::World;
use crate::check::observe::ClientId;
use crate::clients::client::Client;
use crate::engine::decisions::{Act, Due, Step};
use crate::faults::heal::Fate;
use crate::machine::node::Node;
use crate::network::port::Port;
use crate::network::stream::{Arrival, Delivery, End, Party};
use crate::record::trace::Kind;
use crate::world::shared::{Event, Shared};

/// Duration of a connection attempt to a silent machine, ns.
pub(super) const DIAL_TIMEOUT: u64 = 3_000_000_000;

impl World {
    /// Carries out a decision.
    pub(super) fn act(&mut self, due: Due) {
        match due {
            Due::Inject(fault) => self.inject(fault),
            Due::Load { server, until } => self.load(server, until),
            Due::Work { client, incarnation } => {
                if let Some(state) = self.clients.get_mut(&client) {
                    state.work(incarnation, &mut self.shared);
                }
            }
            Due::GoOn { client, incarnation, reads } => {
                if let Some(state) = self.clients.get_mut(&client) {
                    state.go_on(incarnation, reads, &mut self.shared);
                }
            }
            Due::Scripted(index) => {
                let Some(Step { act, choices, .. }) = self.shared.decisions.step(index) else {
                    return;
                };
                match act {
                    Act::Inject(fault) => self.inject_as(fault, choices),
                    Act::Call(client, op) => {
                        let shared = &mut self.shared;
                        let client = self.clients.get_mut(&client);
                        let later = client.and_then(|state| state.call_as(op, &choices, shared));
                        if let Some(until) = later {
                            shared.decisions.put_off(until, due);
                        }
                    }
                }
            }
        }
    }

    pub(super) fn happen(&mut self, event: Event) {
        match event {
            Event::Arrival(arrival) => self.arrive(arrival),
            Event::Wake { server, incarnation } => {
                self.on_server(server, |node, shared| node.wake(incarnation, shared));
            }
            Event::Deadline { server, incarnation } => {
                self.on_server(server, |node, shared| node.deadline(incarnation, shared));
            }
            Event::LaneDone { server, incarnation, lane } => {
                self.on_server(server, |node, shared| node.lane_done(incarnation, lane, shared));
            }
            Event::Quiet { server, incarnation } => {
                self.on_server(server, |node, shared| node.log_is_idle(incarnation, shared));
            }
            Event::Look { server, incarnation } => {
                self.on_server(server, |node, shared| node.look(incarnation, shared));
            }
            Event::Recovered { server, incarnation } => {
                self.on_server(server, |node, shared| node.recovered(incarnation, shared));
            }
            Event::Start { server } => self.start(server),
            Event::Grow => self.grow(),
            Event::ChangeRelease { server, to_older } => self.change_release(server, to_older),
            Event::Oracle { permits } => self.oracle_says(permits),
            Event::Crash { server, incarnation, how } => self.crash(server, incarnation, how),
            Event::Exits { server, incarnation } => self.let_end(server, incarnation, None),
            Event::CrashInRecovery { server, incarnation, how } => {
                self.cut_recovery(server, incarnation, how)
            }
            Event::Relief { server } => self.relieve(server),
            Event::Dial { client, incarnation, link, server } => {
                let (conn, after) = self.dial(client, server);
                self.shared
                    .after(after, Event::Dialled { client, incarnation, link, conn, server });
            }
            Event::Dialled { client, incarnation, link, conn, server } => {
                if let Some((state, shared)) = self.awake(client, event) {
                    state.dialled(incarnation, link, conn, server, shared);
                }
            }
            Event::PeerDial { from, incarnation, dial } => self.dial_peer(from, incarnation, dial),
            Event::PeerDialled { from, incarnation, dial, stands } => {
                self.peer_dialled(from, incarnation, dial, stands)
            }
            Event::Notified { from, to, what, sent } => self.notified(from, to, (what, sent)),
            Event::ClientDeadline { client, incarnation } => {
                if let Some((state, shared)) = self.awake(client, event) {
                    state.deadline(incarnation, shared);
                }
            }
            Event::Probe { client, incarnation } => {
                self.on_client(client, |state, shared| state.probe(incarnation, shared));
            }
            Event::SessionStart { client, incarnation } => {
                self.on_client(client, |state, shared| state.start_session(incarnation, shared));
            }
            Event::BadPeerCloses { conn } => self.end_bad_peer(conn),
            Event::ByzantinePeerSends { conn } => self.byzantine_peer_turn(conn),
            Event::BadClient { conn, server } => self.bad_client_turn(conn, server),
            Event::Parts { partition } => self.part_as_planned(partition),
            Event::Breaks { conn, how } => self.break_as_planned(conn, how),
        }
    }

    fn on_server(&mut self, server: ServerId, act: impl FnOnce(&mut Node, &mut Shared)) {
        let (node, shared) = self.node(server);
        act(node, shared);
    }

    /// A bad client is no client of this kind, and ignores the event.
    fn on_client(&mut self, client: ClientId, act: impl FnOnce(&mut Client, &mut Shared)) {
        if let Some(state) = self.clients.get_mut(&client) {
            act(state, &mut self.shared);
        }
    }

    /// A notification arrives, unless a partition separates the servers.
    fn notified(&mut self, from: ServerId, to: ServerId, (what, sent): (Notification, Instant)) {
        if self.shared.reach.cut_until(self.shared.now, from, to).is_none() {
            self.on_server(to, |node, shared| node.notified((from, what, sent), shared));
        }
    }

    fn start(&mut self, server: ServerId) {
        if let Some(until) = self.held_down_until(server) {
            return self.shared.at(until, Event::Start { server });
        }
        if !self.is_gone(server) {
            let (node, shared) = self.node(server);
            node.start(shared);
        }
    }

    /// A client that runs now; the event of a frozen one is postponed to the end of its freeze.
    fn awake(&mut self, client: ClientId, event: Event) -> Option<(&mut Client, &mut Shared)> {
        let (state, shared) = (self.clients.get_mut(&client)?, &mut self.shared);
        if let Some(until) = state.still_frozen(shared.now) {
            shared.at(until, event);
            return None;
        }
        Some((state, shared))
    }

    /// The result of a server's attempt to connect to another one. Nobody uses a connection whose
    /// dialler has ended.
    fn peer_dialled(&mut self, from: ServerId, incarnation: u64, dial: PeerDial, stands: bool) {
        let (node, shared) = self.node(from);
        if !node.dialled(incarnation, dial, stands, shared) && stands {
            shared.net.abandon(shared.now, ConnId(dial.link.0), End::Dialler, None);
            shared.schedule_arrivals();
        }
        if dial.channel == Channel::Election && !stands {
            self.election_dial_failed(ConnId(dial.link.0));
        }
    }

    fn arrive(&mut self, arrival: Arrival) {
        let Arrival { conn, to, .. } = arrival;
        let shared = &mut self.shared;
        let Some(parties) = shared.net.parties(conn) else {
            return;
        };
        let (receiver, sender) = (parties[to as usize], parties[to.other() as usize]);
        let frozen = match receiver {
            Party::Client(client) => {
                self.clients.get(&client).and_then(|c| c.still_frozen(shared.now))
            }
            Party::Server(_) | Party::BadPeer => None,
        };
        if let Some(until) = frozen {
            return shared.at(until, Event::Arrival(arrival));
        }
        let delivery = shared.net.arrive(shared.now, conn, to);
        shared.schedule_arrivals();
        if let Delivery::Later(at) = delivery {
            return shared.at(at, Event::Arrival(arrival));
        }
        match receiver {
            Party::Server(server) => {
                if let Delivery::Bytes(bytes) = &delivery {
                    shared.note(Kind::Receive, (server.0, conn.0), bytes, || {
                        format!("s{server} <- {conn} {}B", bytes.len())
                    });
                }
                if let Some(node) = self.nodes.get_mut(&server) {
                    node.arrive(conn, sender, delivery, shared);
                }
            }
            Party::Client(client) => {
                if let Some(state) = self.clients.get_mut(&client) {
                    state.arrive(conn, delivery, shared);
                } else {
                    self.bad_client_receives(conn, delivery);
                }
            }
            Party::BadPeer => self.bad_peer_receives(conn, &delivery),
        }
        if let Party::Server(server) = sender
            && let Some(node) = self.nodes.get_mut(&server)
        {
            node.drained(conn, &mut self.shared);
        }
    }

    /// A server's attempt to connect to another one reaches it, if it can.
    pub(super) fn dial_peer(&mut self, from: ServerId, incarnation: u64, dial: PeerDial) {
        let PeerDial { link, to, channel, .. } = dial;
        let conn = ConnId(link.0);
        let (node, _) = self.node(from);
        if node.incarnation() != incarnation || !node.is_up() {
            return;
        }
        let parties = [Party::Server(from), Party::Server(to)];
        let mut attempt = self.shared.net.attempt(self.shared.seeds, parties);
        let after = attempt.takes(self.shared.options.peers.link);
        if channel == Channel::Quorum && self.is_usurped(from, to, conn) {
            let answer = Event::PeerDialled { from, incarnation, dial, stands: true };
            return self.shared.after(after, answer);
        }
        let first = self.shared.options.reconfigured();
        let listed = first.is_none_or(|first| first.contains(&from));
        let answered = if !listed && self.nodes[&to].runs_last_release() {
            // The last release refuses servers that are not in its files.
            Some(false)
        } else if self.shared.reach.connects(self.shared.now, from, to) {
            let (node, shared) = self.node(to);
            node.accept(conn, Party::Server(from), Port::Servers(channel), shared)
        } else {
            None
        };
        let shared = &mut self.shared;
        let stands = answered == Some(true);
        if stands {
            shared.net.open(conn, attempt, shared.options.peers.link);
        }
        let silent = answered.is_none();
        let after = if silent { shared.options.peers.dial_timeout_ms * 1_000_000 } else { after };
        shared.after(after, Event::PeerDialled { from, incarnation, dial, stands });
    }

    /// A client's connection attempt. Returns the connection if it succeeds, and the time until the
    /// client learns the result, ns.
    pub(super) fn dial(&mut self, client: ClientId, server: ServerId) -> (Option<ConnId>, u64) {
        let shared = &mut self.shared;
        let conn = shared.net.allocate();
        let parties = [Party::Client(client), Party::Server(server)];
        let mut attempt = shared.net.attempt(shared.seeds, parties);
        let after = attempt.takes(shared.options.link);
        if shared.now < self.refusing_until {
            return (None, after);
        }
        if shared.outside.get(&server) == Some(&Fate::Alone) {
            return (None, DIAL_TIMEOUT);
        }
        let Some(node) = self.nodes.get_mut(&server) else {
            return (None, after);
        };
        match node.accept(conn, Party::Client(client), Port::Clients, shared) {
            Some(true) => {
                shared.net.open(conn, attempt, shared.options.link);
                (Some(conn), after)
            }
            Some(false) => (None, after),
            None => (None, DIAL_TIMEOUT),
        }
    }
}
