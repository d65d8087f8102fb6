//! The task of a socket: the transfer of bytes between it and the driver.
//!
//! Owns the task. Must not interpret the bytes: [`zabkeeper_core::driver`] does.

use std::io;
use std::net::Shutdown;
use std::rc::Rc;
use std::time::Duration;

use tokio::net::TcpStream;
use tokio::net::tcp::OwnedReadHalf;
use tokio::time::timeout;
use zabkeeper_core::Instant;
use zabkeeper_core::driver::{Driver, Interest, SocketId};

use crate::shared::{READ_BYTES, Shared};
use crate::socket::Socket;

/// Time limit of a graceful close: until the last output has left and the other end has closed its
/// side.
const LINGER: Duration = Duration::from_secs(2);

/// Bytes of input that a graceful close discards at most: an end that sends more than kernels
/// buffer does not read anyway.
const DISCARDED_BYTES: usize = 8 << 20;

/// Serves a connection that the driver knows, until it ends.
pub(crate) async fn serve_connection(shared: Rc<Shared>, stream: TcpStream, id: SocketId) {
    let (mut input, half) = stream.into_split();
    let socket = Rc::new(Socket::new(id, half));
    shared.enter(&socket);
    loop {
        let interest = shared.driver().interest(id);
        match interest {
            Interest::Read => {
                tokio::select! {
                    biased;
                    read = receive(&socket, &mut input, &shared) => received(&socket, &shared, read).await,
                    () = socket.changed.notified() => {}
                }
            }
            Interest::Wait => socket.changed.notified().await,
            Interest::Shutdown => {
                tokio::select! {
                    _in_time = timeout(LINGER, graceful_close(&socket, &mut input, &shared)) => {}
                    () = has_to_close(&socket, &shared) => {}
                }
                break;
            }
            Interest::Close => break,
        }
    }
    // Drops output that the other end does not take; otherwise ends that never read would keep
    // sockets beyond all bounds on connections. The socket may be broken already.
    let _best_effort = socket.shutdown(Shutdown::Both);
    shared.leave(&socket);
}

/// Gives the next bytes to the driver; returns their number.
async fn receive(socket: &Socket, input: &mut OwnedReadHalf, shared: &Shared) -> io::Result<usize> {
    let give = |bytes: &[u8]| {
        if !bytes.is_empty() {
            shared.driver().receive(socket.id, bytes, shared.clock.mono());
        }
    };
    shared.read_to(input, give).await
}

async fn received(socket: &Socket, shared: &Rc<Shared>, read: io::Result<usize>) {
    let now = shared.clock.mono();
    let is_full = matches!(read, Ok(READ_BYTES));
    match read {
        Ok(0) => shared.driver().receive_end(socket.id, now),
        Ok(_) => {}
        Err(error) => shared.driver().fail(socket.id, error.to_string(), now),
    }
    shared.wake().notify_one();
    if is_full {
        // More may be available, but the event loop has its turn first.
        tokio::task::yield_now().await;
    }
}

/// Sends what the socket takes at once and leaves the rest to a task, so that a slow receiver
/// delays nothing else.
pub(crate) fn flush(socket: &Rc<Socket>, driver: &mut Driver, now: Instant, shared: &Rc<Shared>) {
    if !socket.write(driver, now) && driver.block(socket.id) {
        let (socket, to) = (Rc::clone(socket), Rc::clone(shared));
        shared.spawn(async move { write_rest(&socket, &to).await });
    }
}

/// Sends all queued output, however slow the other end is, unless the connection ends.
pub(crate) async fn write_rest(socket: &Socket, shared: &Shared) {
    while !socket.write(&mut shared.driver(), shared.clock.mono()) {
        shared.wake().notify_one();
        if socket.writable().await.is_err() {
            break;
        }
    }
    shared.wake().notify_one();
}

/// Returns when the driver's interest in the socket is to close it at once.
async fn has_to_close(socket: &Socket, shared: &Shared) {
    while shared.driver().interest(socket.id) != Interest::Close {
        socket.changed.notified().await;
    }
}

/// Sends the last output, shuts down the sending side, and waits for the other end to do the
/// same: if a socket is closed with unread input, the kernel discards output that is still in
/// transit.
async fn graceful_close(
    socket: &Socket,
    input: &mut OwnedReadHalf,
    shared: &Shared,
) -> io::Result<()> {
    write_rest(socket, shared).await;
    socket.shutdown(Shutdown::Write)?;
    let mut read = 0;
    while read < DISCARDED_BYTES {
        match shared.read_to(input, |_| {}).await? {
            0 => break,
            bytes => read += bytes,
        }
    }
    Ok(())
}
