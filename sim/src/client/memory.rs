//! What the client library keeps of a session, seen from outside: how far it has seen (HS-05), and who hears of events.
//!
//! Owns the highest zxid that answers have named to a client. Must not believe what the library says of itself.

use bytes::{Buf, Bytes};
use zabkeeper_core::Zxid;
use zabkeeper_core::wire::{ConnectRequest, XID_AUTH, XID_EVENT, XID_PING};

/// How far a client has seen.
#[derive(Default)]
pub(super) struct Memory {
    seen: Zxid,
}

impl Memory {
    /// A frame behind the handshake has been read. Is it an event that tells of a transaction? The library passes each of
    /// those on: it holds every watch that its server does.
    pub(super) fn read(&mut self, frame: &Bytes) -> bool {
        let mut frame = frame.clone();
        if frame.len() < 12 {
            return false;
        }
        let (xid, zxid) = (frame.get_i32(), Zxid::from_wire(frame.get_i64()));
        // The zxid of an event, and those of answers to pings, are none that clients go by.
        if !matches!(xid, XID_AUTH | XID_EVENT | XID_PING) {
            self.seen = self.seen.max(zxid);
        }
        xid == XID_EVENT && zxid > Zxid::ZERO
    }

    /// The first frame on a connection. Who says less than it has seen is taken by servers that are behind.
    pub(super) fn greet(&self, frame: &Bytes) -> Result<(), String> {
        match ConnectRequest::decode(frame.clone()) {
            Ok(hello) if hello.last_zxid_seen >= self.seen => Ok(()),
            Ok(hello) => {
                let (said, seen) = (hello.last_zxid_seen, self.seen);
                Err(format!("says that it has seen {said}, and answers have named {seen}"))
            }
            Err(error) => Err(format!("its handshake cannot be read: {error}")),
        }
    }
}

#[cfg(test)]
mod tests {
    use bytes::{BufMut, BytesMut};

    use super::*;

    fn read(memory: &mut Memory, xid: i32, zxid: i64) -> bool {
        let mut frame = BytesMut::new();
        frame.put_i32(xid);
        frame.put_i64(zxid);
        frame.put_i32(0);
        memory.read(&frame.freeze())
    }

    fn hello(last_zxid_seen: Zxid) -> Bytes {
        let mut frame = BytesMut::new();
        let password = Bytes::new();
        let session = zabkeeper_core::SessionId(1);
        ConnectRequest { last_zxid_seen, timeout_ms: 1, session, password, read_only: None }
            .encode(&mut frame);
        frame.advance(4);
        frame.freeze()
    }

    #[test]
    fn hs_05_a_client_remembers_what_answers_have_named() {
        let mut memory = Memory::default();
        for (xid, zxid, event) in [
            (1, 7, false),
            (XID_PING, 9, false),
            (XID_EVENT, 8, true),
            (XID_EVENT, -1, false),
            (2, -1, false),
        ] {
            assert_eq!(read(&mut memory, xid, zxid), event, "{xid} {zxid}");
        }
        assert_eq!(memory.greet(&hello(Zxid(7))), Ok(()));
        assert!(memory.greet(&hello(Zxid(6))).is_err());
        assert!(memory.greet(&Bytes::from_static(b"no")).is_err());
    }
}
