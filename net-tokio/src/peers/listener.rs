//! The quorum and election ports of this server.
//!
//! Owns binding and accepting. Must not read from a connection, nor identify the other end: the
//! driver does.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::rc::Rc;
use std::time::Duration;

use tokio::net::{TcpListener, TcpSocket};
use zabkeeper_core::driver::SocketId;
use zabkeeper_core::peer::greeting::Channel;
use zabkeeper_core::{LinkId, Member};

use super::tune;
use crate::config::Ensemble;
use crate::conn::serve_connection;
use crate::descriptors::Reserve;
use crate::listener::bind_to;
use crate::names;
use crate::random;
use crate::shared::Shared;

/// Listen backlog: connections that the kernel completes before the server accepts them.
const BACKLOG: u32 = 128;

/// Pause after a failed accept, and between attempts to bind.
const ACCEPT_RETRY: Duration = Duration::from_millis(100);
const BIND_RETRY: Duration = Duration::from_secs(1);

/// One in this many failed attempts to bind is logged.
const LOGGED: u32 = 30;

/// A port of this server that is bound and does not listen yet.
pub(crate) struct PeerPort {
    channel: Channel,
    socket: TcpSocket,
    address: SocketAddr,
}

/// Binds the ports of this server, so that a port in use is reported before data is recovered.
/// Waits for a name that has no address yet.
///
/// # Errors
/// An address is not one of this machine, or is in use, after the configured number of retries; as
/// a line for the operator.
pub(crate) async fn bind(ensemble: &Ensemble, me: &Member) -> Result<Vec<PeerPort>, String> {
    let mut failures = 0;
    loop {
        match bind_once(ensemble, me).await {
            Ok(bound) => return Ok(bound),
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

async fn bind_once(ensemble: &Ensemble, me: &Member) -> Result<Vec<PeerPort>, String> {
    let mut bound_all = Vec::new();
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
        bound_all.extend(bound.into_iter().map(|(address, socket)| PeerPort {
            channel,
            socket,
            address,
        }));
    }
    Ok(bound_all)
}

fn bind_everywhere(port: u16) -> io::Result<(SocketAddr, TcpSocket)> {
    let bind = |address: SocketAddr| bind_to(address).map(|socket| (address, socket));
    match bind((Ipv6Addr::UNSPECIFIED, port).into()) {
        // The machine has no IPv6.
        Err(error) if error.kind() != io::ErrorKind::AddrInUse => {
            bind((Ipv4Addr::UNSPECIFIED, port).into())
        }
        bound => bound,
    }
}

/// Binds every address of a name; an address of another machine is skipped if another one can be
/// bound.
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

/// Starts tasks that accept connections for ever.
///
/// # Errors
/// Another process has started listening on an address since `bind`; as a line for the operator.
pub(crate) fn listen(shared: &Rc<Shared>, ports: Vec<PeerPort>) -> Result<(), String> {
    for PeerPort { channel, socket, address } in ports {
        let cannot = |error| format!("cannot listen for other servers on {address}: {error}");
        let listener = socket.listen(BACKLOG).map_err(cannot)?;
        tokio::task::spawn_local(accept(Rc::clone(shared), channel, listener));
    }
    Ok(())
}

async fn accept(shared: Rc<Shared>, channel: Channel, listener: TcpListener) {
    loop {
        Reserve::Servers.await_room(&listener).await;
        match listener.accept().await {
            // The free descriptors were used up since `await_room`: the connection is closed, and
            // the next one waits.
            Ok((stream, _)) if Reserve::Servers.holds(&stream) => {}
            Ok((stream, from)) => {
                tune(&stream, &shared.settings);
                let (link, now) = (LinkId(shared.next_id()), shared.clock.mono());
                shared.driver().peers.accept(link, channel, from, random::bytes(), now);
                let id = SocketId::Server(link);
                tokio::task::spawn_local(serve_connection(Rc::clone(&shared), stream, id));
                // The new connection adds a deadline to the driver's timer.
                shared.wake().notify_one();
            }
            Err(error) => {
                tracing::warn!("cannot accept another server: {error}");
                tokio::time::sleep(ACCEPT_RETRY).await;
            }
        }
    }
}
