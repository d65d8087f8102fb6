//! The connections of a client, frame by frame.
//!
//! Owns what was read and written on each. Must not know calls.

use bytes::{Buf, Bytes, BytesMut};
use zabkeeper_core::wire::{XID_EVENT, XID_SET_WATCHES};

use super::deadlines::Deadlines;
use super::*;
use crate::faults::buggify::FIRES_ONE_IN;
use crate::network::stream::Delivery;

/// State of the client's end of a connection.
pub(super) struct Tap {
    pub(super) link: LinkId,
    pub(super) read: BytesMut,
    /// The beginning of the handshake response, until its timeout can be read.
    head: Option<BytesMut>,
    /// Present once the handshake is answered.
    pub(super) deadlines: Option<Deadlines>,
    pub(super) greeted: bool,
    /// Whether watches of earlier connections were set again. If the client missed the event of a
    /// watch because it may not read the node, it then holds two watches of one path, and the next
    /// event triggers both.
    pub(super) resumed: bool,
    /// Whether the server is only asked for its mode, by a four-letter command instead of frames.
    asks: bool,
}

/// The command that asks a server for its mode.
const QUESTION: &[u8] = b"isro";

impl Client {
    /// The result of a connection attempt.
    pub fn dialled(
        &mut self,
        incarnation: u64,
        link: LinkId,
        conn: Option<ConnId>,
        server: ServerId,
        shared: &mut Shared,
    ) {
        let wanted = incarnation == self.incarnation && self.links.contains_key(&link);
        let Some(conn) = conn else {
            if wanted {
                self.links.remove(&link);
                self.step(Input::DialFailed { link }, shared);
            }
            return;
        };
        if !wanted {
            shared.net.close(shared.now, conn, End::Dialler);
            return shared.schedule_arrivals();
        }
        self.links.insert(link, Some(conn));
        self.conns.insert(
            conn,
            Tap {
                link,
                read: BytesMut::new(),
                head: (self.pings_percent != PING_PERCENT).then(BytesMut::new),
                deadlines: None,
                greeted: false,
                resumed: false,
                asks: false,
            },
        );
        shared.record(&RunEvent::Client(self.id, ClientRunEvent::Connected { conn, server }));
        self.step(Input::Dialled { link }, shared);
    }

    /// A delivery on one of the client's connections.
    pub fn arrive(&mut self, conn: ConnId, delivery: Delivery, shared: &mut Shared) {
        let Some(tap) = self.conns.get_mut(&conn) else {
            return;
        };
        let link = tap.link;
        match delivery {
            Delivery::Nothing | Delivery::Later(_) => {}
            Delivery::Bytes(bytes) if tap.asks => {
                shared.note(Kind::Receive, (self.id.0.into(), conn.0), &bytes, || {
                    format!("client {} <- {conn} mode {bytes:?}", self.id.0)
                });
                self.step(Input::Received { link, bytes }, shared);
            }
            Delivery::Bytes(bytes) => {
                tap.read.extend_from_slice(&bytes);
                if let Some(deadlines) = &mut tap.deadlines {
                    deadlines.received = shared.now;
                }
                let (mut due, mut cut) = (0, false);
                while !cut && let Some(frame) = whole_frame(&mut tap.read) {
                    shared.recorder.counters.counts.frames += 1;
                    let welcomed = tap.deadlines.is_some();
                    // A response to the handshake or to setWatches, or an event with more bytes
                    // behind it.
                    let is = |xid: i32| frame.starts_with(&xid.to_be_bytes());
                    let turns =
                        !welcomed || is(XID_SET_WATCHES) || (is(XID_EVENT) && !tap.read.is_empty());
                    let hops = turns && shared.options.workload.hops;
                    cut = hops && self.rng.chance(1, FIRES_ONE_IN);
                    due += u64::from(welcomed && self.memory.read(&frame));
                    let percent = self.pings_percent;
                    tap.deadlines
                        .get_or_insert_with(|| Deadlines::begin(&frame, percent, shared.now));
                    shared.observe(Observation::ToClient { conn, frame });
                }
                shared.note(Kind::Receive, (self.id.0.into(), conn.0), &bytes, || {
                    format!("client {} <- {conn} {}B", self.id.0, bytes.len())
                });
                // Bytes behind the cut are lost.
                let bytes = if cut { bytes.slice(..bytes.len() - tap.read.len()) } else { bytes };
                let bytes = tap.lengthen(bytes, self.pings_percent);
                let (incarnation, before) = (self.incarnation, self.events);
                self.step(Input::Received { link, bytes }, shared);
                // The library delivers nothing more once the session or the connection is closed.
                let knows =
                    self.conns.get(&conn).is_some_and(|tap| !tap.resumed) && !self.runs_program();
                if incarnation == self.incarnation && knows {
                    let delivered = self.events - before;
                    let all = (delivered == due).then_some(()).ok_or_else(|| {
                        format!("client {}: of {due} events {delivered} are passed on", self.id.0)
                    });
                    shared.check(Check::MEMORY, all);
                }
                if cut {
                    self.arrive(conn, Delivery::Reset, shared);
                }
            }
            Delivery::Closed | Delivery::Reset => {
                let lost = ClientRunEvent::ConnLost { conn, why: &delivery };
                shared.record(&RunEvent::Client(self.id, lost));
                self.conns.remove(&conn);
                self.links.remove(&link);
                shared.net.close(shared.now, conn, End::Dialler);
                shared.schedule_arrivals();
                self.step(Input::Disconnected { link }, shared);
            }
        }
    }

    pub(super) fn send(&mut self, link: LinkId, bytes: Bytes, shared: &mut Shared) {
        let Some(Some(conn)) = self.links.get(&link).copied() else {
            return;
        };
        let tap = self.conns.get_mut(&conn);
        let asks = tap.is_some_and(|tap| {
            tap.asks = &bytes[..] == QUESTION;
            tap.asks
        });
        if !asks {
            self.send_frames(conn, &bytes, shared);
        }
        shared.recorder.counters.counts.bytes += bytes.len() as u64;
        if let Some(deadlines) = self.conns.get_mut(&conn).and_then(|tap| tap.deadlines.as_mut()) {
            deadlines.sent = shared.now;
        }
        shared.note(Kind::Send, (self.id.0.into(), conn.0), &bytes, || {
            format!("client {} -> {conn} {}B", self.id.0, bytes.len())
        });
        shared.net.send(shared.now, conn, End::Dialler, bytes);
        shared.schedule_arrivals();
    }

    /// Observes each frame that is sent.
    fn send_frames(&mut self, conn: ConnId, bytes: &Bytes, shared: &mut Shared) {
        let mut written = BytesMut::from(&bytes[..]);
        while let Some(frame) = whole_frame(&mut written) {
            let tap = self.conns.get_mut(&conn);
            if let Some(tap) = tap {
                tap.resumed |= frame.starts_with(&XID_SET_WATCHES.to_be_bytes());
                if !std::mem::replace(&mut tap.greeted, true) {
                    let greeting = self.memory.greet(&frame);
                    let greeting = greeting.map_err(|why| format!("client {} {why}", self.id.0));
                    shared.check(Check::MEMORY, greeting);
                }
            }
            shared.observe(Observation::ToServer { conn, frame });
        }
        let whole = if written.is_empty() { Ok(()) } else { Err("half a frame".to_owned()) };
        shared.check(Check::SIMULATOR, whole);
    }
}

impl Tap {
    /// The bytes that the library receives. For a client that pings late, the timeout in the
    /// handshake response is lengthened: the library pings after a third of it and disconnects
    /// after two thirds.
    fn lengthen(&mut self, bytes: Bytes, percent: u32) -> Bytes {
        let Some(head) = &mut self.head else {
            return bytes;
        };
        head.extend_from_slice(&bytes);
        let Some(timeout) = head.get_mut(TIMEOUT_AT..TIMEOUT_AT + 4) else {
            return Bytes::new();
        };
        let granted = i32::from_be_bytes(timeout.try_into().expect("four bytes"));
        timeout.copy_from_slice(&lengthened(granted, percent).to_be_bytes());
        self.head.take().map(BytesMut::freeze).unwrap_or_default()
    }
}

/// Offset of the timeout in the handshake response, behind its length and the version.
const TIMEOUT_AT: usize = 8;

/// The timeout whose third is about `percent` of the granted one, ms. The library's own share is
/// left alone.
pub(super) fn lengthened(granted_ms: i32, percent: u32) -> i32 {
    if percent == PING_PERCENT {
        return granted_ms;
    }
    let longer = i64::from(granted_ms) * i64::from(percent) * 3 / 100;
    i32::try_from(longer).unwrap_or(i32::MAX)
}

/// Splits off the next complete frame, without its length. An invalid length stays in the buffer.
pub(crate) fn whole_frame(buffer: &mut BytesMut) -> Option<Bytes> {
    let head = buffer.first_chunk::<4>()?;
    let length = usize::try_from(i32::from_be_bytes(*head)).ok()?;
    if buffer.len() - 4 < length {
        return None;
    }
    buffer.advance(4);
    Some(buffer.split_to(length).freeze())
}
