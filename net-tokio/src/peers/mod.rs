//! The other servers: who they are, and what goes to and comes from them.
//!
//! Owns the links and the way from the core's orders to sockets. Must not decide when to dial or to close: the core
//! does; only a connection that is broken, or whose bytes are not those of a server, ends here.
//!
//! ```text
//! hub -> Peers -> dial -> link (one task to read, output sent by the hub)   learner <-> leader, both ways
//!             \-> ballots (one task for each peer)                          notifications, one way
//! doors -> greeting -> link, or ballots                                     whoever dials this server
//! ```

mod backoff;
mod ballots;
mod dial;
mod doors;
mod link;

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use socket2::{SockRef, TcpKeepalive};
use tokio::net::TcpStream;
use tokio::task::AbortHandle;
use zabkeeper_core::io::{PeerCommand, PeerEvent};
use zabkeeper_core::peer::Notification;
use zabkeeper_core::{Input, LinkId, Outbox, ServerId};

use crate::clock::random;
use crate::config::Member;
use crate::shared::Shared;
use backoff::Backoff;
use ballots::Newest;
pub(crate) use doors::{bind, open};
use link::Link;

/// Links of one peer that it has dialled. The core closes those it has no use for, so that more than one or two are
/// those of a peer that lost its power, over and over.
const ACCEPTED_LINKS: usize = 8;

/// How long a connection between servers is silent before the kernel asks whether the other end is there.
const KEEPALIVE: Duration = Duration::from_secs(10);

/// One for the whole process; without peers for a server on its own.
pub(crate) struct Peers {
    shared: Rc<Shared>,
    peers: BTreeMap<ServerId, Rc<Peer>>,
    links: RefCell<BTreeMap<LinkId, Rc<Link>>>,
    next_link: Cell<u64>,
    /// Links with output to send at the end of this turn.
    due: RefCell<Vec<Rc<Link>>>,
}

/// Another server of the ensemble.
struct Peer {
    member: Member,
    /// Before dialling its quorum port.
    link_backoff: Backoff,
    /// Before dialling its election port.
    ballot_backoff: Backoff,
    /// What it is to be told next in an election.
    newest: Newest,
    /// The task that reads its notifications.
    ballots: RefCell<Option<AbortHandle>>,
}

impl Peers {
    /// Starts what serves the election; links come with the core's orders.
    pub(crate) fn start(shared: &Rc<Shared>) -> Rc<Peers> {
        let me = shared.settings.core.id();
        let members = shared.settings.ensemble.iter().flat_map(|ensemble| &ensemble.members);
        let others = members.filter(|member| member.id != me);
        let peers = Rc::new(Peers {
            shared: Rc::clone(shared),
            peers: others.map(|member| (member.id, Rc::new(Peer::new(member)))).collect(),
            links: RefCell::default(),
            // As with connections, though links only have to differ within the life of a process.
            next_link: Cell::new(random() & 0x7fff_ffff_0000_0000),
            due: RefCell::default(),
        });
        for peer in peers.peers.values() {
            let task = ballots::tell(Rc::clone(&peers), Rc::clone(peer));
            tokio::task::spawn_local(task);
        }
        peers
    }

    /// Does what the core wants done, and sends each link's output once.
    pub(crate) fn carry_out(self: &Rc<Self>, outbox: &mut Outbox) {
        for (to, notification) in outbox.election.drain(..) {
            self.notify(to, notification);
        }
        for command in outbox.peers.drain(..) {
            match command {
                PeerCommand::Dial(to) => self.dial(to),
                PeerCommand::Send(link, message) => {
                    // It may have gone since, which the core is about to hear.
                    if let Some(link) = self.link(link)
                        && link.queue(&message)
                    {
                        self.due.borrow_mut().push(link);
                    }
                }
                PeerCommand::Close(link, why) => {
                    if let Some(link) = self.link(link) {
                        self.leave(&link, &format!("this server closed it: {why}"));
                    }
                }
            }
        }
        for link in self.due.borrow_mut().drain(..) {
            link.flush(self);
        }
    }

    fn notify(&self, to: ServerId, notification: Notification) {
        if let Some(peer) = self.peers.get(&to) {
            peer.newest.set(notification);
        }
    }

    fn dial(self: &Rc<Self>, to: ServerId) {
        let link = self.deal();
        match self.peers.get(&to) {
            Some(peer) => {
                let task = dial::link(Rc::clone(self), Rc::clone(peer), link);
                tokio::task::spawn_local(task);
            }
            None => self.tell(link, PeerEvent::Unreachable { peer: to }),
        }
    }

    fn deal(&self) -> LinkId {
        let id = self.next_link.get();
        self.next_link.set(id + 1);
        LinkId(id)
    }

    fn link(&self, id: LinkId) -> Option<Rc<Link>> {
        self.links.borrow().get(&id).cloned()
    }

    /// Hands an event to the hub.
    fn tell(&self, link: LinkId, event: PeerEvent) {
        self.shared.push(Input::Peer(link, event));
    }

    /// A link stands: serves it until it ends.
    async fn enter(self: &Rc<Self>, id: LinkId, peer: &Rc<Peer>, stream: TcpStream, dialled: bool) {
        let (socket, output) = stream.into_split();
        let link = Rc::new(Link::new(id, Rc::clone(peer), dialled, output));
        if !dialled {
            self.make_room(peer.member.id);
        }
        self.links.borrow_mut().insert(id, Rc::clone(&link));
        let how = if dialled { "dialled" } else { "accepted" };
        let server = peer.member.id;
        tracing::info!(link = %id, server = server.0, "link with server {server} is up, {how}");
        self.tell(id, PeerEvent::Up { peer: peer.member.id, dialled });
        let end = link.attend(self, socket).await;
        if dialled && link.was_refused(&end) {
            // Whoever dials again at once is refused again, as long as nothing changes.
            peer.link_backoff.fail();
        }
        self.leave(&link, &end.to_string());
    }

    /// Ends what the core knows of a link, and tells it so, once.
    fn leave(&self, link: &Rc<Link>, why: &str) {
        if self.links.borrow_mut().remove(&link.id).is_none() {
            return;
        }
        let server = link.peer.member.id;
        tracing::info!(link = %link.id, server = server.0, "link with server {server} is down: {why}");
        link.close(self);
        self.tell(link.id, PeerEvent::Down);
    }

    /// Gives up the oldest link that a peer has dialled, where it has too many.
    fn make_room(&self, peer: ServerId) {
        let of_peer = |link: &&Rc<Link>| !link.dialled && link.peer.member.id == peer;
        let links = self.links.borrow();
        let accepted: Vec<Rc<Link>> = links.values().filter(of_peer).cloned().collect();
        drop(links);
        if accepted.len() >= ACCEPTED_LINKS {
            self.leave(&accepted[0], "the server has dialled too many others since");
        }
    }

    /// So that a machine that died is noticed at the latest when the core gives it up, also by idle connections.
    fn tune(&self, stream: &TcpStream) {
        // Messages are written in batches, so waiting to fill packets would only delay them.
        let _best_effort = stream.set_nodelay(true);
        let socket = SockRef::from(stream);
        let probes = TcpKeepalive::new().with_time(KEEPALIVE).with_interval(KEEPALIVE / 2);
        let _best_effort = socket.set_tcp_keepalive(&probes);
        #[cfg(target_os = "linux")]
        let _best_effort =
            socket.set_tcp_user_timeout(Some(self.shared.settings.core.sync_limit()));
    }

    /// Time for one attempt to connect to one address.
    fn connect_timeout(&self) -> Duration {
        let ensemble = self.shared.settings.ensemble.as_ref();
        ensemble.expect("only an ensemble has peers to dial").connect_timeout
    }
}

impl Peer {
    fn new(member: &Member) -> Peer {
        Peer {
            member: member.clone(),
            link_backoff: Backoff::default(),
            ballot_backoff: Backoff::default(),
            newest: Newest::default(),
            ballots: RefCell::default(),
        }
    }

    /// It is there: no reason to wait before dialling it.
    fn heard(&self) {
        self.link_backoff.reset();
        self.ballot_backoff.reset();
    }
}

#[cfg(test)]
mod tests;
