//! The socket of one client: bytes between it and the driver, from the first to the last.
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
use zabkeeper_core::driver::{Clients, Interest};
use zabkeeper_core::{ConnId, Instant};

use crate::report;
use crate::shared::Shared;

/// Time for the last output to leave and for the client to close its side, once the server has closed its own.
const LINGER: Duration = Duration::from_secs(2);

/// Output that the kernel keeps before it says that it has no room.
#[cfg(target_os = "linux")]
const UNSENT_BYTES: u32 = 128 << 10;

/// What the tasks of a connection share.
pub(crate) struct Conn {
    pub(crate) id: ConnId,
    socket: OwnedWriteHalf,
    /// Notified when the driver wants another thing done with the socket.
    pub(crate) changed: Notify,
}

/// Serves a connection that the driver knows, until it ends.
pub(crate) async fn serve_connection(shared: Rc<Shared>, stream: TcpStream, id: ConnId) {
    // Replies are written whole, so waiting to fill packets would only delay them.
    let _best_effort = stream.set_nodelay(true);
    // That output leaves shows that a client lives: the kernel must not take megabytes first, and say so then.
    #[cfg(target_os = "linux")]
    let _best_effort = SockRef::from(&stream).set_tcp_notsent_lowat(UNSENT_BYTES);
    if shared.settings.keep_alive {
        let _best_effort = SockRef::from(&stream).set_keepalive(true);
    }
    let (mut input, socket) = stream.into_split();
    let conn = Rc::new(Conn { id, socket, changed: Notify::new() });
    shared.enter(&conn);
    loop {
        let interest = shared.driver().clients.interest(id);
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
                let _in_time = timeout(LINGER, conn.graceful_close(&mut input, &shared)).await;
                break;
            }
            Interest::Close => break,
        }
    }
    // Output that the client would not take goes with it, or clients that never read would keep sockets beyond all
    // bounds on connections. The socket may be broken already.
    let _best_effort = SockRef::from(conn.socket.as_ref()).shutdown(Shutdown::Both);
    shared.leave(&conn);
}

impl Conn {
    /// Gives the driver what comes next; how many bytes that are.
    async fn receive(&self, input: &mut OwnedReadHalf, shared: &Shared) -> io::Result<usize> {
        let give = |bytes: &[u8]| {
            if !bytes.is_empty() {
                shared.driver().clients.receive(self.id, bytes, shared.clock.mono());
            }
        };
        shared.read_to(input, give).await
    }

    async fn received(&self, shared: &Rc<Shared>, read: io::Result<usize>) {
        match read {
            Ok(0) => shared.driver().clients.receive_end(self.id),
            Ok(_) => {}
            Err(error) => shared.driver().clients.fail(self.id, error.to_string()),
        }
        let word = shared.driver().clients.next_word();
        if let Some((id, word, mask)) = word {
            debug_assert_eq!(id, self.id, "nobody else has received anything since");
            report::answer(shared, self, word, mask).await;
            shared.driver().clients.end_word(self.id);
        }
        shared.wake().notify_one();
    }

    /// Offers what is queued to the socket. Is nothing left to send?
    pub(crate) fn write(&self, clients: &mut Clients, now: Instant) -> bool {
        loop {
            let bytes = clients.output(self.id);
            if bytes.is_empty() {
                return true;
            }
            match self.socket.try_write(bytes) {
                Ok(some) => clients.sent(self.id, some, now),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return false,
                Err(error) => clients.fail(self.id, error.to_string()),
            }
        }
    }

    /// Sends what the socket takes at once and leaves the rest to a task, so that a slow client holds up nobody.
    pub(crate) fn flush(self: &Rc<Self>, clients: &mut Clients, now: Instant, shared: &Rc<Shared>) {
        if !self.write(clients, now) && clients.block(self.id) {
            let (conn, shared) = (Rc::clone(self), Rc::clone(shared));
            tokio::task::spawn_local(async move { conn.write_rest(&shared).await });
        }
    }

    /// Sends all that is queued, however long the client takes, unless the connection ends.
    pub(crate) async fn write_rest(&self, shared: &Shared) {
        while !self.write(&mut shared.driver().clients, shared.clock.mono()) {
            shared.wake().notify_one();
            if self.socket.writable().await.is_err() {
                break;
            }
        }
        shared.wake().notify_one();
    }

    /// Lets the last output leave, says that nothing follows, and waits for the client to do the same: a socket
    /// closed with unread input would make the kernel throw away output that is still on its way.
    async fn graceful_close(&self, input: &mut OwnedReadHalf, shared: &Shared) -> io::Result<()> {
        self.write_rest(shared).await;
        SockRef::from(self.socket.as_ref()).shutdown(Shutdown::Write)?;
        while shared.read_to(input, |_| {}).await? > 0 {}
        Ok(())
    }
}
