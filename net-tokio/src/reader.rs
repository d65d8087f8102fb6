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
use zabkeeper_core::throttle::Handshake;
use zabkeeper_core::wire::{
    ClientFrames, ConnectRequest, FirstFrame, Id, Request, RequestFrame, Word,
};
use zabkeeper_core::{Input, Instant, Malformed, SessionId};

use crate::config::Large;
use crate::conn::{Conn, Fault};
use crate::listener::Permit;
use crate::report;
use crate::shared::Shared;
use crate::unfinished::Unfinished;

/// Time for the last output to leave and for the client to close its side, once the server has closed its own.
const LINGER: Duration = Duration::from_secs(2);

/// Output that the kernel keeps before it says that it has no room.
#[cfg(target_os = "linux")]
const UNSENT_BYTES: u32 = 128 << 10;

/// Why a connection has ended.
enum End {
    /// The client closed it.
    ByClient,
    /// The client closed it in the middle of a frame.
    WithinFrame,
    /// The server closed it.
    ByServer,
    /// Neither handshake nor word in this time (WIRE-17).
    Silent(Duration),
    /// More clients want to connect than the throttle lets in (THR-05).
    Throttled,
    /// A request that has stood in line longer than its session may be silent (THR-06).
    Stale { waited: Duration, timeout: Duration },
    /// A request that is too large for what is under way (THR-04).
    TooLarge { length: u32, under_way: u64, bound: u64 },
    /// What came is no frame.
    Malformed(Malformed),
    /// A frame has begun, and does not end while its session could live without a word.
    Unfinished(Duration),
    /// No output leaves any more.
    Fault(Fault),
    /// The network failed.
    Broken(io::Error),
}

/// How a connection opens.
enum Greeting {
    /// A four-letter word, with the trace mask if it sets one.
    Word(Word, Option<i64>),
    /// A handshake.
    Connect(ConnectRequest),
}

struct Reader {
    shared: Rc<Shared>,
    conn: Rc<Conn>,
    socket: OwnedReadHalf,
    frames: ClientFrames,
    /// Bytes read that are not a whole frame yet.
    buffer: BytesMut,
    /// Since when so many bytes of it have been waiting for others (THR-06, THR-07).
    in_line: Option<(Instant, usize)>,
    /// What the session may have been granted.
    session_timeout: Duration,
    /// The frame that is being read.
    unfinished: Unfinished,
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
    // That output leaves shows that a client lives: the kernel must not take megabytes first, and say so then.
    #[cfg(target_os = "linux")]
    let _best_effort = SockRef::from(&stream).set_tcp_notsent_lowat(UNSENT_BYTES);
    if shared.settings.limits.keep_alive {
        let _best_effort = SockRef::from(&stream).set_keepalive(true);
    }
    let (socket, output) = stream.into_split();
    let conn = shared.enter(peer, output);
    tracing::debug!(conn = %conn.id, %peer, "connection accepted");
    let frames = ClientFrames::new(shared.settings.limits.max_frame);
    let buffer = BytesMut::new();
    let (in_line, session_timeout) = (None, Duration::ZERO);
    let unfinished = Unfinished::new(session_timeout);
    let mut reader =
        Reader { shared, conn, socket, frames, buffer, in_line, session_timeout, unfinished };
    let end = reader.run().await;
    let Reader { shared, conn, .. } = reader;
    shared.leave(&conn);
    if let Some(kind) = end.fault() {
        tracing::warn!(kind, "closed the connection from {peer}: {end}");
    }
    tracing::debug!(conn = %conn.id, %peer, "connection ended: {end}");
    drop(permit);
}

impl Reader {
    async fn run(&mut self) -> End {
        let time = self.shared.settings.limits.greeting;
        match timeout(time, self.greeting()).await {
            Err(_) => {
                self.shared.traffic.borrow_mut().sessionless += 1;
                return End::Silent(time);
            }
            Ok(Err(end)) => return end,
            Ok(Ok(Greeting::Word(word, mask))) => {
                report::answer(&self.shared, &self.conn, word, mask).await;
                self.shared.traffic.borrow_mut().sent += 1;
                self.shared.close(&self.conn);
            }
            Ok(Ok(Greeting::Connect(request))) => {
                // A handshake asks for a write, too; words are answered even now.
                while !self.conn.is_closed() && self.conn.window(&self.shared) == 0 {
                    self.conn.changed().await;
                }
                let new = request.session == SessionId(0);
                let local = self.shared.settings.core.sessions.local;
                let handshake = match (new, local) {
                    (true, false) => Handshake::Global,
                    (true, true) => Handshake::Local,
                    (false, _) => Handshake::Renew,
                };
                if !self.shared.admits(handshake) {
                    self.shared.traffic.borrow_mut().rejected += 1;
                    return End::Throttled;
                }
                self.shared.traffic.borrow_mut().handshakes += 1;
                let granted_ms = self.shared.settings.core.negotiate(request.timeout_ms);
                self.session_timeout = Duration::from_millis(granted_ms.into());
                self.unfinished = Unfinished::new(self.session_timeout);
                self.conn.open(new, self.shared.clock.mono());
                // ACL-10: a socket for both families names IPv4 clients in IPv6 notation.
                let address = self.conn.peer.ip().to_canonical();
                let ids = vec![Id { scheme: "ip".into(), id: address.to_string() }];
                self.shared.push(Input::Client(self.conn.id, ClientEvent::Opened(request, ids)));
            }
        }
        self.requests().await
    }

    /// Reads until it is known how the connection opens.
    async fn greeting(&mut self) -> Result<Greeting, End> {
        loop {
            let first = self.frames.first(&mut self.buffer).map_err(End::Malformed)?;
            if let Some(first) = first {
                self.conn.greeted(matches!(first, FirstFrame::Word(_)));
                self.shared.traffic.borrow_mut().received += 1;
                return match first {
                    FirstFrame::Connect(request) => Ok(Greeting::Connect(request)),
                    FirstFrame::Word(word) => Ok(Greeting::Word(word, self.mask(word).await?)),
                };
            }
            self.check_length()?;
            self.read().await?;
        }
    }

    /// What follows the word that sets the trace mask (FLW-08); where the word is refused anyway, nothing is awaited.
    async fn mask(&mut self, word: Word) -> Result<Option<i64>, End> {
        if word != Word::Stmk || !self.shared.settings.words.allows(word) {
            return Ok(None);
        }
        loop {
            if let Some(bytes) = self.buffer.first_chunk::<8>() {
                return Ok(Some(i64::from_be_bytes(*bytes)));
            }
            self.read().await?;
        }
    }

    async fn requests(&mut self) -> End {
        loop {
            if self.conn.is_closed() {
                self.shared.let_in();
                return self.hang_up().await;
            }
            if let Some(fault) = self.conn.take_fault() {
                // Nobody is left to answer: what else was asked need not be done.
                return End::Fault(fault);
            }
            let window = self.conn.window(&self.shared);
            if window > 0 {
                match self.hand_over(window) {
                    Err(end) => return self.refuse(end).await,
                    Ok(true) => {
                        // Perhaps there is more, but first the hub's turn.
                        tokio::task::yield_now().await;
                        continue;
                    }
                    Ok(false) => {}
                }
            }
            // It may have been let in for nothing: then somebody else is.
            self.shared.let_in();
            let waited = if window > 0 { self.read_or_change().await } else { self.wait().await };
            if let Err(end) = waited {
                return end;
            }
        }
    }

    /// All whole frames have been taken. What is left must not hold its memory for longer than a session holds its own.
    async fn read_or_change(&mut self) -> Result<(), End> {
        if self.buffer.is_empty() {
            self.unfinished.ended();
        } else {
            self.unfinished.note(self.buffer.len(), tokio::time::Instant::now());
        }
        let (conn, unfinished) = (Rc::clone(&self.conn), self.unfinished);
        tokio::select! {
            biased;
            read = self.read() => read,
            () = conn.changed() => Ok(()),
            () = unfinished.late() => Err(End::Unfinished(self.session_timeout)),
        }
    }

    /// Nothing may be asked now. What has come is left in the socket, unless how long it waits matters.
    async fn wait(&mut self) -> Result<(), End> {
        // While nothing is read, no frame can end.
        self.unfinished.ended();
        let timed = self.conn.is_crowded_out() && self.shared.is_line_timed();
        if timed && !self.buffer.is_empty() && self.in_line.is_none() {
            self.in_line = Some((self.shared.clock.mono(), self.buffer.len()));
        }
        let conn = Rc::clone(&self.conn);
        if timed && self.buffer.is_empty() {
            tokio::select! {
                biased;
                () = conn.changed() => {}
                read = self.read() => return read,
            }
        } else {
            conn.changed().await;
        }
        Ok(())
    }

    /// The request that the next bytes of the buffer were, `length` of them; refused where it has waited too long.
    fn after_the_line(&mut self, frame: RequestFrame, length: usize) -> Result<RequestFrame, End> {
        let Some((since, bytes)) = self.in_line else {
            return Ok(frame);
        };
        let limits = &self.shared.settings.limits;
        self.in_line = bytes.checked_sub(length).filter(|left| *left > 0).map(|left| (since, left));
        // These are answered outside of the line in ZooKeeper, or must not be lost.
        if matches!(
            frame.request,
            Request::CloseSession
                | Request::Auth { .. }
                | Request::Sasl { .. }
                | Request::Unknown { .. }
        ) {
            return Ok(frame);
        }
        let waited = self.shared.clock.mono().since(since);
        let timeout = self.session_timeout;
        if limits.drop_stale && waited > timeout {
            return Err(End::Stale { waited, timeout });
        }
        match limits.patience {
            Some(patience) if waited > patience && frame.request != Request::Ping => {
                self.shared.note_refusal(waited, patience);
                let request = Request::Throttled { op: frame.request.op() };
                Ok(RequestFrame { xid: frame.xid, request })
            }
            _ => Ok(frame),
        }
    }

    /// Gives up to `limit` whole frames to the hub. Were there that many?
    fn hand_over(&mut self, limit: u32) -> Result<bool, End> {
        let (mut taken, mut small, mut last) = (0, 0, 0);
        let mut now = None;
        while taken < limit {
            let large = self.check_length()?;
            let before = self.buffer.len();
            let Some(request) = self.frames.next(&mut self.buffer).map_err(End::Malformed)? else {
                break;
            };
            let request = self.after_the_line(request, before - self.buffer.len())?;
            taken += 1;
            let op = request.request.op();
            self.shared.push(Input::Client(self.conn.id, ClientEvent::Request(request)));
            match large {
                None => (small, last) = (small + 1, op),
                Some(bytes) => {
                    let now = *now.get_or_insert_with(|| self.shared.clock.mono());
                    let load = &mut self.shared.traffic.borrow_mut().load;
                    if small > 0 {
                        self.conn.asked(now, std::mem::take(&mut small), last, load);
                    }
                    self.conn.asked_large(now, bytes, op, load);
                }
            }
        }
        if taken > 0 {
            self.unfinished.ended();
            let now = now.unwrap_or_else(|| self.shared.clock.mono());
            let mut traffic = self.shared.traffic.borrow_mut();
            if small > 0 {
                self.conn.asked(now, small, last, &mut traffic.load);
            }
            traffic.received += u64::from(taken);
        }
        Ok(taken == limit)
    }

    /// Judges the next frame by its length, before all of it has come: if it is large, how many bytes it has (THR-04).
    fn check_length(&self) -> Result<Option<u32>, End> {
        let Some(Large { above, bytes: bound }) = self.shared.settings.limits.large else {
            return Ok(None);
        };
        let length = self.buffer.first_chunk().map(|head| i32::from_be_bytes(*head));
        // Others than these are refused elsewhere.
        let length = length.and_then(|length| u32::try_from(length).ok());
        let Some(length) = length
            .filter(|length| *length > above && *length <= self.shared.settings.limits.max_frame)
        else {
            return Ok(None);
        };
        let mut traffic = self.shared.traffic.borrow_mut();
        let under_way = traffic.load.large_bytes;
        if under_way + u64::from(length) > bound {
            traffic.large_rejected += 1;
            return Err(End::TooLarge { length, under_way, bound });
        }
        Ok(Some(length))
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

    /// What came is at fault. If it came right behind the handshake, that is answered first, as ZooKeeper does, which reads
    /// nothing else before.
    async fn refuse(&mut self, end: End) -> End {
        if self.conn.is_new() {
            while self.conn.is_new() {
                self.conn.changed().await;
            }
            self.shared.close(&self.conn);
            self.hang_up().await;
        }
        end
    }

    /// Lets the last output leave, says that nothing follows, and waits for the client to do the same: a socket
    /// closed with unread input would make the kernel throw away output that is still on its way.
    async fn hang_up(&mut self) -> End {
        let farewell = async {
            self.conn.write_rest(&self.shared).await;
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

impl End {
    /// In a word, where the client is at fault and the operator should know.
    fn fault(&self) -> Option<&'static str> {
        match self {
            End::Silent(_) => Some("silent"),
            End::Throttled => Some("throttled"),
            End::Stale { .. } => Some("stale"),
            End::TooLarge { .. } => Some("too large"),
            End::Malformed(_) => Some("malformed"),
            End::WithinFrame => Some("cut"),
            End::Unfinished(_) => Some("unfinished"),
            End::Fault(Fault::Events { .. } | Fault::Answers { .. }) => Some("unread"),
            End::ByClient | End::ByServer | End::Fault(Fault::Broken(_)) | End::Broken(_) => None,
        }
    }
}

impl fmt::Display for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            End::ByClient => write!(f, "closed by the client"),
            End::WithinFrame => write!(f, "the client ended it in the middle of a frame"),
            End::ByServer => write!(f, "closed by the server"),
            End::Silent(time) => {
                let ms = time.as_millis();
                write!(f, "no handshake within {ms} ms (nio.sessionlessCnxnTimeout)")
            }
            End::Throttled => write!(
                f,
                "more clients connect at once than connection_throttle_tokens, _fill_time and _fill_count \
                 let in; raise them, or set tokens to 0"
            ),
            End::Stale { waited, timeout } => write!(
                f,
                "a request had waited {} ms for its turn, longer than its session's timeout of {} ms \
                 (request_stale_latency_check); raise request_throttle_max_requests",
                waited.as_millis(),
                timeout.as_millis()
            ),
            End::TooLarge { length, under_way, bound } => write!(
                f,
                "a request of {length} bytes is large (largeRequestThreshold), and {under_way} bytes of \
                 large ones are under way already; raise largeRequestMaxBytes={bound}"
            ),
            End::Malformed(malformed @ Malformed::FrameLength { length, limit }) => {
                if let Some(protocol) = protocol_of(*length) {
                    return write!(f, "it speaks {protocol}, and this port ZooKeeper's protocol");
                }
                write!(f, "{malformed}")?;
                if u32::try_from(*length).is_ok_and(|length| length > *limit) {
                    write!(f, "; if it is no mistake, raise it here and at the clients")?;
                }
                Ok(())
            }
            End::Malformed(malformed) => write!(f, "{malformed}"),
            End::Unfinished(limit) => {
                let ms = limit.as_millis();
                write!(f, "a frame has not ended within {ms} ms, the timeout of its session")
            }
            End::Fault(Fault::Events { bytes }) => write!(
                f,
                "{bytes} bytes of events wait for its client, which does not take them; when it comes back, it \
                 hears of what has changed"
            ),
            End::Fault(Fault::Answers { bytes }) => write!(
                f,
                "{bytes} bytes of answers wait for its client, which does not take them; let it ask for less at once"
            ),
            End::Broken(error) | End::Fault(Fault::Broken(error)) => write!(f, "{error}"),
        }
    }
}

/// What a length that cannot be right is the beginning of, if people and probes often send it to this port.
fn protocol_of(length: i32) -> Option<&'static str> {
    match &length.to_be_bytes() {
        b"GET " | b"HEAD" | b"POST" | b"PUT " | b"DELE" | b"OPTI" | b"CONN" | b"TRAC" | b"PATC"
        | b"PRI " => Some("HTTP"),
        // A record of a handshake, with the first two bytes of its version.
        [0x16, 3, ..] => Some("TLS, which comes with a later version"),
        b"SSH-" => Some("SSH"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(first: [u8; 4], expected: &str) {
        let length = i32::from_be_bytes(first);
        let end = End::Malformed(Malformed::FrameLength { length, limit: 1_048_575 });
        assert_eq!(end.to_string(), expected);
    }

    #[test]
    fn a_frame_that_is_another_protocol_is_called_by_its_name() {
        check(*b"GET ", "it speaks HTTP, and this port ZooKeeper's protocol");
        check(*b"SSH-", "it speaks SSH, and this port ZooKeeper's protocol");
        let tls =
            "it speaks TLS, which comes with a later version, and this port ZooKeeper's protocol";
        check([0x16, 3, 1, 2], tls);
        check(
            *b"get ",
            "frame length 1734702112 is not within 0..=1048575 (jute.maxbuffer); if it is no mistake, raise \
             it here and at the clients",
        );
        check([0xff; 4], "frame length -1 is not within 0..=1048575 (jute.maxbuffer)");
    }
}
