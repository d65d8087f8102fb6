//! The connections and the clock of a client of a virtual ensemble.
//!
//! Owns their translation to the network of the test. Must not decide anything: the engine of the
//! client does.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use futures::io::{AsyncRead, AsyncWrite};
use tokio::time::Sleep;
use zabkeeper_client::{Runtime, ServerAddr};
use zabkeeper_core::Instant;

use super::conn::{Party, Port, Received};
use super::world::Shared;

/// The machine of one client.
pub(super) struct VirtualRuntime {
    shared: Arc<Shared>,
    client: u64,
}

/// A connection of a client. Dropping it closes it.
pub(super) struct Connection {
    shared: Arc<Shared>,
    conn: u64,
    at: Party,
}

/// The future of a connection; it has none if no server has the address.
pub(super) struct Connect(Option<Connection>);

impl VirtualRuntime {
    /// The machine of the client with this number.
    pub(super) fn new(shared: Arc<Shared>, client: u64) -> VirtualRuntime {
        VirtualRuntime { shared, client }
    }
}

impl Runtime for VirtualRuntime {
    type Connection = Connection;
    type Connect = Connect;
    type Sleep = Sleep;

    fn connect(&self, server: &ServerAddr) -> Connect {
        let now = self.shared.now();
        let mut world = self.shared.world();
        let Some(to) = world.server_at(server) else { return Connect(None) };
        let (conn, at) = (world.network.next_conn(), Party::Client(self.client));
        world.network.dial(conn, (at, to), Port::Clients, None, now);
        drop(world);
        self.shared.wake();
        Connect(Some(Connection { shared: Arc::clone(&self.shared), conn, at }))
    }

    fn now(&self) -> Instant {
        self.shared.now()
    }

    fn sleep_until(&self, deadline: Instant) -> Sleep {
        self.shared.sleep_until(deadline)
    }
}

impl Future for Connect {
    type Output = io::Result<Connection>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<Connection>> {
        let is_open = match &self.0 {
            Some(Connection { shared, conn, at }) => {
                ready!(shared.world().network.poll_open(*conn, *at, cx))
            }
            None => false,
        };
        let connection = self.0.take().filter(|_| is_open);
        Poll::Ready(connection.ok_or_else(|| io::ErrorKind::ConnectionRefused.into()))
    }
}

impl AsyncRead for Connection {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        let network = &mut self.shared.world().network;
        match network.receive(self.conn, self.at, buffer.len()) {
            Received::Bytes(bytes) => {
                buffer[..bytes.len()].copy_from_slice(&bytes);
                Poll::Ready(Ok(bytes.len()))
            }
            Received::End => Poll::Ready(Ok(0)),
            Received::Nothing => {
                // Registers the task for the next arrival.
                let _is_open = network.poll_open(self.conn, self.at, cx);
                Poll::Pending
            }
        }
    }
}

impl AsyncWrite for Connection {
    fn poll_write(
        self: Pin<&mut Self>,
        _cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let now = self.shared.now();
        let sent = Bytes::copy_from_slice(bytes);
        self.shared.world().network.send(self.conn, self.at, sent, now);
        self.shared.wake();
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_close(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        let now = self.shared.now();
        self.shared.world_at_end().network.close(self.conn, self.at, now);
        self.shared.wake();
    }
}
