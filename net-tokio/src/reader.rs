//! The task of one connection: reads frames and hands them to the hub, from the handshake to the end.
//!
//! Owns the reading half of the socket and the life of the connection. Must not answer requests: the core does.
//!
//! Invariants: requests reach the hub in the order of their bytes; a fault ends this connection and disturbs no other.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use bytes::BytesMut;
use socket2::SockRef;
use tokio::net::TcpStream;
use tokio::net::tcp::OwnedReadHalf;
use tokio::time::timeout;
use zabkeeper_core::io::ClientEvent;
use zabkeeper_core::wire::{ClientFrames, FirstFrame};
use zabkeeper_core::{Input, Malformed};

use crate::conn::Conn;
use crate::listener::Permit;
use crate::report;
use crate::shared::Shared;

/// Time for a handshake or a four-letter word, as ZooKeeper's `sessionlessCnxnTimeout` (WIRE-17).
const GREETING_TIME: Duration = Duration::from_secs(10);

/// Time for the last output to leave and for the client to close its side, once the server has closed its own.
const LINGER: Duration = Duration::from_secs(2);

/// Why a connection has ended.
enum End {
    /// The client closed it.
    ByClient,
    /// The client closed it in the middle of a frame.
    WithinFrame,
    /// The server closed it.
    ByServer,
    /// Neither handshake nor word in time.
    Silent,
    /// What came is no frame.
    Malformed(Malformed),
    /// The network failed.
    Broken(io::Error),
}

struct Reader {
    shared: Rc<Shared>,
    conn: Rc<Conn>,
    socket: OwnedReadHalf,
    frames: ClientFrames,
    /// Bytes read that are not a whole frame yet.
    buffer: BytesMut,
}

/// Serves a connection until it ends.
pub(crate) async fn attend(
    shared: Rc<Shared>,
    stream: TcpStream,
    peer: SocketAddr,
    permit: Permit,
) {
    // Replies are written whole, so waiting to fill packets would only delay them.
    let _best_effort = stream.set_nodelay(true);
    let (socket, output) = stream.into_split();
    let conn = shared.enter(peer, output);
    tracing::debug!(conn = %conn.id, %peer, "connection accepted");
    let frames = ClientFrames::new(shared.settings.max_frame);
    let mut reader = Reader { shared, conn, socket, frames, buffer: BytesMut::new() };
    let end = reader.run().await;
    let Reader { shared, conn, .. } = reader;
    shared.leave(&conn);
    match &end {
        End::Silent | End::Malformed(_) | End::WithinFrame => shared.complain(peer, &end),
        End::ByClient | End::ByServer | End::Broken(_) => {}
    }
    tracing::debug!(conn = %conn.id, %peer, "connection ended: {end}");
    drop(permit);
}

impl Reader {
    async fn run(&mut self) -> End {
        match timeout(GREETING_TIME, self.greeting()).await {
            Err(_) => {
                self.shared.traffic.borrow_mut().sessionless += 1;
                return End::Silent;
            }
            Ok(Err(end)) => return end,
            Ok(Ok(FirstFrame::Word(word))) => {
                let text = report::answer(&self.shared, word).await;
                self.conn.queue_text(&text);
                self.shared.traffic.borrow_mut().sent += 1;
                self.shared.close(&self.conn);
            }
            Ok(Ok(FirstFrame::Connect(request))) => {
                self.shared.traffic.borrow_mut().handshakes += 1;
                // A handshake asks for a write, too; words are answered even now.
                while !self.conn.is_closed() && self.conn.window(&self.shared) == 0 {
                    self.conn.changed().await;
                }
                self.conn.open();
                self.shared.push(Input::Client(self.conn.id, ClientEvent::Opened(request)));
            }
        }
        self.requests().await
    }

    /// Reads until it is known how the connection opens.
    async fn greeting(&mut self) -> Result<FirstFrame, End> {
        loop {
            if let Some(first) = self.frames.first(&mut self.buffer).map_err(End::Malformed)? {
                self.conn.greeted();
                self.shared.traffic.borrow_mut().received += 1;
                return Ok(first);
            }
            self.read().await?;
        }
    }

    async fn requests(&mut self) -> End {
        loop {
            if self.conn.is_closed() {
                return self.hang_up().await;
            }
            if let Some(fault) = self.conn.take_fault() {
                // Nobody is left to answer: what else was asked need not be done.
                return End::Broken(fault);
            }
            let window = self.conn.window(&self.shared);
            if window == 0 {
                self.conn.changed().await;
                continue;
            }
            match self.hand_over(window) {
                Err(malformed) => return End::Malformed(malformed),
                // Perhaps there is more, but first the hub's turn.
                Ok(true) => tokio::task::yield_now().await,
                Ok(false) => {
                    let conn = Rc::clone(&self.conn);
                    tokio::select! {
                        biased;
                        read = self.read() => if let Err(end) = read { return end },
                        () = conn.changed() => {}
                    }
                }
            }
        }
    }

    /// Gives up to `limit` whole frames to the hub. Were there that many?
    fn hand_over(&mut self, limit: u32) -> Result<bool, Malformed> {
        let mut taken = 0;
        while taken < limit
            && let Some(request) = self.frames.next(&mut self.buffer)?
        {
            self.shared.push(Input::Client(self.conn.id, ClientEvent::Request(request)));
            taken += 1;
        }
        if taken > 0 {
            self.conn.asked(self.shared.clock.mono(), taken);
            self.shared.traffic.borrow_mut().received += u64::from(taken);
        }
        Ok(taken == limit)
    }

    /// Adds what has arrived to the buffer, waiting until something has.
    async fn read(&mut self) -> Result<(), End> {
        match self.shared.read(&mut self.socket, &mut self.buffer).await {
            Ok(0) if self.buffer.is_empty() => Err(End::ByClient),
            Ok(0) => Err(End::WithinFrame),
            Ok(bytes) => {
                self.shared.traffic.borrow_mut().bytes_received += bytes as u64;
                Ok(())
            }
            Err(error) => Err(End::Broken(error)),
        }
    }

    /// Lets the last output leave, says that nothing follows, and waits for the client to do the same: a socket
    /// closed with unread input would make the kernel throw away output that is still on its way.
    async fn hang_up(&mut self) -> End {
        let farewell = async {
            self.conn.write_rest().await;
            SockRef::from(self.socket.as_ref()).shutdown(std::net::Shutdown::Write).ok()?;
            loop {
                self.buffer.clear();
                self.read().await.ok()?;
            }
        };
        let _ended: Result<Option<()>, _> = timeout(LINGER, farewell).await;
        End::ByServer
    }
}

impl fmt::Display for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            End::ByClient => write!(f, "closed by the client"),
            End::WithinFrame => write!(f, "the client ended it in the middle of a frame"),
            End::ByServer => write!(f, "closed by the server"),
            End::Silent => {
                write!(f, "no handshake within {} s", GREETING_TIME.as_secs())
            }
            End::Malformed(malformed) => write!(f, "{malformed}"),
            End::Broken(error) => write!(f, "{error}"),
        }
    }
}
