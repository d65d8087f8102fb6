//! A socket: the transfer of bytes between it and the driver.
//!
//! Owns the socket and its task. Must not interpret the bytes: [`zabkeeper_core::driver`] does.

use std::io;
use std::net::Shutdown;
use std::rc::Rc;
use std::time::Duration;

use socket2::SockRef;
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::Notify;
use tokio::time::timeout;
use zabkeeper_core::Instant;
use zabkeeper_core::driver::{Driver, Interest, SocketId};

use crate::shared::{READ_BYTES, Shared};

/// Time limit of a graceful close: until the last output has left and the other end has closed its
/// side.
const LINGER: Duration = Duration::from_secs(2);

/// Bytes of input that a graceful close discards at most: an end that sends more than kernels
/// buffer does not read anyway.
const DISCARDED_BYTES: usize = 8 << 20;

/// State that the tasks of a socket share.
pub(crate) struct Conn {
    pub(crate) id: SocketId,
    socket: OwnedWriteHalf,
    /// Notified when the driver's interest in the socket changes.
    pub(crate) changed: Notify,
}

/// Serves a connection that the driver knows, until it ends.
pub(crate) async fn serve_connection(shared: Rc<Shared>, stream: TcpStream, id: SocketId) {
    let (mut input, socket) = stream.into_split();
    let conn = Rc::new(Conn { id, socket, changed: Notify::new() });
    shared.enter(&conn);
    loop {
        let interest = shared.driver().interest(id);
        match interest {
            Interest::Read => {
                tokio::select! {
                    biased;
                    read = conn.receive(&mut input, &shared) => conn.received(&shared, read).await,
                    () = conn.changed.notified() => {}
                }
            }
            Interest::Wait => conn.changed.notified().await,
            Interest::Shutdown => {
                tokio::select! {
                    _in_time = timeout(LINGER, conn.graceful_close(&mut input, &shared)) => {}
                    () = conn.has_to_close(&shared) => {}
                }
                break;
            }
            Interest::Close => break,
        }
    }
    // Drops output that the other end does not take; otherwise ends that never read would keep
    // sockets beyond all bounds on connections. The socket may be broken already.
    let _best_effort = SockRef::from(conn.socket.as_ref()).shutdown(Shutdown::Both);
    shared.leave(&conn);
}

impl Conn {
    /// Gives the next bytes to the driver; returns their number.
    async fn receive(&self, input: &mut OwnedReadHalf, shared: &Shared) -> io::Result<usize> {
        let give = |bytes: &[u8]| {
            if !bytes.is_empty() {
                shared.driver().receive(self.id, bytes, shared.clock.mono());
            }
        };
        shared.read_to(input, give).await
    }

    async fn received(&self, shared: &Rc<Shared>, read: io::Result<usize>) {
        let now = shared.clock.mono();
        let is_full = matches!(read, Ok(READ_BYTES));
        match read {
            Ok(0) => shared.driver().receive_end(self.id, now),
            Ok(_) => {}
            Err(error) => shared.driver().fail(self.id, error.to_string(), now),
        }
        shared.wake().notify_one();
        if is_full {
            // More may be available, but the event loop has its turn first.
            tokio::task::yield_now().await;
        }
    }

    /// Offers queued output to the socket. Returns whether nothing is left.
    pub(crate) fn write(&self, driver: &mut Driver, now: Instant) -> bool {
        loop {
            let bytes = driver.output(self.id);
            if bytes.is_empty() {
                return true;
            }
            match self.socket.try_write(bytes) {
                Ok(some) => driver.sent(self.id, some, now),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return false,
                Err(error) => driver.fail(self.id, error.to_string(), now),
            }
        }
    }

    /// Sends what the socket takes at once and leaves the rest to a task, so that a slow receiver
    /// delays nothing else.
    pub(crate) fn flush(self: &Rc<Self>, driver: &mut Driver, now: Instant, shared: &Rc<Shared>) {
        if !self.write(driver, now) && driver.block(self.id) {
            let (conn, shared) = (Rc::clone(self), Rc::clone(shared));
            tokio::task::spawn_local(async move { conn.write_rest(&shared).await });
        }
    }

    /// Sends all queued output, however slow the other end is, unless the connection ends.
    pub(crate) async fn write_rest(&self, shared: &Shared) {
        while !self.write(&mut shared.driver(), shared.clock.mono()) {
            shared.wake().notify_one();
            if self.socket.writable().await.is_err() {
                break;
            }
        }
        shared.wake().notify_one();
    }

    /// Returns when the driver's interest in the socket is to close it at once.
    async fn has_to_close(&self, shared: &Shared) {
        while shared.driver().interest(self.id) != Interest::Close {
            self.changed.notified().await;
        }
    }

    /// Sends the last output, shuts down the sending side, and waits for the other end to do the
    /// same: if a socket is closed with unread input, the kernel discards output that is still in
    /// transit.
    async fn graceful_close(&self, input: &mut OwnedReadHalf, shared: &Shared) -> io::Result<()> {
        self.write_rest(shared).await;
        SockRef::from(self.socket.as_ref()).shutdown(Shutdown::Write)?;
        let mut read = 0;
        while read < DISCARDED_BYTES {
            match shared.read_to(input, |_| {}).await? {
                0 => break,
                bytes => read += bytes,
            }
        }
        Ok(())
    }
}
