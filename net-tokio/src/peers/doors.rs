//! The quorum and election ports of this server: who gets in, and as whom.
//!
//! Owns binding, accepting, the greeting and its answer. Must not judge what comes behind them.
//!
//! Until its greeting nobody here has said who it is: a stranger holds one of a few places for some seconds, and gives it
//! up to whoever comes later where all are taken. A server greets at once.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::rc::Rc;
use std::time::Duration;

use bytes::BytesMut;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::task::AbortHandle;
use tokio::time::timeout;
use zabkeeper_core::ServerId;
use zabkeeper_core::peer::greeting::{Accepting, Channel, Established, Greeting, Refusal};

use super::dial::READ_BYTES;
use super::{Greeted, Peer, Peers, ballots};
use crate::config::{Ensemble, Member};
use crate::descriptors::Reserve;
use crate::listener::bind_to;
use crate::names;

/// Connections that have not greeted yet, on both ports together.
const UNGREETED: usize = 64;

/// Time for a greeting, and for the proof that follows it.
pub(super) const GREETING_TIME: Duration = Duration::from_secs(3);

/// Connections that the kernel completes before we accept them.
const BACKLOG: u32 = 128;

/// Pause after a failed accept, and between attempts to bind.
const ACCEPT_RETRY: Duration = Duration::from_millis(100);
const BIND_RETRY: Duration = Duration::from_secs(1);

/// Attempts to bind of which one is logged.
const LOGGED: u32 = 30;

/// A port of this server, reserved; nobody is let in yet.
pub(crate) struct Door {
    channel: Channel,
    socket: TcpSocket,
    address: SocketAddr,
}

/// Why a connection is closed at the door.
enum Refused {
    Silent,
    Crowded,
    /// It has gone where its proof was to come.
    Unproven(ServerId),
    Greeting(Refusal),
}

/// Those who have not greeted yet, oldest first.
#[derive(Default)]
struct Porch {
    next: Cell<u64>,
    waiting: RefCell<VecDeque<(u64, SocketAddr, AbortHandle)>>,
}

/// Reserves the ports of this server, so that they are known to be free before data is recovered. Waits for a name that has
/// no address yet.
///
/// # Errors
/// An address that is not this machine's, or is in use; as a line for the operator.
pub(crate) async fn bind(ensemble: &Ensemble, me: &Member) -> Result<Vec<Door>, String> {
    let mut failures = 0;
    loop {
        match bind_once(ensemble, me).await {
            Ok(doors) => return Ok(doors),
            Err(what) if ensemble.bind_retries.is_some_and(|times| failures >= times) => {
                return Err(what);
            }
            Err(what) => {
                if failures.is_multiple_of(LOGGED) {
                    tracing::warn!("{what}; trying again each second");
                }
                failures = failures.saturating_add(1);
                tokio::time::sleep(BIND_RETRY).await;
            }
        }
    }
}

async fn bind_once(ensemble: &Ensemble, me: &Member) -> Result<Vec<Door>, String> {
    let mut doors = Vec::new();
    let ports = [
        (Channel::Quorum, me.quorum_port, me.quorum_address()),
        (Channel::Election, me.election_port, me.election_address()),
    ];
    for (channel, port, name) in ports {
        let bound = if ensemble.listen_everywhere {
            bind_everywhere(port).map(|bound| vec![bound])
        } else {
            bind_all(names::addresses(&me.host, port).await)
        };
        let bound = bound.map_err(|error| {
            format!("cannot listen for other servers on {name}, as server.{} says: {error}", me.id)
        })?;
        doors.extend(bound.into_iter().map(|(address, socket)| Door { channel, socket, address }));
    }
    Ok(doors)
}

fn bind_everywhere(port: u16) -> io::Result<(SocketAddr, TcpSocket)> {
    let bind = |address: SocketAddr| bind_to(address).map(|socket| (address, socket));
    match bind((Ipv6Addr::UNSPECIFIED, port).into()) {
        // A machine without IPv6.
        Err(error) if error.kind() != io::ErrorKind::AddrInUse => {
            bind((Ipv4Addr::UNSPECIFIED, port).into())
        }
        bound => bound,
    }
}

/// Every address that a name has; one that this machine has not got does no harm where another one is.
fn bind_all(addresses: Vec<SocketAddr>) -> io::Result<Vec<(SocketAddr, TcpSocket)>> {
    let mut bound: Vec<(SocketAddr, TcpSocket)> = Vec::new();
    let mut failure = io::Error::other("the name has no address");
    for address in addresses {
        if bound.iter().any(|(other, _)| *other == address) {
            continue;
        }
        match bind_to(address) {
            Ok(socket) => bound.push((address, socket)),
            Err(error) if error.kind() == io::ErrorKind::AddrNotAvailable => failure = error,
            Err(error) => return Err(error),
        }
    }
    if bound.is_empty() { Err(failure) } else { Ok(bound) }
}

/// Lets others in, for ever.
///
/// # Errors
/// Another process listens on an address since; as a line for the operator.
pub(crate) fn open(peers: &Rc<Peers>, doors: Vec<Door>) -> Result<(), String> {
    let porch = Rc::new(Porch::default());
    for door in doors {
        let cannot =
            |error| format!("cannot listen for other servers on {}: {error}", door.address);
        let listener = door.socket.listen(BACKLOG).map_err(cannot)?;
        let task = accept(Rc::clone(peers), Rc::clone(&porch), door.channel, listener);
        tokio::task::spawn_local(task);
    }
    Ok(())
}

async fn accept(peers: Rc<Peers>, porch: Rc<Porch>, channel: Channel, listener: TcpListener) {
    loop {
        Reserve::Servers.await_room(&listener).await;
        match listener.accept().await {
            // Others have taken the room since; the next ones wait.
            Ok((stream, _)) if Reserve::Servers.holds(&stream) => {}
            Ok((stream, from)) => {
                let from = SocketAddr::new(from.ip().to_canonical(), from.port());
                if let Some(oldest) = porch.make_room() {
                    Refused::Crowded.log(oldest);
                }
                let ticket = porch.next.replace(porch.next.get() + 1);
                let task =
                    admit(Rc::clone(&peers), Rc::clone(&porch), channel, stream, from, ticket);
                let task = tokio::task::spawn_local(task).abort_handle();
                porch.waiting.borrow_mut().push_back((ticket, from, task));
            }
            Err(error) => {
                tracing::warn!("cannot accept another server: {error}");
                tokio::time::sleep(ACCEPT_RETRY).await;
            }
        }
    }
}

/// The life of a connection that somebody else has dialled.
async fn admit(
    peers: Rc<Peers>,
    porch: Rc<Porch>,
    channel: Channel,
    mut stream: TcpStream,
    from: SocketAddr,
    ticket: u64,
) {
    let mut buffer = BytesMut::new();
    let greeting = timeout(GREETING_TIME, read_greeting(&mut stream, &mut buffer)).await;
    porch.leave(ticket);
    let refusal = match greeting {
        Err(_) => Refused::Silent,
        // Gone before it said anything: a probe of the port.
        Ok(Err(_)) => return,
        Ok(Ok(Err(refusal))) => Refused::Greeting(refusal),
        Ok(Ok(Ok(greeting))) => {
            let answered = answer(&peers, channel, &mut stream, from.ip(), greeting, &mut buffer);
            match answered.await {
                Ok((peer, established)) => {
                    let greeted = Greeted { stream, established, buffer };
                    return welcome(&peers, channel, peer, greeted, from).await;
                }
                Err(refused) => refused,
            }
        }
    };
    refusal.log(from);
}

/// Who is let in, and how it is talked to.
async fn answer(
    peers: &Rc<Peers>,
    channel: Channel,
    stream: &mut TcpStream,
    from: IpAddr,
    greeting: Greeting,
    buffer: &mut BytesMut,
) -> Result<(Rc<Peer>, Established), Refused> {
    let local = peers.local();
    let id = greeting.from();
    let checked = greeting.check(&local, channel, |id| peers.peers.contains_key(&id));
    let checked = match (checked, peers.peers.get(&id)) {
        (Err(refusal), _) => Err(refusal),
        (Ok(()), None) => Err(Refusal::Unlisted(id)),
        (Ok(()), Some(peer)) if greeting.proves_to(&local) => Ok(peer),
        (Ok(()), Some(peer)) => {
            let place = peers.await_place(peer, channel, from).await;
            if place { Ok(peer) } else { Err(Refusal::Busy(id)) }
        }
    };
    let peer = match checked {
        Ok(peer) => Rc::clone(peer),
        Err(refusal) => {
            let bytes = greeting.refuse(&local, &refusal, Peers::nonce());
            // A new socket has room for it; whoever does not read it learns less.
            let _best_effort = timeout(GREETING_TIME, stream.write_all(&bytes)).await;
            return Err(Refused::Greeting(refusal));
        }
    };
    let (accepting, bytes) = greeting.welcome(&local, Peers::nonce());
    let established = timeout(GREETING_TIME, establish(&accepting, stream, &bytes, buffer)).await;
    match established {
        Err(_) => Err(Refused::Silent),
        Ok(Err(_)) => Err(Refused::Unproven(id)),
        Ok(Ok(Err(refusal))) => Err(Refused::Greeting(refusal)),
        Ok(Ok(Ok(established))) => Ok((peer, established)),
    }
}

/// Answers a greeting, and reads the proof if there has to be one.
async fn establish(
    accepting: &Accepting,
    stream: &mut TcpStream,
    answer: &[u8],
    buffer: &mut BytesMut,
) -> io::Result<Result<Established, Refusal>> {
    stream.write_all(answer).await?;
    loop {
        if let Some(established) = accepting.establish(buffer).transpose() {
            return Ok(established);
        }
        read_more(stream, buffer).await?;
    }
}

async fn welcome(
    peers: &Rc<Peers>,
    channel: Channel,
    peer: Rc<Peer>,
    greeted: Greeted,
    from: SocketAddr,
) {
    peers.tune(&greeted.stream);
    peer.heard();
    match channel {
        Channel::Quorum => peers.enter(peers.deal(), &peer, greeted, false).await,
        Channel::Election => {
            let (proven, spoken) = (greeted.established.proven, Rc::default());
            let task = ballots::listen(
                Rc::clone(peers),
                Rc::clone(&peer),
                greeted,
                from,
                Rc::clone(&spoken),
            );
            let task = tokio::task::spawn_local(task).abort_handle();
            peer.listeners.enter(task, spoken, proven);
        }
    }
}

async fn read_greeting(
    stream: &mut TcpStream,
    buffer: &mut BytesMut,
) -> io::Result<Result<Greeting, Refusal>> {
    loop {
        read_more(stream, buffer).await?;
        if let Some(greeting) = Greeting::take(buffer).transpose() {
            return Ok(greeting);
        }
    }
}

async fn read_more(stream: &mut TcpStream, buffer: &mut BytesMut) -> io::Result<()> {
    let mut part = [0; READ_BYTES];
    match stream.read(&mut part).await? {
        0 => Err(io::ErrorKind::UnexpectedEof.into()),
        read => {
            buffer.extend_from_slice(&part[..read]);
            Ok(())
        }
    }
}

impl Porch {
    /// Turns out whoever has been silent for longest, if there is no place for one more; who that was.
    fn make_room(&self) -> Option<SocketAddr> {
        let mut waiting = self.waiting.borrow_mut();
        if waiting.len() < UNGREETED {
            return None;
        }
        let (_, from, task) = waiting.pop_front()?;
        task.abort();
        Some(from)
    }

    fn leave(&self, ticket: u64) {
        self.waiting.borrow_mut().retain(|(other, ..)| *other != ticket);
    }
}

impl Refused {
    /// Whose port is on the other side is a matter of configuration: says what is wrong with a connection.
    fn log(&self, from: SocketAddr) {
        let kind = match self {
            Refused::Silent => "silent",
            Refused::Crowded => "crowded",
            Refused::Unproven(_) => "unproven",
            Refused::Greeting(refusal) => refusal.kind(),
        };
        tracing::warn!(kind, "closed the connection from {from}: {self}");
    }
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refused::Silent => write!(f, "no greeting within {} s", GREETING_TIME.as_secs()),
            Refused::Crowded => write!(f, "{UNGREETED} others came and it had not greeted"),
            Refused::Unproven(id) => write!(
                f,
                "server {id} closed it instead of proving that it knows the secret: compare the files that \
                 quorum.secretFile names on both servers"
            ),
            Refused::Greeting(refusal) => write!(f, "{refusal}"),
        }
    }
}
