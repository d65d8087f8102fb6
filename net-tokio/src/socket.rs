//! A socket: its sending half, and the transfer of output to it.
//!
//! Owns the sending half. Must not know the process around it: `conn` serves a socket, and `shared`
//! lists all of them.

use std::io;
use std::net::Shutdown;

use socket2::SockRef;
use tokio::net::tcp::OwnedWriteHalf;
use tokio::sync::Notify;
use zabkeeper_core::Instant;
use zabkeeper_core::driver::{Driver, SocketId};

/// State that the tasks of a socket share.
pub(crate) struct Socket {
    pub(crate) id: SocketId,
    half: OwnedWriteHalf,
    /// Notified when the driver's interest in the socket changes.
    pub(crate) changed: Notify,
}

impl Socket {
    pub(crate) fn new(id: SocketId, half: OwnedWriteHalf) -> Socket {
        Socket { id, half, changed: Notify::new() }
    }

    /// Offers queued output to the socket. Returns whether nothing is left.
    pub(crate) fn write(&self, driver: &mut Driver, now: Instant) -> bool {
        loop {
            let bytes = driver.output(self.id);
            if bytes.is_empty() {
                return true;
            }
            match self.half.try_write(bytes) {
                Ok(some) => driver.sent(self.id, some, now),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return false,
                Err(error) => driver.fail(self.id, error.to_string(), now),
            }
        }
    }

    /// Waits until the socket takes output.
    ///
    /// # Errors
    /// The socket has failed.
    pub(crate) async fn writable(&self) -> io::Result<()> {
        self.half.writable().await
    }

    /// Shuts down one direction, or both.
    ///
    /// # Errors
    /// The socket has failed.
    pub(crate) fn shutdown(&self, how: Shutdown) -> io::Result<()> {
        SockRef::from(self.half.as_ref()).shutdown(how)
    }
}
