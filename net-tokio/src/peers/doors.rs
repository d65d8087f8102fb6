//! The quorum and election ports of this server: who gets in, and as whom.
//!
//! Owns binding, accepting and the greeting. Must not read beyond the greeting.
//!
//! Nobody here has proved who it is: a stranger holds one of a few places for some seconds, and gives it up to whoever
//! comes later where all are taken. A server greets at once.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::rc::Rc;
use std::time::Duration;

use tokio::io::AsyncReadExt;
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::task::AbortHandle;
use tokio::time::timeout;
use zabkeeper_core::ServerId;
use zabkeeper_core::peer::frame::{BadFrame, Channel, GREETING_BYTES, Greeting};

use super::{Peers, ballots};
use crate::config::{Ensemble, Member};
use crate::descriptors::Reserve;
use crate::listener::bind_to;
use crate::names;

/// Connections that have not greeted yet, on both ports together.
const UNGREETED: usize = 64;

/// Time for a greeting.
const GREETING_TIME: Duration = Duration::from_secs(3);

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
enum Refusal {
    Silent,
    Crowded,
    Bad(BadFrame),
    /// A name that it takes for another server.
    ForAnother {
        to: ServerId,
        here: ServerId,
    },
    /// It says that it is a server that is not listed here.
    Unlisted(ServerId),
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
                    Refusal::Crowded.log(oldest);
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
    let greeting = timeout(GREETING_TIME, greeting(&mut stream)).await;
    porch.leave(ticket);
    let here = peers.shared.settings.core.id();
    let checked = match greeting {
        Err(_) => Err(Refusal::Silent),
        // Gone before it said anything: a probe of the port.
        Ok(Err(_)) => return,
        Ok(Ok(Err(bad))) => Err(Refusal::Bad(bad)),
        Ok(Ok(Ok(greeting))) => check(greeting, channel, here),
    };
    let peer = checked.and_then(|id| peers.peers.get(&id).cloned().ok_or(Refusal::Unlisted(id)));
    let peer = match peer {
        Ok(peer) => peer,
        Err(refusal) => return refusal.log(from),
    };
    peers.tune(&stream);
    peer.heard();
    match channel {
        Channel::Quorum => peers.enter(peers.deal(), &peer, stream, false).await,
        Channel::Election => {
            let task = ballots::listen(Rc::clone(&peers), Rc::clone(&peer), stream, from);
            let task = tokio::task::spawn_local(task).abort_handle();
            // The peer has one at a time: what it spoke on before is broken.
            if let Some(before) = peer.ballots.replace(Some(task)) {
                before.abort();
            }
        }
    }
}

async fn greeting(stream: &mut TcpStream) -> io::Result<Result<Greeting, BadFrame>> {
    let mut bytes = [0; GREETING_BYTES];
    stream.read_exact(&mut bytes).await?;
    Ok(Greeting::decode(&bytes))
}

fn check(greeting: Greeting, channel: Channel, here: ServerId) -> Result<ServerId, Refusal> {
    let Greeting { channel: meant, from, to } = greeting;
    if meant != channel {
        Err(Refusal::Bad(BadFrame::Channel(meant.number())))
    } else if to != here {
        Err(Refusal::ForAnother { to, here })
    } else {
        Ok(from)
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

impl Refusal {
    /// Whose port is on the other side is a matter of configuration: says what is wrong with a connection.
    fn log(&self, from: SocketAddr) {
        let kind = match self {
            Refusal::Silent => "silent",
            Refusal::Crowded => "crowded",
            Refusal::Bad(_) => "bad",
            Refusal::ForAnother { .. } => "for another",
            Refusal::Unlisted(_) => "unlisted",
        };
        tracing::warn!(kind, "closed the connection from {from}: {self}");
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refusal::Silent => write!(f, "no greeting within {} s", GREETING_TIME.as_secs()),
            Refusal::Crowded => write!(f, "{UNGREETED} others came and it had not greeted"),
            Refusal::Bad(bad) => write!(f, "{bad}"),
            Refusal::ForAnother { to, here } => write!(
                f,
                "it wants server {to} and this is server {here}: compare its server.{to} with server.{here}"
            ),
            Refusal::Unlisted(id) => {
                write!(f, "it says it is server {id}, and another server.{id} is not listed here")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(channel: Channel, to: u64) -> String {
        let greeting = Greeting { channel, from: ServerId(2), to: ServerId(to) };
        match check(greeting, Channel::Quorum, ServerId(1)) {
            Ok(from) => format!("from {from}"),
            Err(refusal) => refusal.to_string(),
        }
    }

    #[test]
    fn a_greeting_is_for_this_server_and_this_port() {
        assert_eq!(refusal(Channel::Quorum, 1), "from 2");
        assert_eq!(refusal(Channel::Election, 1), "channel 0 does not belong here");
        assert_eq!(
            refusal(Channel::Quorum, 3),
            "it wants server 3 and this is server 1: compare its server.3 with server.1"
        );
    }
}
