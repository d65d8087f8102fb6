//! Bad peers: connections to the quorum port by non-servers, or by peers that fall silent after the
//! greeting.
//!
//! Owns what they send. The server must close a connection with an invalid greeting or frame, and
//! serve on undisturbed: the oracles check that meanwhile.

use bytes::Bytes;
use zabkeeper_core::driver::PeerOptions;
use zabkeeper_core::peer::greeting::{Channel, Dialling};
use zabkeeper_core::{ConnId, ServerId};

use super::World;
use crate::engine::seed::Rng;
use crate::faults::catalog::Fault;
use crate::network::port::Port;
use crate::network::stream::{Delivery, End, Party};
use crate::record::trace::Kind;
use crate::world::shared::Event;

const MS: u64 = 1_000_000;

impl World {
    /// A bad peer connects, sends its bytes, and disconnects later. Returns whether it was
    /// accepted.
    pub(super) fn send_bad_peer(&mut self, server: ServerId) -> bool {
        let servers: Vec<ServerId> = self.nodes.keys().copied().collect();
        let shared = &mut self.shared;
        let conn = shared.net.allocate();
        let node = self.nodes.get_mut(&server).expect("picked among the servers");
        if node.accept(conn, Party::BadPeer, Port::Servers(Channel::Quorum), shared) != Some(true) {
            return false;
        }
        let attempt = shared.net.attempt(shared.seeds, [Party::BadPeer, Party::Server(server)]);
        shared.net.open(conn, attempt, shared.options.peers.link);
        let rng = &mut self.fault_rng[Fault::NetBadPeer as usize];
        let bytes = garbage(server, &servers, rng);
        shared.note(Kind::Conn, (server.0, conn.0), &bytes, || {
            format!("a bad peer sends {}B to s{server} by {conn}", bytes.len())
        });
        shared.net.send(shared.now, conn, End::Dialler, bytes);
        shared.after(rng.range(1, 8_000) * MS, Event::BadPeerCloses { conn });
        shared.schedule_arrivals();
        true
    }

    /// Bad peers ignore what a server sends to them.
    pub(super) fn bad_peer_receives(&mut self, conn: ConnId, delivery: &Delivery) {
        if matches!(delivery, Delivery::Closed | Delivery::Reset) {
            self.byzantine_peers.remove(&conn);
            self.end_bad_peer(conn);
        }
    }

    /// A bad peer closes its connection.
    pub(super) fn end_bad_peer(&mut self, conn: ConnId) {
        let shared = &mut self.shared;
        if let Some([dialler, _]) = shared.net.parties(conn) {
            let end = if dialler == Party::BadPeer { End::Dialler } else { End::Acceptor };
            shared.net.close(shared.now, conn, end);
            shared.schedule_arrivals();
        }
    }
}

/// A greeting in the name of a server; the same bytes are a valid answer to a greeting.
pub(super) fn greeting(channel: Channel, from: ServerId, to: ServerId) -> Bytes {
    let local = PeerOptions::new(0).local(from);
    Dialling::begin(local, channel, to, [0; 16]).1.into()
}

/// The bytes that a bad peer sends. After some of them a server takes it for a peer that hangs.
fn garbage(server: ServerId, servers: &[ServerId], rng: &mut Rng) -> Bytes {
    let others: Vec<ServerId> = servers.iter().copied().filter(|other| *other != server).collect();
    let other = if others.is_empty() { ServerId(99) } else { *rng.pick(&others) };
    let greeting = |channel, from, to| greeting(channel, from, to).to_vec();
    let good = || greeting(Channel::Quorum, other, server);
    let mut noise = [0; 64];
    rng.fill(&mut noise);
    let bytes = match rng.below(9) {
        0 => Vec::new(),
        1 => noise.to_vec(),
        2 => greeting(Channel::Quorum, ServerId(99), server),
        3 => greeting(Channel::Quorum, other, other),
        4 => greeting(Channel::Election, other, server),
        5 => good()[..rng.upto(62)].to_vec(),
        6 => good(),
        7 => [good(), noise.to_vec()].concat(),
        _ => {
            // A frame of the right length whose checksum is wrong.
            let frame = [&8_u32.to_le_bytes()[..], &noise[..12]].concat();
            [good(), frame].concat()
        }
    };
    Bytes::from(bytes)
}
