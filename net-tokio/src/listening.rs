//! Listening sockets that move to other addresses while the server runs (RECONF-12).
//!
//! Owns the order in which they are opened and closed, the pauses between attempts, and which
//! addresses of this machine a host name stands for. Must not accept, nor decide where to listen.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use tokio::net::{TcpListener, TcpSocket};
use tokio::task::JoinHandle;

/// Pause after the first failed attempt to move; it doubles with each further one, up to the last.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LAST_PAUSE: Duration = Duration::from_secs(60);

/// A socket that is to listen, or does: what it is for, and where.
pub(crate) type Place<K> = (K, SocketAddr);

/// The sockets of this server for one kind of connections. Dropping it closes them; accepted
/// connections stay.
pub(crate) struct Listening<K> {
    sockets: Vec<(Place<K>, JoinHandle<()>)>,
    backlog: u32,
    /// Starts a task that accepts for ever.
    accept: Box<dyn Fn(K, TcpListener) -> JoinHandle<()>>,
}

impl<K: Copy + PartialEq> Listening<K> {
    /// No sockets yet.
    pub(crate) fn new(
        backlog: u32,
        accept: impl Fn(K, TcpListener) -> JoinHandle<()> + 'static,
    ) -> Listening<K> {
        Listening { sockets: Vec::new(), backlog, accept: Box::new(accept) }
    }

    /// Listens on a bound socket.
    ///
    /// # Errors
    /// Another process has started listening on the address since it was bound.
    pub(crate) fn add(&mut self, key: K, socket: TcpSocket) -> io::Result<()> {
        let address = socket.local_addr()?;
        let listener = socket.listen(self.backlog)?;
        self.sockets.push(((key, address), (self.accept)(key, listener)));
        Ok(())
    }

    /// Listens at exactly these places: opens what is missing, then closes the rest. Returns
    /// whether anything was missing.
    ///
    /// # Errors
    /// A place is not free. The sockets stay as they were, as far as possible.
    pub(crate) async fn move_to(&mut self, places: &[Place<K>]) -> io::Result<bool> {
        let is_open = |place: &&Place<K>| self.sockets.iter().all(|(open, _)| open != *place);
        let missing: Vec<Place<K>> = places.iter().filter(is_open).copied().collect();
        let is_moved = !missing.is_empty();
        let (mut opened, mut closed) = (Vec::new(), Vec::new());
        for (key, address) in missing {
            let mut bound = bind_to(address).and_then(|socket| socket.listen(self.backlog));
            // An own socket may be in the way: one address of a port can include another.
            if bound.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::AddrInUse) {
                let in_the_way =
                    |place: &Place<K>| place.1.port() == address.port() && !places.contains(place);
                closed.extend(self.close(in_the_way).await);
                bound = bind_to(address).and_then(|socket| socket.listen(self.backlog));
            }
            match bound {
                Ok(listener) => opened.push(((key, address), listener)),
                Err(error) => {
                    drop(opened);
                    for (key, address) in closed {
                        let _in_the_worst_case_retried =
                            bind_to(address).and_then(|socket| self.add(key, socket));
                    }
                    return Err(error);
                }
            }
        }
        for ((key, address), listener) in opened {
            self.sockets.push(((key, address), (self.accept)(key, listener)));
        }
        self.close(|place| !places.contains(place)).await;
        Ok(is_moved)
    }

    /// Closes these sockets.
    async fn close(&mut self, which: impl Fn(&Place<K>) -> bool) -> Vec<Place<K>> {
        let mut closed = Vec::new();
        for (place, task) in self.sockets.extract_if(.., |(place, _)| which(place)) {
            task.abort();
            // The task owns the socket until it has ended.
            let _aborted = task.await;
            closed.push(place);
        }
        closed
    }
}

impl<K> Drop for Listening<K> {
    fn drop(&mut self) {
        self.sockets.iter().for_each(|(_, task)| task.abort());
    }
}

/// Pauses between attempts to listen elsewhere.
#[derive(Debug)]
pub(crate) struct Pauses(Duration);

impl Pauses {
    pub(crate) fn new() -> Pauses {
        Pauses(FIRST_PAUSE)
    }

    /// The next pause.
    pub(crate) fn next(&mut self) -> Duration {
        let pause = self.0;
        self.0 = (pause * 2).min(LAST_PAUSE);
        pause
    }
}

/// A socket bound to this address, not listening yet.
///
/// # Errors
/// The address is not one of this machine, or is in use.
pub(crate) fn bind_to(address: SocketAddr) -> io::Result<TcpSocket> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    // Connections of an earlier process in TIME_WAIT must not block the port.
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    Ok(socket)
}

/// The address that stands for every address of this machine.
pub(crate) fn everywhere(port: u16) -> SocketAddr {
    let v6 = IpAddr::from(Ipv6Addr::UNSPECIFIED);
    // Without IPv6 there is no socket of it, or it cannot be bound.
    let ip = if check_local(v6).is_ok() { v6 } else { Ipv4Addr::UNSPECIFIED.into() };
    SocketAddr::new(ip, port)
}

/// Those addresses that are of this machine.
///
/// # Errors
/// None is.
pub(crate) fn local(addresses: Vec<SocketAddr>) -> io::Result<Vec<SocketAddr>> {
    let mut local: Vec<SocketAddr> = Vec::new();
    let mut failure = io::Error::other("the name has no address");
    for address in addresses {
        match check_local(address.ip()) {
            Ok(()) if local.contains(&address) => {}
            Ok(()) => local.push(address),
            Err(error) => failure = error,
        }
    }
    if local.is_empty() { Err(failure) } else { Ok(local) }
}

fn check_local(ip: IpAddr) -> io::Result<()> {
    bind_to(SocketAddr::new(ip, 0)).map(drop)
}

#[cfg(test)]
mod tests {
    use std::net::TcpStream;

    use tokio::runtime::{Builder, LocalOptions};

    use super::*;

    fn block_on(test: impl Future<Output = ()>) {
        let runtime = Builder::new_current_thread()
            .enable_all()
            .build_local(LocalOptions::default())
            .unwrap();
        runtime.block_on(test);
    }

    fn listening() -> Listening<u8> {
        Listening::new(8, |_, listener| {
            tokio::task::spawn_local(async move {
                while let Ok(accepted) = listener.accept().await {
                    drop(accepted);
                }
            })
        })
    }

    fn free_port() -> u16 {
        std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
    }

    fn at(ip: [u8; 4], port: u16) -> SocketAddr {
        (ip, port).into()
    }

    fn listens(address: SocketAddr) -> bool {
        TcpStream::connect(address).is_ok()
    }

    #[test]
    fn moves_between_addresses_of_one_port() {
        block_on(async {
            let (mut sockets, port, other) = (listening(), free_port(), free_port());
            let [one, two, all] = [[127, 0, 0, 1], [127, 0, 0, 2], [0; 4]].map(|ip| at(ip, port));
            sockets.move_to(&[(1, one)]).await.unwrap();
            assert!(listens(one) && !listens(two));
            sockets.move_to(&[(1, all)]).await.unwrap();
            assert!(listens(two), "an address includes the one before");
            sockets.move_to(&[(1, two), (2, at([127, 0, 0, 1], other))]).await.unwrap();
            assert!(listens(two) && !listens(one) && listens(at([127, 0, 0, 1], other)));
            // What the two are for is exchanged.
            sockets.move_to(&[(2, two), (1, at([127, 0, 0, 1], other))]).await.unwrap();
            assert!(listens(two) && listens(at([127, 0, 0, 1], other)));
            drop(sockets);
            tokio::task::yield_now().await;
            assert!(!listens(two));
        });
    }

    #[test]
    fn sockets_stay_if_an_address_is_taken() {
        block_on(async {
            let holder = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
            let taken = holder.local_addr().unwrap();
            let (mut sockets, port, free) = (listening(), free_port(), free_port());
            let here = at([127, 0, 0, 1], port);
            let places = [(1, at([127, 0, 0, 1], free)), (1, at([0; 4], port)), (2, taken)];
            sockets.move_to(&[(1, here)]).await.unwrap();
            let error = sockets.move_to(&places).await.expect_err("it is taken");
            assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
            assert!(listens(here) && !listens(at([127, 0, 0, 2], port)), "as before");
            assert!(!listens(at([127, 0, 0, 1], free)));
            drop(holder);
            sockets.move_to(&places).await.unwrap();
            assert!(listens(at([127, 0, 0, 2], port)) && listens(taken));
        });
    }

    #[test]
    fn addresses_of_other_machines_are_skipped() {
        let (own, other) = (at([127, 0, 0, 1], 5), at([192, 0, 2, 1], 5));
        assert_eq!(local(vec![own, other, own]).unwrap(), [own]);
        assert!(local(vec![other]).is_err());
        assert_eq!(everywhere(5).port(), 5);
    }

    #[test]
    fn pauses_grow_up_to_a_minute() {
        let mut pauses = Pauses::new();
        let seconds: Vec<u64> = (0..8).map(|_| pauses.next().as_secs()).collect();
        assert_eq!(seconds, [1, 2, 4, 8, 16, 32, 60, 60]);
    }
}
