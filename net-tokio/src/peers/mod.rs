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

mod admission;
mod backoff;
mod ballots;
mod dial;
mod doors;
mod link;

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::rc::Rc;
use std::time::Duration;

use bytes::BytesMut;
use socket2::{SockRef, TcpKeepalive};
use tokio::net::TcpStream;
use tokio::sync::Notify;
use tokio::time::Instant;
use zabkeeper_core::io::{PeerCommand, PeerEvent};
use zabkeeper_core::peer::Notification;
use zabkeeper_core::peer::greeting::{Channel, Established, Local, Nonce};
use zabkeeper_core::peer::secret::Secrets;
use zabkeeper_core::{Input, LinkId, Outbox, ServerId};

use crate::config::Member;
use crate::random;
use crate::shared::Shared;
use admission::Admission;
use backoff::Backoff;
use ballots::{Listeners, Newest};
use doors::GREETING_TIME;
pub(crate) use doors::{bind, open};
use link::Link;

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
    /// What this server brings to a greeting.
    local: RefCell<Local>,
    /// A link has ended: whoever waits for its place may have it.
    vacant: Notify,
}

/// A connection whose ends know each other.
struct Greeted {
    stream: TcpStream,
    established: Established,
    /// What has come behind the greeting.
    buffer: BytesMut,
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
    /// The connections on which it sends notifications.
    listeners: Listeners,
    /// How often somebody comes in its name.
    admission: Admission,
    /// Why the last attempt to dial it has failed, if it has.
    trouble: RefCell<Option<String>>,
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
            next_link: Cell::new(random::number() & 0x7fff_ffff_0000_0000),
            due: RefCell::default(),
            local: RefCell::new(local(shared)),
            vacant: Notify::new(),
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

    /// What stands between this server and each other one, for operators.
    pub(crate) fn troubles(&self) -> String {
        let ensemble = self.shared.settings.ensemble.as_ref();
        let me = ensemble.and_then(|ensemble| ensemble.member(self.shared.settings.core.id()));
        let trouble = |peer: &Rc<Peer>| {
            let id = peer.member.id;
            if let Some(trouble) = &*peer.trouble.borrow() {
                return Some(format!("; cannot reach server {id} at {trouble}"));
            }
            let own = me.map(Member::election_address).filter(|_| !peer.listeners.any())?;
            Some(format!(
                "; server {id} has not connected to this server, which its zoo.cfg should have at {own}"
            ))
        };
        self.peers.values().filter_map(trouble).collect()
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

    /// The core's ensemble, for greetings.
    pub(crate) fn set_ensemble(&self, ensemble: u64) {
        self.local.borrow_mut().ensemble = ensemble;
    }

    fn local(&self) -> Local {
        self.local.borrow().clone()
    }

    fn nonce() -> Nonce {
        random::bytes()
    }

    /// A link stands: serves it until it ends.
    async fn enter(self: &Rc<Self>, id: LinkId, peer: &Rc<Peer>, greeted: Greeted, dialled: bool) {
        let Greeted { stream, established, buffer } = greeted;
        let Established { proven, reader, writer, .. } = established;
        let (socket, output) = stream.into_split();
        let link = Rc::new(Link::new(id, Rc::clone(peer), dialled, output, writer));
        if !dialled {
            if !proven && self.silent_from(peer).is_some_and(|at| at > Instant::now()) {
                // Somebody else was faster.
                return;
            }
            let why =
                if proven { "the server has dialled anew" } else { "the other end is silent" };
            for before in self.accepted(peer.member.id) {
                self.leave(&before, why);
            }
        }
        self.links.borrow_mut().insert(id, Rc::clone(&link));
        let how = if dialled { "dialled" } else { "accepted" };
        let server = peer.member.id;
        tracing::info!(link = %id, server = server.0, "link with server {server} is up, {how}");
        self.tell(id, PeerEvent::Up { peer: peer.member.id, dialled });
        let end = link.attend(self, socket, reader, buffer).await;
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
        self.vacant.notify_waiters();
    }

    /// The links that a peer has dialled.
    fn accepted(&self, peer: ServerId) -> Vec<Rc<Link>> {
        let of_peer = |link: &&Rc<Link>| !link.dialled && link.peer.member.id == peer;
        self.links.borrow().values().filter(of_peer).cloned().collect()
    }

    /// When the link that a peer has dialled counts as silent, if there is one. A leader's pings are answered more often.
    fn silent_from(&self, peer: &Peer) -> Option<Instant> {
        let heard = self.accepted(peer.member.id).iter().map(|link| link.heard_at()).max();
        heard.map(|heard| heard + self.shared.settings.core.sync_limit() / 2)
    }

    /// Is somebody to be let in who says that it is `peer`, and cannot prove it? Not where somebody comes too often; and on a
    /// link only once the one before it is gone, or nothing is heard on it any more. An honest server closes a link
    /// before it dials another one.
    async fn await_place(&self, peer: &Peer, channel: Channel, from: IpAddr) -> bool {
        let began = Instant::now();
        if !peer.admission.admits(from, began) {
            return false;
        }
        if channel == Channel::Election {
            return true;
        }
        let Some(_waiting) = peer.admission.wait() else {
            return false;
        };
        loop {
            // Before the look at the links, so that no end of one is missed.
            let vacant = self.vacant.notified();
            let Some(silent) = self.silent_from(peer) else {
                return true;
            };
            let now = Instant::now();
            if silent <= now {
                return true;
            }
            if now >= began + GREETING_TIME {
                return false;
            }
            let until = tokio::time::sleep_until(silent.min(began + GREETING_TIME));
            tokio::select! {
                () = vacant => {}
                () = until => {}
            }
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

    /// Time for the answer to a greeting; whoever answers may wait for the end of an older link.
    fn answer_timeout(&self) -> Duration {
        self.connect_timeout() + GREETING_TIME
    }
}

/// What this server brings to a greeting, and a word to the operator about what it lacks.
fn local(shared: &Shared) -> Local {
    let id = shared.settings.core.id();
    let Some(ensemble) = &shared.settings.ensemble else {
        return Local { id, ensemble: 0, secrets: Secrets::default(), demands_secret: false };
    };
    if ensemble.secrets.is_empty() {
        let me = ensemble.member(id).expect("it is one of them");
        tracing::warn!(
            "whoever reaches the ports {} and {} can act as a server of this ensemble: read and change all data, and stop \
             the service; this line in zoo.cfg closes them to all but servers with the same secret: \
             quorum.secretFile=/etc/zabkeeper/secret",
            me.quorum_port,
            me.election_port
        );
    } else if !ensemble.demands_secret {
        tracing::warn!(
            "quorum.secretRequired=false: servers that do not know the secret are let in; set it to true once all \
             servers have quorum.secretFile"
        );
    }
    let secrets = ensemble.secrets.clone();
    Local { id, ensemble: 0, secrets, demands_secret: ensemble.demands_secret }
}

impl Peer {
    fn new(member: &Member) -> Peer {
        Peer {
            member: member.clone(),
            link_backoff: Backoff::default(),
            ballot_backoff: Backoff::default(),
            newest: Newest::default(),
            listeners: Listeners::default(),
            admission: Admission::default(),
            trouble: RefCell::default(),
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
