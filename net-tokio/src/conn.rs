//! A socket: bytes between it and the driver, from the first to the last.
//!
//! Owns the socket and its task. Must not look into the bytes: [`zabkeeper_core::driver`] does.

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

/// Time for the last output to leave and for the other end to close its side, once the server has
/// closed its own.
const LINGER: Duration = Duration::from_secs(2);

/// Bytes that are read and thrown away meanwhile: whoever goes on sending more than a kernel holds
/// does not read anyway.
const DISCARDED_BYTES: usize = 8 << 20;

/// What the tasks of a socket share.
pub(crate) struct Conn {
    pub(crate) id: SocketId,
    socket: OwnedWriteHalf,
    /// Notified when the driver wants another thing done with the socket.
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
    // Output that the other end would not take goes with it, or those that never read would keep
    // sockets beyond all bounds on connections. The socket may be broken already.
    let _best_effort = SockRef::from(conn.socket.as_ref()).shutdown(Shutdown::Both);
    shared.leave(&conn);
}

impl Conn {
    /// Gives the driver what comes next; how many bytes that are.
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
            // There may be more, but first comes the event loop's turn.
            tokio::task::yield_now().await;
        }
    }

    /// Offers what is queued to the socket. Is nothing left to send?
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
    /// holds up nobody.
    pub(crate) fn flush(self: &Rc<Self>, driver: &mut Driver, now: Instant, shared: &Rc<Shared>) {
        if !self.write(driver, now) && driver.block(self.id) {
            let (conn, shared) = (Rc::clone(self), Rc::clone(shared));
            tokio::task::spawn_local(async move { conn.write_rest(&shared).await });
        }
    }

    /// Sends all that is queued, however long the other end takes, unless the connection ends.
    pub(crate) async fn write_rest(&self, shared: &Shared) {
        while !self.write(&mut shared.driver(), shared.clock.mono()) {
            shared.wake().notify_one();
            if self.socket.writable().await.is_err() {
                break;
            }
        }
        shared.wake().notify_one();
    }

    /// Returns when the driver wants the socket to be closed at once.
    async fn has_to_close(&self, shared: &Shared) {
        while shared.driver().interest(self.id) != Interest::Close {
            self.changed.notified().await;
        }
    }

    /// Lets the last output leave, says that nothing follows, and waits for the other end to do the
    /// same: a socket closed with unread input would make the kernel throw away output that is
    /// still on its way.
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
