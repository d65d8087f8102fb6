//! A client connection, all of whose frames are recorded.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use sim::check::history::Record;
use sim::check::observe::ClientId;
use zabkeeper_core::wire::{
    ConnectRequest, ConnectResponse, FrameReader, FromServer, Password, Request, RequestFrame,
};
use zabkeeper_core::{ConnId, ServerId, SessionId, Zxid};

use crate::network::client_address;
use crate::tape::Tape;

/// How long a client waits for a silent server, unless it says otherwise.
const PATIENCE: Duration = Duration::from_millis(700);
const CONNECT: Duration = Duration::from_millis(300);

pub(crate) struct Client {
    tape: Arc<Tape>,
    conn: ConnId,
    socket: TcpStream,
    buffer: BytesMut,
    xid: i32,
    /// What a later connect request of the client states.
    pub(crate) state: State,
}

/// What a client knows when it connects.
#[derive(Clone, Debug)]
pub(crate) struct State {
    /// Number of the client.
    pub(crate) client: u32,
    pub(crate) timeout_ms: i32,
    /// How long it waits for a silent server before it goes to another one.
    pub(crate) patience: Duration,
    /// The session to resume and its password; a new one is created if there is none.
    pub(crate) session: Option<(SessionId, Password)>,
    /// The highest zxid in frames that the client has read.
    pub(crate) seen: Zxid,
}

/// What became of an attempt to connect.
pub(crate) enum Opened {
    /// The client has its session.
    Open(Client),
    /// The session that it asked for has ended.
    Refused,
    /// There was no answer.
    Lost,
}

/// Error code and body of an answer.
pub(crate) type Answer = (i32, Bytes);

impl State {
    /// Before the first session.
    pub(crate) fn new(client: u32, timeout_ms: i32) -> State {
        State { client, timeout_ms, patience: PATIENCE, session: None, seen: Zxid::ZERO }
    }
}

impl Client {
    /// Connects to a server with a new session of some seconds; `None` if that fails.
    pub(crate) fn open(tape: &Arc<Tape>, client: u32, server: u64) -> Option<Client> {
        match Client::connect(tape, State::new(client, 6_000), server) {
            Opened::Open(client) => Some(client),
            Opened::Refused | Opened::Lost => None,
        }
    }

    /// Connects to a server and creates or resumes a session.
    pub(crate) fn connect(tape: &Arc<Tape>, state: State, server: u64) -> Opened {
        let Some(mut client) = Client::dial(tape, state, server) else {
            return Opened::Lost;
        };
        let Some(frame) = client.greet() else {
            return Opened::Lost;
        };
        let response = ConnectResponse::decode(frame).expect("a connect response");
        if response.session == SessionId(0) {
            return Opened::Refused;
        }
        client.state.session = Some((response.session, response.password));
        Opened::Open(client)
    }

    fn dial(tape: &Arc<Tape>, state: State, server: u64) -> Option<Client> {
        let socket = TcpStream::connect_timeout(&client_address(server), CONNECT).ok()?;
        socket.set_nodelay(true).ok()?;
        socket.set_read_timeout(Some(state.patience)).ok()?;
        socket.set_write_timeout(Some(state.patience)).ok()?;
        let (tape, conn) = (Arc::clone(tape), tape.next_conn());
        let client = ClientId(state.client);
        tape.record(conn, Record::Opened { client, server: ServerId(server) });
        Some(Client { tape, conn, socket, buffer: BytesMut::new(), xid: 0, state })
    }

    /// Sends the connect request; returns the response.
    fn greet(&mut self) -> Option<Bytes> {
        let (session, password) = self.state.session.unwrap_or((SessionId(0), [0; 16]));
        let request = ConnectRequest {
            last_zxid_seen: self.state.seen,
            timeout_ms: self.state.timeout_ms,
            session,
            password: Bytes::copy_from_slice(&password),
            read_only: Some(false),
        };
        let mut bytes = BytesMut::new();
        request.encode(&mut bytes);
        self.send(&bytes)?;
        self.receive()
    }

    /// Sends a request and waits for its answer; `None` if the connection is lost.
    pub(crate) fn call(&mut self, request: Request) -> Option<Answer> {
        self.call_all(vec![request])?.pop()
    }

    /// Sends the requests at once and waits for all answers.
    pub(crate) fn call_all(&mut self, requests: Vec<Request>) -> Option<Vec<Answer>> {
        let count = requests.len();
        for request in requests {
            self.xid += 1;
            let mut bytes = BytesMut::new();
            RequestFrame { xid: self.xid, request }.encode(&mut bytes);
            self.send(&bytes)?;
        }
        let mut answers = Vec::with_capacity(count);
        while answers.len() < count {
            let frame = self.receive()?;
            let shown = match FromServer::decode(frame).expect("a frame of a server") {
                FromServer::Reply { err, body, zxid, .. } => {
                    answers.push((err, body));
                    Some(Zxid(u64::try_from(zxid).expect("a zxid")))
                }
                FromServer::Event(event) => event.zxid,
            };
            self.state.seen = self.state.seen.max(shown.unwrap_or_default());
        }
        Some(answers)
    }

    fn send(&mut self, frame: &[u8]) -> Option<()> {
        self.tape.record(self.conn, Record::Sent(Bytes::copy_from_slice(&frame[4..])));
        self.socket.write_all(frame).ok()
    }

    fn receive(&mut self) -> Option<Bytes> {
        let frames = FrameReader::new(u32::MAX >> 1);
        let mut chunk = [0; 16 << 10];
        loop {
            if let Some(frame) = frames.next(&mut self.buffer).expect("a frame of a server") {
                self.tape.record(self.conn, Record::Received(frame.clone()));
                return Some(frame);
            }
            let length = self.socket.read(&mut chunk).ok().filter(|length| *length > 0)?;
            self.buffer.extend_from_slice(&chunk[..length]);
        }
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        self.tape.record(self.conn, Record::Closed);
    }
}
