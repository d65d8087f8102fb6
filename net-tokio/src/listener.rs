//! The listening socket and the bounds on how many connections it lets in.
//!
//! Owns binding, accepting and counting. Must not read from connections.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::rc::Rc;
use std::time::Duration;

use tokio::net::{TcpListener, TcpSocket, lookup_host};

use crate::config::{Limits, Settings};
use crate::descriptors::Reserve;
use crate::names;
use crate::reader;
use crate::shared::Shared;

/// Connections that the kernel completes before we accept them, where nothing else is configured. ZooKeeper's 50 makes
/// clients wait for a second when a hundred come at once; the kernel's own bound (`somaxconn`) still holds.
pub(crate) const BACKLOG: u32 = 1024;

/// Pause after a failed accept. The usual cause is that the machine is out of file descriptors: the connection stays in
/// the kernel's queue, and an immediate retry would only spin.
const RETRY: Duration = Duration::from_millis(100);

/// How many connections there are, altogether and from each address.
#[derive(Default)]
struct Counts {
    all: usize,
    by_address: BTreeMap<IpAddr, usize>,
}

/// One place within the bounds, given back when dropped.
pub(crate) struct Permit {
    address: IpAddr,
    counts: Rc<RefCell<Counts>>,
}

/// How long an address that is in use is tried again: a service manager may start a server while the one before it still
/// ends.
const BUSY: Duration = Duration::from_secs(1);

/// Reserves the address; waits a little where another process still has it. Connections are let in only by [`accept`], so
/// that the port is known to be free before data is recovered, and nobody waits in its queue meanwhile.
///
/// # Errors
/// An address that is not this machine's, or is in use for longer than a second. One that does not resolve: a server on its
/// own refuses it, as ZooKeeper does; one of an ensemble waits until its name is known.
pub(crate) async fn bind(settings: &Settings) -> io::Result<TcpSocket> {
    let mut waited = Duration::ZERO;
    loop {
        match bind_once(settings).await {
            Err(error) if error.kind() == io::ErrorKind::AddrInUse && waited < BUSY => {
                tokio::time::sleep(RETRY).await;
                waited += RETRY;
            }
            bound => return bound,
        }
    }
}

async fn bind_once(settings: &Settings) -> io::Result<TcpSocket> {
    let Some(host) = &settings.host else {
        let everywhere = |ip: IpAddr| bind_to(SocketAddr::new(ip, settings.port));
        return match everywhere(Ipv6Addr::UNSPECIFIED.into()) {
            // A machine without IPv6.
            Err(error) if !matches!(error.kind(), io::ErrorKind::AddrInUse) => {
                everywhere(Ipv4Addr::UNSPECIFIED.into())
            }
            bound => bound,
        };
    };
    let addresses = if settings.ensemble.is_some() {
        names::addresses(host, settings.port).await
    } else {
        lookup_host((host.as_str(), settings.port)).await?.collect()
    };
    let first = addresses.first().ok_or_else(|| io::Error::other("the name has no address"))?;
    bind_to(*first)
}

/// A socket on this address, with nobody let in yet.
///
/// # Errors
/// An address that is not this machine's, or is in use.
pub(crate) fn bind_to(address: SocketAddr) -> io::Result<TcpSocket> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    // Connections of an earlier run that are still winding down must not keep the port.
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    Ok(socket)
}

/// Begins to listen.
///
/// # Errors
/// Another process listens on the address since.
pub(crate) fn listen(socket: TcpSocket, settings: &Settings) -> io::Result<TcpListener> {
    socket.listen(settings.backlog.unwrap_or(BACKLOG))
}

/// Accepts connections for ever, each with a task of its own.
pub(crate) async fn accept(listener: TcpListener, shared: Rc<Shared>) {
    let counts = Rc::new(RefCell::new(Counts::default()));
    loop {
        Reserve::Clients.await_room(&listener).await;
        match listener.accept().await {
            // Others have taken the room since; the next ones wait.
            Ok((stream, _)) if Reserve::Clients.holds(&stream) => {}
            Ok((stream, peer)) => {
                let peer = SocketAddr::new(peer.ip().to_canonical(), peer.port());
                match Permit::take(&counts, peer.ip(), &shared.settings.limits) {
                    Ok(permit) => {
                        let task = reader::attend(Rc::clone(&shared), stream, peer, permit);
                        tokio::task::spawn_local(task);
                    }
                    Err(bound) => {
                        shared.traffic.borrow_mut().rejected += 1;
                        tracing::warn!("closed the connection from {peer}: {bound}");
                    }
                }
            }
            Err(error) => {
                tracing::warn!("cannot accept a connection: {error}");
                tokio::time::sleep(RETRY).await;
            }
        }
    }
}

impl Permit {
    fn take(
        counts: &Rc<RefCell<Counts>>,
        address: IpAddr,
        limits: &Limits,
    ) -> Result<Permit, String> {
        let mut now = counts.borrow_mut();
        if let Some(bound) = limits.connections.filter(|bound| now.all >= *bound) {
            return Err(format!(
                "{bound} connections are all that maxCnxns={bound} allows; raise it, or 0 for no bound"
            ));
        }
        let here = now.by_address.get(&address).copied().unwrap_or(0);
        if let Some(bound) = limits.connections_per_ip.filter(|bound| here >= *bound) {
            return Err(format!(
                "{bound} connections from its address are all that maxClientCnxns={bound} allows; raise \
                 it, or 0 for no bound"
            ));
        }
        now.all += 1;
        now.by_address.insert(address, here + 1);
        Ok(Permit { address, counts: Rc::clone(counts) })
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        let mut now = self.counts.borrow_mut();
        now.all -= 1;
        let here = now.by_address.get_mut(&self.address).expect("counted when taken");
        *here -= 1;
        if *here == 0 {
            now.by_address.remove(&self.address);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn edge_160_bounds_per_address_and_altogether_and_places_come_back() {
        let mut settings = Settings::for_a_try();
        settings.limits.connections_per_ip = Some(2);
        settings.limits.connections = Some(3);
        let counts = Rc::default();
        let from =
            |last: u8| Permit::take(&counts, IpAddr::from([10, 0, 0, last]), &settings.limits);
        let first = from(1).ok();
        let _second = from(1).ok();
        assert!(from(1).is_err_and(|bound| bound.contains("maxClientCnxns")));
        let _other = from(2).ok();
        assert!(from(3).is_err_and(|bound| bound.contains("maxCnxns")));
        drop(first);
        assert!(from(1).is_ok());
        assert_eq!(counts.borrow().all, 2, "the last one was dropped at once");
    }
}
