//! The zxids that the client library must remember (HS-05) and the events that it must deliver,
//! observed on the wire.
//!
//! Owns the highest zxid in replies to a client. Must not rely on the library's own state.

use bytes::{Buf, Bytes};
use zabkeeper_core::Zxid;
use zabkeeper_core::wire::{ConnectRequest, XID_AUTH, XID_EVENT, XID_PING};

/// The last zxid that a client has seen.
#[derive(Default)]
pub(super) struct Memory {
    seen: Zxid,
}

impl Memory {
    /// Reads a frame after the handshake. Returns whether it is an event with a zxid; the library
    /// delivers each of those, since it holds every watch that its server does.
    pub(super) fn read(&mut self, frame: &Bytes) -> bool {
        let mut frame = frame.clone();
        if frame.len() < 12 {
            return false;
        }
        let (xid, zxid) = (frame.get_i32(), Zxid::from_wire(frame.get_i64()));
        // Clients ignore the zxid of events and of ping replies.
        if !matches!(xid, XID_AUTH | XID_EVENT | XID_PING) {
            self.seen = self.seen.max(zxid);
        }
        xid == XID_EVENT && zxid > Zxid::ZERO
    }

    /// Checks the first frame on a connection: a client that reports less than it has seen could be
    /// accepted by a server that is behind.
    pub(super) fn greet(&self, frame: &Bytes) -> Result<(), String> {
        match ConnectRequest::decode(frame.clone()) {
            Ok(hello) if hello.last_zxid_seen >= self.seen => Ok(()),
            Ok(hello) => {
                let (claimed, seen) = (hello.last_zxid_seen, self.seen);
                Err(format!("says that it has seen {claimed}, and answers have named {seen}"))
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

    /// HS-05.
    #[test]
    fn client_reports_highest_zxid_of_replies() {
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
