//! A scripted server: runs the steps of a test and returns the trace of the session's effects.

use std::collections::BTreeMap;
use std::fmt::Write;

use bytes::BytesMut;
use zabkeeper_client::{CallId, Config, Effect, Input, LinkId, Outbox, Session};
use zabkeeper_core::wire::{
    ClientFrames, ConnectResponse, EventType, FirstFrame, MAX_FRAME_DEFAULT, Reply, ReplyBody,
    Request, WatchEvent,
};
use zabkeeper_core::{ErrorCode, Instant, SessionId, Zxid};

/// The session id that the scripted server grants.
pub(crate) const SESSION: SessionId = SessionId(0x51);

/// A step of a script; it concerns the link dialled last unless it names one.
pub(crate) enum Do {
    /// Time passes, ms; timeouts fire exactly at their deadlines.
    Wait(u64),
    Dialled,
    DialFailed,
    /// The server accepts the session, with this timeout, ms.
    Accept(i32),
    /// The same, and the server is read-only.
    AcceptReadOnly(i32),
    /// The server knows no such session.
    Refuse,
    Submit(u64, Request),
    /// A reply with this xid and zxid.
    Reply(i32, i64, Result<ReplyBody, ErrorCode>),
    Event(EventType, &'static str),
    /// These bytes.
    Raw(Vec<u8>),
    /// These bytes on a link dialled earlier.
    RawOn(u64, Vec<u8>),
    /// The connection breaks.
    Drop,
    Close,
}

pub(crate) fn config(servers: &str, timeout_ms: i32) -> Config {
    let mut config = Config::new(servers.parse().expect("valid"), timeout_ms);
    // Exact times keep the traces readable; one test covers the delay.
    config.reconnect_delay_max = std::time::Duration::ZERO;
    config
}

/// Runs a session through `steps`; returns its inputs and effects, one a line, with times in ms.
pub(crate) fn check(config: Config, steps: Vec<Do>) -> String {
    let mut script = Script {
        session: Session::new(config, 1),
        now: Instant(0),
        link: LinkId(0),
        servers: BTreeMap::new(),
        trace: String::new(),
    };
    for step in steps {
        script.run(step);
    }
    let session = &script.session;
    let (state, id, zxid) = (session.state(), session.id(), session.last_zxid());
    writeln!(script.trace, "end: {state:?} session={id} seen={zxid}").expect("a string");
    if let Some(loss) = script.session.last_loss() {
        writeln!(script.trace, "last loss: {loss}").expect("a string");
    }
    script.trace
}

struct Script {
    session: Session,
    now: Instant,
    /// The link dialled last.
    link: LinkId,
    /// The decoder of the server's end of each link.
    servers: BTreeMap<LinkId, ClientFrames>,
    trace: String,
}

impl Script {
    fn run(&mut self, step: Do) {
        let link = self.link;
        match step {
            Do::Wait(ms) => self.wait(self.now.0 + ms * 1_000_000),
            Do::Dialled => self.step(Input::Dialled { link }),
            Do::DialFailed => self.step(Input::DialFailed { link }),
            Do::Accept(timeout_ms) => self.accept(timeout_ms, false),
            Do::AcceptReadOnly(timeout_ms) => self.accept(timeout_ms, true),
            Do::Refuse => self.respond(&ConnectResponse::refused(Some(false))),
            Do::Submit(call, request) => self.step(Input::Submit(CallId(call), request)),
            Do::Reply(xid, zxid, result) => {
                let mut bytes = BytesMut::new();
                Reply { xid, zxid, result }.encode(&mut bytes);
                self.step(Input::Received { link, bytes: bytes.freeze() });
            }
            Do::Event(event, path) => {
                let mut bytes = BytesMut::new();
                let zxid = Some(Zxid(0x99));
                WatchEvent { zxid, event, path: path.to_owned() }.encode(&mut bytes);
                self.step(Input::Received { link, bytes: bytes.freeze() });
            }
            Do::Raw(bytes) => self.step(Input::Received { link, bytes: bytes.into() }),
            Do::RawOn(link, bytes) => {
                self.step(Input::Received { link: LinkId(link), bytes: bytes.into() });
            }
            Do::Drop => self.step(Input::Disconnected { link }),
            Do::Close => self.step(Input::Close),
        }
    }

    fn wait(&mut self, until: u64) {
        while let Some(due) = self.session.next_deadline().filter(|due| due.0 <= until) {
            self.now = self.now.max(due);
            self.step(Input::Timeout);
        }
        self.now = Instant(until);
    }

    fn accept(&mut self, timeout_ms: i32, read_only: bool) {
        let (password, read_only) = (*b"0123456789abcdef", Some(read_only));
        self.respond(&ConnectResponse { timeout_ms, session: SESSION, password, read_only });
    }

    fn respond(&mut self, response: &ConnectResponse) {
        let mut bytes = BytesMut::new();
        response.encode(&mut bytes);
        self.step(Input::Received { link: self.link, bytes: bytes.freeze() });
    }

    fn step(&mut self, input: Input) {
        let ms = self.now.0 / 1_000_000;
        writeln!(self.trace, "{ms:>6} {input}").expect("a string");
        let mut out = Outbox::default();
        self.session.step(self.now, input, &mut out);
        for effect in out.effects {
            if let Effect::Send { link, bytes } = effect {
                self.read(link, &bytes);
            } else {
                if let Effect::Dial { link, .. } = effect {
                    self.link = link;
                    self.servers.insert(link, ClientFrames::new(MAX_FRAME_DEFAULT));
                }
                writeln!(self.trace, "         {effect}").expect("a string");
            }
        }
    }

    /// Adds what the server reads to the trace.
    fn read(&mut self, link: LinkId, bytes: &[u8]) {
        let server = self.servers.get_mut(&link).expect("was dialled");
        let mut arrived = BytesMut::from(bytes);
        if !server.is_open() {
            let line = match server.first(&mut arrived).expect("well formed") {
                Some(FirstFrame::Connect(c)) => {
                    let (session, seen, timeout) = (c.session, c.last_zxid_seen, c.timeout_ms);
                    format!("send {link} connect session={session} seen={seen} {timeout}ms")
                }
                Some(FirstFrame::Command(command)) => format!("send {link} {command:?}"),
                None => panic!("no handshake"),
            };
            writeln!(self.trace, "         {line}").expect("a string");
        }
        while !arrived.is_empty()
            && let Some(frame) = server.next(&mut arrived).expect("well formed")
        {
            let (xid, request) = (frame.xid, brief(&frame.request));
            writeln!(self.trace, "         send {link} #{xid} {request}").expect("a string");
        }
        assert!(arrived.is_empty(), "whole frames only");
    }
}

/// The request as text, with long lists of paths replaced by their lengths.
fn brief(request: &Request) -> String {
    if let Request::SetWatches(w) = request
        && w.data.len() + w.exist.len() + w.child.len() > 20
    {
        let (data, exist, child) = (w.data.len(), w.exist.len(), w.child.len());
        let since = w.relative_zxid.expect("a client of ours says it");
        return format!("setWatches since={since} data={data} exist={exist} child={child} paths");
    }
    request.to_string()
}
