//! A client connection on which the test controls every byte.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use socket2::{Domain, Socket, Type};
use zabkeeper_core::wire::{
    Acl, ConnectRequest, ConnectResponse, FromServer, Request, RequestFrame, ServerFrames, XID_PING,
};
use zabkeeper_core::{SessionId, Zxid};

use crate::harness::PATIENCE;

pub(crate) struct Raw {
    pub(crate) socket: TcpStream,
    frames: ServerFrames,
    buffer: BytesMut,
    next_xid: i32,
    /// Does a read timeout count as the end of the connection?
    gives_up: bool,
}

impl Raw {
    /// Connects without a handshake.
    pub(crate) fn connect(port: u16) -> Raw {
        Raw::try_connect(port).expect("connects")
    }

    /// As [`Raw::connect`]; `None` if the port is not listening.
    pub(crate) fn try_connect(port: u16) -> Option<Raw> {
        TcpStream::connect(("127.0.0.1", port)).ok().map(Raw::on)
    }

    /// As [`Raw::connect`], with a receive buffer of some kilobytes.
    pub(crate) fn connect_narrow(port: u16) -> Raw {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None).expect("a socket");
        // Before the connect, because an advertised TCP window cannot shrink.
        socket.set_recv_buffer_size(4096).expect("is a socket");
        socket.connect(&SocketAddr::from(([127, 0, 0, 1], port)).into()).expect("connects");
        Raw::on(socket.into())
    }

    fn on(socket: TcpStream) -> Raw {
        socket.set_read_timeout(Some(PATIENCE)).expect("is a duration");
        socket.set_nodelay(true).expect("is a socket");
        let frames = ServerFrames::new(u32::MAX >> 1);
        Raw { socket, frames, buffer: BytesMut::new(), next_xid: 1, gives_up: false }
    }

    /// Connects and creates a session.
    pub(crate) fn open(port: u16, timeout_ms: i32) -> (Raw, ConnectResponse) {
        let mut raw = Raw::connect(port);
        let response = raw.shake_hands(timeout_ms).expect("lets in");
        (raw, response)
    }

    /// Connects and tries to resume a session.
    pub(crate) fn resume(port: u16, known: &ConnectResponse) -> (Raw, ConnectResponse) {
        let mut raw = Raw::connect(port);
        let password = Bytes::copy_from_slice(&known.password);
        let response = raw.greet(known.timeout_ms, known.session, password);
        (raw, response.expect("answers"))
    }

    /// Sends the handshake for a new session; `None` if the connection ends before the response.
    pub(crate) fn shake_hands(&mut self, timeout_ms: i32) -> Option<ConnectResponse> {
        self.greet(timeout_ms, SessionId(0), Bytes::from_static(&[0; 16]))
    }

    /// Connects, and sends the handshake for a new session and `more` in one piece.
    pub(crate) fn open_and(port: u16, more: &[u8]) -> (Raw, Option<ConnectResponse>) {
        let mut raw = Raw::connect(port);
        let password = Bytes::from_static(&[0; 16]);
        let response = raw.greet_and(10_000, SessionId(0), password, more);
        (raw, response)
    }

    fn greet(
        &mut self,
        timeout_ms: i32,
        session: SessionId,
        password: Bytes,
    ) -> Option<ConnectResponse> {
        self.greet_and(timeout_ms, session, password, &[])
    }

    fn greet_and(
        &mut self,
        timeout_ms: i32,
        session: SessionId,
        password: Bytes,
        more: &[u8],
    ) -> Option<ConnectResponse> {
        let last_zxid_seen = Zxid::ZERO;
        let read_only = Some(false);
        let request = ConnectRequest { last_zxid_seen, timeout_ms, session, password, read_only };
        let mut bytes = BytesMut::new();
        request.encode(&mut bytes);
        bytes.extend_from_slice(more);
        self.socket.write_all(&bytes).ok()?;
        loop {
            if let Some(response) = self.frames.first(&mut self.buffer).expect("is a handshake") {
                return Some(response);
            }
            if !self.read() {
                return None;
            }
        }
    }

    /// From now on a server that sends nothing for `time` counts as lost.
    pub(crate) fn give_up_after(&mut self, time: Duration) {
        self.gives_up = true;
        self.socket.set_read_timeout(Some(time)).expect("is a duration");
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.socket.local_addr().expect("is bound")
    }

    /// Appends a request to `bytes`; returns its xid.
    pub(crate) fn encode(&mut self, request: Request, bytes: &mut BytesMut) -> i32 {
        let xid = self.next_xid;
        self.next_xid += 1;
        RequestFrame { xid, request }.encode(bytes);
        xid
    }

    pub(crate) fn send(&mut self, request: Request) -> i32 {
        self.try_send(request).expect("writes")
    }

    /// Sends a request; `None` if the connection has ended.
    pub(crate) fn try_send(&mut self, request: Request) -> Option<i32> {
        let mut bytes = BytesMut::new();
        let xid = self.encode(request, &mut bytes);
        self.socket.write_all(&bytes).ok()?;
        Some(xid)
    }

    /// The next reply: xid, error code and body. `None` if the connection has ended.
    pub(crate) fn reply(&mut self) -> Option<(i32, i32, Bytes)> {
        loop {
            match self.frames.next(&mut self.buffer).expect("is a frame") {
                Some(FromServer::Reply { xid, err, body, .. }) => return Some((xid, err, body)),
                Some(FromServer::Event(_)) => {}
                None if self.read() => {}
                None => return None,
            }
        }
    }

    /// Sends a request and waits for its reply: error code and body.
    pub(crate) fn call(&mut self, request: Request) -> (i32, Bytes) {
        let xid = self.send(request);
        let (got, err, body) = self.reply().expect("is answered");
        assert_eq!(got, xid);
        (err, body)
    }

    /// Sends a ping and waits for its reply.
    pub(crate) fn ping(&mut self) {
        let mut bytes = BytesMut::new();
        RequestFrame { xid: XID_PING, request: Request::Ping }.encode(&mut bytes);
        self.socket.write_all(&bytes).expect("writes");
        assert_eq!(self.reply().map(|(xid, err, _)| (xid, err)), Some((XID_PING, 0)));
    }

    /// Does the server close the connection without sending another byte?
    pub(crate) fn is_closed(&mut self) -> bool {
        !self.read()
    }

    fn read(&mut self) -> bool {
        let mut chunk = [0; 64 << 10];
        match self.socket.read(&mut chunk) {
            Ok(0) => false,
            Ok(bytes) => {
                self.buffer.extend_from_slice(&chunk[..bytes]);
                true
            }
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {
                assert!(self.gives_up, "nothing came for {PATIENCE:?}");
                false
            }
            // A reset: the server closed the connection without reading all bytes.
            Err(_) => false,
        }
    }
}

pub(crate) fn create(path: &str, data: &[u8], flags: i32) -> Request {
    let data = Some(Bytes::copy_from_slice(data));
    Request::Create { path: path.to_owned(), data, acl: Acl::open(), flags, with_stat: false }
}

pub(crate) fn set(path: &str, data: &[u8]) -> Request {
    let data = Some(Bytes::copy_from_slice(data));
    Request::SetData { path: path.to_owned(), data, version: -1 }
}

pub(crate) fn get(path: &str) -> Request {
    Request::GetData { path: path.to_owned(), watch: false }
}

pub(crate) fn exists(path: &str) -> Request {
    Request::Exists { path: path.to_owned(), watch: false }
}

pub(crate) fn sync() -> Request {
    Request::Sync { path: "/".to_owned() }
}
