//! One of the two servers, with a connection for each client, called a seat.

use std::collections::VecDeque;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use crate::answer::{Line, Names, password_of};
use crate::jute::Reader;
use crate::request::{PREFIX, Request};

/// Number of clients.
pub(crate) const SEATS: usize = 5;

/// Time after which a missing reply is taken to be none; a following ping confirms it.
const SOON: Duration = Duration::from_secs(2);
/// Time within which a server must answer a handshake or a ping.
const PATIENCE: Duration = Duration::from_secs(30);

/// The parameters of a handshake.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Handshake {
    pub(crate) session: Which,
    pub(crate) password: Password,
    pub(crate) timeout_ms: i32,
    /// `lastZxidSeen`, as its distance behind the newest zxid; `None` for 0.
    pub(crate) seen_behind: Option<i64>,
    /// `None` omits the byte.
    pub(crate) read_only: Option<bool>,
    /// A defect of the record.
    pub(crate) odd: Oddity,
}

/// A defect of a handshake.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Oddity {
    None,
    /// Another protocol version.
    Version(i32),
    /// Additional bytes at the end.
    Tail(&'static [u8]),
    /// Truncated to this number of bytes.
    Cut(usize),
    /// A request follows in the same write, before the response.
    Eager,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Which {
    New,
    /// The session of the seat; a new one if it has none.
    Own,
    /// The session of another seat, which gets this seat's session in exchange.
    Of(usize),
    Unknown,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Password {
    Right,
    Wrong,
    Short,
    Long,
    Null,
    Empty,
}

impl Handshake {
    pub(crate) fn plain(session: Which) -> Handshake {
        Handshake {
            session,
            password: Password::Right,
            timeout_ms: 60_000,
            seen_behind: None,
            read_only: Some(false),
            odd: Oddity::None,
        }
    }
}

struct Conn {
    socket: TcpStream,
    buffer: Vec<u8>,
    /// xid and opcode of outstanding requests.
    asked: VecDeque<(i32, i32)>,
}

enum Got {
    Frame(Vec<u8>),
    Closed,
    Silence,
}

impl Conn {
    fn open(address: SocketAddr) -> Conn {
        let socket = TcpStream::connect(address)
            .unwrap_or_else(|error| panic!("{address} does not let us connect: {error}"));
        socket.set_nodelay(true).expect("is a socket");
        Conn { socket, buffer: Vec::new(), asked: VecDeque::new() }
    }

    /// Ignores errors: the next read detects a closed connection.
    fn write(&mut self, bytes: &[u8]) {
        self.socket.set_write_timeout(Some(PATIENCE)).expect("is a duration");
        let _ = self.socket.write_all(bytes);
    }

    fn next(&mut self, patience: Duration) -> Got {
        let deadline = Instant::now() + patience;
        loop {
            if let Some((length, rest)) = self.buffer.split_first_chunk() {
                let length = usize::try_from(i32::from_be_bytes(*length)).unwrap_or(0);
                if rest.len() >= length {
                    let frame = rest[..length].to_vec();
                    self.buffer.drain(..4 + length);
                    return Got::Frame(frame);
                }
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Got::Silence;
            }
            self.socket.set_read_timeout(Some(left)).expect("is not zero");
            let mut chunk = [0; 16 << 10];
            match self.socket.read(&mut chunk) {
                Ok(0) => return Got::Closed,
                Ok(bytes) => self.buffer.extend_from_slice(&chunk[..bytes]),
                Err(error)
                    if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {}
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => return Got::Closed,
            }
        }
    }
}

#[derive(Default)]
pub(crate) struct Seat {
    conn: Option<Conn>,
    /// Id and password.
    session: Option<(i64, Vec<u8>)>,
}

pub(crate) struct Side {
    pub(crate) name: &'static str,
    address: SocketAddr,
    pub(crate) names: Names,
    seats: Vec<Seat>,
}

impl Side {
    pub(crate) fn new(name: &'static str, address: SocketAddr) -> Side {
        Side { name, address, names: Names::default(), seats: Self::empty_seats() }
    }

    fn empty_seats() -> Vec<Seat> {
        (0..SEATS).map(|_| Seat::default()).collect()
    }

    pub(crate) fn is_connected(&self, seat: usize) -> bool {
        self.seats[seat].conn.is_some()
    }

    pub(crate) fn has_session(&self, seat: usize) -> bool {
        self.seats[seat].session.is_some()
    }

    pub(crate) fn hang_up(&mut self, seat: usize) {
        self.seats[seat].conn = None;
    }

    /// Connects, sends a handshake and reads the response.
    pub(crate) fn open(&mut self, seat: usize, how: &Handshake) -> Vec<String> {
        self.hang_up(seat);
        let (id, password) = match how.session {
            Which::New => (0, vec![0; 16]),
            Which::Own => self.seats[seat].session.clone().unwrap_or((0, vec![0; 16])),
            Which::Of(other) => self.seats[other].session.clone().unwrap_or((0, vec![0; 16])),
            Which::Unknown => (0x0123_4567, password_of(0x0123_4567)),
        };
        let password = match how.password {
            Password::Right => Some(password),
            Password::Wrong => Some(b"0123456789abcdef".to_vec()),
            Password::Short => Some(password[..password.len() - 1].to_vec()),
            Password::Long => Some([&password[..], &[0]].concat()),
            Password::Null => None,
            Password::Empty => Some(Vec::new()),
        };
        let seen = how.seen_behind.map_or(0, |behind| self.names.behind(behind));
        let version = if let Oddity::Version(version) = how.odd { version } else { 0 };
        let mut record = Request::new(0).int(version).long(seen).int(how.timeout_ms).long(id);
        record = record.buffer(password.as_deref());
        if let Some(flag) = how.read_only {
            record = record.flag(flag);
        }
        match how.odd {
            Oddity::Tail(tail) => record.body.extend(tail),
            Oddity::Cut(length) => record.body.truncate(length),
            Oddity::None | Oddity::Version(_) | Oddity::Eager => {}
        }
        let length = i32::try_from(record.body.len()).expect("is short");
        let mut conn = Conn::open(self.address);
        let mut bytes = [&length.to_be_bytes()[..], &record.body].concat();
        if how.odd == Oddity::Eager {
            let eager = Request::new(3).string(PREFIX).flag(false);
            bytes.extend(eager.frame(&self.names));
            conn.asked.push_back((eager.xid, eager.op));
        }
        conn.write(&bytes);
        let frame = match conn.next(PATIENCE) {
            Got::Frame(frame) => frame,
            Got::Closed => return vec!["no handshake, closed".to_owned()],
            Got::Silence => return vec!["no handshake, silence".to_owned()],
        };
        let (id, password, line) = self.names.handshake(&frame);
        if id == 0 {
            let end = match conn.next(PATIENCE) {
                Got::Frame(frame) => format!("another frame {frame:?}"),
                Got::Closed => "closed".to_owned(),
                Got::Silence => "left open".to_owned(),
            };
            return vec![line, end];
        }
        match how.session {
            Which::Of(other) => self.seats[other].session = self.seats[seat].session.take(),
            Which::New | Which::Own | Which::Unknown => {}
        }
        self.seats[seat] = Seat { conn: Some(conn), session: Some((id, password)) };
        vec![line]
    }

    pub(crate) fn forget_session(&mut self, seat: usize) {
        self.seats[seat] = Seat::default();
    }

    pub(crate) fn send(&mut self, seat: usize, requests: &[Request]) {
        let frames: Vec<u8> =
            requests.iter().flat_map(|request| request.frame(&self.names)).collect();
        let Some(conn) = &mut self.seats[seat].conn else { return };
        // The reply to a ping has xid -2, whatever xid the ping had.
        let xid = |request: &Request| if request.op == 11 { -2 } else { request.xid };
        conn.asked.extend(requests.iter().map(|request| (xid(request), request.op)));
        conn.write(&frames);
    }

    /// Sends bytes that are no frame.
    pub(crate) fn send_bytes(&mut self, seat: usize, bytes: &[u8]) {
        if let Some(conn) = &mut self.seats[seat].conn {
            conn.write(bytes);
        }
    }

    /// Reads until everything is answered, or until nothing arrives for [`SOON`].
    pub(crate) fn answers(&mut self, seat: usize, lines: &mut Vec<Line>) {
        while self.seats[seat].conn.as_ref().is_some_and(|conn| !conn.asked.is_empty()) {
            let before = lines.len();
            self.read_one(seat, SOON, lines);
            if lines.len() == before {
                return;
            }
        }
        // Waits for the close, so that the following ping does not race with it.
        if lines.last().is_some_and(|line| line.ends_connection) {
            self.read_one(seat, SOON, lines);
        }
    }

    pub(crate) fn ping(&mut self, seat: usize) {
        if let Some(conn) = &mut self.seats[seat].conn {
            conn.asked.push_back((-2, 11));
            conn.write(&Request::new(11).xid(-2).frame(&self.names));
        }
    }

    /// Reads until the ping is answered: then all messages due before it have arrived.
    pub(crate) fn drain(&mut self, seat: usize, lines: &mut Vec<Line>) {
        let last = |conn: &Conn| conn.asked.iter().filter(|asked| **asked == (-2, 11)).count();
        loop {
            let Some(conn) = &self.seats[seat].conn else { return };
            if last(conn) == 0 {
                break;
            }
            let before = lines.len();
            self.read_one(seat, PATIENCE, lines);
            if lines.len() == before {
                lines.push(Line::other("SILENCE, even after a ping".to_owned()));
                self.hang_up(seat);
            }
        }
        if let Some(conn) = &mut self.seats[seat].conn {
            let missing = conn.asked.drain(..);
            lines.extend(
                missing.map(|(xid, op)| Line::other(format!("NO ANSWER xid {xid} op {op}"))),
            );
        }
    }

    /// Reads one message and appends its line; appends nothing on a timeout.
    fn read_one(&mut self, seat: usize, patience: Duration, lines: &mut Vec<Line>) {
        let Some(conn) = &mut self.seats[seat].conn else { return };
        match conn.next(patience) {
            Got::Frame(frame) => {
                let asked = &mut conn.asked;
                let line = self.names.frame(&frame, |xid| {
                    let at = asked.iter().position(|asked| asked.0 == xid)?;
                    Some(asked.remove(at)?.1)
                });
                lines.push(line);
            }
            Got::Closed => {
                lines.push(Line::other("closed".to_owned()));
                self.hang_up(seat);
            }
            Got::Silence => {}
        }
    }

    /// The compared counters of the four-letter commands.
    pub(crate) fn words(&self, sizes: bool) -> Vec<String> {
        const KEPT: [&str; 4] =
            ["zk_znode_count", "zk_watch_count", "zk_ephemerals_count", "zk_approximate_data_size"];
        let kept = &KEPT[..if sizes { 4 } else { 3 }];
        let mut lines = Vec::new();
        for word in ["mntr", "wchs"] {
            let mut conn = Conn::open(self.address);
            conn.write(word.as_bytes());
            let mut text = String::new();
            let read = conn.socket.read_to_string(&mut text);
            lines.extend(read.err().map(|error| format!("{word}: {error}")));
            let is_kept =
                |line: &&str| word != "mntr" || kept.iter().any(|key| line.starts_with(key));
            let kept = text.lines().filter(is_kept);
            lines.extend(kept.map(|line| format!("{word} {line}")));
        }
        lines
    }

    /// Closes the sessions of all seats, and ignores the replies.
    pub(crate) fn end_sessions(&mut self) {
        for seat in 0..SEATS {
            if self.has_session(seat) && !self.is_connected(seat) {
                self.open(seat, &Handshake::plain(Which::Own));
            }
            if self.is_connected(seat) {
                self.send(seat, &[Request::new(-11)]);
                self.answers(seat, &mut Vec::new());
            }
        }
        self.seats = Self::empty_seats();
    }
}

/// A client for setup and cleanup of episodes, whose replies are not compared.
pub(crate) struct Admin {
    conn: Conn,
    pub(crate) zxid: i64,
}

impl Admin {
    pub(crate) fn new(address: SocketAddr) -> Admin {
        let mut side = Side::new("admin", address);
        let lines =
            side.open(0, &Handshake { timeout_ms: 3_600_000, ..Handshake::plain(Which::New) });
        let conn = side.seats.swap_remove(0).conn;
        let conn = conn.unwrap_or_else(|| panic!("{address} refuses a session: {lines:?}"));
        Admin { conn, zxid: 0 }
    }

    /// Error code and body of the reply; `None` if the server closes the connection.
    pub(crate) fn call(&mut self, request: &Request) -> Option<(i32, Vec<u8>)> {
        self.conn.write(&request.frame(&Names::new(PREFIX, self.zxid)));
        loop {
            let Got::Frame(frame) = self.conn.next(PATIENCE) else { return None };
            let mut from = Reader(&frame);
            let (xid, zxid, err) = (from.int()?, from.long()?, from.int()?);
            if xid == request.xid {
                self.zxid = self.zxid.max(zxid);
                return Some((err, from.0.to_vec()));
            }
        }
    }

    /// Deletes the node and its descendants, as far as permitted.
    pub(crate) fn delete(&mut self, path: &[u8]) {
        let Some((0, body)) = self.call(&Request::new(8).buffer(Some(path)).flag(false)) else {
            return;
        };
        let names = Reader(&body).vector(|from| from.buffer()?.map(<[u8]>::to_vec)).flatten();
        for name in names.unwrap_or_default() {
            self.delete(&[path, b"/", &name].concat());
        }
        self.call(&Request::new(2).buffer(Some(path)).int(-1));
    }
}
